//! Contents of files before and after changes, kept by hash so that changes can be shown and undone later. The store is bounded
//! per file and in total; the oldest contents are removed first.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use homing_sandbox::private_folder;
use sha2::{Digest, Sha256};

/// Maximum size of one file that is kept.
const MAX_FILE: usize = 8 << 20;
/// Maximum size of all contents together.
const MAX_TOTAL: u64 = 1 << 30;

/// Contents of files by their hash, in a folder that only the user can read.
#[derive(Debug)]
pub struct ContentStore {
    folder: PathBuf,
    max_file: usize,
    max_total: u64,
    swept: Once,
}

impl ContentStore {
    /// Creates a store in this folder, which is created with the first contents.
    pub fn new(folder: PathBuf) -> Self {
        Self::with_bounds(folder, MAX_FILE, MAX_TOTAL)
    }

    /// Creates a store that keeps files up to `max_file` bytes, and `max_total` bytes together.
    pub fn with_bounds(folder: PathBuf, max_file: usize, max_total: u64) -> Self {
        Self { folder, max_file, max_total, swept: Once::new() }
    }

    /// Keeps contents if they are within the bound, and returns their hash. A store that cannot be written only means that
    /// the change cannot be undone, so it does not fail.
    pub fn keep(&self, content: &[u8]) -> String {
        let hash = sha256(content);
        if content.len() <= self.max_file {
            self.swept.call_once(|| self.sweep());
            let _ = self.write(&hash, content);
        }
        hash
    }

    /// Returns the contents with this hash, if they are kept and intact.
    pub fn get(&self, hash: &str) -> Option<Vec<u8>> {
        let content = fs::read(self.path(hash)?).ok()?;
        (sha256(&content) == hash).then_some(content)
    }

    fn write(&self, hash: &str, content: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(path) = self.path(hash) else { return Ok(()) };
        if let Ok(file) = OpenOptions::new().append(true).open(&path) {
            // Contents that are used again are new again.
            return file.set_modified(SystemTime::now());
        }
        drop(private_folder::open(&self.folder)?);
        let parent = path.parent().unwrap_or(&self.folder);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let staged = parent.join(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged);
        let renamed = written.and_then(|mut file| file.write_all(content)).and_then(|()| fs::rename(&staged, &path));
        renamed.inspect_err(|_| drop(fs::remove_file(&staged)))
    }

    /// Returns the file of these contents. A hash comes from the journal, and must not name another file.
    fn path(&self, hash: &str) -> Option<PathBuf> {
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then(|| self.folder.join(&hash[..2]).join(&hash[2..]))
    }

    /// Removes the oldest contents while they are together larger than the bound.
    fn sweep(&self) {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries(&self.folder)
            .flat_map(|folder| entries(&folder))
            .filter_map(|path| {
                let metadata = path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, metadata.len(), path))
            })
            .collect();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        files.sort();
        for (_, length, path) in files {
            if total <= self.max_total {
                return;
            }
            if fs::remove_file(path).is_ok() {
                total -= length;
            }
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the SHA-256 hash of contents, in hexadecimal digits.
pub fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn contents_are_private_bounded_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("contents");
        let store = ContentStore::with_bounds(root.clone(), 10, 25);
        let hashes: Vec<String> =
            ["aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"].iter().map(|text| store.keep(text.as_bytes())).collect();
        assert_eq!(store.get(&hashes[0]).unwrap(), b"aaaaaaaaaa");
        assert_eq!(store.get(&store.keep(b"eleven bytes")), None, "too large to keep");
        let file = root.join(&hashes[0][..2]).join(&hashes[0][2..]);
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let old = OpenOptions::new().append(true).open(root.join(&hashes[1][..2]).join(&hashes[1][2..])).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        ContentStore::with_bounds(root.clone(), 10, 25).keep(b"x");
        let kept: Vec<bool> = hashes.iter().map(|hash| store.get(hash).is_some()).collect();
        assert_eq!(kept, [true, false, true], "the oldest contents make room");
        fs::write(&file, "changed").unwrap();
        assert_eq!(store.get(&hashes[0]), None, "damaged contents are not used");
        for bad in ["", "../../etc/passwd", &"g".repeat(64)] {
            assert_eq!(store.get(bad), None, "{bad}");
        }
    }
}
