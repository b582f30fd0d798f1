//! Waits for a running command until it exits or the lifeline closes, and passes input and termination requests on to it.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::ChildStdin,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitStatus},
};

use crate::process::{
    kill::{ProcessTree, reap},
    protocol::{StdinSource, TERMINATE},
};

/// Time after the end of a server's input until it gets a termination signal, and until it is killed.
const TERMINATE_AFTER: Duration = Duration::from_millis(300);
const KILL_AFTER: Duration = Duration::from_millis(1_000);

/// The end of waiting for a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommandWatch {
    /// The command has ended.
    Exited(WaitStatus),
    /// The lifeline has closed.
    Abandoned,
}

/// A running command, its lifeline, and the input that is not yet written.
pub(super) struct CommandWaiter<'a> {
    pub(super) lifeline: &'a UnixStream,
    /// A pipe that closes when the supervisor has ended.
    pub(super) supervisor: File,
    pub(super) tree: &'a ProcessTree,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) pending: Vec<u8>,
    pub(super) source: StdinSource,
}

/// The result of a poll.
struct PollResult {
    /// The supervisor has ended.
    is_orphaned: bool,
    readable: bool,
    hung_up: bool,
    writable: bool,
}

impl CommandWaiter<'_> {
    /// Waits until the command or its lifeline ends, then ends all processes below it.
    pub(super) fn wait(mut self) -> CommandWatch {
        let end = self.wait_for_end();
        self.tree.end();
        end
    }

    fn wait_for_end(&mut self) -> CommandWatch {
        let pidfd = pidfd(self.tree.main);
        let _ = self.stdin.as_ref().map(set_nonblocking);
        loop {
            let polled = self.poll(pidfd.as_ref());
            if let Some(status) = reap(self.tree.main) {
                return CommandWatch::Exited(status);
            }
            let Ok(polled) = polled else { return CommandWatch::Abandoned };
            if polled.is_orphaned {
                return CommandWatch::Abandoned;
            }
            if polled.writable {
                self.write_pending();
            }
            let ended = polled.readable && !self.read_lifeline();
            if ended || (polled.hung_up && !polled.readable) {
                return self.abandoned();
            }
        }
    }

    fn poll(&self, pidfd: Option<&OwnedFd>) -> io::Result<PollResult> {
        // While the command does not read, bytes stay in the socket; a hang-up is reported all the same.
        let interest = if self.pending.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.lifeline, interest), PollFd::new(&self.supervisor, PollFlags::IN)];
        let writes = self.stdin.as_ref().filter(|_| !self.pending.is_empty());
        fds.extend(writes.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)));
        fds.extend(pidfd.map(|fd| PollFd::new(fd, PollFlags::IN)));
        // Without a pidfd the end of the command is found only by polling. Orphans are reaped at every poll.
        let pause = if pidfd.is_some() { 250_000_000 } else { 10_000_000 };
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: pause })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        let lifeline = fds[0].revents();
        Ok(PollResult {
            readable: lifeline.contains(PollFlags::IN),
            hung_up: lifeline.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
            is_orphaned: !fds[1].revents().is_empty(),
            writable: writes.is_some() && !fds[2].revents().is_empty(),
        })
    }

    /// Reads from the lifeline; returns false at its end.
    fn read_lifeline(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        match self.lifeline.read(&mut bytes) {
            Ok(0) => false,
            Ok(len) => {
                match self.source {
                    StdinSource::Forwarded => self.pending.extend(&bytes[..len]),
                    StdinSource::Nothing | StdinSource::Text(_) if bytes[..len].contains(&TERMINATE) => {
                        self.terminate()
                    }
                    StdinSource::Nothing | StdinSource::Text(_) => (),
                }
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
        }
    }

    fn terminate(&self) {
        self.tree.signal(Signal::TERM);
        // A stopped process handles the signal only after it is continued.
        self.tree.signal(Signal::CONT);
    }

    fn write_pending(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(&self.pending) {
            Ok(len) => drop(self.pending.drain(..len)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => self.pending.clear(),
        }
        if self.pending.is_empty() && matches!(self.source, StdinSource::Text(_)) {
            self.stdin = None;
        }
    }

    /// Gives a server whose input has ended time to shut down. Any other command ends at once.
    fn abandoned(&mut self) -> CommandWatch {
        if self.source != StdinSource::Forwarded {
            return CommandWatch::Abandoned;
        }
        self.stdin = None;
        let since = Instant::now();
        let mut signalled = false;
        while since.elapsed() < KILL_AFTER {
            if let Some(status) = reap(self.tree.main) {
                return CommandWatch::Exited(status);
            }
            if !signalled && since.elapsed() > TERMINATE_AFTER {
                self.terminate();
                signalled = true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        CommandWatch::Abandoned
    }
}

/// Returns a descriptor that becomes readable when the process ends, if the system supports it.
#[cfg(target_os = "linux")]
pub(super) fn pidfd(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn pidfd(_: Pid) -> Option<OwnedFd> {
    None
}

fn set_nonblocking(pipe: &ChildStdin) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?)
}
