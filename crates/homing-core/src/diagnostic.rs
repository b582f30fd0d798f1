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
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::diagnostic::{Diagnostic, Severity}; }
/// use homing::{Diagnostic, Severity};
///
/// let diagnostic = Diagnostic::warning("unknown key `tool`: ignored").at(3, 1).hint("did you mean `tools`?");
/// assert_eq!((diagnostic.severity, diagnostic.line), (Severity::Warning, 3));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// The rule that it violates, for programs: `unknown-key`. [`Self::rule`] derives one if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Box<str>>,
    /// A correction that a program can make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Box<Fix>>,
}

/// A correction of a file that a program can make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fix {
    /// The change in the imperative: `rename to description`.
    pub title: String,
    /// Changes of the text, in the order of their positions, without overlaps.
    pub edits: Vec<TextEdit>,
    /// Fields of the definition, as in its JSON form, that may change with it. All others stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// The replacement of a part of a file. Lines and columns are counted as in [`Diagnostic`]; a byte order mark has no column, and
/// each line break is one character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextEdit {
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// Column after the last character.
    pub end_column: u32,
    /// New text, with `\n` as line break.
    pub text: String,
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
            rule: None,
            fix: None,
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

    /// Sets the rule.
    #[must_use]
    pub fn rule_id(mut self, rule: impl Into<Box<str>>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// Returns the rule that it violates, or else one that is derived from its message.
    pub fn rule(&self) -> String {
        self.rule.as_deref().map_or_else(|| slug(&self.template()), str::to_owned)
    }

    /// Returns the message without the names that it quotes and without numbers, so that findings of one kind can be grouped.
    pub fn template(&self) -> String {
        let pieces = self.message.split('`').enumerate();
        let text: String = pieces.map(|(at, piece)| if at % 2 == 0 { piece } else { "`…`" }).collect();
        let mut template = String::with_capacity(text.len());
        for character in text.chars() {
            if !character.is_ascii_digit() {
                template.push(character);
            } else if !template.ends_with('…') {
                template.push('…');
            }
        }
        template
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The words of a message in lower case, joined with hyphens.
fn slug(message: &str) -> String {
    const MAX_WORDS: usize = 6;
    let clause = message.split([':', ';', '(', ',']).next().unwrap_or(message);
    let words = clause.split(|character: char| !character.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.take(MAX_WORDS).map(str::to_lowercase).collect::<Vec<_>>().join("-")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_of_a_message_does_not_depend_on_names() {
        let one = Diagnostic::warning("unknown tool `Raed`: ignored");
        let other = Diagnostic::warning("unknown tool `Grpe`: ignored");
        assert_eq!((one.rule(), one.template()), (other.rule(), other.template()));
        assert_eq!(one.rule(), "unknown-tool");
        let (few, many) = (Diagnostic::info("like 2 more"), Diagnostic::info("like 1234 more"));
        assert_eq!((few.rule(), few.template()), (many.rule(), many.template()));
        assert_eq!(few.template(), "like … more");
        assert_eq!(one.rule_id("tool").rule(), "tool");
    }
}
