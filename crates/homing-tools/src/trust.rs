//! Trust in a project's files: the user trusts exact bytes, and any other bytes carry no authority. Files are read once,
//! then hashed and parsed from those bytes; nothing in them is executed or expanded.

pub mod settings;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use homing_sandbox::protected_paths;

/// Files beyond these limits carry no authority.
const MAX_FILE: u64 = 1 << 20;
const MAX_FILES: usize = 2_000;
const MAX_TOGETHER: usize = 32 << 20;
const MAX_DEPTH: usize = 8;

/// Files that agents may write, but that carry authority only once the user trusts them.
const UNPROTECTED: &[&str] = &[".env"];

/// A project's files that carry authority, with the bytes that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorityFiles {
    /// The project's outermost folder; paths are relative to it.
    root: PathBuf,
    /// The folder that trust is stored for.
    project: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Total size of the files read.
    bytes: usize,
    /// Files that were left out, with the reason; they carry no authority.
    pub skipped: Vec<String>,
}

/// The hash of a set of files: 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustHash(String);

/// A text that is not a trust hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a trust hash: expected 64 hexadecimal digits")]
pub struct TrustHashError(String);

/// The projects that the user trusts, with the hashes of their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStore {
    path: PathBuf,
    projects: BTreeMap<PathBuf, TrustedProject>,
    /// Hashes passed by the host; they hold for this process only.
    given: Vec<TrustHash>,
}

/// The trusted state of one project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TrustedProject {
    hash: TrustHash,
    /// The hash of each file, so that changed files can be named.
    files: BTreeMap<PathBuf, TrustHash>,
}

/// The trust in a project's current files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustState {
    /// The project has no files that need trust.
    Nothing,
    /// Exactly these files are trusted.
    Trusted,
    /// The files were trusted and have changed since.
    Changed {
        /// Files that were not there.
        added: Vec<PathBuf>,
        /// Files with other contents.
        changed: Vec<PathBuf>,
        /// Files that are gone.
        removed: Vec<PathBuf>,
    },
    /// The files are not trusted.
    Untrusted,
}

impl AuthorityFiles {
    /// Reads the files in `root` that carry authority: settings, hooks, servers and agents of every ecosystem.
    pub fn read(root: &Path) -> Self {
        Self::of_project(&[root.to_owned()])
    }

    /// Reads the same files in all folders from the project's root, which comes first, down to the working folder.
    ///
    /// Trust for folders below the root is stored separately, so that working in two folders in turn does not revoke the
    /// trust in either.
    pub fn of_project(folders: &[PathBuf]) -> Self {
        let Some(root) = folders.first() else { return Self::default() };
        let mut found = Self { root: root.clone(), project: root.clone(), ..Self::default() };
        for folder in folders {
            let Ok(below) = folder.strip_prefix(root) else { continue };
            let before = found.files.len();
            for name in protected_paths::authority_names().chain(UNPROTECTED.iter().map(PathBuf::from)) {
                found.visit(root, &below.join(name), 0);
            }
            if found.files.len() > before {
                found.project.clone_from(folder);
            }
        }
        found
    }

    /// The project's outermost folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that trust is stored for: the innermost folder of the project with such files.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Returns true if the file at this absolute path was read.
    pub fn covers(&self, path: &Path) -> bool {
        path.strip_prefix(&self.root).is_ok_and(|path| self.files.contains_key(path))
    }

    /// Adds a file that was read elsewhere, such as an agent file of a parent folder.
    pub fn add(&mut self, path: PathBuf, bytes: Vec<u8>) {
        self.files.insert(path, bytes);
    }

    /// The bytes that were read. Parse these bytes instead of reading the file again.
    pub fn get(&self, path: &Path) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// The files, by their paths below the root.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// The hash of all paths and bytes.
    pub fn hash(&self) -> TrustHash {
        let mut hasher = Sha256::new();
        for (path, bytes) in &self.files {
            let path = path.as_os_str().as_encoded_bytes();
            // Length prefixes, so that two different sets of files never hash the same input.
            hasher.update((path.len() as u64).to_le_bytes());
            hasher.update(path);
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        TrustHash(format!("{:x}", hasher.finalize()))
    }

    fn visit(&mut self, root: &Path, name: &Path, depth: usize) {
        let path = root.join(name);
        let Ok(found) = path.symlink_metadata() else { return };
        // Agents write their memories, so trust cannot depend on them.
        if protected_paths::is_agent_memory(name) {
            return;
        }
        if found.is_dir() && depth < MAX_DEPTH {
            let mut names: Vec<PathBuf> = match path.read_dir() {
                Ok(list) => list.flatten().map(|entry| name.join(entry.file_name())).collect(),
                Err(error) => return self.skipped.push(format!("{}: {error}", name.display())),
            };
            names.sort();
            names.iter().for_each(|name| self.visit(root, name, depth + 1));
        } else if !found.is_file() {
            // A link could lead to other bytes for the next reader, and reading a pipe would block.
            self.skipped.push(format!("{} is not a regular file", name.display()));
        } else if self.files.len() >= MAX_FILES || self.bytes >= MAX_TOGETHER {
            self.skipped.push(format!("{}: too many files", name.display()));
        } else {
            match read_bounded(&path) {
                Ok(bytes) => {
                    self.bytes += bytes.len();
                    self.add(name.to_owned(), bytes);
                }
                Err(error) => self.skipped.push(format!("{}: {error}", name.display())),
            }
        }
    }

    fn hash_each(&self) -> BTreeMap<PathBuf, TrustHash> {
        let hash = |bytes: &Vec<u8>| TrustHash(format!("{:x}", Sha256::digest(bytes)));
        self.files.iter().map(|(path, bytes)| (path.clone(), hash(bytes))).collect()
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other("too large"));
    }
    Ok(bytes)
}

impl TrustStore {
    /// Loads the store from a file; a missing file is an empty store.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is damaged.
    pub fn load(path: PathBuf) -> io::Result<Self> {
        let projects = match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, projects, given: Vec::new() })
    }

    /// Also trusts files with these hashes, in any folder.
    #[must_use]
    pub fn with_given(self, given: Vec<TrustHash>) -> Self {
        Self { given, ..self }
    }

    /// Returns the trust in a project's files.
    pub fn state(&self, project: &Path, files: &AuthorityFiles) -> TrustState {
        if files.files.is_empty() {
            return TrustState::Nothing;
        }
        let hash = files.hash();
        if self.given.contains(&hash) {
            return TrustState::Trusted;
        }
        match self.projects.get(project) {
            None => TrustState::Untrusted,
            Some(trusted) if trusted.hash == hash => TrustState::Trusted,
            Some(trusted) => changes(&trusted.files, &files.hash_each()),
        }
    }

    /// Trusts these files of a project and saves the store.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn trust(&mut self, project: &Path, files: &AuthorityFiles) -> io::Result<TrustHash> {
        let hash = files.hash();
        self.projects.insert(project.to_owned(), TrustedProject { hash: hash.clone(), files: files.hash_each() });
        self.save()?;
        Ok(hash)
    }

    /// Revokes the trust in a project and saves the store. Returns true if it was trusted.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn revoke(&mut self, project: &Path) -> io::Result<bool> {
        let was = self.projects.remove(project).is_some();
        self.save()?;
        Ok(was)
    }

    /// The trusted projects.
    pub fn projects(&self) -> impl Iterator<Item = (&Path, &TrustHash)> {
        self.projects.iter().map(|(path, trusted)| (path.as_path(), &trusted.hash))
    }

    fn save(&self) -> io::Result<()> {
        save_private(&self.path, &serde_json::to_vec_pretty(&self.projects)?)
    }
}

/// Replaces a file atomically; only the user can read it.
pub(crate) fn save_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let next = folder.join(format!(".{}.new", uuid::Uuid::new_v4()));
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&next, path));
    if written.is_err() {
        let _ = fs::remove_file(&next);
    }
    written
}

fn changes(before: &BTreeMap<PathBuf, TrustHash>, now: &BTreeMap<PathBuf, TrustHash>) -> TrustState {
    let missing_in = |other: &BTreeMap<PathBuf, TrustHash>, files: &BTreeMap<PathBuf, TrustHash>| {
        files.keys().filter(|name| !other.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let changed = now.iter().filter(|(name, hash)| before.get(*name).is_some_and(|before| before != *hash));
    TrustState::Changed {
        added: missing_in(before, now),
        changed: changed.map(|(name, _)| name.clone()).collect(),
        removed: missing_in(now, before),
    }
}

impl TrustHash {
    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TrustHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TrustHash {
    type Err = TrustHashError;

    fn from_str(text: &str) -> Result<Self, TrustHashError> {
        let text = text.trim().to_ascii_lowercase();
        let good = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if good { Ok(Self(text)) } else { Err(TrustHashError(text)) }
    }
}

impl TryFrom<String> for TrustHash {
    type Error = TrustHashError;

    fn try_from(text: String) -> Result<Self, TrustHashError> {
        text.parse()
    }
}

impl From<TrustHash> for String {
    fn from(hash: TrustHash) -> Self {
        hash.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(".claude/agents")).unwrap();
        fs::write(folder.path().join(".claude/settings.json"), "{}").unwrap();
        fs::write(folder.path().join(".claude/agents/a.md"), "a").unwrap();
        fs::write(folder.path().join(".mcp.json"), "{}").unwrap();
        fs::write(folder.path().join("README.md"), "no authority").unwrap();
        folder
    }

    #[test]
    fn trust_is_stored_privately_for_exact_bytes() {
        let (folder, store) = (project(), tempfile::tempdir().unwrap());
        let path = store.path().join("deep/trust.json");
        let files = AuthorityFiles::read(folder.path());
        let mut trust = TrustStore::load(path.clone()).unwrap();
        assert_eq!(trust.state(folder.path(), &files), TrustState::Untrusted);
        let hash = trust.trust(folder.path(), &files).unwrap();
        let trust = TrustStore::load(path.clone()).unwrap();
        assert_eq!(trust.state(folder.path(), &files), TrustState::Trusted);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);

        fs::write(folder.path().join(".mcp.json"), "{ }").unwrap();
        fs::write(folder.path().join(".claude/agents/b.md"), "b").unwrap();
        let now = AuthorityFiles::read(folder.path());
        let (added, changed) = (vec![".claude/agents/b.md".into()], vec![".mcp.json".into()]);
        assert_eq!(trust.state(folder.path(), &now), TrustState::Changed { added, changed, removed: Vec::new() });
        // F17: trust applies to the bytes that were read, not to what is on disk by then.
        assert_eq!(trust.state(folder.path(), &files), TrustState::Trusted);
        assert_eq!(files.get(Path::new(".mcp.json")), Some(b"{}".as_slice()));

        let given = TrustStore::load(store.path().join("none")).unwrap().with_given(vec![now.hash()]);
        assert_eq!(given.state(folder.path(), &now), TrustState::Trusted);
        assert_ne!(hash, now.hash());
    }

    #[test]
    fn same_files_in_another_project_are_not_trusted() {
        let (one, two, store) = (project(), project(), tempfile::tempdir().unwrap());
        let mut trust = TrustStore::load(store.path().join("trust.json")).unwrap();
        trust.trust(one.path(), &AuthorityFiles::read(one.path())).unwrap();
        assert_eq!(trust.state(two.path(), &AuthorityFiles::read(two.path())), TrustState::Untrusted);
        assert!(trust.revoke(one.path()).unwrap());
        assert_eq!(trust.state(one.path(), &AuthorityFiles::read(one.path())), TrustState::Untrusted);
    }

    #[test]
    fn f21_agent_files_of_all_dialects_and_subfolders_need_trust() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let names =
            [".kilo/agents/a.md", ".pi/agents/a.md", "kilo.jsonc", ".roomodes", "recipe.yaml", ".github/agents/a.md"];
        for name in names.iter().chain(&["sub/.claude/agents/b.md", "sub/.mcp.json"]) {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "x").unwrap();
        }
        let above = AuthorityFiles::read(root);
        assert!(names.iter().all(|name| above.covers(&root.join(name))), "{above:?}");
        assert!(!above.covers(&root.join("sub/.mcp.json")) && above.project() == root);
        let below = AuthorityFiles::of_project(&[root.to_owned(), root.join("sub")]);
        assert!(below.covers(&root.join("sub/.claude/agents/b.md")) && below.covers(&root.join("kilo.jsonc")));
        assert_eq!(below.project(), root.join("sub"), "trust is stored per folder");
        let deeper = AuthorityFiles::of_project(&[root.to_owned(), root.join("sub"), root.join("sub/src")]);
        assert_eq!(deeper, below);
    }

    #[test]
    fn f10_f15_f16_only_regular_files_carry_authority() {
        let folder = project();
        let claude = folder.path().join(".claude");
        symlink("/etc/passwd", claude.join("link.md")).unwrap();
        symlink(&claude, claude.join("loop")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, claude.join("pipe.md"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        File::create(claude.join("huge.md")).unwrap().set_len(1 << 30).unwrap();
        let files = AuthorityFiles::read(folder.path());
        assert_eq!(files.paths().count(), 3);
        assert_eq!(files.skipped.len(), 4, "{:?}", files.skipped);
    }

    #[test]
    fn hash_separates_names_from_contents() {
        let mut one = AuthorityFiles::default();
        one.add("a".into(), b"bc".to_vec());
        let mut two = AuthorityFiles::default();
        two.add("ab".into(), b"c".to_vec());
        assert_ne!(one.hash(), two.hash());
        assert!("abc".parse::<TrustHash>().is_err());
    }
}
