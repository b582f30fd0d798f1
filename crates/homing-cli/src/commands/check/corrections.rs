//! Corrections of files: shown as differences first, then written.

use std::io::{self, Write};

use homing_core::{
    diagnostic::{Diagnostic, Severity},
    sanitize,
};
use homing_load::{CheckReport, FixedFile};
use serde_json::{Value, json};
use similar::TextDiff;

use super::{diagnostic_as_json, show};
use crate::terminal;

/// The files that can be corrected, and what became of them.
pub(super) struct Corrections {
    files: Vec<(FixedFile, Written)>,
}

enum Written {
    NotYet,
    Done,
    Failed(String),
}

impl Corrections {
    pub(super) fn of(report: &CheckReport) -> Self {
        Self { files: report.fixed_files().into_iter().map(|file| (file, Written::NotYet)).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns true if a file was not corrected.
    pub(super) fn is_unfinished(&self) -> bool {
        self.files.iter().any(|(_, written)| !matches!(written, Written::Done))
    }

    /// Returns the number of corrections and files.
    pub(super) fn count(&self) -> String {
        let fixes = self.files.iter().map(|(file, _)| file.fixed.len()).sum();
        format!("{} in {}", show::counted(fixes, "fix"), show::counted(self.files.len(), "file"))
    }

    pub(super) fn question(&self) -> String {
        format!("Apply {}? [y/N] ", self.count())
    }

    /// Prints each file as a unified diff.
    pub(super) fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        self.files.iter().try_for_each(|(file, _)| write!(out, "{}", difference(file)))
    }

    /// Writes the files. One that cannot be written is named on stderr and stays as it is.
    pub(super) fn apply(&mut self) {
        for (file, written) in &mut self.files {
            *written = match file.write() {
                Ok(()) => Written::Done,
                Err(error) => {
                    terminal::say(&format!("{}: {error}", file.path.display()));
                    Written::Failed(error.to_string())
                }
            };
        }
        let done = self.files.iter().filter(|(_, written)| matches!(written, Written::Done));
        let (count, fixes) = done.fold((0, 0), |(count, fixes), (file, _)| (count + 1, fixes + file.fixed.len()));
        terminal::say(&format!("applied {} in {}", show::counted(fixes, "fix"), show::counted(count, "file")));
    }

    pub(super) fn as_json(&self) -> Value {
        let file = |(file, written): &(FixedFile, Written)| {
            let error = match written {
                Written::Failed(error) => Some(error),
                Written::NotYet | Written::Done => None,
            };
            json!({
                "path": file.path.display().to_string(),
                "fixed": file.fixed.iter().map(diagnostic_as_json).collect::<Vec<_>>(),
                "diff": difference(file),
                "applied": matches!(written, Written::Done),
                "error": error,
            })
        };
        self.files.iter().map(file).collect()
    }
}

/// Returns the changes of a file as a unified diff. It is for reading: control characters are replaced.
fn difference(file: &FixedFile) -> String {
    let at_file = Diagnostic::info("").path(Some(file.path.clone().into()));
    let path = show::shown(&at_file.severity(Severity::Info));
    let (before, after) = (file.before.replace("\r\n", "\n"), file.after.replace("\r\n", "\n"));
    let diff = TextDiff::from_lines(&before, &after);
    let path = path.trim_start_matches('/');
    let text = diff.unified_diff().header(&format!("a/{path}"), &format!("b/{path}")).to_string();
    format!("{}\n", sanitize::inert(text.trim_end_matches('\n')))
}
