//! Finds the files that a command changed, by comparing the working folder before and after it. Contents before are kept, so that
//! the changes can be shown and undone. Files that git ignores are left out, and a folder that is too large is not compared.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use homing_core::{authority::Sandbox, receipts::FileReceipt, tool::ToolContext};
use ignore::WalkBuilder;
use rustix::fs::Mode;
use serde_json::{Value, json};

use crate::files::{
    confined_open::FOLDER,
    contents::ContentStore,
    file_versions::FileStat,
    workspace_files::{OpenFolder, open_below},
};

/// Maximum number of files in a folder that is compared.
const MAX_FILES: usize = 5_000;
/// Maximum size of all files together.
const MAX_BYTES: u64 = 64 << 20;

/// Compares working folders before and after commands.
#[derive(Debug)]
pub struct CommandChanges {
    contents: Arc<ContentStore>,
    /// The folder of worktrees, in which git knows the changes.
    worktrees: PathBuf,
    /// Versions of files whose contents are kept, so that only the first command reads them all.
    kept: Mutex<HashMap<PathBuf, (FileStat, String)>>,
}

/// A working folder before a command.
pub(super) enum FolderBefore {
    /// The command cannot change files, or git knows what it changed.
    Unneeded,
    /// The folder is not compared, for this reason.
    NotRecorded(String),
    Recorded {
        root: PathBuf,
        files: BTreeMap<PathBuf, SeenFile>,
    },
}

/// A file of a working folder.
#[derive(Clone, Debug)]
pub(super) struct SeenFile {
    stat: FileStat,
    mode: u32,
    hash: Option<String>,
}

impl CommandChanges {
    /// Creates the comparison, with a store for contents. Folders below `worktrees` are not compared.
    pub fn new(contents: Arc<ContentStore>, worktrees: PathBuf) -> Self {
        Self { contents, worktrees, kept: Mutex::default() }
    }

    /// Records the working folder of a call.
    pub(super) async fn before(self: &Arc<Self>, context: &ToolContext) -> FolderBefore {
        let own = &context.authority.own;
        let cannot_write = own.sandbox == Sandbox::ReadOnly || (own.write.is_empty() && own.sandbox != Sandbox::Off);
        if cannot_write || context.workdir.starts_with(&self.worktrees) {
            return FolderBefore::Unneeded;
        }
        let (changes, root) = (self.clone(), context.workdir.clone());
        let record = move || match changes.record(&root) {
            Ok(files) => FolderBefore::Recorded { root, files },
            Err(why) => FolderBefore::NotRecorded(why),
        };
        tokio::task::spawn_blocking(record).await.unwrap_or_else(|error| FolderBefore::NotRecorded(error.to_string()))
    }

    /// Adds what the command changed to the data of its result.
    pub(super) async fn add_to(self: &Arc<Self>, data: &mut Value, before: FolderBefore) {
        let added = match before {
            FolderBefore::Unneeded => json!({"files": []}),
            FolderBefore::NotRecorded(why) => json!({"files_not_recorded": why}),
            FolderBefore::Recorded { root, files } => {
                let changes = self.clone();
                let compare = move || changes.record(&root).map(|after| receipts(&files, &after));
                match tokio::task::spawn_blocking(compare).await {
                    Ok(Ok(receipts)) => json!({"files": receipts}),
                    Ok(Err(why)) => json!({"files_not_recorded": why}),
                    Err(error) => json!({"files_not_recorded": error.to_string()}),
                }
            }
        };
        if let (Value::Object(data), Value::Object(added)) = (data, added) {
            data.extend(added);
        }
    }

    /// Lists the files of a folder and keeps their contents.
    fn record(&self, root: &Path) -> Result<BTreeMap<PathBuf, SeenFile>, String> {
        let unreadable = |error: &dyn std::fmt::Display| format!("the working folder cannot be read: {error}");
        let fd = rustix::fs::open(root, FOLDER, Mode::empty()).map_err(|error| unreadable(&error))?;
        let folder = OpenFolder { fd, real: root.to_owned() };
        let mut files = list(root).map_err(|why| format!("its changes were not recorded, because {why}"))?;
        for (rest, file) in &mut files {
            file.hash = self.hash(&folder, rest, file.stat);
        }
        Ok(files)
    }

    /// Returns the hash of a file whose contents are kept; reads it if it has changed.
    fn hash(&self, folder: &OpenFolder, rest: &Path, stat: FileStat) -> Option<String> {
        let path = folder.real.join(rest);
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hash)) = lock().get(&path).filter(|(known, _)| *known == stat) {
            return Some(hash.clone());
        }
        let mut content = Vec::new();
        open_below(folder, rest)?.take(MAX_BYTES).read_to_end(&mut content).ok()?;
        let hash = self.contents.keep(&content);
        lock().insert(path, (stat, hash.clone()));
        Some(hash)
    }
}

/// Lists the regular files of a folder that git does not ignore.
fn list(root: &Path) -> Result<BTreeMap<PathBuf, SeenFile>, String> {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false).git_global(false).require_git(false).follow_links(false);
    // A file tool of another call may be about to replace a file.
    let is_staged = |name: &str| name.starts_with(".homing-") && name.ends_with(".tmp");
    walk.filter_entry(move |entry| entry.file_name() != ".git" && !entry.file_name().to_str().is_some_and(is_staged));
    let (mut files, mut bytes) = (BTreeMap::new(), 0);
    for entry in walk.build().flatten() {
        let Some(metadata) = entry.metadata().ok().filter(std::fs::Metadata::is_file) else { continue };
        let Ok(rest) = entry.path().strip_prefix(root) else { continue };
        bytes += metadata.len();
        if files.len() >= MAX_FILES {
            return Err(format!("the folder has more than {MAX_FILES} files"));
        }
        if bytes > MAX_BYTES {
            return Err(format!("the folder has more than {} MB", MAX_BYTES >> 20));
        }
        let file = SeenFile { stat: FileStat::of(&metadata), mode: metadata.mode() & 0o7777, hash: None };
        files.insert(rest.to_owned(), file);
    }
    Ok(files)
}

/// Compares two states of a folder.
fn receipts(before: &BTreeMap<PathBuf, SeenFile>, after: &BTreeMap<PathBuf, SeenFile>) -> Vec<FileReceipt> {
    let shown = |path: &Path| path.to_str().map(str::to_owned);
    let mut receipts = Vec::new();
    for (path, now) in after {
        let (Some(path_text), Some(sha256)) = (shown(path), now.hash.clone()) else { continue };
        let then = before.get(path);
        if then.is_some_and(|then| then.hash.as_ref() == Some(&sha256)) {
            continue;
        }
        let old = then.and_then(|then| then.hash.clone());
        let receipt =
            FileReceipt { path: path_text, sha256, created: then.is_none(), before: old, ..FileReceipt::default() };
        receipts.push(receipt);
    }
    for (path, then) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
        let Some(path) = shown(path) else { continue };
        let (before, mode) = (then.hash.clone(), Some(then.mode));
        receipts.push(FileReceipt { path, before, deleted: true, mode, ..FileReceipt::default() });
    }
    receipts
}
