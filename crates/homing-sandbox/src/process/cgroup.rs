//! Limits processes and memory through control groups of version 1 or 2, if they exist and are writable. If not, which is
//! common, the supervisor enforces the limits.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::process::{kill::reap_all, protocol::ProcessLimits};

/// The beginning of a group's name; the ID of its supervisor follows.
const PREFIX: &str = "homing-";

/// A group that holds this process and everything it starts.
#[derive(Debug)]
pub(super) struct Cgroup {
    groups: Vec<CgroupFolder>,
}

#[derive(Debug)]
struct CgroupFolder {
    folder: PathBuf,
    parent: PathBuf,
}

/// One limit: its controller in version 1, its file names in versions 1 and 2, and its value.
struct CgroupSetting {
    controller: &'static str,
    v1: &'static str,
    v2: &'static str,
    value: u64,
}

impl Cgroup {
    /// Creates a group with the limits and moves this process into it.
    pub(super) fn enter(limits: &ProcessLimits) -> Self {
        let memory = memory_limit(limits);
        let mut settings = vec![CgroupSetting {
            controller: "pids",
            v1: "pids.max",
            v2: "pids.max",
            value: u64::from(limits.processes),
        }];
        settings.extend(memory.map(|value| CgroupSetting {
            controller: "memory",
            v1: "memory.limit_in_bytes",
            v2: "memory.max",
            value,
        }));
        let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let name = format!("{PREFIX}{}", std::process::id());
        Self { groups: settings.iter().filter_map(|setting| enter_v1(setting, &own_groups, &name)).collect() }.or_v2(
            &settings,
            &own_groups,
            &name,
        )
    }

    fn or_v2(self, settings: &[CgroupSetting], own_groups: &str, name: &str) -> Self {
        if !self.groups.is_empty() {
            return self;
        }
        Self { groups: enter_v2(settings, own_groups, name).into_iter().collect() }
    }

    /// Returns true if the group limits the number of processes.
    pub(super) fn counts_processes(&self) -> bool {
        self.groups.iter().any(|group| group.folder.join("pids.max").exists())
    }

    /// Returns true if the group limits memory.
    pub(super) fn limits_memory(&self) -> bool {
        let files = ["memory.max", "memory.limit_in_bytes"];
        self.groups.iter().any(|group| files.iter().any(|file| group.folder.join(file).exists()))
    }

    /// Returns the limit that the kernel had to enforce, if any.
    pub(super) fn limit_reached(&self) -> Option<&'static str> {
        let has_count = |folder: &Path, file: &str, key: &str| {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim().parse() != Ok(0_u64)))
        };
        self.groups.iter().find_map(|group| {
            if has_count(&group.folder, "pids.events", "max ") {
                return Some("processes");
            }
            let killed = has_count(&group.folder, "memory.events", "oom_kill ")
                || has_count(&group.folder, "memory.oom_control", "oom_kill ");
            killed.then_some("memory")
        })
    }

    /// Leaves the group and removes it.
    pub(super) fn leave(self) {
        for group in self.groups {
            let _ = fs::write(group.parent.join("cgroup.procs"), std::process::id().to_string());
            // A process that was just killed stays in the group for a moment.
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

/// Removes the groups of supervisors that were killed. The kernel removes only empty groups.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn enter_v1(setting: &CgroupSetting, own_groups: &str, name: &str) -> Option<CgroupFolder> {
    let place = own_groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, place) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == setting.controller).then_some(place)
    })?;
    let mount = Path::new("/sys/fs/cgroup").join(setting.controller);
    let parent = mount.join(place.trim_start_matches('/'));
    remove_abandoned(&parent);
    let folder = parent.join(name);
    fs::create_dir(&folder).ok()?;
    join(CgroupFolder { folder, parent }, &[(setting.v1, setting.value)])
}

fn enter_v2(settings: &[CgroupSetting], own_groups: &str, name: &str) -> Option<CgroupFolder> {
    let place = own_groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let parent = Path::new("/sys/fs/cgroup").join(place.trim_start_matches('/'));
    remove_abandoned(&parent);
    let folder = parent.join(name);
    fs::create_dir(&folder).ok()?;
    let values: Vec<(&str, u64)> = settings
        .iter()
        .map(|setting| (setting.v2, setting.value))
        .filter(|(file, _)| folder.join(file).exists())
        .collect();
    join(CgroupFolder { folder, parent }, &values)
}

/// Sets the limits and joins the group. If that fails, the group is removed again.
fn join(group: CgroupFolder, values: &[(&str, u64)]) -> Option<CgroupFolder> {
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

/// Returns the limit on memory in bytes: the given one, or three quarters of the machine's memory.
pub(super) fn memory_limit(limits: &ProcessLimits) -> Option<u64> {
    limits.memory.or_else(|| Some(machine_memory("MemTotal:")? / 4 * 3))
}

/// Returns an amount of the machine's memory in bytes.
pub(super) fn machine_memory(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}
