//! The stages between the supervisor and a command, each the helper binary again: *init* starts the command, waits for it
//! and ends everything below it; *confine* gives up rights and then becomes the command.
//!
//! Init is a process of its own so that no single process is the only one that can end a command. If the supervisor is
//! killed, a pipe that only it holds open closes, and init ends the command. If init is killed, the supervisor does, or the
//! kernel, where init is the first process of a PID namespace.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    io::FdFlags,
    process::{self as sys, Pid, Resource, Rlimit},
};
use serde::{Deserialize, Serialize};

use crate::{
    landlock_seccomp,
    process::{
        kill::{ProcessTree, SignalReach},
        protocol::{self, LandlockRules, Sockets, StdinSource, SupervisorReport},
        relay,
        supervise::{NOT_EXECUTED, lifeline},
        wait::{CommandWaiter, CommandWatch},
    },
};

pub(super) const INIT: &str = "__homing-init";
pub(super) const CONFINE: &str = "__homing-confine";

/// The request to the first process of a command. It comes through a pipe that stays open as long as the supervisor lives.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InitRequest {
    /// The path of the helper binary, as seen by this process.
    pub(super) helper: PathBuf,
    pub(super) source: StdinSource,
    /// The most processes of this user, if its count starts at zero in a user namespace.
    pub(super) processes: Option<u64>,
    /// The socket of the proxy to listed hosts, if there is one.
    pub(super) proxy_socket: Option<PathBuf>,
    pub(super) rights: Rights,
    pub(super) reach: SignalReach,
}

/// The rights that a command keeps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Rights {
    /// All: the command is not confined.
    All,
    /// Those that the mounts and namespaces around it leave, with these sockets.
    Namespaces(Sockets),
    /// Those of the Landlock rules.
    Landlock(LandlockRules),
    /// Those of the profile that this program applies.
    Seatbelt { program: PathBuf, profile: String },
}

/// Runs as the first process of a command.
pub(super) fn init(args: &[OsString]) -> i32 {
    let Ok(mut lifeline) = lifeline() else { return NOT_EXECUTED };
    match init_with(&lifeline, args) {
        Ok(()) => 0,
        Err(error) => {
            let _ = protocol::send(&mut lifeline, &SupervisorReport::Refused(error.to_string()));
            NOT_EXECUTED
        }
    }
}

fn init_with(lifeline: &UnixStream, args: &[OsString]) -> io::Result<()> {
    let [pipe, _, argv @ ..] = args else { return Err(io::ErrorKind::InvalidInput.into()) };
    let pipe = pipe.to_str().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut supervisor = File::from(inherited(pipe)?);
    let request: InitRequest = protocol::receive(&mut supervisor)?;
    #[cfg(target_os = "linux")]
    let _ = sys::set_child_subreaper(Some(sys::getpid()));
    if request.processes.is_some() {
        let _ = sys::setrlimit(Resource::Nproc, Rlimit { current: request.processes, maximum: request.processes });
    }
    if let Some(socket) = request.proxy_socket {
        relay::open(socket)?;
    }
    let (program, rest) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let command = match &request.rights {
        Rights::All => {
            let mut command = Command::new(program);
            command.args(rest);
            command
        }
        Rights::Seatbelt { program, profile } => under_seatbelt(program, profile, argv)?,
        rights @ (Rights::Namespaces(_) | Rights::Landlock(_)) => {
            let mut command = Command::new(&request.helper);
            command.arg(CONFINE).arg(serde_json::to_string(rights)?).arg("--").args(argv);
            command
        }
    };
    run_and_report(lifeline, command, &request.source, request.reach, supervisor)
}

/// Returns the command that executes `argv` under a profile.
#[cfg(target_os = "macos")]
fn under_seatbelt(program: &Path, profile: &str, argv: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(program);
    command.args(["-p", profile, "--"]).args(argv);
    Ok(command)
}

#[cfg(not(target_os = "macos"))]
fn under_seatbelt(program: &Path, _: &str, _: &[OsString]) -> io::Result<Command> {
    Err(io::Error::other(format!("{} exists only on macOS", program.display())))
}

/// Takes over a descriptor that the supervisor left open for this process, and keeps it from the command.
#[allow(unsafe_code)]
fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the supervisor opened the descriptor for this process alone; nothing else here owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Starts the command, waits for its end, and reports it.
fn run_and_report(
    mut lifeline: &UnixStream,
    mut command: Command,
    source: &StdinSource,
    reach: SignalReach,
    supervisor: File,
) -> io::Result<()> {
    let stdin = if *source == StdinSource::Nothing { Stdio::null() } else { Stdio::piped() };
    let mut child = command.stdin(stdin).process_group(0).spawn()?;
    let tree = ProcessTree { main: Pid::from_child(&child), reach };
    let pending = match source {
        StdinSource::Text(text) => text.clone().into_bytes(),
        StdinSource::Nothing | StdinSource::Forwarded => Vec::new(),
    };
    // If the lifeline is already closed, the waiter notices it and ends the command.
    let _ = protocol::send(&mut lifeline, &SupervisorReport::Started);
    let stdin = child.stdin.take();
    let waiter = CommandWaiter { lifeline, supervisor, tree: &tree, stdin, pending, source: source.clone() };
    match waiter.wait() {
        CommandWatch::Abandoned => Ok(()),
        CommandWatch::Exited(status) => protocol::send(&mut lifeline, &ended(status)),
    }
}

fn ended(status: sys::WaitStatus) -> SupervisorReport {
    match status.terminating_signal() {
        Some(signal) => SupervisorReport::Signalled(signal),
        None => SupervisorReport::Exited(status.exit_status().unwrap_or(NOT_EXECUTED)),
    }
}

/// Gives up rights, then becomes the command.
pub(super) fn confine_and_execute(args: &[OsString]) -> i32 {
    let [rights, _, program, rest @ ..] = args else { return NOT_EXECUTED };
    let error = match confine(rights) {
        Ok(()) => Command::new(program).args(rest).exec().to_string(),
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "{}: {error}", program.display());
    NOT_EXECUTED
}

fn confine(rights: &OsString) -> Result<(), String> {
    match serde_json::from_slice(rights.as_encoded_bytes()).map_err(|error| error.to_string())? {
        Rights::All | Rights::Seatbelt { .. } => Ok(()),
        Rights::Namespaces(sockets) => landlock_seccomp::filter_syscalls(sockets),
        Rights::Landlock(rules) => {
            // Without a PID namespace, this at least ends the command itself if all of its supervisors are killed at once.
            #[cfg(target_os = "linux")]
            let _ = sys::set_parent_process_death_signal(Some(sys::Signal::KILL));
            landlock_seccomp::apply(&rules)
        }
    }
}
