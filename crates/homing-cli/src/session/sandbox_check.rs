//! Checks before a run whether a sandbox works, so that the user is warned early.
//!
//! A check starts several processes, which takes longer than the rest of the start. So its success is kept in a file, for this boot,
//! these namespaces and these programs. The file decides about a warning only: the first command tries the sandbox in any case,
//! and is refused if it does not work.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use homing::{Homing, environment};

/// Returns the reason why commands are refused, if no sandbox works. `state` is the folder for the result, `private` the parent of
/// the folders that commands may write to.
pub(super) async fn sandbox_problem(homing: &Homing, state: Option<&Path>, private: &Path) -> Option<String> {
    let kept = state.map(|folder| folder.join("sandbox-works"));
    if let (Some(file), Some(now)) = (&kept, circumstances(private))
        && fs::read_to_string(file).is_ok_and(|then| then == now)
    {
        return None;
    }
    let problem = homing.sandbox_problem().await;
    // The check may have made the private folder.
    if let (None, Some(file), Some(now)) = (&problem, kept, circumstances(private)) {
        // If it cannot be written, the next run checks again.
        let _ = state.map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(file, now));
    }
    problem
}

/// Describes everything that the result of the check depends on; `None` if that cannot be determined.
fn circumstances(private: &Path) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    let (user, mount) = (namespace("user")?, namespace("mnt")?);
    let program = environment::executable().ok()?;
    let path = environment::variable("PATH")?;
    let bubblewrap = std::env::split_paths(&path).map(|folder| folder.join("bwrap")).find(|path| path.is_file());
    let mut lines = vec![boot.trim().to_owned(), format!("{user:?} {mount:?}")];
    for file in [Some(program), bubblewrap].into_iter().flatten() {
        let about = fs::metadata(&file).ok()?;
        lines.push(format!("{} {} {} {}", file.display(), about.len(), about.mtime(), about.mtime_nsec()));
    }
    // Who runs it decides which namespaces can be made; commands are refused if others can write to the private folder.
    lines.push(fs::metadata("/proc/self").ok()?.uid().to_string());
    let about = fs::symlink_metadata(private).ok()?;
    lines.push(format!("{} {} {:o}", private.display(), about.uid(), about.mode()));
    Some(lines.join("\n"))
}
