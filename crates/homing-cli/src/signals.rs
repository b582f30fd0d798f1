//! Signals that ask this process to stop.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use homing_runtime::journal::sqlite::SqliteJournal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::terminal;

/// Time within which several signals count as one. `timeout` sends two of them, one to the process and one to its group; a user who
/// presses Ctrl-C a second time has seen that the first one is not enough.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Lets a write to a file that reaches the size limit of this process (`ulimit -f`) fail, instead of ending the process without a word.
pub(crate) fn survive_size_limit() {
    // A handler that does nothing: unlike an ignored signal, commands of agents do not inherit it.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Streams of the signals that ask for an orderly stop.
pub(crate) struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
    last: Option<Instant>,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            last: None,
        })
    }

    /// Waits for the next request to stop and returns the number of its signal.
    pub(crate) async fn next(&mut self) -> u8 {
        loop {
            let number = tokio::select! {
                _ = self.interrupt.recv() => 2,
                _ = self.terminate.recv() => 15,
                _ = self.hangup.recv() => 1,
            };
            if self.last.is_none_or(|last| last.elapsed() > ONE_REQUEST) {
                self.last = Some(Instant::now());
                return number;
            }
        }
    }
}

/// Streams of the signals that suspend this process, as Ctrl-Z does.
pub(crate) struct Suspensions {
    stop: Stream,
    read: Stream,
    write: Stream,
}

impl Suspensions {
    pub(crate) fn new() -> io::Result<Self> {
        let of = |number: rustix::process::Signal| signal(SignalKind::from_raw(number.as_raw()));
        use rustix::process::Signal;
        Ok(Self { stop: of(Signal::TSTP)?, read: of(Signal::TTIN)?, write: of(Signal::TTOU)? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.stop.recv() => (),
            _ = self.read.recv() => (),
            _ = self.write.recv() => (),
        }
    }
}

/// Suspends this process until it is continued. It is stopped between two writes to the journal, so that it does not keep other
/// processes from writing.
pub(crate) async fn suspend(journal: Option<&SqliteJournal>) {
    terminal::leave_live();
    let (done, continued) = tokio::sync::oneshot::channel();
    let stop = move || {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        let _ = done.send(());
    };
    match journal {
        Some(journal) => journal.between_writes(stop),
        None => stop(),
    }
    let _ = continued.await;
}
