//! Opens a path below a folder so that no link, rename or `..` leads out of it, even if other processes change the folder
//! at the same time.

use std::{
    collections::VecDeque,
    ffi::OsString,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, openat, readlinkat},
    io::Errno,
};

/// Flags for opening a folder as the base of further opens.
#[cfg(target_os = "linux")]
pub(crate) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags for opening a folder as the base of further opens.
#[cfg(not(target_os = "linux"))]
pub(crate) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Maximum number of links to follow, as in the kernel.
const MAX_LINKS: usize = 40;

/// Opens `path` below `root`. [`Errno::XDEV`] means that it leads out.
pub(crate) fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match open_by_kernel(root, path, flags) {
        // Old kernels lack `openat2`, and some containers forbid it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(root, path, flags),
        opened => opened,
    }
}

#[cfg(target_os = "linux")]
fn open_by_kernel(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel returns EAGAIN after a concurrent rename; an attacker could cause that forever.
    for _ in 0..128 {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => (),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
fn open_by_kernel(_root: &OwnedFd, _path: &Path, _flags: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Opens one component at a time and resolves links itself. Each step is relative to a descriptor, so that renaming a
/// folder that was already opened has no effect.
pub(crate) fn open_by_steps(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut folders = vec![openat(root, ".", FOLDER, Mode::empty())?];
    let mut todo: VecDeque<OsString> = VecDeque::new();
    prepend(&mut todo, path)?;
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        let folder = folders.last().expect("the root is never taken away");
        if name == ".." {
            folders.pop();
            if folders.is_empty() {
                return Err(Errno::XDEV);
            }
            continue;
        }
        match readlinkat(folder, &name, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                prepend(&mut todo, &PathBuf::from(OsString::from_vec(target.into_bytes())))?;
            }
            Err(Errno::INVAL) if todo.is_empty() => {
                return openat(folder, &name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            }
            Err(Errno::INVAL) => folders.push(openat(folder, &name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?),
            Err(error) => return Err(error),
        }
    }
    openat(folders.last().expect("the root is never taken away"), ".", flags | OFlags::CLOEXEC, Mode::empty())
}

fn prepend(todo: &mut VecDeque<OsString>, path: &Path) -> Result<(), Errno> {
    for component in path.components().rev() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => todo.push_front("..".into()),
            Component::Normal(name) => todo.push_front(name.to_owned()),
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    Ok(())
}

/// Returns the real path of an open file, with all links resolved.
pub(crate) fn real_path(fd: &OwnedFd, fallback: &Path) -> PathBuf {
    use std::os::fd::AsRawFd;
    match std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
        Ok(real) if real.is_absolute() => real,
        Ok(_) | Err(_) => fallback.canonicalize().unwrap_or_else(|_| fallback.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    type ConfinedOpen = fn(&OwnedFd, &Path, OFlags) -> Result<OwnedFd, Errno>;

    /// Runs a check with both implementations, which must agree.
    fn both_ways(check: impl Fn(ConfinedOpen)) {
        check(open);
        check(open_by_steps);
    }

    fn root(at: &Path) -> OwnedFd {
        rustix::fs::open(at, FOLDER, Mode::empty()).unwrap()
    }

    #[test]
    fn p3_only_links_that_stay_inside_are_followed() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("root");
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::write(place.path().join("secret"), "s").unwrap();
        std::fs::write(inside.join("a/b/file"), "f").unwrap();
        symlink("b/file", inside.join("a/near")).unwrap();
        symlink("../a/b", inside.join("a/round")).unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink("/etc", inside.join("far")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        both_ways(|open| {
            let root = root(&inside);
            let result = |path: &str| open(&root, Path::new(path), OFlags::RDONLY).map(|_| ());
            assert_eq!(result("a/near"), Ok(()));
            assert_eq!(result("a/round/file"), Ok(()));
            assert_eq!(result("a/../a/b/file"), Ok(()));
            assert_eq!(result("."), Ok(()));
            assert_eq!(result("out"), Err(Errno::XDEV));
            assert_eq!(result("a/../../secret"), Err(Errno::XDEV));
            assert_eq!(result("far/passwd"), Err(Errno::XDEV));
            assert_eq!(result("/etc/passwd"), Err(Errno::XDEV));
            assert_eq!(result("loop"), Err(Errno::LOOP));
            assert_eq!(result("missing/x"), Err(Errno::NOENT));
        });
    }

    #[test]
    fn inv38_swapped_folder_never_leads_out() {
        use std::{io::Read, sync::atomic::AtomicBool, sync::atomic::Ordering, time::Duration, time::Instant};
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("root"), place.path().join("outside"));
        for (folder, content) in [(inside.join("dir"), "harmless"), (outside.clone(), "SECRET")] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("target"), content).unwrap();
        }
        symlink("../outside", inside.join("link")).unwrap();
        let stop = AtomicBool::new(false);
        let (mut opened, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (dir, away, link) = (inside.join("dir"), inside.join("away"), inside.join("link"));
                while !stop.load(Ordering::Relaxed) {
                    let _ = std::fs::rename(&dir, &away).and_then(|()| std::fs::rename(&link, &dir));
                    let _ = std::fs::rename(&dir, &link).and_then(|()| std::fs::rename(&away, &dir));
                }
            });
            let root = root(&inside);
            let until = Instant::now() + Duration::from_secs(2);
            for _ in (0..50_000).take_while(|_| Instant::now() < until) {
                for open in [open as ConfinedOpen, open_by_steps as ConfinedOpen] {
                    let Ok(fd) = open(&root, Path::new("dir/target"), OFlags::RDONLY) else {
                        refused += 1;
                        continue;
                    };
                    let mut content = String::new();
                    std::fs::File::from(fd).read_to_string(&mut content).unwrap();
                    assert_eq!(content, "harmless");
                    opened += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(opened > 100 && refused > 0, "the race did not happen: {opened} opened, {refused} refused");
    }
}
