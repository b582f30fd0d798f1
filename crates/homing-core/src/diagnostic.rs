//! What a reader of files has to say about them: where, what, and what to do.

use std::{fmt, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file loads as it was meant, except for something that does not exist here.
    Info,
    /// The file loads; something was repaired, ignored or replaced.
    Warning,
    /// The file gives no definition.
    Error,
}

/// One remark about one place in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// The file, where there is one.
    pub path: Option<Arc<PathBuf>>,
    /// Line, from 1; 0 where the remark is about the whole file.
    pub line: u32,
    /// Column in characters, from 1; 0 where the remark is about the whole line.
    pub column: u32,
    /// The front-matter field it is about.
    pub field: Option<String>,
    /// What is the matter.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A warning without a place; chain [`Self::at`] and [`Self::on`] to give it one.
    pub fn warning(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            path: None,
            line: 0,
            column: 0,
            field: None,
            message: message.into(),
            hint: None,
        }
    }

    /// A piece of information without a place.
    pub fn info(message: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::warning(message) }
    }

    /// An error without a place.
    pub fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::warning(message) }
    }

    /// Says where in the file.
    #[must_use]
    pub fn at(mut self, line: u32, column: u32) -> Self {
        (self.line, self.column) = (line, column);
        self
    }

    /// Says which field.
    #[must_use]
    pub fn on(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}:", path.display())?;
        }
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        let severity = match self.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, " {severity}: {}", self.message)
    }
}
