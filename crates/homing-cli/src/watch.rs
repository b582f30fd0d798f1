//! Watches a run to its end: shows its progress, and stops it when the outside world says so.

use std::time::Duration;

use homing::{Homing, RunHandle};
use homing_core::{
    envelope::Envelope,
    fact::{CancelledBy, Record},
};
use homing_runtime::event::{Event, Events};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    exit::{Exit, print},
    permission_prompt::TerminalPrompt,
    progress::{
        Board,
        frame::{Look, bar, coloured, frame},
        plain,
    },
    signals::Signals,
    terminal,
};

/// After a signal the result is printed this soon, whatever is still going on.
const LAST_CALL: Duration = Duration::from_millis(2_600);

/// Between two paintings of the live tree.
const FRAME: Duration = Duration::from_millis(100);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// A live tree on the terminal.
    Live,
    /// Lines on stderr.
    Lines,
    /// One JSON object a line on stdout.
    Events,
    /// A bar on the terminal: so many runs are to come back.
    Bar(usize),
}

impl Show {
    pub(crate) fn choose(events: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|it| it == "dumb");
        match (events, terminal::is_watched() && !dumb) {
            (true, _) => Self::Events,
            (false, true) => Self::Live,
            (false, false) => Self::Lines,
        }
    }
}

/// How it ended, and the signal that stopped it.
pub(crate) struct SeenSignals {
    pub(crate) envelope: Envelope,
    pub(crate) signal: Option<u8>,
}

impl SeenSignals {
    pub(crate) fn exit(&self) -> Exit {
        match self.signal {
            Some(number) => Exit::Signal(number),
            None => Exit::of(&self.envelope),
        }
    }
}

/// Watches `run` to its end. Dropping the live tree leaves the terminal as it was.
pub(crate) async fn watch(
    homing: &Homing,
    run: &RunHandle,
    show: Show,
    asker: &TerminalPrompt,
    signals: &mut Signals,
) -> SeenSignals {
    watch_with(homing, run, show, asker, signals, &mut |_| ()).await
}

/// The same, and `learn` is shown every fact once.
pub(crate) async fn watch_with(
    homing: &Homing,
    run: &RunHandle,
    show: Show,
    asker: &TerminalPrompt,
    signals: &mut Signals,
    learn: &mut dyn FnMut(&Record),
) -> SeenSignals {
    let mut watcher = Watcher { homing, run, show, asker, board: Board::default(), next_seq: 0, learn };
    let _restore = Restore::new(show);
    let mut events = run.events();
    watcher.catch_up(u64::MAX);
    let over = run.wait();
    tokio::pin!(over);
    let mut ticks = tokio::time::interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut signal, mut deadline) = (None, Instant::now() + Duration::from_secs(1 << 30));
    let envelope = loop {
        tokio::select! {
            event = events.next() => if let Some(event) = event { watcher.take(&event) } else { break over.await },
            envelope = &mut over => { watcher.drain(&mut events).await; break envelope },
            _ = ticks.tick() => watcher.draw(),
            number = signals.next() => match signal {
                None => {
                    (signal, deadline) = (Some(number), Instant::now() + LAST_CALL);
                    homing.runtime().cancel_all(&CancelledBy::Signal);
                }
                Some(first) => leave_now(first),
            },
            () = tokio::time::sleep_until(deadline), if signal.is_some() => break run.envelope(),
        }
    };
    watcher.draw();
    SeenSignals { envelope, signal }
}

/// The second signal: nothing is waited for, and the terminal is left as it was.
fn leave_now(signal: u8) -> ! {
    terminal::leave_live();
    std::process::exit(i32::from(128 + signal))
}

struct Watcher<'a> {
    homing: &'a Homing,
    run: &'a RunHandle,
    show: Show,
    asker: &'a TerminalPrompt,
    board: Board,
    /// The first position that was not seen yet.
    next_seq: u64,
    learn: &'a mut dyn FnMut(&Record),
}

impl Watcher<'_> {
    /// Facts have positions, so that gaps are noticed and filled from the journal.
    fn take(&mut self, event: &Event) {
        if let Event::Fact(record) = event {
            if record.seq < self.next_seq {
                return;
            }
            if record.seq > self.next_seq {
                self.catch_up(record.seq);
            }
            self.next_seq = record.seq + 1;
        }
        self.tell(event);
    }

    fn catch_up(&mut self, before: u64) {
        let Some(journal) = self.homing.journal() else { return };
        let Ok(records) = journal.follow(self.run.tree_id(), self.next_seq) else { return };
        let missed = records.into_iter().filter(|record: &std::sync::Arc<Record>| record.seq < before);
        for record in missed.collect::<Vec<_>>() {
            self.next_seq = record.seq + 1;
            self.tell(&Event::Fact(record));
        }
    }

    fn tell(&mut self, event: &Event) {
        self.board.take(event);
        if let Event::Fact(record) = event {
            (self.learn)(record);
        }
        match self.show {
            Show::Live | Show::Bar(_) => (),
            Show::Lines => {
                if let Some(line) = plain::line(event, &self.board) {
                    terminal::say(&line);
                }
            }
            Show::Events => {
                if !matches!(event, Event::Missed(_)) {
                    // A reader who has gone away does not stop the run.
                    let _ = print(&event.to_json().to_string());
                }
            }
        }
    }

    /// What was written until the end of the tree.
    async fn drain(&mut self, events: &mut Events) {
        let last = Instant::now() + Duration::from_millis(500);
        while let Ok(Some(event)) = tokio::time::timeout_at(last, events.next()).await {
            self.take(&event);
        }
        self.catch_up(u64::MAX);
    }

    fn draw(&mut self) {
        if matches!(self.show, Show::Lines | Show::Events) || self.asker.is_asking() {
            return;
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.board.now = self.board.now.max(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let (width, height) = terminal::size();
        // The last column stays free: erasing the rest of a full line would take its last character.
        let look = Look {
            width: width.saturating_sub(1),
            height: height.saturating_sub(1),
            is_unicode: terminal::is_unicode(),
        };
        let lines = match self.show {
            Show::Bar(of) => vec![bar(&self.board, of, look)],
            Show::Live | Show::Lines | Show::Events => frame(&self.board, look),
        };
        let lines = if terminal::has_colours() { lines.iter().map(|it| coloured(it)).collect() } else { lines };
        terminal::paint(&lines);
    }
}

/// Leaves the terminal as it was, whatever happens.
struct Restore;

impl Restore {
    fn new(show: Show) -> Option<Self> {
        matches!(show, Show::Live | Show::Bar(_)).then_some(Self)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        terminal::leave_live();
    }
}
