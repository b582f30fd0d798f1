//! The helper stages of the host's binary: the supervisor, the first process of a PID namespace, and the last step before a
//! confined command. Each runs alone in its process and may change that process freely.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, Write},
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, exit},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{self as sys, Pid, Resource, Rlimit, WaitOptions};

use crate::{
    landlock_seccomp,
    process::{
        cgroup::Cgroup,
        kill::{ProcessTree, SignalReach},
        protocol::{
            self, CommandNetwork, Confinement, LandlockRules, ProcessLimits, Sockets, StdinSource, SupervisorReport,
            SupervisorRequest,
        },
        relay,
        restore_files::{Restored, Snapshot, remove_appeared},
        wait::{CommandWaiter, CommandWatch},
    },
};

/// The argument that makes the binary a supervisor.
pub(super) const SUPERVISE: &str = "__homing-supervise";
const INIT: &str = "__homing-init";
const CONFINE: &str = "__homing-confine";

/// Interval at which protected paths that a command creates are removed.
const REMOVE_EVERY: Duration = Duration::from_millis(25);

/// The exit code of shells for a command that cannot be executed.
const NOT_EXECUTED: i32 = 126;

/// Becomes a helper process if the arguments ask for it, and then does not return. Hosts whose binary is its own helper call
/// this first in `main`, before any thread is started.
pub fn run_helper_if_asked(args: impl IntoIterator<Item = OsString>) {
    let mut args = args.into_iter().skip(1);
    let stage = args.next();
    match stage.as_ref().and_then(|stage| stage.to_str()) {
        Some(SUPERVISE) => exit(supervise().map_or(NOT_EXECUTED, |()| 0)),
        Some(INIT) => exit(init(&args.collect::<Vec<_>>())),
        Some(CONFINE) => exit(confine_and_execute(&args.collect::<Vec<_>>())),
        Some(_) | None => (),
    }
}

fn lifeline() -> io::Result<UnixStream> {
    let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    Ok(UnixStream::from(fd))
}

fn supervise() -> io::Result<()> {
    let mut lifeline = lifeline()?;
    // If the host dies before the request is complete, there is nothing to do.
    let request: SupervisorRequest = protocol::receive(&mut lifeline)?;
    let cgroup = prepare(&request.limits);
    let snapshot = match Snapshot::take(&request.protected) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let why = format!("protected files cannot be saved before the command: {error}");
            protocol::send(&mut lifeline, &SupervisorReport::Refused(why))?;
            cgroup.leave();
            return protocol::send(&mut lifeline, &SupervisorReport::Finished);
        }
    };
    // The network comes first: a process with several threads cannot enter a new one.
    let entered = enter_network(&request.confinement);
    let removed = Arc::new(Mutex::new(BTreeSet::new()));
    remove_while_running(snapshot.missing(), removed.clone());
    let ran = entered.and_then(|()| match &request.confinement {
        Confinement::None | Confinement::Landlock(_) => run_directly(&lifeline, &request),
        Confinement::Bubblewrap { .. } => run_bubblewrap(&request),
    });
    if let Err(error) = ran {
        protocol::send(&mut lifeline, &SupervisorReport::Refused(error.to_string()))?;
    }
    let mut reverted = std::mem::take(&mut *removed.lock().unwrap_or_else(PoisonError::into_inner));
    let Restored { restored, failed } = snapshot.restore();
    reverted.extend(restored);
    if !reverted.is_empty() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::Reverted(reverted.into_iter().collect()));
    }
    if !failed.is_empty() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::NotRestored(failed));
    }
    if let Some(limit) = cgroup.limit_reached() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::LimitReached(limit.to_owned()));
    }
    cgroup.leave();
    let _ = protocol::send(&mut lifeline, &SupervisorReport::Finished);
    Ok(())
}

/// Removes protected paths that the command creates, as long as this process lives. Neither back-end can prevent their
/// creation, and an editor or agent outside the sandbox could execute what such a file configures while the command is
/// still running. The final restore would come too late for that.
fn remove_while_running(missing: Vec<PathBuf>, removed: Arc<Mutex<BTreeSet<PathBuf>>>) {
    if missing.is_empty() {
        return;
    }
    let remove = move || {
        loop {
            thread::sleep(REMOVE_EVERY);
            removed.lock().unwrap_or_else(PoisonError::into_inner).extend(remove_appeared(&missing));
        }
    };
    let _ = thread::Builder::new().stack_size(128 << 10).spawn(remove);
}

/// Starts a session without a terminal, adopts orphans, and sets the limits.
fn prepare(limits: &ProcessLimits) -> Cgroup {
    let _ = sys::setsid();
    #[cfg(target_os = "linux")]
    let _ = sys::set_child_subreaper(Some(sys::getpid()));
    let cap = |resource, value| sys::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    let _ = cap(Resource::Core, 0);
    let _ = cap(Resource::Fsize, limits.file);
    // If memory runs out, the kernel should end the command and not the host.
    let _ = std::fs::write("/proc/self/oom_score_adj", "700");
    Cgroup::enter(limits)
}

fn run_directly(lifeline: &UnixStream, request: &SupervisorRequest) -> io::Result<()> {
    let mut command = match &request.confinement {
        Confinement::Landlock(rules) => {
            let mut command = Command::new(&request.helper);
            command.arg(CONFINE).arg(serde_json::to_string(rules)?).arg("--").args(&request.argv);
            command
        }
        Confinement::None | Confinement::Bubblewrap { .. } => {
            let (program, args) = request.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let mut command = Command::new(program);
            command.args(args);
            command
        }
    };
    command.env_clear().envs(&request.env).current_dir(&request.workdir);
    run_and_report(lifeline, command, &request.input, SignalReach::Descendants)
}

/// Moves this process, and all that it will start, into the command's network. Bubblewrap creates its own.
fn enter_network(confinement: &Confinement) -> io::Result<()> {
    let Confinement::Landlock(LandlockRules { net: CommandNetwork::Own { proxy_socket }, .. }) = confinement else {
        return Ok(());
    };
    relay::own_network().map_err(|error| io::Error::other(format!("cannot create a network namespace: {error}")))?;
    match proxy_socket {
        Some(socket) => relay::open(socket.clone()),
        None => Ok(()),
    }
}

/// Starts the command, waits for its end, and reports it.
fn run_and_report(
    mut lifeline: &UnixStream,
    mut command: Command,
    source: &StdinSource,
    reach: SignalReach,
) -> io::Result<()> {
    let stdin = if *source == StdinSource::Nothing { Stdio::null() } else { Stdio::piped() };
    let mut child = command.stdin(stdin).process_group(0).spawn()?;
    let tree = ProcessTree { main: pid_of(&child), reach };
    let pending = match source {
        StdinSource::Text(text) => text.clone().into_bytes(),
        StdinSource::Nothing | StdinSource::Forwarded => Vec::new(),
    };
    // If the lifeline is already closed, the waiter notices it and ends the command.
    let _ = protocol::send(&mut lifeline, &SupervisorReport::Started);
    let waiter = CommandWaiter { lifeline, tree: &tree, stdin: child.stdin.take(), pending, source: source.clone() };
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

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Starts bubblewrap and waits for it. It inherits the lifeline: the first process inside reads it, and the kernel ends the
/// namespace with that process.
fn run_bubblewrap(request: &SupervisorRequest) -> io::Result<()> {
    let Confinement::Bubblewrap { program, args, helper, sockets, proxy_socket } = &request.confinement else {
        return Ok(());
    };
    let mut command = Command::new(program);
    let source = if request.input == StdinSource::Forwarded { "forwarded" } else { "nothing" };
    command.args(args).arg("--").arg(helper).args([INIT, source, sockets.as_str()]);
    command.arg(request.limits.processes.to_string()).arg(proxy_socket.as_deref().unwrap_or(Path::new("")));
    command.arg("--").args(&request.argv);
    command.env_clear().envs(&request.env).current_dir("/");
    let child = command.spawn().map_err(|error| io::Error::other(format!("bubblewrap: {error}")))?;
    loop {
        match sys::waitpid(Some(pid_of(&child)), WaitOptions::empty()) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs as the first process of bubblewrap's namespace.
fn init(args: &[OsString]) -> i32 {
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
    let [source, sockets, processes, proxy_socket, _, program, rest @ ..] = args else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    limit_processes(processes.to_str().and_then(|text| text.parse().ok()));
    let source = if source == "forwarded" { StdinSource::Forwarded } else { StdinSource::Nothing };
    // Children inherit the filter; it blocks nothing that this process needs.
    landlock_seccomp::filter_syscalls(Sockets::from_str(sockets.to_str().unwrap_or_default()))
        .map_err(io::Error::other)?;
    if !proxy_socket.is_empty() {
        relay::open(proxy_socket.into())?;
    }
    let mut command = Command::new(program);
    command.args(rest);
    run_and_report(lifeline, command, &source, SignalReach::Namespace)
}

/// Limits the number of processes. The limit has no effect for root, and outside a user namespace it would also count the
/// user's other processes.
fn limit_processes(most: Option<u64>) {
    if !sys::getuid().is_root() && most.is_some() {
        let _ = sys::setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most });
    }
}

/// Confines this process, then becomes the command.
fn confine_and_execute(args: &[OsString]) -> i32 {
    let [rules, _, program, rest @ ..] = args else { return NOT_EXECUTED };
    let error = match confine_by(rules) {
        Ok(()) => Command::new(program).args(rest).exec().to_string(),
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "{}: {error}", program.display());
    NOT_EXECUTED
}

fn confine_by(rules: &OsString) -> Result<(), String> {
    let rules = rules.to_str().ok_or("the rules are not valid UTF-8")?;
    let rules = serde_json::from_str(rules).map_err(|error| error.to_string())?;
    landlock_seccomp::apply(&rules)
}

impl Sockets {
    fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Internet => "internet",
            Self::Namespaced => "namespaced",
        }
    }

    /// Parses the form of [`Sockets::as_str`]; anything unknown is the strictest.
    fn from_str(text: &str) -> Self {
        match text {
            "internet" => Self::Internet,
            "namespaced" => Self::Namespaced,
            _ => Self::None,
        }
    }
}
