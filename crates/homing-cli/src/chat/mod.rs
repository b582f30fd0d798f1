//! `Chat`: the state of an interactive conversation. Keys and events change it, and `view` draws it; nothing here waits or reads.

pub(crate) mod cells;
pub(crate) mod history;
pub(crate) mod slash;
pub(crate) mod view;

use std::path::PathBuf;

use homing_core::{
    envelope::{Envelope, EnvelopeUsage, Status},
    fact::{Fact, Record},
    limits::Cap,
    place::Place,
};
use homing_runtime::event::{Event, Transient, TransientKind};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use self::{
    cells::{CallEnd, Cells, Entry, ended},
    history::History,
    slash::Slash,
};
use crate::{
    exit::failure_hint,
    print_result,
    progress::{Board, call_line, first_line},
    screen::{editor::Editor, question::Dialog},
};

/// Time within which a second Ctrl-C leaves, in milliseconds.
const TWICE: u64 = 2_000;

/// An interactive conversation.
#[derive(Debug, Default)]
pub(crate) struct Chat {
    pub(crate) about: About,
    pub(crate) cells: Cells,
    /// The turn that is under way.
    pub(crate) turn: Option<Turn>,
    /// The runs of the last turn.
    pub(crate) board: Board,
    pub(crate) dialog: Option<Dialog>,
    pub(crate) editor: Editor,
    pub(crate) history: History,
    /// Files for the next message.
    pub(crate) attached: Vec<PathBuf>,
    /// Number of lines below the ones that are shown.
    pub(crate) scroll: usize,
    /// Usage of the conversation, without the turn that is under way.
    pub(crate) spent: EnvelopeUsage,
    pub(crate) hides_runs: bool,
    /// True if the last turn is a team's: what its program says between its steps is not meant for readers.
    is_team: bool,
    /// Time of the last Ctrl-C, in milliseconds since 1970.
    stop_asked: Option<u64>,
    /// The present time, in milliseconds since 1970.
    pub(crate) now: u64,
}

/// The circumstances of a conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) agent: String,
    pub(crate) model: String,
    pub(crate) folder: String,
    /// Names of all agents.
    pub(crate) agents: Vec<String>,
}

/// A turn that is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    /// The message as the user wrote it, until the run is recorded.
    message: Option<String>,
    /// The part of the reply that has arrived.
    pub(crate) streaming: String,
    pub(crate) is_thinking: bool,
    pub(crate) is_stopping: bool,
    pub(crate) began: u64,
    /// Cost limit of the turn, in millionths of a dollar.
    pub(crate) limit: Option<u64>,
}

/// Something that the user wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Send a message: the next turn, or a message to the run that is under way.
    Send(String),
    Slash(Slash),
    /// Answer the question that is shown.
    Answer(String),
    /// Complete the path at the end of the message.
    CompletePath(String),
    /// Stop the turn that is under way.
    Stop,
    Suspend,
    Leave,
}

impl Chat {
    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Wish> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if !(control && key.code == KeyCode::Char('c')) {
            // Only two in a row leave.
            self.stop_asked = None;
        }
        match key.code {
            KeyCode::Char('c') if control => return self.stop(),
            KeyCode::Char('z') if control => return Some(Wish::Suspend),
            KeyCode::Char('d') if control && self.editor.text().is_empty() && self.dialog.is_none() => {
                return Some(Wish::Leave);
            }
            KeyCode::PageUp => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Esc if self.scroll > 0 => self.scroll = 0,
            KeyCode::Esc if self.turn.is_some() => return self.stop_turn(),
            KeyCode::Esc => (),
            _ => match &mut self.dialog {
                Some(dialog) => return dialog.key(key).map(Wish::Answer),
                None => return self.edit(key),
            },
        }
        None
    }

    /// Handles a pasted text. The path of a picture or document is attached, as terminals paste it when a file is dropped.
    pub(crate) fn paste(&mut self, text: &str) -> Option<Wish> {
        if let Some(dialog) = &mut self.dialog {
            dialog.editor.insert(text);
            return None;
        }
        if is_picture_path(text) {
            return Some(Wish::Slash(Slash::Attach(text.trim().to_owned())));
        }
        self.editor.insert(text);
        None
    }

    fn edit(&mut self, key: KeyEvent) -> Option<Wish> {
        let is_enter = key.code == KeyCode::Enter && key.modifiers.is_empty();
        if is_enter && !self.editor.continue_line() {
            return self.enter();
        }
        if is_enter || self.editor.key(key) {
            return None;
        }
        let replaced = match key.code {
            KeyCode::Up => self.history.older(self.editor.text()).map(str::to_owned),
            KeyCode::Down => self.history.newer(),
            KeyCode::Tab => match slash::path_to_complete(self.editor.text()) {
                Some(path) => return Some(Wish::CompletePath(path.to_owned())),
                None => slash::complete(self.editor.text(), &self.about.agents),
            },
            _ => None,
        };
        if let Some(text) = replaced {
            self.editor = Editor::with(text);
        }
        None
    }

    fn enter(&mut self) -> Option<Wish> {
        let text = self.editor.take();
        if text.trim().is_empty() && self.attached.is_empty() {
            return None;
        }
        self.scroll = 0;
        // A history that cannot be written is still a history of this session.
        let _ = self.history.add(text.trim_end());
        match slash::read(&text) {
            Some(Ok(command)) => Some(Wish::Slash(command)),
            Some(Err(usage)) => {
                self.problem(usage);
                None
            }
            None => Some(Wish::Send(text.trim_end().to_owned())),
        }
    }

    /// Replaces the path at the end of the message by a longer one.
    pub(crate) fn complete_path(&mut self, begun: &str, completed: &str) {
        let text = self.editor.text();
        if let Some(before) = text.strip_suffix(begun) {
            self.editor = Editor::with(format!("{before}{completed}"));
        }
    }

    fn stop_turn(&mut self) -> Option<Wish> {
        self.turn.as_mut()?.is_stopping = true;
        Some(Wish::Stop)
    }

    /// Ctrl-C: stops the turn, or clears the line; without either, the second one within a short time leaves.
    pub(crate) fn stop(&mut self) -> Option<Wish> {
        let is_second = self.stop_asked.is_some_and(|before| self.now.saturating_sub(before) < TWICE);
        if is_second {
            return Some(Wish::Leave);
        }
        let is_clear = self.editor.text().is_empty() && self.attached.is_empty();
        if is_clear || self.turn.is_some() {
            self.stop_asked = Some(self.now);
        }
        if self.turn.is_some() {
            return self.stop_turn();
        }
        self.editor.take();
        self.attached.clear();
        None
    }

    /// Returns whether the next Ctrl-C leaves.
    pub(crate) fn is_leaving(&self) -> bool {
        self.stop_asked.is_some_and(|before| self.now.saturating_sub(before) < TWICE)
    }

    /// Says what this is, at the beginning of a conversation.
    pub(crate) fn welcome(&mut self) {
        let About { agent, folder, .. } = &self.about;
        let text = format!(
            "You are talking to {agent} in {folder}. It asks before it does what your rules do not allow, and everything is \
             recorded.\n@path attaches a file or picture; /help lists the commands."
        );
        self.note(text);
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.cells.push(Entry::Note(text.into()));
    }

    pub(crate) fn problem(&mut self, text: impl Into<String>) {
        self.cells.push(Entry::Problem(text.into()));
    }

    /// Begins a turn. `message` is what the user wrote, if it was written here.
    pub(crate) fn begin(&mut self, message: Option<String>, limit: Cap) {
        self.turn = Some(Turn { message, began: self.now, limit: limit.value(), ..Turn::default() });
        self.board = Board::default();
        self.scroll = 0;
    }

    /// Takes an event of the turn.
    pub(crate) fn take(&mut self, event: &Event) {
        self.board.take(event);
        match event {
            Event::Fact(record) if record.place.depth() == 0 => self.take_fact(record),
            Event::Transient(notice) if notice.place.depth() == 0 => self.take_notice(notice),
            Event::Fact(_) | Event::Transient(_) | Event::Missed(_) => (),
        }
    }

    fn take_notice(&mut self, notice: &Transient) {
        if let TransientKind::Warning(text) = &notice.kind {
            self.note(format!("warning: {text}"));
        }
        let Some(turn) = &mut self.turn else { return };
        match &notice.kind {
            TransientKind::Text(_) if self.is_team => (),
            TransientKind::Text(text) => {
                turn.is_thinking = false;
                turn.streaming.push_str(text);
            }
            TransientKind::Thinking(_) => turn.is_thinking = true,
            // What had arrived is asked for again.
            TransientKind::Retrying { .. } => turn.streaming.clear(),
            TransientKind::Queued
            | TransientKind::WaitingForBudget
            | TransientKind::Progress(_)
            | TransientKind::Question(_)
            | TransientKind::Warning(_) => (),
        }
    }

    /// Takes a fact about the root run. Its children are in the tree.
    fn take_fact(&mut self, record: &Record) {
        match &record.fact {
            Fact::Spawned(spawned) => {
                self.is_team = homing_teams::is_team_agent(&spawned.agent);
                let written = self.turn.as_mut().and_then(|turn| turn.message.take());
                self.cells.push(Entry::User(written.unwrap_or_else(|| spawned.task.clone())));
                for warning in &spawned.warnings {
                    self.note(format!("warning: {warning}"));
                }
            }
            Fact::Replied { reply, .. } => {
                self.forget_stream();
                let text = reply.text();
                if !text.trim().is_empty() && !self.is_team {
                    self.cells.push(Entry::Agent(text));
                }
            }
            Fact::AskFailed { .. } => self.forget_stream(),
            Fact::Called(called) => {
                let line = call_line(&called.call);
                self.cells.push(Entry::Call { key: Some(called.key), line, end: CallEnd::Open });
            }
            Fact::Returned { key, result, .. } => {
                let end = ended(result.is_error, &result.text);
                if !self.cells.end_call(*key, end.clone()) && result.is_error {
                    self.cells.push(Entry::Call { key: Some(*key), line: result.name.clone(), end });
                }
            }
            Fact::Told { from: None, message } => self.cells.push(Entry::User(message.clone())),
            Fact::Compacted { .. } => {
                self.note("the history was summarised, because it no longer fitted the model's window")
            }
            Fact::Asked(_)
            | Fact::Questioned { .. }
            | Fact::Answered { .. }
            | Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Extended { .. }
            | Fact::Ended(_) => (),
        }
    }

    fn forget_stream(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.streaming.clear();
            turn.is_thinking = false;
        }
    }

    /// Ends the turn with its result.
    pub(crate) fn end(&mut self, envelope: &Envelope) {
        self.turn = None;
        self.dialog = None;
        self.cells.stop_open_calls();
        let last = self.cells.entries().rev().find_map(|entry| match entry {
            Entry::Agent(text) => Some(text.trim()),
            Entry::User(_) => Some(""),
            Entry::Call { .. } | Entry::Note(_) | Entry::Problem(_) | Entry::Plain(_) => None,
        });
        // Teams and structured answers have an answer that no reply of a model contains.
        if !envelope.output.trim().is_empty() && last != Some(envelope.output.trim()) {
            self.cells.push(Entry::Agent(envelope.output.clone()));
        }
        for denial in print_result::denials(envelope) {
            self.problem(denial);
        }
        if envelope.status != Status::Done {
            if let Some(why) = print_result::why(envelope) {
                self.problem(why);
            }
            if let Some(hint) = envelope.error.as_ref().and_then(failure_hint) {
                self.note(format!("hint: {hint}"));
            }
        }
        self.note(print_result::cost_line(envelope));
        self.spent.add(&envelope.subtree);
    }

    /// Returns what the root run does, in a few words.
    pub(crate) fn activity(&self) -> String {
        let Some(turn) = &self.turn else { return String::new() };
        match self.board.rows().next() {
            _ if turn.is_stopping => "stopping".to_owned(),
            _ if turn.is_thinking => "thinking".to_owned(),
            Some(_) if !turn.streaming.is_empty() => "answering".to_owned(),
            Some(root) => root.activity.clone(),
            None => "starting".to_owned(),
        }
    }

    /// Returns whether the tree of runs is worth showing. On a small screen a turn that is over needs the space no longer.
    pub(crate) fn shows_runs(&self, is_wide: bool) -> bool {
        !self.hides_runs && (is_wide || self.turn.is_some()) && self.board.rows().nth(1).is_some()
    }
}

/// Says that no run has this place.
pub(crate) fn unknown_place(place: &Place) -> String {
    format!("there is no run {place} in this turn; the tree shows the places from top to bottom: 1, 1.1, 1.2, …")
}

fn is_picture_path(text: &str) -> bool {
    let path = dropped_path(text);
    let name = path.to_string_lossy().to_ascii_lowercase();
    let is_picture = [".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"].iter().any(|ending| name.ends_with(ending));
    is_picture && path.is_absolute() && !text.trim().contains('\n')
}

/// Returns the path that a terminal pastes for a dropped file: quoted, with escaped blanks, or as an address.
pub(crate) fn dropped_path(text: &str) -> PathBuf {
    let text = text.trim();
    let text = text.strip_prefix("file://").unwrap_or(text);
    let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let text = quoted.map_or_else(|| text.replace("\\ ", " ").replace("%20", " "), str::to_owned);
    PathBuf::from(text)
}

/// Returns the first line of a text, for the title of the terminal.
pub(crate) fn title(text: &str) -> String {
    first_line(text)
}

#[cfg(test)]
pub(crate) mod tests;
