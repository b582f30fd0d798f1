//! Finds, signals and reaps all processes below a supervisor.

use std::{collections::HashMap, fs, time::Duration};

use rustix::process::{self, Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

/// The way in which a supervisor reaches every process that its command started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SignalReach {
    /// The supervisor is the first process of a PID namespace: all others in it belong to the command.
    Namespace,
    /// The supervisor adopts orphans, so a process that detached is still below it.
    Descendants,
}

/// A command and all processes below its supervisor.
#[derive(Debug)]
pub(super) struct ProcessTree {
    /// The command itself, leader of its process group.
    pub(super) main: Pid,
    pub(super) reach: SignalReach,
}

impl ProcessTree {
    /// Sends `signal` to every process.
    pub(super) fn signal(&self, signal: Signal) {
        match self.reach {
            // Outside the namespace kill(-1) would reach the whole machine, so this is checked first.
            SignalReach::Namespace if process::getpid() == Pid::INIT => {
                let _ = process::kill_process_group(Pid::INIT, signal);
            }
            SignalReach::Namespace | SignalReach::Descendants => {
                let _ = process::kill_process_group(self.main, signal);
                for pid in descendants(process::getpid()) {
                    let _ = process::kill_process(pid, signal);
                }
            }
        }
    }

    /// Kills every process and waits at most two seconds for their end. A process that is blocked in the kernel may stay longer.
    pub(super) fn end(&self) {
        for round in 0..1_000 {
            if !reap_all() {
                return;
            }
            // A stopped process cannot fork, so a fork bomb does not outrun the signals.
            if round % 8 == 1 {
                self.signal(Signal::STOP);
            }
            self.signal(Signal::KILL);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Reaps processes that have ended; returns false if there are no children left.
pub(super) fn reap_all() -> bool {
    loop {
        match process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => (),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Reaps processes that have ended; returns the status of `main` if it is one of them.
pub(super) fn reap(main: Pid) -> Option<WaitStatus> {
    let mut main_status = None;
    while let Ok(Some((pid, status))) = process::wait(WaitOptions::NOHANG) {
        if pid == main {
            main_status = Some(status);
        }
    }
    main_status
}

/// Returns the number of threads of all processes below `root`.
pub(super) fn thread_count(root: Pid) -> usize {
    below(root).iter().map(|process| process.threads).sum()
}

/// Returns true if the processes below `root` use at least `limit` bytes of memory.
///
/// The sizes of processes count shared memory several times, so they only show that the limit cannot be reached. If it may
/// be, the kernel is asked for each process's proportional part, which takes longer.
pub(super) fn uses_memory(root: Pid, limit: u64) -> bool {
    let sizes: Vec<(i32, u64)> = below(root)
        .iter()
        .filter_map(|process| Some((process.pid, kibibytes(process.pid, "status", "VmRSS:")?)))
        .collect();
    let resident: u64 = sizes.iter().map(|(_, size)| size).sum();
    // If the proportional part is unknown, the whole process counts.
    let proportional = |(pid, size): &(i32, u64)| kibibytes(*pid, "smaps_rollup", "Pss:").unwrap_or(*size);
    resident >= limit / 1_024 && sizes.iter().map(proportional).sum::<u64>() >= limit / 1_024
}

/// Returns a size from a file that the kernel keeps about a process.
fn kibibytes(pid: i32, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
}

/// Returns every process below `root` that has not ended.
fn descendants(root: Pid) -> Vec<Pid> {
    below(root).iter().filter_map(|process| Pid::from_raw(process.pid)).collect()
}

#[derive(Clone, Copy)]
struct LivingProcess {
    pid: i32,
    parent: i32,
    threads: usize,
}

fn below(root: Pid) -> Vec<LivingProcess> {
    let mut children: HashMap<i32, Vec<LivingProcess>> = HashMap::new();
    for process in living() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut next = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        next.extend(below.iter().map(|process| process.pid));
        found.extend(below);
    }
    found
}

/// Returns all processes except zombies.
fn living() -> Vec<LivingProcess> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain anything, so the fields are read from its end.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let [state, parent, ..] = fields[..] else { return None };
        let (parent, threads) = (parent.parse().ok()?, fields.get(17)?.parse().ok()?);
        (!matches!(state, "Z" | "X")).then_some(LivingProcess { pid, parent, threads })
    })
    .collect()
}
