//! The hidden face of the host's binary: the supervising process, the first process of a namespace, and the last step
//! before a confined command. Runs alone in its process, so that it may change that process as it likes.

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
        kill::{Family, SignalReach},
        protocol::{self, Feed, Jail, LandlockRules, Net, ProcessLimits, Sockets, SupervisorReport, SupervisorRequest},
        relay,
        restore_files::{Snapshot, take_away},
        wait::{Attendant, CommandWatch},
    },
};

/// The argument that makes the binary a supervisor.
pub(super) const SUPERVISE: &str = "__homing-supervise";
const INIT: &str = "__homing-init";
const CONFINE: &str = "__homing-confine";

/// How long an authority file that a command makes can be there.
const GUARD_EVERY: Duration = Duration::from_millis(25);

/// What a shell says when it cannot execute.
const NOT_EXECUTED: i32 = 126;

/// Becomes the supervising process if the arguments say so, and then does not return. Hosts whose binary is to be
/// their own helper call this first in `main`, before any thread is started.
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
    // When the other side dies before the order is complete, there is nothing to do and nobody to tell.
    let order: SupervisorRequest = protocol::receive(&mut lifeline)?;
    let cgroup = prepare(&order.limits);
    let memory = Snapshot::of(&order.kept);
    // The network comes first: a process with threads cannot enter one of its own.
    let entered = enter(&order.jail);
    let taken = Arc::new(Mutex::new(BTreeSet::new()));
    guard(memory.missing(), taken.clone());
    let begun = entered.and_then(|()| match &order.jail {
        Jail::Open | Jail::Landlock(_) => attend_directly(&lifeline, &order),
        Jail::Bubblewrap { .. } => await_bubblewrap(&order),
    });
    if let Err(error) = begun {
        protocol::send(&mut lifeline, &SupervisorReport::Refused(error.to_string()))?;
    }
    let mut reverted = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    reverted.extend(memory.put_back());
    if !reverted.is_empty() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::Reverted(reverted.into_iter().collect()));
    }
    if let Some(limit) = cgroup.limit_reached() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::LimitReached(limit.to_owned()));
    }
    cgroup.leave();
    Ok(())
}

/// Takes away what must not come into being, as long as this process lives. What is left at the end is put back then.
fn guard(missing: Vec<PathBuf>, taken: Arc<Mutex<BTreeSet<PathBuf>>>) {
    if missing.is_empty() {
        return;
    }
    let watch = move || {
        loop {
            thread::sleep(GUARD_EVERY);
            taken.lock().unwrap_or_else(PoisonError::into_inner).extend(take_away(&missing));
        }
    };
    let _ = thread::Builder::new().stack_size(128 << 10).spawn(watch);
}

/// A session of its own (no terminal), orphans come to us, and limits on what is to come.
fn prepare(limits: &ProcessLimits) -> Cgroup {
    let _ = sys::setsid();
    #[cfg(target_os = "linux")]
    let _ = sys::set_child_subreaper(Some(sys::getpid()));
    let cap = |resource, value| sys::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    let _ = cap(Resource::Core, 0);
    let _ = cap(Resource::Fsize, limits.file);
    // If memory runs out, this is what the kernel should end, not the runtime.
    let _ = std::fs::write("/proc/self/oom_score_adj", "700");
    Cgroup::enter(limits)
}

fn attend_directly(lifeline: &UnixStream, order: &SupervisorRequest) -> io::Result<()> {
    let mut command = match &order.jail {
        Jail::Landlock(rules) => {
            let mut command = Command::new(&order.helper);
            command.arg(CONFINE).arg(serde_json::to_string(rules)?).arg("--").args(&order.argv);
            command
        }
        Jail::Open | Jail::Bubblewrap { .. } => {
            let (program, args) = order.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let mut command = Command::new(program);
            command.args(args);
            command
        }
    };
    command.env_clear().envs(&order.env).current_dir(&order.workdir);
    watch_over(lifeline, command, &order.input, SignalReach::Descendants)
}

/// Takes this process and all that it will start into the command's network; bubblewrap makes its own.
fn enter(jail: &Jail) -> io::Result<()> {
    let Jail::Landlock(LandlockRules { net: Net::Own { way_out }, .. }) = jail else { return Ok(()) };
    relay::own_network().map_err(|error| io::Error::other(format!("no network of its own: {error}")))?;
    match way_out {
        Some(socket) => relay::open(socket.clone()),
        None => Ok(()),
    }
}

/// Starts the command, watches over it, reports how it ended.
fn watch_over(mut lifeline: &UnixStream, mut command: Command, feed: &Feed, reach: SignalReach) -> io::Result<()> {
    let stdin = if *feed == Feed::Nothing { Stdio::null() } else { Stdio::piped() };
    let mut child = command.stdin(stdin).process_group(0).spawn()?;
    let family = Family { main: pid_of(&child), reach };
    let pending = match feed {
        Feed::Text(text) => text.clone().into_bytes(),
        Feed::Nothing | Feed::Forwarded => Vec::new(),
    };
    // A lifeline that is broken already is found out by the watch, which then ends what has just begun.
    let _ = protocol::send(&mut lifeline, &SupervisorReport::Started);
    let attendant = Attendant { lifeline, family: &family, stdin: child.stdin.take(), pending, feed: feed.clone() };
    match attendant.attend() {
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

/// Bubblewrap gets the lifeline as it is: the first process inside reads it, and takes the namespace with it when it ends.
fn await_bubblewrap(order: &SupervisorRequest) -> io::Result<()> {
    let Jail::Bubblewrap { program, args, helper, sockets, way_out } = &order.jail else { return Ok(()) };
    let mut command = Command::new(program);
    let feed = if order.input == Feed::Forwarded { "forwarded" } else { "nothing" };
    command.args(args).arg("--").arg(helper).args([INIT, feed, sockets.as_str()]);
    command.arg(order.limits.processes.to_string()).arg(way_out.as_deref().unwrap_or(Path::new("")));
    command.arg("--").args(&order.argv);
    command.env_clear().envs(&order.env).current_dir("/");
    let child = command.spawn().map_err(|error| io::Error::other(format!("bubblewrap: {error}")))?;
    loop {
        match sys::waitpid(Some(pid_of(&child)), WaitOptions::empty()) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The first process of bubblewrap's namespace.
fn init(args: &[OsString]) -> i32 {
    let Ok(mut lifeline) = lifeline() else { return NOT_EXECUTED };
    let told = init_with(&lifeline, args);
    match told {
        Ok(()) => 0,
        Err(error) => {
            let _ = protocol::send(&mut lifeline, &SupervisorReport::Refused(error.to_string()));
            NOT_EXECUTED
        }
    }
}

fn init_with(lifeline: &UnixStream, args: &[OsString]) -> io::Result<()> {
    let [feed, sockets, processes, way_out, _, program, rest @ ..] = args else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    limit_processes(processes.to_str().and_then(|it| it.parse().ok()));
    let feed = if feed == "forwarded" { Feed::Forwarded } else { Feed::Nothing };
    // Children inherit the filter; it takes nothing away that this process needs.
    landlock_seccomp::filter_syscalls(Sockets::from_str(sockets.to_str().unwrap_or_default()))
        .map_err(io::Error::other)?;
    if !way_out.is_empty() {
        relay::open(way_out.into())?;
    }
    let mut command = Command::new(program);
    command.args(rest);
    watch_over(lifeline, command, &feed, SignalReach::Namespace)
}

/// For root this limit means nothing, and outside a user namespace it would count the user's other processes as well.
fn limit_processes(most: Option<u64>) {
    if !sys::getuid().is_root() && most.is_some() {
        let _ = sys::setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most });
    }
}

/// Confines this very process, then becomes the command.
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
    let rules = rules.to_str().ok_or("unreadable rules")?;
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

    /// Anything unknown is the tightest.
    fn from_str(text: &str) -> Self {
        match text {
            "internet" => Self::Internet,
            "namespaced" => Self::Namespaced,
            _ => Self::None,
        }
    }
}
