//! The watch over a running command: until it exits, until it is told to stop, until the lifeline breaks.

use std::{
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
    kill::{Family, reap},
    protocol::{Feed, TERMINATE},
};

/// How long a command whose input has ended may take to end by itself before it is told to, and then made to.
const POLITE: Duration = Duration::from_millis(300);
const PATIENT: Duration = Duration::from_millis(1_000);

/// How the watch ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommandWatch {
    /// The command has ended.
    Exited(WaitStatus),
    /// Nobody is there any more who wants it.
    Abandoned,
}

/// One command, its lifeline, and what is still to be written to it.
pub(super) struct Attendant<'a> {
    pub(super) lifeline: &'a UnixStream,
    pub(super) family: &'a Family,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) pending: Vec<u8>,
    pub(super) feed: Feed,
}

/// What the poll found.
struct Woken {
    heard: bool,
    hung_up: bool,
    writable: bool,
}

impl Attendant<'_> {
    /// Watches until the command or its lifeline ends, then ends everybody below it.
    pub(super) fn attend(mut self) -> CommandWatch {
        let watch = self.watch();
        self.family.end();
        watch
    }

    fn watch(&mut self) -> CommandWatch {
        let pidfd = pidfd(self.family.main);
        let _ = self.stdin.as_ref().map(set_nonblocking);
        loop {
            let woken = self.wait(pidfd.as_ref());
            if let Some(status) = reap(self.family.main) {
                return CommandWatch::Exited(status);
            }
            let Ok(woken) = woken else { return CommandWatch::Abandoned };
            if woken.writable {
                self.write_pending();
            }
            let ended = woken.heard && !self.hear();
            if ended || (woken.hung_up && !woken.heard) {
                return self.abandoned();
            }
        }
    }

    fn wait(&self, pidfd: Option<&OwnedFd>) -> io::Result<Woken> {
        // Bytes wait in the socket while the command does not read; a hang-up is reported all the same.
        let interest = if self.pending.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.lifeline, interest)];
        let writes = self.stdin.as_ref().filter(|_| !self.pending.is_empty());
        fds.extend(writes.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)));
        fds.extend(pidfd.map(|fd| PollFd::new(fd, PollFlags::IN)));
        // Without a pidfd the end of the command is only found by looking; orphans are collected at every look.
        let pause = if pidfd.is_some() { 250_000_000 } else { 10_000_000 };
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: pause })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        let lifeline = fds[0].revents();
        Ok(Woken {
            heard: lifeline.contains(PollFlags::IN),
            hung_up: lifeline.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
            writable: writes.is_some() && !fds[1].revents().is_empty(),
        })
    }

    /// Takes in what came down the lifeline; `false` at its end.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        match self.lifeline.read(&mut bytes) {
            Ok(0) => false,
            Ok(len) => {
                match self.feed {
                    Feed::Forwarded => self.pending.extend(&bytes[..len]),
                    Feed::Nothing | Feed::Text(_) if bytes[..len].contains(&TERMINATE) => self.terminate(),
                    Feed::Nothing | Feed::Text(_) => (),
                }
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
        }
    }

    fn terminate(&self) {
        self.family.signal(Signal::TERM);
        // Who is stopped takes the signal only after going on.
        self.family.signal(Signal::CONT);
    }

    fn write_pending(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(&self.pending) {
            Ok(len) => drop(self.pending.drain(..len)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => self.pending.clear(),
        }
        if self.pending.is_empty() && matches!(self.feed, Feed::Text(_)) {
            self.stdin = None;
        }
    }

    /// A server whose input has ended may say goodbye; anything else has no reason to go on.
    fn abandoned(&mut self) -> CommandWatch {
        if self.feed != Feed::Forwarded {
            return CommandWatch::Abandoned;
        }
        self.stdin = None;
        let since = Instant::now();
        let mut told = false;
        while since.elapsed() < PATIENT {
            if let Some(status) = reap(self.family.main) {
                return CommandWatch::Exited(status);
            }
            if !told && since.elapsed() > POLITE {
                self.terminate();
                told = true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        CommandWatch::Abandoned
    }
}

/// A handle that wakes us when the process ends, where the system has such a thing.
#[cfg(target_os = "linux")]
fn pidfd(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_: Pid) -> Option<OwnedFd> {
    None
}

fn set_nonblocking(pipe: &ChildStdin) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?)
}
