//! Collects what there is to say about one file while it is read.
//! It knows places and words, not what the file means.

use std::{path::Path, path::PathBuf, sync::Arc};

use homing_core::diagnostic::{Diagnostic, Severity};

use crate::node::Position;

/// What there is to say about one file.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The file loads as it was meant; this is good to know.
    pub(crate) fn info(&mut self, spot: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.push(Diagnostic::info(message), spot, field, hint);
    }

    /// The file loads, but somebody should know this.
    pub(crate) fn warn(&mut self, spot: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.push(Diagnostic::warning(message), spot, field, hint);
    }

    /// The file gives no definition, for this reason.
    pub(crate) fn error(&mut self, spot: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.push(Diagnostic::error(message), spot, field, hint);
    }

    /// The same remark on the same place is made once.
    pub(crate) fn once(&mut self, severity: Severity, spot: Position, field: &str, message: String) {
        let said = |it: &Diagnostic| (it.line, it.column, &it.message) == (spot.line, spot.column, &message);
        if !self.list.iter().any(said) {
            self.push(Diagnostic { severity, ..Diagnostic::warning(message) }, spot, field, "");
        }
    }

    fn push(&mut self, diagnostic: Diagnostic, spot: Position, field: &str, hint: &str) {
        let mut diagnostic = diagnostic.at(spot.line, spot.column);
        diagnostic.field = Some(field.to_owned()).filter(|it| !it.is_empty());
        diagnostic.hint = Some(hint.to_owned()).filter(|it| !it.is_empty());
        self.list.push(diagnostic);
    }

    /// Whether anything so far keeps the file from giving a definition.
    pub(crate) fn has_error(&self) -> bool {
        self.list.iter().any(|it| it.severity == Severity::Error)
    }

    /// How many remarks there are; a mark for [`Self::has_error_since`].
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether one of the remarks after the first `mark` is an error.
    pub(crate) fn has_error_since(&self, mark: usize) -> bool {
        self.list[mark..].iter().any(|it| it.severity == Severity::Error)
    }

    /// Strict mode: what was repaired is refused.
    pub(crate) fn refuse_repairs(&mut self) {
        for diagnostic in self.list.iter_mut().filter(|it| it.severity == Severity::Warning) {
            diagnostic.severity = Severity::Error;
        }
    }

    /// The remarks in the order of their places, each with the file's path.
    pub(crate) fn into_diagnostics(mut self, path: Option<&Path>) -> Vec<Diagnostic> {
        if self.list.is_empty() {
            return self.list;
        }
        let path: Option<Arc<PathBuf>> = path.map(|it| Arc::new(it.to_owned()));
        for diagnostic in &mut self.list {
            diagnostic.path.clone_from(&path);
        }
        self.list.sort_by_key(|it| (it.line, it.column));
        self.list
    }
}
