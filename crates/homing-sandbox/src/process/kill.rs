//! Finds, signals and reaps all processes below a supervisor.

use std::{collections::HashMap, fs, time::Duration};

use rustix::process::{self, Pid, Signal, WaitOptions, WaitStatus};

/// The way in which a supervisor reaches every process that its command started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Returns every process below `root` that has not ended.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in living() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut next = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(below.iter().filter_map(|pid| Pid::from_raw(*pid)));
        next.extend(below);
    }
    found
}

/// Returns all processes with their parents, except zombies.
fn living() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain anything, so the fields are read from its end.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some((pid, parent))
    })
    .collect()
}
