//! Limits on processes and memory through control groups, of either version, where there are any and we may use them.
//! Absence is normal: then the limits do not hold, and whoever asks is told so.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::process::{kill::reap_all, protocol::ProcessLimits};

/// A group that holds this process and everything it starts.
#[derive(Debug)]
pub(super) struct Cgroup {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    folder: PathBuf,
    parent: PathBuf,
}

/// Where a limit is written: the controller of version 1, and the files of versions 1 and 2.
struct Knob {
    controller: &'static str,
    v1: &'static str,
    v2: &'static str,
    value: u64,
}

impl Cgroup {
    /// Makes a group with the limits and moves this process into it.
    pub(super) fn enter(limits: &ProcessLimits) -> Self {
        let memory = limits.memory.or_else(|| Some(total_memory()? / 4 * 3));
        let mut knobs =
            vec![Knob { controller: "pids", v1: "pids.max", v2: "pids.max", value: u64::from(limits.processes) }];
        knobs.extend(memory.map(|value| Knob {
            controller: "memory",
            v1: "memory.limit_in_bytes",
            v2: "memory.max",
            value,
        }));
        let mine = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let name = format!("homing-{}", std::process::id());
        Self { groups: knobs.iter().filter_map(|knob| enter_v1(knob, &mine, &name)).collect() }
            .or_v2(&knobs, &mine, &name)
    }

    fn or_v2(self, knobs: &[Knob], mine: &str, name: &str) -> Self {
        if !self.groups.is_empty() {
            return self;
        }
        Self { groups: enter_v2(knobs, mine, name).into_iter().collect() }
    }

    /// Which limit the kernel had to enforce, if any.
    pub(super) fn limit_reached(&self) -> Option<&'static str> {
        let counts = |folder: &Path, file: &str, key: &str| {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim().parse() != Ok(0_u64)))
        };
        self.groups.iter().find_map(|group| {
            if counts(&group.folder, "pids.events", "max ") {
                return Some("processes");
            }
            let killed = counts(&group.folder, "memory.events", "oom_kill ")
                || counts(&group.folder, "memory.oom_control", "oom_kill ");
            killed.then_some("memory")
        })
    }

    /// Leaves the group and takes it away.
    pub(super) fn leave(self) {
        for group in self.groups {
            let _ = fs::write(group.parent.join("cgroup.procs"), std::process::id().to_string());
            // Who has just been killed still counts for a moment.
            for _ in 0..100 {
                reap_all();
                if fs::remove_dir(&group.folder).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn enter_v1(knob: &Knob, mine: &str, name: &str) -> Option<Group> {
    let place = mine.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, place) = rest.split_once(':')?;
        controllers.split(',').any(|it| it == knob.controller).then_some(place)
    })?;
    let mount = Path::new("/sys/fs/cgroup").join(knob.controller);
    let parent = mount.join(place.trim_start_matches('/'));
    let folder = parent.join(name);
    fs::create_dir(&folder).ok()?;
    join(Group { folder, parent }, &[(knob.v1, knob.value)])
}

fn enter_v2(knobs: &[Knob], mine: &str, name: &str) -> Option<Group> {
    let place = mine.lines().find_map(|line| line.strip_prefix("0::"))?;
    let parent = Path::new("/sys/fs/cgroup").join(place.trim_start_matches('/'));
    let folder = parent.join(name);
    fs::create_dir(&folder).ok()?;
    let values: Vec<(&str, u64)> =
        knobs.iter().map(|knob| (knob.v2, knob.value)).filter(|(file, _)| folder.join(file).exists()).collect();
    join(Group { folder, parent }, &values)
}

/// A group that cannot be filled is taken away again.
fn join(group: Group, values: &[(&str, u64)]) -> Option<Group> {
    let written = values.iter().all(|(file, value)| fs::write(group.folder.join(file), value.to_string()).is_ok());
    let joined = !values.is_empty()
        && written
        && fs::write(group.folder.join("cgroup.procs"), std::process::id().to_string()).is_ok();
    if !joined {
        let _ = fs::remove_dir(&group.folder);
        return None;
    }
    Some(group)
}

fn total_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}
