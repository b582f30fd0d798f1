//! `homing watch`: follows all live run trees of the journal, whichever process works on them. It reads the journal and acts
//! through its inbox.

use std::{
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use homing::{CodingSetup, Folders, environment};
use homing_core::{envelope::Status, question::Answer};
use homing_runtime::journal::{
    InboxRequest,
    sqlite::{Filter, JournalQuestion, Posted, SqliteJournal},
};
use ratatui_crossterm::crossterm::event::Event as TerminalEvent;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::{
    answer,
    restate::refresh,
    runs::millis_now,
    show::{notice_of_wait, waiting_for_budget},
    which_run,
};
use crate::{
    cli::chat::WatchArgs,
    config::Layered,
    exit::{Exit, Trouble},
    live_trees::{LiveTrees, Mode, WatchedTree, Wish, view::view},
    permission_prompt::{RuleStore, TerminalPrompt},
    screen::{Input, Screen},
    terminal,
};

/// Time between two drawings.
const FRAME: Duration = Duration::from_millis(100);

/// Time between two looks into the journal.
const LOOK: Duration = Duration::from_millis(300);

pub(crate) async fn run(args: &WatchArgs) -> anyhow::Result<Exit> {
    Screen::must_be_possible("homing watch", "list the live runs with `homing runs --status running`")?;
    let journal = super::runs::open(&args.journal)?;
    let project = (!args.all).then(|| which_run::this_project(None));
    let scope = project.as_ref().map_or_else(|| "all projects".to_owned(), |project| project.display().to_string());
    let state = LiveTrees { scope, now: millis_now(), ..LiveTrees::default() };
    let mut watcher = Watcher { journal, state, project };
    watcher.look()?;
    let mut screen = Screen::open()?;
    let copies = tokio::spawn(refresh::attend(watcher.journal.clone()));
    let exit = watcher.watch(&mut screen).await;
    copies.abort();
    exit
}

struct Watcher {
    journal: std::sync::Arc<SqliteJournal>,
    state: LiveTrees,
    /// The project whose trees are shown; `None` for all.
    project: Option<PathBuf>,
}

impl Watcher {
    async fn watch(&mut self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let mut ticks = tokio::time::interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = Instant::now();
        loop {
            tokio::select! {
                input = screen.next() => {
                    let wish = match input {
                        Input::Event(TerminalEvent::Key(key)) => self.state.key(key),
                        Input::Event(TerminalEvent::Paste(text)) => {
                            self.state.paste(&text);
                            None
                        }
                        Input::Event(_) => None,
                        Input::Suspend => Some(Wish::Suspend),
                        Input::Signal(2) => Some(Wish::Leave),
                        Input::Signal(number) => return Ok(Exit::Signal(number)),
                        Input::Gone => return Ok(Exit::Signal(1)),
                    };
                    match wish {
                        None => (),
                        Some(Wish::Leave) => return Ok(Exit::Done),
                        Some(Wish::Suspend) => screen.suspend()?,
                        Some(other) => self.act(other).await,
                    }
                }
                _ = ticks.tick() => (),
            }
            if looked.elapsed() >= LOOK {
                self.look()?;
                looked = Instant::now();
            }
            if let Some(line) = terminal::take_held_lines().pop() {
                self.state.note = line;
            }
            self.state.now = millis_now();
            screen.draw(|frame| view(&self.state, frame))?;
        }
    }

    /// Reads what the journal holds since the last look.
    fn look(&mut self) -> Result<(), Trouble> {
        let filter = Filter { is_open: true, project: self.project.clone(), ..Filter::default() };
        for row in self.journal.runs(&filter)? {
            let is_live = matches!(row.status, Status::Queued | Status::Running | Status::Waiting);
            if is_live && !self.state.trees.iter().any(|tree| tree.id == row.tree) {
                let project = row.project.filter(|_| self.project.is_none()).unwrap_or_default();
                self.state.trees.push(WatchedTree::new(row.tree, project.display().to_string()));
            }
        }
        for tree in &mut self.state.trees {
            if tree.status().is_over() && tree.next_seq() > 0 {
                continue;
            }
            let id = tree.id;
            tree.owner = self.journal.owner(id)?.map(|(pid, _)| pid);
            for record in self.journal.follow(id, tree.next_seq()).unwrap_or_default() {
                tree.take(record);
            }
            for run in waiting_for_budget(&self.journal, id)? {
                tree.event(&notice_of_wait(id, run));
            }
        }
        self.state.refresh();
        Ok(())
    }

    /// Does what the user wishes, through the journal.
    async fn act(&mut self, wish: Wish) {
        let done = match wish {
            Wish::Tell { tree, run, message } => {
                self.post(InboxRequest::Tell { tree, run, message }, "message delivered to").await
            }
            Wish::Cancel { tree, run } => {
                self.post(InboxRequest::Cancel { tree, run, by: "`homing watch`".to_owned() }, "asked to stop:").await
            }
            Wish::Answer(text) => self.answer(&text).await,
            Wish::Resume(tree) => {
                self.resume(tree).map(|pid| self.state.note = format!("process {pid} continues the run"))
            }
            Wish::Suspend | Wish::Leave => Ok(()),
        };
        if let Err(trouble) = done {
            self.state.note = trouble.message;
        }
    }

    async fn post(&mut self, request: InboxRequest, done: &str) -> Result<(), Trouble> {
        let place = self.state.chosen_place();
        self.state.note = match self.journal.post(request).await? {
            Posted::ToOwner { pid, .. } => format!("{done} run {place} (process {pid})"),
            Posted::NoOwner => "not running: no process works on it; r resumes it".to_owned(),
        };
        Ok(())
    }

    async fn answer(&mut self, text: &str) -> Result<(), Trouble> {
        let Mode::Answering(dialog) = &mut self.state.mode else { return Ok(()) };
        let id = dialog.open.id;
        let asked = self.journal.questions(None)?.into_iter().find(|question| question.open.id == id);
        let asked = asked.ok_or_else(|| Trouble::usage("the question was answered"))?;
        let Some(answer) = dialog.enter(text, &prompt_for(&asked)?) else { return Ok(()) };
        self.state.mode = Mode::Choosing;
        self.submit(&asked, answer).await
    }

    async fn submit(&mut self, asked: &JournalQuestion, answer: Answer) -> Result<(), Trouble> {
        self.state.note = match answer::submit(&self.journal, asked, answer, "`homing watch`").await? {
            Posted::ToOwner { pid, .. } => format!("answered; process {pid} continues"),
            Posted::NoOwner => {
                let open = self.journal.questions(None)?.iter().filter(|other| other.tree == asked.tree).count();
                match open {
                    0 => format!("answered; process {} continues the run", self.resume(asked.tree)?),
                    more => format!("answered; {more} more to answer"),
                }
            }
        };
        Ok(())
    }

    /// Lets a process of its own continue a tree, so that it does not end when the user leaves.
    fn resume(&self, tree: Uuid) -> Result<u32, Trouble> {
        let failed = |error: std::io::Error| Trouble::config(format!("cannot resume the run: {error}"));
        let mut command = Command::new(environment::executable().map_err(failed)?);
        command.args(["resume", &tree.to_string(), "--quiet", "--on-question", "park", "--journal"]);
        command.arg(self.journal.path()).process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(child.map_err(failed)?.id())
    }
}

/// Interprets answers to a question of any project: lasting approvals go into the user's configuration for that project.
fn prompt_for(question: &JournalQuestion) -> Result<TerminalPrompt, Trouble> {
    let places = CodingSetup::from_env(&question.folder).places;
    let project = places.project_folders().into_iter().next().unwrap_or_else(|| question.folder.clone());
    let config = Layered::read(Folders::from_env().config.as_deref(), &project)
        .map_err(|error| Trouble::config(error.to_string()))?;
    let store = config.user_path.clone().map(|path| RuleStore { config: path, project: config.project_folder() });
    Ok(TerminalPrompt::new(false, store))
}
