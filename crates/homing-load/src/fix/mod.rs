//! Corrects files: applies the fixes of diagnostics one by one, and keeps each only if the corrected file means the same.

mod draft;
mod text_edits;
mod write;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::Scope,
    diagnostic::{Diagnostic, Fix},
};
use serde_json::{Value, json};

pub(crate) use draft::{FixDraft, Syntax, yaml_block};
pub(crate) use text_edits::{apply, edit};

use crate::{
    dialect,
    discover::{load_bytes, load_found, repository},
    file,
    parse::{self, FileKind, ParseOptions, ParsedFile, is_skill},
    references::Reference,
    skills::{body_of, parse_card},
};

/// Fixes of one file that are applied; more are left for the next time.
const MAX_FIXES: usize = 200;

/// A file and its corrected text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FixedFile {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub before: String,
    /// Its corrected text.
    pub after: String,
    /// The diagnostics that no longer apply, in the order in which they were fixed.
    pub fixed: Vec<Diagnostic>,
    /// The folder that the file must not be outside of.
    root: PathBuf,
}

impl FixedFile {
    /// Writes the corrected text, atomically and with the mode of the file.
    ///
    /// # Errors
    /// Fails if the file changed since it was read, is a symbolic link or outside of the folder that was checked, or cannot be
    /// written.
    pub fn write(&self) -> io::Result<()> {
        write::replace(&self.path, &self.root, self.before.as_bytes(), self.after.as_bytes())
    }
}

/// A file that was checked, as it is loaded again after a fix.
#[derive(Clone, Debug)]
pub(crate) struct CheckedFile {
    pub(crate) path: PathBuf,
    pub(crate) found: ParsedFile,
    /// The folder that was checked.
    pub(crate) root: PathBuf,
    pub(crate) tools: Vec<String>,
}

/// The meaning of a file and its diagnostics.
struct Meaning {
    definitions: Vec<Value>,
    diagnostics: Vec<Diagnostic>,
}

impl CheckedFile {
    /// A file that the user named.
    pub(crate) fn of(path: &Path, options: &ParseOptions) -> Self {
        let root = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let (path, root) = (path.to_owned(), root.to_owned());
        Self { path, found: ParsedFile::Named, root, tools: options.tools.clone() }
    }

    /// The reason why a file that the user named is not loaded by its place, although its folder is searched.
    pub(crate) fn not_loaded_here(&self, options: &ParseOptions) -> Option<String> {
        let whole = std::path::absolute(&self.path).ok()?;
        let dialect = dialect::by_path(&whole).filter(|_| matches!(self.found, ParsedFile::Named))?;
        if !dialect::is_searched(&whole) {
            return None;
        }
        let real = std::fs::canonicalize(&whole).ok()?;
        let folder = std::fs::canonicalize(whole.parent()?).ok()?;
        if repository(&folder).is_some_and(|root| !real.starts_with(root)) {
            return Some("it is a symbolic link out of the project".to_owned());
        }
        match load_found(&whole, ParsedFile::Among(dialect), Scope::Project, None, options).what {
            FileKind::Other(reason) => Some(format!("it is read as {reason}")),
            FileKind::Agent | FileKind::Skill => None,
        }
    }

    /// The names in the file that refer to something else.
    pub(crate) fn references(&self) -> Vec<(Arc<PathBuf>, Reference)> {
        let Ok(bytes) = file::read(&self.path) else { return Vec::new() };
        let options = ParseOptions { strict: false, tools: self.tools.clone() };
        let path = Arc::new(self.path.clone());
        let references = parse::notes(&self.path, &bytes, self.found, &options).references.into_iter();
        references.map(|reference| (path.clone(), reference)).collect()
    }

    /// Removes the fixes that would change the meaning of the file, or would leave their diagnostic in place. Returns true if one
    /// is left.
    pub(crate) fn keep_valid_fixes(&self, diagnostics: &mut [Diagnostic]) -> bool {
        let text = self.text();
        let before = text.as_ref().map(|text| self.load(text));
        let is_valid = |fix: &Fix| Some(self.attempt(text.as_ref()?, before.as_ref()?, fix).is_some());
        let mut is_fixable = false;
        // What a role of Codex says is about another file.
        for diagnostic in diagnostics.iter_mut().filter(|diagnostic| diagnostic.path.as_deref() == Some(&self.path)) {
            diagnostic.fix = diagnostic.fix.take().filter(|fix| is_valid(fix) == Some(true));
            is_fixable |= diagnostic.fix.is_some();
        }
        is_fixable
    }

    /// Applies all fixes that keep the meaning; `None` if there are none.
    pub(crate) fn fixed(&self) -> Option<FixedFile> {
        let before = self.text()?;
        let (mut after, mut fixed) = (before.clone(), Vec::new());
        let mut meaning = self.load(&after);
        while fixed.len() < MAX_FIXES {
            // Each fix moves the text behind it, so the file is loaded again after each. What a misspelt key says comes first: it
            // may be what another fix would derive.
            let fixes =
                meaning.diagnostics.iter().filter_map(|diagnostic| Some((diagnostic, diagnostic.fix.as_ref()?)));
            let (named, derived): (Vec<_>, Vec<_>) = fixes.partition(|(_, fix)| !fix.changes.is_empty());
            let mut fixes = named.into_iter().chain(derived);
            let next = fixes.find_map(|(diagnostic, fix)| Some((diagnostic, self.attempt(&after, &meaning, fix)?)));
            let Some((diagnostic, (text, new))) = next else { break };
            fixed.push(diagnostic.clone());
            (after, meaning) = (text, new);
        }
        let (path, root) = (self.path.clone(), self.root.clone());
        (!fixed.is_empty()).then_some(FixedFile { path, before, after, fixed, root })
    }

    /// Applies one fix. Returns the text and its meaning if the meaning stays the same, apart from the fields that the fix names,
    /// and there are fewer diagnostics.
    fn attempt(&self, text: &str, before: &Meaning, fix: &Fix) -> Option<(String, Meaning)> {
        let text = apply(text, 1, &fix.edits)?;
        let after = self.load(&text);
        // Without a definition there is no meaning to compare.
        let is_same = !before.definitions.is_empty()
            && before.definitions.len() == after.definitions.len()
            && before.definitions.iter().zip(&after.definitions).all(|(old, new)| is_equal(old, new, &fix.changes));
        (is_same && after.diagnostics.len() < before.diagnostics.len()).then_some((text, after))
    }

    /// The text of the file, with its line ends and byte order mark.
    fn text(&self) -> Option<String> {
        String::from_utf8(file::read(&self.path).ok()?).ok()
    }

    fn load(&self, text: &str) -> Meaning {
        let bytes = text.as_bytes();
        if is_skill_file(&self.path) {
            let (card, diagnostics) = parse_card(&self.path, Scope::Project, bytes);
            let meaning = |card| json!({"card": format!("{card:?}"), "body": body_of(text)});
            return Meaning { definitions: card.map(meaning).into_iter().collect(), diagnostics };
        }
        let options = ParseOptions { strict: false, tools: self.tools.clone() };
        let mut parsed = load_bytes(&self.path, bytes, self.found, Scope::Project, None, &options, None);
        parsed.diagnostics.retain(|diagnostic| diagnostic.path.as_deref() == Some(&self.path));
        let definitions = parsed.definitions.iter().filter_map(|definition| serde_json::to_value(definition).ok());
        Meaning { definitions: definitions.collect(), diagnostics: parsed.diagnostics }
    }
}

/// Returns true if two definitions are equal, apart from `changes`.
fn is_equal(old: &Value, new: &Value, changes: &[String]) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let keys = old.keys().chain(new.keys()).filter(|key| !changes.contains(key));
    keys.into_iter().all(|key| old.get(key) == new.get(key))
}

/// Returns true for the file of a skill: `SKILL.md`, or a single file in a folder of skills.
pub(crate) fn is_skill_file(path: &Path) -> bool {
    let is_markdown = path.extension().is_some_and(|extension| extension == "md");
    let is_single = path.parent().is_some_and(|parent| parent.ends_with("skills"));
    is_skill(path) || (is_single && is_markdown)
}
