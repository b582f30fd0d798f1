//! Loads script files into teams.

use std::path::Path;

use homing_core::diagnostic::Diagnostic;

use super::{Script, meta::Meta};
use crate::team::Team;

/// The largest accepted size of a script.
const MAX_BYTES: usize = 512 << 10;

/// Returns whether a file is a workflow script by its name.
pub(crate) fn is_script(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "js" || extension == "mjs")
}

/// The team of a script, or its mistakes. The name of the file is the name of a script that has none.
pub(crate) fn load(text: &str, path: &Path) -> Result<Team, Diagnostic> {
    if text.len() > MAX_BYTES {
        return Err(Diagnostic::error(format!("the script is larger than {} KiB", MAX_BYTES >> 10)));
    }
    let (meta, _) = Meta::parse(text).map_err(|error| {
        let (line, column) = error.position;
        Diagnostic::error(error.message).at(line, column)
    })?;
    compile(text)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = if meta.name.trim().is_empty() { &*stem } else { &meta.name };
    let description = match &meta.when_to_use {
        Some(when) => format!("{} {when}", meta.description),
        None => meta.description,
    };
    let mut script = Script::new(text);
    script.path = path.display().to_string();
    Ok(Team::script(team_name(name), script).description(description).limits(meta.limits))
}

/// A name as agents have them: Claude Code accepts any text.
fn team_name(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    let parts = lower.split(|char: char| !char.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-")
}

#[cfg(feature = "scripts")]
fn compile(text: &str) -> Result<(), Diagnostic> {
    super::engine::compile(text).map_err(|error| {
        let (line, column) = error.position().unwrap_or((1, 1));
        let hint = "scripts are plain JavaScript: TypeScript is not understood";
        let hint = error.message().starts_with("SyntaxError").then(|| hint.to_owned());
        let mut diagnostic = Diagnostic::error(error.message()).at(line, column);
        diagnostic.hint = hint;
        diagnostic
    })
}

/// Nothing can compile it; the check of the team says so.
#[cfg(not(feature = "scripts"))]
fn compile(_: &str) -> Result<(), Diagnostic> {
    Ok(())
}
