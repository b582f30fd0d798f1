//! Opening a path below a folder so that no link, swap or `..` leads out of it, whatever others do meanwhile.
//! It knows descriptors and names; which folders are allowed is not its business.

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

/// Flags with which a folder is held while something below it is opened.
#[cfg(target_os = "linux")]
pub(crate) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags with which a folder is held while something below it is opened.
#[cfg(not(target_os = "linux"))]
pub(crate) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// As many links as the kernel itself would follow.
const MOST_LINKS: usize = 40;

/// Opens `path` below `root`. [`Errno::XDEV`] means that it leads out.
pub(crate) fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match open_by_kernel(root, path, flags) {
        // Old kernels do not have the call, and some containers forbid it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(root, path, flags),
        opened => opened,
    }
}

#[cfg(target_os = "linux")]
fn open_by_kernel(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel says "again" when something was renamed while it looked; an attacker could keep it saying so.
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

/// One component at a time, following no link that was not read first: each step is relative to a descriptor, so that
/// renaming a folder that was passed already changes nothing.
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
                if links > MOST_LINKS {
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

/// Where the descriptor's file lies in truth, whichever links led to it.
pub(crate) fn real_path(fd: &OwnedFd, otherwise: &Path) -> PathBuf {
    use std::os::fd::AsRawFd;
    match std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
        Ok(real) if real.is_absolute() => real,
        Ok(_) | Err(_) => otherwise.canonicalize().unwrap_or_else(|_| otherwise.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    type ConfinedOpen = fn(&OwnedFd, &Path, OFlags) -> Result<OwnedFd, Errno>;

    /// Both ways of opening must agree.
    fn both_ways(check: impl Fn(ConfinedOpen)) {
        check(open);
        check(open_by_steps);
    }

    fn root(at: &Path) -> OwnedFd {
        rustix::fs::open(at, FOLDER, Mode::empty()).unwrap()
    }

    #[test]
    fn p3_links_that_stay_inside_are_followed_and_links_that_leave_are_not() {
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
    fn inv38_neither_way_of_opening_loses_a_race_with_a_swapped_folder() {
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
        assert!(opened > 100 && refused > 0, "the race was run: {opened} opened, {refused} refused");
    }
}
