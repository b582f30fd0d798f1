//! Watches a run until it ends: shows its progress, and cancels it on a signal.

use std::{
    io::{IsTerminal, Write, stdout},
    time::Duration,
};

use homing::{Homing, RunHandle, environment};
use homing_core::{
    envelope::{Envelope, Status},
    fact::{CancelledBy, Record},
};
use homing_runtime::event::{Event, Events};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    exit::{Exit, print},
    permission_prompt::TerminalPrompt,
    print_result::Form,
    progress::{
        Board,
        answer_stream::AnswerStream,
        frame::{Look, bar, coloured, frame},
        plain,
    },
    signals::{Signals, Suspensions, suspend},
    terminal,
};

/// Time between a signal and the printed result, even if something is still running.
const SIGNAL_GRACE: Duration = Duration::from_millis(2_600);

/// Time between two drawings of the live tree.
const FRAME: Duration = Duration::from_millis(100);

/// The form in which progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// A live tree on the terminal.
    Live,
    /// A live tree on the terminal, and above it the answer of the root while it is streamed.
    LiveAnswer,
    /// Nothing.
    Quiet,
    /// Lines on stderr.
    Lines,
    /// Lines on stderr, also about model calls and the results of tool calls.
    Verbose,
    /// JSON lines on stdout.
    Events,
    /// A progress bar on the terminal, for this number of runs.
    Bar(usize),
}

impl Show {
    pub(crate) fn choose(form: Form) -> Self {
        let is_live = terminal::is_watched() && !environment::is_dumb_terminal();
        match (form, is_live) {
            (Form::Events, _) => Self::Events,
            (Form::Text, true) if stdout().is_terminal() => Self::LiveAnswer,
            (Form::Text | Form::Json, true) => Self::Live,
            (Form::Text | Form::Json, false) => Self::Lines,
        }
    }

    /// Returns whether pieces of replies are shown while they arrive.
    fn reads_text(self) -> bool {
        match self {
            Self::Live | Self::LiveAnswer | Self::Events => true,
            Self::Quiet | Self::Lines | Self::Verbose | Self::Bar(_) => false,
        }
    }
}

/// The result of a watched run, and the signal that stopped it.
pub(crate) struct WatchResult {
    pub(crate) envelope: Envelope,
    pub(crate) signal: Option<u8>,
    /// True if the answer was printed while it was streamed.
    pub(crate) is_answer_shown: bool,
}

impl WatchResult {
    pub(crate) fn exit(&self) -> Exit {
        match self.signal {
            Some(number) => Exit::Signal(number),
            None => Exit::of(&self.envelope),
        }
    }
}

/// Watches `run` until it ends.
pub(crate) async fn watch(
    homing: &Homing,
    run: &RunHandle,
    show: Show,
    prompt: &TerminalPrompt,
    signals: &mut Signals,
) -> WatchResult {
    watch_with(homing, run, show, prompt, signals, &mut |_| ()).await
}

/// Like [`watch`], and calls `on_record` once with every record.
pub(crate) async fn watch_with(
    homing: &Homing,
    run: &RunHandle,
    show: Show,
    prompt: &TerminalPrompt,
    signals: &mut Signals,
    on_record: &mut dyn FnMut(&Record),
) -> WatchResult {
    let mut watcher = Watcher { show, prompt, board: Board::default(), answer: AnswerStream::default(), on_record };
    let _restore = Restore::new(show);
    let mut events = if show.reads_text() { run.events() } else { run.events_without_text(0) };
    let over = run.wait_or_park();
    tokio::pin!(over);
    let mut ticks = tokio::time::interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Without the handlers a stop still works, at any moment.
    let mut suspensions = Suspensions::new().ok();
    let (mut signal, mut deadline) = (None, Instant::now() + Duration::from_secs(1 << 30));
    let envelope = loop {
        tokio::select! {
            event = events.next() => if let Some(event) = event { watcher.show(&event) } else { break over.await },
            envelope = &mut over => { watcher.drain(&mut events).await; break envelope },
            _ = ticks.tick() => watcher.draw(),
            number = signals.next() => match signal {
                None => {
                    (signal, deadline) = (Some(number), Instant::now() + SIGNAL_GRACE);
                    homing.runtime().cancel_all(&CancelledBy::Signal);
                }
                Some(first) => leave_now(first),
            },
            () = next_suspension(&mut suspensions) => suspend(homing.journal().map(|journal| &**journal)).await,
            () = tokio::time::sleep_until(deadline), if signal.is_some() => break run.envelope(),
        }
    };
    if envelope.status == Status::Waiting && signal.is_none() {
        run.release();
    }
    watcher.draw();
    let is_answer_shown = show == Show::LiveAnswer && watcher.answer.has_shown(&envelope.output);
    if signal.is_none() {
        prompt.notifier().ended(&envelope);
    }
    if is_answer_shown {
        terminal::clear_live();
        terminal::inform("");
        // The line of a single run says nothing that does not follow.
        if watcher.board.rows().count() > 1 {
            watcher.draw();
        }
    }
    WatchResult { envelope, signal, is_answer_shown }
}

async fn next_suspension(suspensions: &mut Option<Suspensions>) {
    match suspensions {
        Some(suspensions) => suspensions.next().await,
        None => std::future::pending().await,
    }
}

/// Exits at once after a second signal, with the terminal restored.
fn leave_now(signal: u8) -> ! {
    terminal::leave_live();
    std::process::exit(i32::from(128 + signal))
}

/// Shows the progress of a run that works elsewhere. Dropping it restores the terminal.
pub(crate) struct RemoteWatch<'a> {
    show: Show,
    prompt: &'a TerminalPrompt,
    board: Board,
    answer: AnswerStream,
    _restore: Option<Restore>,
}

impl<'a> RemoteWatch<'a> {
    pub(crate) fn new(show: Show, prompt: &'a TerminalPrompt) -> Self {
        let (board, answer) = (Board::default(), AnswerStream::default());
        Self { show, prompt, board, answer, _restore: Restore::new(show) }
    }

    /// Returns whether text is shown while it arrives.
    pub(crate) fn shows_text(&self) -> bool {
        matches!(self.show, Show::LiveAnswer | Show::Events)
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Event) {
        self.with_watcher(|watcher| watcher.show(event));
    }

    /// Returns whether this answer was printed while it arrived, and leaves the live view if it was.
    pub(crate) fn has_shown(&mut self, answer: &str) -> bool {
        let is_shown = self.show == Show::LiveAnswer && self.answer.has_shown(answer);
        if is_shown {
            terminal::clear_live();
            terminal::inform("");
        }
        is_shown
    }

    /// Draws the live tree.
    pub(crate) fn draw(&mut self) {
        self.with_watcher(|watcher| watcher.draw());
    }

    fn with_watcher(&mut self, work: impl FnOnce(&mut Watcher<'_>)) {
        let (board, answer) = (std::mem::take(&mut self.board), std::mem::take(&mut self.answer));
        let mut watcher = Watcher { show: self.show, prompt: self.prompt, board, answer, on_record: &mut |_| () };
        work(&mut watcher);
        (self.board, self.answer) = (watcher.board, watcher.answer);
    }
}

struct Watcher<'a> {
    show: Show,
    prompt: &'a TerminalPrompt,
    board: Board,
    answer: AnswerStream,
    on_record: &'a mut dyn FnMut(&Record),
}

impl Watcher<'_> {
    fn show(&mut self, event: &Event) {
        self.board.take(event);
        if let Event::Fact(record) = event {
            (self.on_record)(record);
        }
        match self.show {
            Show::Live | Show::Bar(_) | Show::Quiet => (),
            Show::LiveAnswer => {
                if let Some(text) = self.answer.take(event) {
                    terminal::clear_live();
                    // A closed terminal does not stop the run.
                    let _ = stdout().lock().write_all(text.as_bytes());
                    self.draw();
                }
            }
            Show::Lines | Show::Verbose => {
                let detail = || plain::detail(event, &self.board).filter(|_| self.show == Show::Verbose);
                if let Some(line) = plain::line(event, &self.board).or_else(detail) {
                    terminal::say(&line);
                }
            }
            Show::Events => {
                if !matches!(event, Event::Missed(_)) {
                    // A closed pipe does not stop the run.
                    let _ = print(&terminal::json_line(&event.to_json()));
                }
            }
        }
    }

    /// Handles the events that are left when the run tree ends.
    async fn drain(&mut self, events: &mut Events) {
        let deadline = Instant::now() + Duration::from_millis(500);
        while let Ok(Some(event)) = tokio::time::timeout_at(deadline, events.next()).await {
            self.show(&event);
        }
    }

    fn draw(&mut self) {
        if matches!(self.show, Show::Lines | Show::Verbose | Show::Events | Show::Quiet) || self.prompt.is_asking() {
            return;
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.board.now = self.board.now.max(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let (width, height) = terminal::size();
        // The last column stays empty: erasing the rest of a full line would delete its last character.
        let look = Look {
            width: width.saturating_sub(1),
            height: height.saturating_sub(1),
            is_unicode: environment::is_unicode_locale(),
        };
        let text = self.answer.line_in_progress(look.width, look.height / 2);
        let look = Look { height: look.height - text.len(), ..look };
        let lines = match self.show {
            Show::Bar(of) => vec![bar(&self.board, of, look)],
            Show::Live | Show::LiveAnswer | Show::Lines | Show::Verbose | Show::Events | Show::Quiet => {
                frame(&self.board, look)
            }
        };
        let lines = if terminal::has_colours() { lines.iter().map(|line| coloured(line)).collect() } else { lines };
        terminal::paint(&text.into_iter().chain(lines).collect::<Vec<_>>());
    }
}

/// Restores the terminal when it is dropped.
struct Restore;

impl Restore {
    fn new(show: Show) -> Option<Self> {
        matches!(show, Show::Live | Show::LiveAnswer | Show::Bar(_)).then_some(Self)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        terminal::leave_live();
    }
}
