//! `LiveTrees`: the state of `homing watch`. Keys and what the journal holds change it, and `view` draws it; nothing here reads.

pub(crate) mod view;

use std::collections::VecDeque;

use homing_core::{
    envelope::{Status, status},
    fact::Record,
    place::Place,
    question::OpenQuestion,
    tree::RunTree,
};
use homing_runtime::event::Event;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use uuid::Uuid;

use crate::{
    progress::{Board, plain},
    screen::{editor::Editor, question::Dialog},
};

/// Maximum number of lines about a tree that are kept.
const MAX_LINES: usize = 500;

/// The live trees, one of which is chosen.
#[derive(Debug, Default)]
pub(crate) struct LiveTrees {
    /// Live trees, newest first, then those that have ended while they were watched.
    pub(crate) trees: Vec<WatchedTree>,
    /// The project whose trees are shown.
    pub(crate) scope: String,
    pub(crate) chosen: Option<Uuid>,
    /// The chosen run of the chosen tree, while its runs are looked at.
    pub(crate) run: Option<Uuid>,
    pub(crate) mode: Mode,
    pub(crate) note: String,
    /// The present time, in milliseconds since 1970.
    pub(crate) now: u64,
}

/// The present activity of the user.
#[derive(Debug, Default)]
pub(crate) enum Mode {
    /// Choosing a tree or a run.
    #[default]
    Choosing,
    /// Writing a message to the chosen run.
    Telling(Editor),
    /// Confirming that the chosen run is to stop.
    Cancelling,
    /// Answering a question of the chosen tree.
    Answering(Box<Dialog>),
}

/// One tree, as far as the journal holds it.
#[derive(Debug, Default)]
pub(crate) struct WatchedTree {
    pub(crate) id: Uuid,
    pub(crate) fold: RunTree,
    pub(crate) board: Board,
    /// The events so far, in lines with the place of the run.
    lines: VecDeque<(Place, String)>,
    /// The process that works on it.
    pub(crate) owner: Option<u32>,
    pub(crate) project: String,
}

/// Something that the user wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Tell {
        tree: Uuid,
        run: Uuid,
        message: String,
    },
    Cancel {
        tree: Uuid,
        run: Uuid,
    },
    /// Answer the question that is shown with this text.
    Answer(String),
    /// Resume this tree, which no process works on.
    Resume(Uuid),
    Suspend,
    Leave,
}

impl WatchedTree {
    pub(crate) fn new(id: Uuid, project: String) -> Self {
        Self { id, project, ..Self::default() }
    }

    /// The position from which on records are missing.
    pub(crate) fn next_seq(&self) -> u64 {
        self.fold.next_seq()
    }

    /// Takes a record. One that does not fit is left out: another version may have written it.
    pub(crate) fn take(&mut self, record: std::sync::Arc<Record>) {
        if self.fold.apply(&record).is_err() {
            return;
        }
        self.event(&Event::Fact(record));
    }

    /// Takes an event.
    pub(crate) fn event(&mut self, event: &Event) {
        self.board.take(event);
        let place = match event {
            Event::Fact(record) => record.place.clone(),
            Event::Transient(_) | Event::Missed(_) => return,
        };
        if let Some(line) = plain::line(event, &self.board) {
            self.lines.push_back((place, line));
            if self.lines.len() > MAX_LINES {
                self.lines.pop_front();
            }
        }
    }

    /// Returns the status of the whole tree. One without a process waits for an answer, or was interrupted.
    pub(crate) fn status(&self) -> Status {
        match self.fold.root().map(status) {
            Some(open) if !open.is_over() && self.owner.is_none() && !self.fold.is_parked() => Status::Interrupted,
            Some(status) => status,
            None => Status::Queued,
        }
    }

    pub(crate) fn questions(&self) -> Vec<OpenQuestion> {
        if self.status().is_over() { Vec::new() } else { self.fold.open_questions() }
    }

    /// Returns the last lines about the runs within a place.
    pub(crate) fn lines(&self, within: &Place, count: usize) -> Vec<&str> {
        let found = self.lines.iter().rev().filter(|(place, _)| place.is_within(within)).take(count);
        let mut lines: Vec<&str> = found.map(|(_, line)| line.as_str()).collect();
        lines.reverse();
        lines
    }
}

impl LiveTrees {
    /// Returns the chosen tree.
    pub(crate) fn chosen(&self) -> Option<&WatchedTree> {
        self.trees.iter().find(|tree| Some(tree.id) == self.chosen).or_else(|| self.trees.first())
    }

    /// Returns the chosen run, or the root of the chosen tree.
    pub(crate) fn chosen_run(&self) -> Option<(Uuid, Uuid)> {
        let tree = self.chosen()?;
        Some((tree.id, self.run.filter(|run| tree.fold.get(*run).is_some()).unwrap_or(tree.id)))
    }

    /// Returns whether the chosen run has ended.
    fn is_chosen_over(&self) -> bool {
        let run = self.chosen_run().and_then(|(_, run)| self.chosen()?.fold.get(run));
        run.is_some_and(|run| status(run).is_over())
    }

    /// Returns the place of the chosen run.
    pub(crate) fn chosen_place(&self) -> Place {
        let place = self.chosen_run().and_then(|(_, run)| Some(self.chosen()?.fold.get(run)?.place.clone()));
        place.unwrap_or_else(Place::root)
    }

    /// Brings the trees into their order, and closes a question that was answered elsewhere.
    pub(crate) fn refresh(&mut self) {
        self.trees.sort_by_key(|tree| (tree.status().is_over(), std::cmp::Reverse(tree.id)));
        if let Mode::Answering(dialog) = &self.mode {
            let is_open = |tree: &WatchedTree| tree.questions().iter().any(|open| open.id == dialog.open.id);
            if !self.trees.iter().any(is_open) {
                self.note = "the question was answered".to_owned();
                self.mode = Mode::Choosing;
            }
        }
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Wish> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Some(Wish::Leave),
            KeyCode::Char('z') if control => return Some(Wish::Suspend),
            _ => (),
        }
        let is_enter = key.code == KeyCode::Enter && key.modifiers.is_empty();
        match std::mem::take(&mut self.mode) {
            Mode::Choosing => self.choose(key),
            _ if key.code == KeyCode::Esc => None,
            Mode::Telling(editor) if is_enter => {
                let message = editor.text().trim().to_owned();
                let (tree, run) = self.chosen_run()?;
                (!message.is_empty()).then_some(Wish::Tell { tree, run, message })
            }
            Mode::Telling(mut editor) => {
                editor.key(key);
                self.mode = Mode::Telling(editor);
                None
            }
            Mode::Cancelling if key.code == KeyCode::Char('y') => {
                self.chosen_run().map(|(tree, run)| Wish::Cancel { tree, run })
            }
            Mode::Cancelling => None,
            Mode::Answering(mut dialog) => {
                let written = dialog.key(key);
                self.mode = Mode::Answering(dialog);
                written.map(Wish::Answer)
            }
        }
    }

    pub(crate) fn paste(&mut self, text: &str) {
        match &mut self.mode {
            Mode::Telling(editor) => editor.insert(text),
            Mode::Answering(dialog) => dialog.editor.insert(text),
            Mode::Choosing | Mode::Cancelling => (),
        }
    }

    fn choose(&mut self, key: KeyEvent) -> Option<Wish> {
        self.note.clear();
        match key.code {
            KeyCode::Char('q') => return Some(Wish::Leave),
            KeyCode::Esc if self.run.is_none() => return Some(Wish::Leave),
            KeyCode::Esc | KeyCode::Left => self.run = None,
            KeyCode::Enter | KeyCode::Right => self.run = self.chosen_run().map(|(_, run)| run),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Char('t' | 'c') if self.is_chosen_over() => {
                self.note = format!("run {} has ended", self.chosen_place());
            }
            KeyCode::Char('t') if self.chosen().is_some() => self.mode = Mode::Telling(Editor::default()),
            KeyCode::Char('c') if self.chosen().is_some() => self.mode = Mode::Cancelling,
            KeyCode::Char('r') => match self.chosen() {
                Some(tree) if tree.status() == Status::Interrupted => return Some(Wish::Resume(tree.id)),
                Some(_) | None => self.note = "only an interrupted run tree can be resumed".to_owned(),
            },
            KeyCode::Char('a') => {
                let questions = self.chosen().map(WatchedTree::questions).unwrap_or_default();
                let mut dialog = None;
                Dialog::refresh(&mut dialog, questions);
                match dialog {
                    Some(dialog) => self.mode = Mode::Answering(Box::new(dialog)),
                    None => self.note = "this run tree asks nothing".to_owned(),
                }
            }
            _ => (),
        }
        None
    }

    /// Chooses another tree, or another run while the runs are looked at.
    fn step(&mut self, by: isize) {
        let moved = |at: usize, count: usize| at.saturating_add_signed(by).min(count.saturating_sub(1));
        let Some(tree) = self.chosen() else { return };
        if let Some(run) = self.run {
            let runs: Vec<Uuid> = ordered(&tree.fold).iter().map(|run| run.0).collect();
            let at = runs.iter().position(|id| *id == run).unwrap_or(0);
            self.run = runs.get(moved(at, runs.len())).copied();
        } else {
            let at = self.trees.iter().position(|other| other.id == tree.id).unwrap_or(0);
            self.chosen = self.trees.get(moved(at, self.trees.len())).map(|tree| tree.id);
        }
    }
}

/// Returns the runs in the order in which the tree is drawn.
pub(crate) fn ordered(fold: &RunTree) -> Vec<(Uuid, Place)> {
    let mut runs: Vec<(Uuid, Place)> = fold.runs().iter().map(|run| (run.id, run.place.clone())).collect();
    runs.sort_by(|one, other| one.1.cmp(&other.1));
    runs
}

#[cfg(test)]
mod tests;
