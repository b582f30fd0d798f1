//! The conversation as a reader sees it: messages, answers, calls and notes, each wrapped once per width.

use std::cell::RefCell;

use homing_core::{
    message::{Message, Part, Reply},
    sanitize,
    tool::CallKey,
};
use ratatui_core::{
    style::{Color, Modifier, Style},
    text::Line,
};

use crate::{
    progress::{call_line, first_line},
    screen::{
        markdown::markdown,
        wrap::{Indent, wrap_text},
    },
};

pub(crate) const QUIET: Style = Style::new().add_modifier(Modifier::DIM);

/// Maximum number of lines of a message that are shown.
const MAX_LINES: usize = 60;

/// One entry of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// A message of the user.
    User(String),
    /// Text of the agent, as Markdown.
    Agent(String),
    /// A tool call of the agent.
    Call { key: Option<CallKey>, line: String, end: CallEnd },
    /// A remark of this program.
    Note(String),
    /// Something that went wrong.
    Problem(String),
    /// Text as it is, such as a difference between files.
    Plain(String),
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallEnd {
    Open,
    Done,
    Failed(String),
    /// The turn ended before it.
    Stopped,
}

/// The entries of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
}

#[derive(Debug)]
struct Cell {
    entry: Entry,
    /// The lines for the width that was shown last.
    lines: RefCell<Option<(usize, Vec<Line<'static>>)>>,
}

impl Cells {
    pub(crate) fn push(&mut self, entry: Entry) {
        self.cells.push(Cell { entry, lines: RefCell::default() });
    }

    pub(crate) fn clear(&mut self) {
        self.cells.clear();
    }

    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.cells.iter().map(|cell| &cell.entry)
    }

    /// Adds the messages of an earlier part of the conversation.
    pub(crate) fn push_messages(&mut self, messages: &[Message]) {
        for message in messages {
            match message {
                Message::User { text, .. } => self.push(Entry::User(text.clone())),
                Message::Assistant(reply) => self.push_reply(reply),
                Message::Tool(result) => {
                    let end = ended(result.is_error, &result.text);
                    self.end_first_open(end);
                }
            }
        }
    }

    fn push_reply(&mut self, reply: &Reply) {
        for part in &reply.parts {
            match part {
                Part::Text(text) if !text.trim().is_empty() => self.push(Entry::Agent(text.clone())),
                Part::Call(call) => {
                    self.push(Entry::Call { key: None, line: call_line(call), end: CallEnd::Open });
                }
                Part::Text(_) | Part::Thinking { .. } | Part::Opaque { .. } => (),
            }
        }
    }

    fn end_first_open(&mut self, end: CallEnd) {
        if let Some(cell) = self.cells.iter_mut().find(|cell| cell.is_open_call()) {
            cell.end(end);
        }
    }

    /// Marks the calls that the end of the turn has stopped.
    pub(crate) fn stop_open_calls(&mut self) {
        self.cells.iter_mut().filter(|cell| cell.is_open_call()).for_each(|cell| cell.end(CallEnd::Stopped));
    }

    /// Ends the call with this key; returns false if it was never begun.
    pub(crate) fn end_call(&mut self, wanted: CallKey, end: CallEnd) -> bool {
        let is_it = |cell: &&mut Cell| matches!(&cell.entry, Entry::Call { key, .. } if *key == Some(wanted));
        let found = self.cells.iter_mut().rev().find(is_it);
        let is_found = found.is_some();
        if let Some(cell) = found {
            cell.end(end);
        }
        is_found
    }

    /// Returns the lines from the end of the conversation: `height` of them, after `skip` lines at the end were left out.
    pub(crate) fn tail(&self, width: usize, height: usize, skip: usize) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        for at in (0..self.cells.len()).rev() {
            let mut own = self.cells[at].lines(width);
            let above = at.checked_sub(1).map(|before| &self.cells[before].entry);
            if above.is_some_and(|above| is_separated(above, &self.cells[at].entry)) {
                own.insert(0, Line::default());
            }
            own.reverse();
            lines.extend(own);
            if lines.len() >= height.saturating_add(skip) {
                break;
            }
        }
        // The beginning of the conversation is as far as one can scroll.
        let skip = skip.min(lines.len().saturating_sub(height));
        let mut shown: Vec<Line<'static>> = lines.into_iter().skip(skip).take(height).collect();
        shown.reverse();
        shown
    }

    /// Returns the number of lines of the whole conversation.
    pub(crate) fn height(&self, width: usize) -> usize {
        self.tail(width, usize::MAX, 0).len()
    }
}

/// Calls that follow each other stand together, and everything else apart.
fn is_separated(above: &Entry, below: &Entry) -> bool {
    let is_small = |entry: &Entry| matches!(entry, Entry::Call { .. } | Entry::Note(_) | Entry::Problem(_));
    !(is_small(above) && is_small(below))
}

impl Cell {
    fn is_open_call(&self) -> bool {
        matches!(self.entry, Entry::Call { end: CallEnd::Open, .. })
    }

    fn end(&mut self, with: CallEnd) {
        if let Entry::Call { end, .. } = &mut self.entry {
            *end = with;
        }
        self.lines.replace(None);
    }

    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let mut kept = self.lines.borrow_mut();
        match &*kept {
            Some((known, lines)) if *known == width => lines.clone(),
            Some(_) | None => {
                let lines = lines(&self.entry, width);
                *kept = Some((width, lines.clone()));
                lines
            }
        }
    }
}

fn lines(entry: &Entry, width: usize) -> Vec<Line<'static>> {
    match entry {
        Entry::User(text) => {
            let style = Style::new().fg(Color::Green).add_modifier(Modifier::BOLD);
            wrap_text(&shortened(text), Style::new().add_modifier(Modifier::BOLD), width, &Indent::hanging("› ", style))
        }
        Entry::Agent(text) => markdown(text, width),
        Entry::Call { line, end, .. } => call_lines(line, end, width),
        Entry::Note(text) => wrap_text(&sanitize::inert(text), QUIET, width, &Indent::default()),
        Entry::Problem(text) => {
            wrap_text(&sanitize::inert(text), Style::new().fg(Color::Red), width, &Indent::default())
        }
        Entry::Plain(text) => plain_lines(text, width),
    }
}

fn call_lines(line: &str, end: &CallEnd, width: usize) -> Vec<Line<'static>> {
    let (mark, colour, why) = match end {
        CallEnd::Open => ("● ", Color::Cyan, None),
        CallEnd::Done => ("✓ ", Color::Green, None),
        CallEnd::Stopped => ("– ", Color::Reset, None),
        CallEnd::Failed(why) => ("✗ ", Color::Red, Some(why)),
    };
    let style = Style::new().fg(colour);
    let mut lines = wrap_text(&sanitize::inert_line(line), QUIET, width, &Indent::hanging(mark, style));
    if let Some(why) = why.filter(|why| !why.is_empty()) {
        lines.extend(wrap_text(why, Style::new().fg(Color::Red), width, &Indent::all("  ", QUIET)));
    }
    lines
}

/// Colours added and removed lines.
fn plain_lines(text: &str, width: usize) -> Vec<Line<'static>> {
    let style = |line: &str| match line.chars().next() {
        Some('+') => Style::new().fg(Color::Green),
        Some('-') => Style::new().fg(Color::Red),
        Some('@') => Style::new().fg(Color::Cyan),
        Some(_) | None => Style::new(),
    };
    let text = sanitize::inert(text);
    text.lines().flat_map(|line| wrap_text(line, style(line), width, &Indent::default())).collect()
}

fn shortened(text: &str) -> String {
    let text = sanitize::inert(text.trim());
    let count = text.lines().count();
    if count <= MAX_LINES {
        return text;
    }
    let shown: Vec<&str> = text.lines().take(MAX_LINES).collect();
    format!("{}\n… {} more lines", shown.join("\n"), count - MAX_LINES)
}

/// Returns the end of a call with this result.
pub(crate) fn ended(is_error: bool, text: &str) -> CallEnd {
    if is_error { CallEnd::Failed(first_line(text)) } else { CallEnd::Done }
}
