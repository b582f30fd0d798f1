//! Holds a conversation: waits for keys and events, and does what the user wishes.

use std::{path::PathBuf, time::Duration};

use homing::{Envelope, RunHandle, Task};
use homing_core::{
    BoxFuture,
    fact::{CancelledBy, Fact},
    limits::Limits,
    place::Place,
    question::{Answer, OpenQuestion, QuestionKind},
};
use homing_runtime::event::{Event, Events};
use ratatui_crossterm::crossterm::event::Event as TerminalEvent;
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    chat::{Chat, Wish, cells::Entry, slash, title, unknown_place, view::view},
    cli::run::WithArgs,
    commands::{
        run::{attach::attach_files, skill_task::skill_task},
        runs::millis_now,
    },
    exit::{Exit, Trouble, print},
    print_result,
    screen::{Input, Screen, question::Dialog},
    session::{Session, working_folder},
    terminal,
};

/// Time between two drawings.
const FRAME: Duration = Duration::from_millis(80);

/// Time that a turn has to stop when the user leaves.
const GRACE: Duration = Duration::from_millis(2_600);

/// The name of the user in the journal.
const USER: &str = "the user";

/// A conversation, with everything that it needs.
pub(super) struct Conversation {
    pub(super) session: Session,
    pub(super) chat: Chat,
    pub(super) with: WithArgs,
    limits: Limits,
    /// The model that the user chose, or that the conversation had before.
    pub(super) model: Option<String>,
    /// The run of the last turn.
    pub(super) previous: Option<RunHandle>,
    pub(super) active: Option<Active>,
    /// The results of the turns in this process.
    pub(super) results: Vec<Envelope>,
}

/// The turn that is under way.
pub(super) struct Active {
    pub(super) run: RunHandle,
    /// The events that are left; `None` after the last one.
    events: Option<Events>,
    over: BoxFuture<'static, Envelope>,
}

/// A change of the turn that is under way.
enum Happening {
    Event(Event),
    Over(Box<Envelope>),
}

impl Conversation {
    pub(super) fn new(session: Session, chat: Chat, with: WithArgs, limits: Limits) -> Self {
        let model = session.model.clone();
        Self { session, chat, with, limits, model, previous: None, active: None, results: Vec::new() }
    }

    /// Holds the conversation until the user leaves.
    pub(super) async fn talk(mut self) -> anyhow::Result<Exit> {
        self.show_model();
        let mut screen = Screen::open()?;
        let exit = self.hold(&mut screen).await;
        self.leave(matches!(exit, Ok(Exit::Done))).await;
        drop(screen);
        self.say_goodbye();
        exit
    }

    async fn hold(&mut self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let mut ticks = tokio::time::interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_changed = true;
        loop {
            let draws = tokio::select! {
                input = screen.next() => {
                    self.chat.now = millis_now();
                    match self.input(input, screen)? {
                        Some(exit) => return Ok(exit),
                        None => true,
                    }
                }
                happening = next_happening(&mut self.active) => {
                    self.take(happening).await;
                    is_changed = true;
                    false
                }
                // Nothing is drawn while nothing happens, except for the time of a turn.
                _ = ticks.tick() => is_changed || self.active.is_some(),
            };
            let was_leaving = self.chat.is_leaving();
            self.chat.now = millis_now();
            is_changed |= was_leaving && !self.chat.is_leaving();
            for line in terminal::take_held_lines() {
                self.chat.note(line);
                is_changed = true;
            }
            if draws {
                screen.draw(|frame| view(&mut self.chat, frame))?;
                is_changed = false;
            }
        }
    }

    fn input(&mut self, input: Input, screen: &mut Screen) -> anyhow::Result<Option<Exit>> {
        let wish = match input {
            Input::Event(TerminalEvent::Key(key)) => self.chat.key(key),
            Input::Event(TerminalEvent::Paste(text)) => self.chat.paste(&text),
            Input::Event(_) => None,
            Input::Suspend => Some(Wish::Suspend),
            Input::Signal(2) => self.chat.stop(),
            Input::Signal(number) => return Ok(Some(Exit::Signal(number))),
            Input::Gone => return Ok(Some(Exit::Signal(1))),
        };
        match wish {
            None => (),
            Some(Wish::Leave) => return Ok(Some(Exit::Done)),
            Some(Wish::Suspend) => screen.suspend()?,
            Some(Wish::Stop) => self.stop(None),
            Some(Wish::Send(text)) => self.send(&text),
            Some(Wish::Answer(text)) => self.answer(&text),
            Some(Wish::CompletePath(begun)) => {
                if let Some(completed) = slash::complete_path(&self.folder(), &begun) {
                    self.chat.complete_path(&begun, &completed);
                }
            }
            Some(Wish::Slash(slash::Slash::Quit)) => return Ok(Some(Exit::Done)),
            Some(Wish::Slash(command)) => self.slash(command),
        }
        Ok(None)
    }

    /// Sends a message: to the run that is under way, or as the next turn.
    fn send(&mut self, text: &str) {
        if let Some(active) = &self.active {
            if !active.run.tell_if_open(text) {
                self.chat.problem("the run has just ended; send it again");
            }
            return;
        }
        let begun = self.task(text).and_then(|task| {
            let limit = task.limits.cost_micros;
            Ok((self.session.homing.spawn(task).map_err(Trouble::from)?, limit))
        });
        match begun {
            Ok((run, _)) => {
                self.chat.attached.clear();
                self.follow(run, Some(text.to_owned()));
            }
            Err(trouble) => {
                self.chat.problem(trouble.message);
                self.chat.note(trouble.hint.map(|hint| format!("hint: {hint}")).unwrap_or_default());
                self.chat.editor.insert(text);
            }
        }
    }

    /// Shows a run as the turn that is under way.
    pub(super) fn follow(&mut self, run: RunHandle, message: Option<String>) {
        let limit = run.tree().root().map_or_else(Default::default, |root| root.limits.cost_micros);
        self.chat.now = millis_now();
        self.chat.begin(message, limit);
        let over = run.clone();
        self.active =
            Some(Active { events: Some(run.events()), over: Box::pin(async move { over.wait().await }), run });
    }

    /// Returns the task of the next turn.
    fn task(&self, text: &str) -> Result<Task, Trouble> {
        let skill = skill_task(text, &self.session)?;
        if skill.is_none() && slash::looks_like_one(text) {
            let name = text.split_whitespace().next().unwrap_or_default();
            return Err(Trouble::usage(format!("there is no command or skill {name}; /help lists the commands")));
        }
        let (text, skill, skill_agent, skill_model) = match skill {
            Some(skill) => (skill.text, Some(skill.name), skill.agent, skill.model),
            None => (text.to_owned(), None, None, None),
        };
        let agent = &self.session.agent(skill_agent.as_deref().unwrap_or(&self.chat.about.agent))?.definition;
        let mut task = match &self.previous {
            Some(run) => Task::continuing(run, text.clone()),
            None => Task::new(agent.name.clone(), text.clone()),
        };
        task.agent.clone_from(&agent.name);
        let mut task = self.session.bounded(task, self.limits);
        // The model of a team is its program.
        task.model = self.model.clone().or(skill_model).filter(|_| !homing_teams::is_team_agent(agent));
        task.skill = skill;
        // The rules of this session hold, not those of the one that is continued.
        task.policy = None;
        task.account.clone_from(&self.with.account);
        if let Some(run) = &self.previous {
            task.tags.insert("continues".to_owned(), run.id().to_string());
        }
        let folder = working_folder(self.with.cwd.as_deref())?;
        attach_files(task, &self.chat.attached, &[text], &folder, &self.session)
    }

    /// Plans a turn, to find out which model it would have.
    pub(super) fn show_model(&mut self) {
        let planned = self.task("hello").and_then(|task| Ok(self.session.homing.runtime().plan(task)?));
        let model = planned.ok().and_then(|(spawned, _)| spawned.models.into_iter().next());
        self.chat.about.model = model.unwrap_or_else(|| "no model".to_owned());
    }

    /// Cancels the turn, or the run at a place.
    pub(super) fn stop(&mut self, place: Option<&Place>) {
        let Some(active) = &self.active else {
            return self.chat.note("nothing is running");
        };
        let run = match place {
            None => Some(active.run.clone()),
            Some(place) => run_at(&active.run, place),
        };
        match (run, place) {
            (Some(run), _) => {
                run.cancel(CancelledBy::Host);
            }
            (None, Some(place)) => self.chat.problem(unknown_place(place)),
            (None, None) => (),
        }
    }

    async fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Event(event) => self.take_event(&event),
            Happening::Over(envelope) => {
                let Some(mut active) = self.active.take() else { return };
                drain(&mut self.chat, active.events.as_mut()).await;
                self.chat.end(&envelope);
                print_result::kept_work(&envelope).into_iter().for_each(|line| self.chat.note(line));
                self.results.push(*envelope);
                self.previous = Some(active.run);
            }
        }
    }

    fn take_event(&mut self, event: &Event) {
        self.chat.take(event);
        let Event::Fact(record) = event else { return };
        let may_ask = match &record.fact {
            Fact::Questioned { .. } | Fact::Answered { .. } | Fact::Halted { .. } => true,
            Fact::Returned { .. } | Fact::Ended(_) => self.chat.dialog.is_some(),
            _ => false,
        };
        if may_ask {
            self.ask();
        }
    }

    /// Shows the first question that waits; answers those that need no user.
    fn ask(&mut self) {
        let Some(active) = &self.active else { return };
        let is_settled = |open: &OpenQuestion| {
            open.kind == QuestionKind::Permission
                && (self.with.approval.yes || self.session.prompt.is_always_allowed(&open.question))
        };
        let (settled, open): (Vec<OpenQuestion>, Vec<OpenQuestion>) =
            active.run.questions().into_iter().partition(is_settled);
        for question in settled {
            // Another process may have answered meanwhile.
            let _ = active.run.answer(question.id, Answer::Yes, USER);
        }
        Dialog::refresh(&mut self.chat.dialog, open);
    }

    fn answer(&mut self, text: &str) {
        let (Some(active), Some(dialog)) = (&self.active, &mut self.chat.dialog) else { return };
        let Some(answer) = dialog.enter(text, &self.session.prompt) else { return };
        let (id, asked) = (dialog.open.id, title(&dialog.open.question.text));
        let said = match &answer {
            Answer::Yes => "yes".to_owned(),
            Answer::No => "no".to_owned(),
            Answer::Text(text) => text.clone(),
            _ => "no answer".to_owned(),
        };
        let is_taken = active.run.answer(id, answer, USER).is_ok();
        let end = if is_taken { said } else { "it was answered elsewhere".to_owned() };
        self.chat.note(format!("? {asked} {end}"));
        self.ask();
    }

    /// Stops what is under way. A turn that is not finished because the process was asked to end is left to `homing continue`.
    async fn leave(&mut self, is_wanted: bool) {
        let Some(mut active) = self.active.take() else { return };
        if !is_wanted {
            active.run.release();
            return;
        }
        active.run.cancel(CancelledBy::Host);
        if let Ok(envelope) = tokio::time::timeout(GRACE, &mut active.over).await {
            self.chat.end(&envelope);
            self.previous = Some(active.run);
        }
    }

    /// Leaves the last answer on the terminal, where it can be copied.
    fn say_goodbye(&self) {
        let answer = self.chat.cells.entries().rev().find_map(|entry| match entry {
            Entry::Agent(text) => Some(text),
            Entry::User(_) | Entry::Call { .. } | Entry::Note(_) | Entry::Problem(_) | Entry::Plain(_) => None,
        });
        if let Some(answer) = answer {
            // A terminal that is gone is not an error.
            let _ = print(&homing_core::sanitize::inert(answer.trim_end()));
        }
        if self.previous.is_some() || self.active.is_some() {
            terminal::say("continue with: homing continue");
        }
    }

    /// The folder of the conversation.
    pub(super) fn folder(&self) -> PathBuf {
        working_folder(self.with.cwd.as_deref()).unwrap_or_default()
    }
}

async fn next_happening(active: &mut Option<Active>) -> Happening {
    let Some(Active { events, over, .. }) = active else { return std::future::pending().await };
    let Some(left) = events else { return Happening::Over(Box::new(over.await)) };
    tokio::select! {
        biased;
        event = left.next() => match event {
            Some(event) => Happening::Event(event),
            None => {
                *events = None;
                Happening::Over(Box::new(over.await))
            }
        },
        envelope = &mut *over => Happening::Over(Box::new(envelope)),
    }
}

/// Takes the events that are left when a turn is over: the last ones are published once they are durable.
async fn drain(chat: &mut Chat, events: Option<&mut Events>) {
    let Some(events) = events else { return };
    let deadline = Instant::now() + Duration::from_millis(500);
    while let Ok(Some(event)) = tokio::time::timeout_at(deadline, events.next()).await {
        chat.take(&event);
        let is_last = |event: &Event| matches!(event, Event::Fact(record) if record.place.depth() == 0 && matches!(record.fact, Fact::Ended(_)));
        if is_last(&event) {
            return;
        }
    }
}

/// Returns the run at a place of the tree.
pub(super) fn run_at(run: &RunHandle, place: &Place) -> Option<RunHandle> {
    let id = run.tree().runs().iter().find(|run| run.place == *place)?.id;
    run.of(id)
}
