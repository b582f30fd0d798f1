//! Collects the diagnostics of one file while it is read.

use std::{path::Path, path::PathBuf, sync::Arc};

use homing_core::diagnostic::{Diagnostic, Severity};

use crate::{
    fix::{FixDraft, Syntax},
    node::Position,
    references::FileNotes,
};

/// The diagnostics of one file.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Fixes of diagnostics, by their index in the list.
    fixes: Vec<(usize, FixDraft)>,
    /// Notes on the text of the file, if they are asked for.
    pub(crate) notes: Option<FileNotes>,
}

impl Diagnostics {
    /// Adds a remark that needs no action.
    pub(crate) fn info(&mut self, position: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.push(Diagnostic::info(message), position, field, hint);
    }

    /// Adds a problem that does not prevent the file from loading.
    pub(crate) fn warn(&mut self, position: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.push(Diagnostic::warning(message), position, field, hint);
    }

    /// Adds the reason why the file defines no agent.
    pub(crate) fn error(&mut self, position: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.push(Diagnostic::error(message), position, field, hint);
    }

    /// Adds a fix to the last diagnostic.
    pub(crate) fn fix(&mut self, fix: FixDraft) {
        if let Some(last) = self.list.len().checked_sub(1) {
            self.fixes.push((last, fix));
        }
    }

    /// Names the rule of the last diagnostic.
    pub(crate) fn rule(&mut self, rule: &'static str) {
        if let Some(last) = self.list.last_mut() {
            last.rule = Some(rule.into());
        }
    }

    /// Adds a diagnostic unless the same one exists for the same position.
    pub(crate) fn once(&mut self, severity: Severity, position: Position, field: &str, message: String) {
        let is_same = |other: &Diagnostic| {
            (other.line, other.column, &other.message) == (position.line, position.column, &message)
        };
        if !self.list.iter().any(is_same) {
            self.push(Diagnostic::warning(message).severity(severity), position, field, "");
        }
    }

    fn push(&mut self, diagnostic: Diagnostic, position: Position, field: &str, hint: &str) {
        let mut diagnostic = diagnostic.at(position.line, position.column);
        diagnostic.field = Some(field.to_owned()).filter(|field| !field.is_empty());
        diagnostic.hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        self.list.push(diagnostic);
    }

    /// Returns true if there is an error.
    pub(crate) fn has_error(&self) -> bool {
        self.has_error_since(0)
    }

    /// The number of diagnostics, as a mark for [`Self::has_error_since`].
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there is an error after the first `mark` diagnostics.
    pub(crate) fn has_error_since(&self, mark: usize) -> bool {
        self.list[mark..].iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Turns warnings into errors, for strict mode.
    pub(crate) fn refuse_repairs(&mut self) {
        for diagnostic in self.list.iter_mut().filter(|diagnostic| diagnostic.severity == Severity::Warning) {
            diagnostic.severity = Severity::Error;
        }
    }

    /// The diagnostics in the order of their positions, each with the path of the file. Fixes need the file's decoded text.
    pub(crate) fn into_diagnostics(mut self, path: Option<&Path>, text: Option<&str>) -> Vec<Diagnostic> {
        if self.list.is_empty() {
            return self.list;
        }
        if let (Some(text), false) = (text, self.fixes.is_empty()) {
            let lines: Vec<&str> = text.split('\n').collect();
            let syntax = path.map_or(Syntax::Json, |path| Syntax::of(path, text));
            for (index, fix) in &self.fixes {
                self.list[*index].fix = fix.resolve(&lines, syntax).map(Box::new);
            }
        }
        let path: Option<Arc<PathBuf>> = path.map(|path| Arc::new(path.to_owned()));
        for diagnostic in &mut self.list {
            diagnostic.path.clone_from(&path);
        }
        self.list.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        self.list
    }
}
