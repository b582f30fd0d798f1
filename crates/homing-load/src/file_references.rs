//! Replaces `{file:path}` in the prompts of OpenCode's and Kilo's configuration by the contents of the file, as those
//! programs do. Only files of the project are read: a cloned repository must not send other files to a provider.

use std::path::{Path, PathBuf};

use homing_core::diagnostic::Diagnostic;
use memchr::memmem;

use crate::{discover::repository, file, parse::Parsed};

/// The maximum number of references in one agent.
const MAX_REFERENCES: usize = 16;
const OPENING: &str = "{file:";

/// Replaces the references in the prompts of a file at `path` with the text `source`. An agent whose reference cannot be
/// read is removed, because its prompt would mean something else.
pub(crate) fn expand(parsed: &mut Parsed, path: &Path, source: &str, project: Option<&Path>) {
    let folder = path.parent().unwrap_or(Path::new(""));
    let root = project.map_or_else(|| project_of(folder), Path::to_owned);
    let Parsed { definitions, diagnostics, .. } = parsed;
    definitions.retain_mut(|definition| match filled(&definition.prompt, folder, &root) {
        Ok(None) => true,
        Ok(Some(prompt)) => {
            definition.prompt = prompt;
            true
        }
        Err(Unreadable { reference, reason }) => {
            let (line, column) = position(source, &reference);
            let message = format!("agent {}: `{reference}}}` {reason}", definition.name);
            let path = Some(std::sync::Arc::new(path.to_owned()));
            let diagnostic =
                Diagnostic::error(message).at(line, column).on("prompt").hint("name a text file of the project");
            diagnostics.push(diagnostic.path(path));
            false
        }
    });
}

/// Returns true if files of this dialect may refer to others.
pub(crate) fn may_contain(dialect: &str, source: &[u8]) -> bool {
    matches!(dialect, "opencode" | "kilo") && memmem::find(source, OPENING.as_bytes()).is_some()
}

fn project_of(folder: &Path) -> PathBuf {
    let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    repository(&whole).unwrap_or(&whole).to_owned()
}

struct Unreadable {
    reference: String,
    reason: String,
}

/// Returns the prompt with all references replaced; `None` if it has none. Inserted text is not expanded again.
fn filled(prompt: &str, folder: &Path, root: &Path) -> Result<Option<String>, Unreadable> {
    let mut parts = prompt.split(OPENING);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for part in parts {
        let Some((reference, rest)) = part.split_once('}') else {
            text.push_str(OPENING);
            text.push_str(part);
            continue;
        };
        count += 1;
        let unreadable = |reason: String| Unreadable { reference: format!("{OPENING}{reference}"), reason };
        if count > MAX_REFERENCES {
            return Err(unreadable(format!("is one of more than {MAX_REFERENCES} references")));
        }
        let body = file::read_inside(&folder.join(reference.trim()), root).map_err(unreadable)?;
        let body = String::from_utf8(body).map_err(|_| unreadable("is not UTF-8 text".to_owned()))?;
        text.push_str(body.trim());
        text.push_str(rest);
    }
    Ok((count > 0).then_some(text))
}

/// The line and column of a reference.
fn position(source: &str, reference: &str) -> (u32, u32) {
    let Some(at) = source.find(reference) else { return (1, 1) };
    let line = source[..at].matches('\n').count() + 1;
    let column = source[..at].rsplit('\n').next().map_or(0, |before| before.chars().count()) + 1;
    (u32::try_from(line).unwrap_or(1), u32::try_from(column).unwrap_or(1))
}
