//! Everybody below a process: who they are, and signals to all of them. Knows nothing of why.

use std::{collections::HashMap, fs, time::Duration};

use rustix::process::{self, Pid, Signal, WaitOptions, WaitStatus};

/// How a supervisor reaches everybody that its command has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalReach {
    /// It is the first process of a namespace: everybody else there belongs to the command.
    Namespace,
    /// It adopts orphans, so that whoever broke away is still below it.
    Descendants,
}

/// A command and everybody below its supervisor.
#[derive(Debug)]
pub(super) struct Family {
    /// The command itself, leader of its process group.
    pub(super) main: Pid,
    pub(super) reach: SignalReach,
}

impl Family {
    /// Sends `signal` to everybody.
    pub(super) fn signal(&self, signal: Signal) {
        match self.reach {
            // kill(-1) reaches the whole machine anywhere else, so the namespace is made certain of here.
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

    /// Kills everybody and waits until they are gone, two seconds at most: who sits in the kernel cannot be waited for.
    pub(super) fn end(&self) {
        for round in 0..1_000 {
            if !reap_all() {
                return;
            }
            // Who is stopped cannot fork, so that a crowd that multiplies does not outrun the signals.
            if round % 8 == 1 {
                self.signal(Signal::STOP);
            }
            self.signal(Signal::KILL);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Collects whoever has ended; `false` when nobody is left.
pub(super) fn reap_all() -> bool {
    loop {
        match process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => (),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Collects whoever has ended; the status of `main` if it is among them.
pub(super) fn reap(main: Pid) -> Option<WaitStatus> {
    let mut status = None;
    while let Ok(Some((pid, its))) = process::wait(WaitOptions::NOHANG) {
        if pid == main {
            status = Some(its);
        }
    }
    status
}

/// Everybody below `root` who has not ended yet.
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

/// Processes and their parents, without those that have ended and only wait to be collected.
fn living() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may contain anything, so the fields are counted from its end.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some((pid, parent))
    })
    .collect()
}
