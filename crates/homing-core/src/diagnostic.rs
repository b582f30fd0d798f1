//! Diagnostics about files: severity, position, message and hint.

use std::{fmt, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file loads as intended, apart from a feature that Homing does not have.
    Info,
    /// The file loads; something was repaired, ignored or replaced.
    Warning,
    /// The file contains no usable definition.
    Error,
}

/// One diagnostic about one position in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// The file, if there is one.
    pub path: Option<Arc<PathBuf>>,
    /// Line, from 1; 0 if the diagnostic concerns the whole file.
    pub line: u32,
    /// Column in characters, from 1; 0 if the diagnostic concerns the whole line.
    pub column: u32,
    /// The front-matter field that it concerns.
    pub field: Option<String>,
    /// The message.
    pub message: String,
    /// A suggestion for fixing it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Creates a warning without a position; [`Self::at`] and [`Self::on`] add one.
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

    /// Creates an informational diagnostic without a position.
    pub fn info(message: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::warning(message) }
    }

    /// Creates an error without a position.
    pub fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::warning(message) }
    }

    /// Sets the position in the file.
    #[must_use]
    pub fn at(mut self, line: u32, column: u32) -> Self {
        (self.line, self.column) = (line, column);
        self
    }

    /// Sets the field.
    #[must_use]
    pub fn on(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets the hint.
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
