//! The supervisor, a stage of the helper binary: takes the request, sets limits, starts the command's first process, and
//! restores protected files when the command has ended. It is alone in its process and may change that process freely.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io,
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::PathBuf,
    process::{Command, exit},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::FdFlags,
    process::{self as sys, Pid, Resource, Rlimit},
};

use crate::process::{
    cgroup::{Cgroup, machine_memory, memory_limit},
    init::{CONFINE, INIT, InitRequest, Rights, confine_and_execute, init},
    kill::{ProcessTree, SignalReach, reap, thread_count, uses_memory},
    protocol::{self, CommandNetwork, Confinement, LandlockRules, ProcessLimits, SupervisorReport, SupervisorRequest},
    relay,
    restore_files::{Restored, Snapshot, remove_appeared},
    wait::pidfd,
};

/// The argument that makes the binary a supervisor.
pub(super) const SUPERVISE: &str = "__homing-supervise";

/// Interval at which protected paths that a command creates are removed.
const REMOVE_EVERY: Duration = Duration::from_millis(25);

/// Interval at which the processes and the memory of a command are counted, if no control group limits them.
const COUNT_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Number of intervals after which memory is counted even if the machine's did not shrink: another program may have freed as
/// much as the command took.
const MEMORY_ROUNDS: u32 = 10;

/// Processes and threads of the supervisor and the sandbox themselves, at most.
const OWN_PROCESSES: u64 = 16;

/// The exit code of shells for a command that cannot be executed.
pub(super) const NOT_EXECUTED: i32 = 126;

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

/// The isolation and limits that the kernel provides for the command.
struct KernelSupport {
    /// The command is in a user namespace, where its user has no other processes.
    own_users: bool,
    /// The command's first process is the first of a PID namespace.
    own_pids: bool,
    /// A control group limits the number of processes.
    cgroup_counts: bool,
    /// A control group limits memory.
    cgroup_limits_memory: bool,
}

/// Limits that the supervisor enforces, because no control group does.
struct CountedLimits {
    processes: Option<usize>,
    memory: Option<u64>,
}

/// Opens the lifeline, which is the standard input.
pub(super) fn lifeline() -> io::Result<UnixStream> {
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
    let entered = enter_namespaces(&request.confinement);
    let removed = Arc::new(Mutex::new(BTreeSet::new()));
    remove_while_running(snapshot.missing(), removed.clone());
    let ran = entered.and_then(|own_users| {
        // Processes come last: a process whose children are in another PID namespace can start no thread.
        let own_pids = matches!(request.confinement, Confinement::Landlock(_)) && relay::own_processes();
        let (cgroup_counts, cgroup_limits_memory) = (cgroup.counts_processes(), cgroup.limits_memory());
        let support = KernelSupport { own_users, own_pids, cgroup_counts, cgroup_limits_memory };
        run(&request, &support)
    });
    if let Err(error) = &ran {
        // If the host is gone, the files must be restored all the same.
        let _ = protocol::send(&mut lifeline, &SupervisorReport::Refused(error.to_string()));
    }
    let counted = ran.unwrap_or_default();
    // Held until the end: a path that is removed while it is being restored would count as neither.
    let mut reverted = removed.lock().unwrap_or_else(PoisonError::into_inner);
    let Restored { restored, failed } = snapshot.restore();
    reverted.extend(restored);
    if !reverted.is_empty() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::Reverted(reverted.iter().cloned().collect()));
    }
    if !failed.is_empty() {
        let _ = protocol::send(&mut lifeline, &SupervisorReport::NotRestored(failed));
    }
    if let Some(limit) = counted.or_else(|| cgroup.limit_reached()) {
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

/// Starts the first process of the command and waits for it. It inherits the lifeline, reads it and reports.
fn run(request: &SupervisorRequest, support: &KernelSupport) -> io::Result<Option<&'static str>> {
    // The first process reads its request from the pipe. Only this process holds the other end, so that its death closes it.
    let (reader, mut writer) = io::pipe()?;
    rustix::io::fcntl_setfd(&reader, FdFlags::empty())?;
    let (mut command, init) = first_process(request, support);
    command.arg(INIT).arg(reader.as_raw_fd().to_string()).arg("--").args(&request.argv);
    command.env_clear().envs(&request.env);
    let spawned = command.spawn();
    let child = spawned.map_err(|error| io::Error::other(format!("{}: {error}", command.get_program().display())))?;
    drop(reader);
    // If it has already ended, the cause is in its output.
    let _ = protocol::send(&mut writer, &init);
    let tree = ProcessTree { main: Pid::from_child(&child), reach: SignalReach::Descendants };
    let limits = CountedLimits {
        processes: usize::try_from(request.limits.processes).ok().filter(|_| !support.cgroup_counts),
        memory: memory_limit(&request.limits).filter(|_| !support.cgroup_limits_memory),
    };
    let limit = wait_and_count(&tree, &limits);
    tree.end();
    Ok(limit)
}

/// Builds the command line of the first process, with the sandbox around it, and its request.
fn first_process(request: &SupervisorRequest, support: &KernelSupport) -> (Command, InitRequest) {
    // A little more than the limit that the supervisor counts to: it reports it, the kernel only stops a fork bomb.
    let most = u64::from(request.limits.processes) + OWN_PROCESSES;
    let processes = support.own_users.then_some(most);
    let in_namespace = |init: InitRequest| InitRequest { reach: SignalReach::Namespace, ..init };
    let plain = InitRequest {
        helper: request.helper.clone(),
        source: request.input.clone(),
        processes,
        proxy_socket: None,
        rights: Rights::All,
        reach: SignalReach::Descendants,
    };
    let (mut command, init) = match &request.confinement {
        Confinement::None => (Command::new(&request.helper), plain),
        Confinement::Landlock(rules) => {
            let proxy_socket = match &rules.net {
                CommandNetwork::Own { proxy_socket } => proxy_socket.clone(),
                CommandNetwork::Machine => None,
            };
            let init = InitRequest { proxy_socket, rights: Rights::Landlock(rules.clone()), ..plain };
            (Command::new(&request.helper), if support.own_pids { in_namespace(init) } else { init })
        }
        Confinement::Seatbelt { program, profile, proxy_socket } => {
            let rights = Rights::Seatbelt { program: program.clone(), profile: profile.clone() };
            (Command::new(&request.helper), InitRequest { proxy_socket: proxy_socket.clone(), rights, ..plain })
        }
        Confinement::Bubblewrap { program, args, helper, sockets, proxy_socket } => {
            let mut command = Command::new(program);
            command.args(args).arg("--").arg(helper).current_dir("/");
            // Root is exempt from the limit; any other user is in a user namespace.
            let processes = (!sys::getuid().is_root()).then_some(most);
            let (rights, proxy_socket) = (Rights::Namespaces(*sockets), proxy_socket.clone());
            (command, in_namespace(InitRequest { helper: helper.clone(), processes, proxy_socket, rights, ..plain }))
        }
    };
    if !matches!(request.confinement, Confinement::Bubblewrap { .. }) {
        command.current_dir(&request.workdir);
    }
    (command, init)
}

/// Waits for the first process. Ends the command if it reaches a limit, and returns that limit.
fn wait_and_count(tree: &ProcessTree, limits: &CountedLimits) -> Option<&'static str> {
    let others = total_threads();
    let available = || machine_memory("MemAvailable:").unwrap_or(0);
    let available_before = available();
    for round in 1_u32.. {
        if reap(tree.main).is_some() {
            return None;
        }
        let pidfd = pidfd(tree.main);
        let mut fds: Vec<PollFd<'_>> = pidfd.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&COUNT_EVERY));
        // Looking at the descendants reads a file of every process, so it is done only if the machine has more of them, or
        // less memory.
        let has_too_many =
            |most: usize| total_threads().saturating_sub(others) >= most / 2 && thread_count(sys::getpid()) >= most;
        let takes_too_much = |limit: u64| {
            let may = round % MEMORY_ROUNDS == 0 || available_before.saturating_sub(available()) >= limit / 2;
            may && uses_memory(sys::getpid(), limit)
        };
        let reached = if limits.processes.is_some_and(has_too_many) {
            "processes"
        } else if limits.memory.is_some_and(takes_too_much) {
            "memory"
        } else {
            continue;
        };
        tree.end();
        return Some(reached);
    }
    None
}

/// Returns the number of threads on the machine.
fn total_threads() -> usize {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = text.split_whitespace().nth(3).and_then(|field| field.split_once('/')?.1.parse().ok());
    threads.unwrap_or(usize::MAX)
}

/// Moves this process, and all that it will start, into the namespaces that a command under Landlock gets. Bubblewrap
/// creates its own.
fn enter_namespaces(confinement: &Confinement) -> io::Result<bool> {
    match confinement {
        Confinement::Landlock(LandlockRules { net: CommandNetwork::Own { .. }, .. }) => relay::own_network()
            .map_err(|error| io::Error::other(format!("cannot create a network namespace: {error}"))),
        Confinement::Landlock(_)
        | Confinement::Bubblewrap { .. }
        | Confinement::Seatbelt { .. }
        | Confinement::None => Ok(false),
    }
}
