//! The answer of the root run while it is streamed: whole lines are printed, the line in progress is part of the live view.

use homing_core::{fact::Fact, sanitize};
use homing_runtime::event::{Event, TransientKind};
use uuid::Uuid;

use crate::columns::broken;

/// The text of the root run's replies, as far as it has arrived.
#[derive(Debug, Default)]
pub(crate) struct AnswerStream {
    /// The root, if its answer is prose: data, and the answer of a team, are shown when they are complete.
    root: Option<Uuid>,
    /// The text of the reply in progress, or of the last one.
    reply: String,
    /// The part of it that is not printed yet: the line in progress.
    line: String,
}

impl AnswerStream {
    /// Takes an event and returns the text to print, if any. The text ends with a line end.
    pub(crate) fn take(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Fact(record) => match &record.fact {
                Fact::Spawned(spawned) if record.place.depth() == 0 => {
                    // What the program of a team says between its steps is not meant for readers.
                    let is_prose = spawned.schema.is_none() && !homing_teams::is_team_agent(&spawned.agent);
                    self.root = is_prose.then_some(record.run);
                    None
                }
                Fact::Asked(_) if self.root == Some(record.run) => {
                    self.reply.clear();
                    None
                }
                Fact::Replied { reply, .. } if self.root == Some(record.run) => {
                    let rest = self.rest();
                    // What the agent says before its calls stands apart from what it says after them.
                    let goes_on = reply.calls().next().is_some() && !reply.text().trim().is_empty();
                    if goes_on { Some(rest.unwrap_or_default() + "\n") } else { rest }
                }
                Fact::AskFailed { .. } if self.root == Some(record.run) && !self.reply.is_empty() => {
                    let rest = self.rest().unwrap_or_default();
                    self.reply.clear();
                    Some(format!("{rest}(the reply broke off; it is asked again)\n"))
                }
                _ => None,
            },
            Event::Transient(notice) if self.root == Some(notice.run) => match &notice.kind {
                TransientKind::Text(text) => self.add(text),
                _ => None,
            },
            Event::Transient(_) | Event::Missed(_) => None,
        }
    }

    fn add(&mut self, text: &str) -> Option<String> {
        self.reply.push_str(text);
        self.line.push_str(text);
        let end = self.line.rfind('\n')? + 1;
        let whole: String = self.line.drain(..end).collect();
        Some(sanitize::inert(&whole))
    }

    /// Takes the line in progress.
    fn rest(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.line);
        (!rest.trim().is_empty()).then(|| format!("{}\n", sanitize::inert(&rest)))
    }

    /// Returns the line in progress, wrapped to `width` columns; of a long one the last `most` lines.
    pub(crate) fn line_in_progress(&self, width: usize, most: usize) -> Vec<String> {
        if self.line.trim().is_empty() {
            return Vec::new();
        }
        let mut lines = broken(&sanitize::inert(&self.line), width);
        let surplus = lines.len().saturating_sub(most);
        lines.drain(..surplus);
        lines
    }

    /// Returns whether this answer was printed completely.
    pub(crate) fn has_shown(&self, answer: &str) -> bool {
        !answer.trim().is_empty() && self.line.trim().is_empty() && self.reply.trim() == answer.trim()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_printed_and_the_rest_is_shown() {
        let mut stream = AnswerStream { root: Some(Uuid::nil()), ..AnswerStream::default() };
        assert_eq!(stream.add("The do"), None);
        assert_eq!(stream.line_in_progress(4, 10), ["The ", "do"]);
        assert_eq!(stream.add("or\nis \u{1b}[31mred\nand"), Some("The door\nis \u{fffd}[31mred\n".to_owned()));
        assert_eq!(stream.line_in_progress(2, 1), ["d"]);
        assert!(!stream.has_shown("The door\nis \u{1b}[31mred\nand"), "the last line is not printed yet");
        assert_eq!(stream.rest(), Some("and\n".to_owned()));
        assert!(stream.has_shown("The door\nis \u{1b}[31mred\nand\n"));
        assert!(!stream.has_shown("something else"));
    }
}
