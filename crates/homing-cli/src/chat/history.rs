//! The messages that the user has sent before, kept in a file that only the user can read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Maximum number of messages that are kept.
const MAX: usize = 1_000;

/// Earlier messages, oldest first, and the position in them.
#[derive(Debug, Default)]
pub(crate) struct History {
    messages: Vec<String>,
    /// The message that is shown, and the draft that it replaced.
    shown: Option<(usize, String)>,
    file: Option<PathBuf>,
}

impl History {
    /// Reads the file, which has one JSON text per line. What cannot be read is left out.
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut messages: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let excess = messages.len().saturating_sub(MAX);
        messages.drain(..excess);
        Self { messages, shown: None, file: Some(file.to_owned()) }
    }

    /// Adds a message, also to the file. A message that repeats the last one is not added.
    ///
    /// # Errors
    /// Fails if the file cannot be written; the message is added nevertheless.
    pub(crate) fn add(&mut self, message: &str) -> io::Result<()> {
        self.shown = None;
        if message.trim().is_empty() || self.messages.last().is_some_and(|last| last == message) {
            return Ok(());
        }
        self.messages.push(message.to_owned());
        let Some(file) = &self.file else { return Ok(()) };
        if self.messages.len() > 2 * MAX {
            self.messages.drain(..MAX);
            return write(file, &self.messages, OpenOptions::new().write(true).create(true).truncate(true));
        }
        write(file, &self.messages[self.messages.len() - 1..], OpenOptions::new().append(true).create(true))
    }

    /// Returns the message before the one that is shown.
    pub(crate) fn older(&mut self, draft: &str) -> Option<&str> {
        let (at, draft) = match self.shown.take() {
            None => (self.messages.len(), draft.to_owned()),
            Some(shown) => shown,
        };
        let Some(older) = at.checked_sub(1) else {
            self.shown = Some((at, draft)).filter(|_| !self.messages.is_empty());
            return None;
        };
        self.shown = Some((older, draft));
        Some(&self.messages[older])
    }

    /// Returns the message after the one that is shown; after the last one, the draft.
    pub(crate) fn newer(&mut self) -> Option<String> {
        let (at, draft) = self.shown.take()?;
        match self.messages.get(at + 1) {
            None => Some(draft),
            Some(newer) => {
                self.shown = Some((at + 1, draft));
                Some(newer.clone())
            }
        }
    }
}

fn write(file: &Path, messages: &[String], options: &mut OpenOptions) -> io::Result<()> {
    let lines: String =
        messages.iter().map(|message| format!("{}\n", serde_json::Value::from(message.as_str()))).collect();
    options.mode(0o600).open(file)?.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn messages_are_kept_in_a_private_file_and_the_draft_returns() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history");
        let mut history = History::read(&file);
        for message in ["one", "two\nlines", "two\nlines", " "] {
            history.add(message).unwrap();
        }
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let mut history = History::read(&file);
        assert_eq!(history.older("draft"), Some("two\nlines"));
        assert_eq!(history.older("two\nlines"), Some("one"));
        assert_eq!(history.older("one"), None);
        assert_eq!(history.newer().as_deref(), Some("two\nlines"));
        assert_eq!(history.newer().as_deref(), Some("draft"));
        assert_eq!(history.newer(), None);
    }
}
