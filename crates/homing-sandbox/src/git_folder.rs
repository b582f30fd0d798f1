//! Finds the git folder of a working folder. A command can forge any file in a workspace, so a file there that names a
//! folder elsewhere is trusted only if that folder, which the command cannot write to, confirms it.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

/// The largest of git's one-line files that is read: a path and a few words.
const MAX_LINE_FILE: u64 = 8 << 10;

/// A repository on disk.
#[derive(Debug, PartialEq, Eq)]
pub struct GitFolder {
    /// The folder that `.git` lies in.
    pub top: PathBuf,
    /// The git folder that all worktrees of the repository share.
    pub common: PathBuf,
}

/// Finds the repository that a folder belongs to. `roots` are folders whose content commands may have written.
pub fn locate(workdir: &Path, roots: &[PathBuf]) -> Option<GitFolder> {
    let workdir = workdir.canonicalize().ok()?;
    let top = workdir.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
    let git = top.join(".git");
    let common = match git.symlink_metadata().ok()? {
        found if found.is_dir() => git,
        _ => common_of_worktree(&git, roots)?,
    };
    Some(GitFolder { top: top.to_owned(), common })
}

/// Finds the git folder that a command in `workdir` needs to read. Returns `None` if the working folder has left the
/// roots, because a command has replaced it by a link.
pub fn readable(workdir: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    let real = workdir.canonicalize().ok()?;
    let is_inside = roots.iter().filter_map(|root| root.canonicalize().ok()).any(|root| real.starts_with(root));
    if is_inside { locate(&real, roots).map(|git| git.common) } else { None }
}

/// Returns the shared git folder of the worktree with this `.git` file.
///
/// Git itself follows `gitdir:` and `commondir` to any folder. Here the folder that `gitdir:` names must lie outside
/// every root, name the `.git` file in turn, and be one of the worktrees of a repository. `commondir` then adds nothing
/// new, and no command can have written both ends of the link.
fn common_of_worktree(file: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    let top = file.parent()?;
    let own = named_by(file)?;
    let mut roots = roots.iter().filter_map(|root| root.canonicalize().ok());
    if own.starts_with(top) || roots.any(|root| own.starts_with(root)) {
        return None;
    }
    let back = own.join(line(&own.join("gitdir"))?);
    let names_file = back.file_name() == file.file_name() && back.parent()?.canonicalize().ok()? == top;
    let common = own.join(line(&own.join("commondir"))?).canonicalize().ok()?;
    let is_its_worktree = own.parent()? == common.join("worktrees");
    (names_file && is_its_worktree && looks_like_one(&common)).then_some(common)
}

/// Returns the folder that a `.git` file names, if it exists.
pub fn named_by(file: &Path) -> Option<PathBuf> {
    let text = line(file)?;
    file.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()
}

/// Returns true if git would accept the folder as a git folder.
pub fn looks_like_one(folder: &Path) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists())
}

/// Reads the text of a regular file. Links are not followed, and a pipe does not block.
fn line(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > MAX_LINE_FILE {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_LINE_FILE).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A repository with a worktree, as git makes them: the worktree's `.git` file and its own git folder.
    fn worktree(root: &Path) -> (PathBuf, PathBuf) {
        let (tree, own) = (root.join("tree"), root.join("repo/.git/worktrees/tree"));
        for folder in [&tree, &own, &root.join("repo/.git/objects"), &root.join("repo/.git/refs")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(root.join("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(own.join("gitdir"), format!("{}\n", tree.join(".git").display())).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        (tree, own)
    }

    fn check(change: impl FnOnce(&Path, &Path, &Path), is_found: bool) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (tree, own) = worktree(&root);
        fs::create_dir(root.join("secret")).unwrap();
        change(&root, &tree, &own);
        let expected = is_found.then(|| root.join("repo/.git"));
        assert_eq!(readable(&tree, std::slice::from_ref(&tree)), expected);
    }

    #[test]
    fn worktree_that_git_made_is_trusted() {
        check(|_, _, _| (), true);
        let relative = |_: &Path, tree: &Path, own: &Path| {
            fs::write(tree.join(".git"), "gitdir: ../repo/.git/worktrees/tree\n").unwrap();
            fs::write(own.join("gitdir"), "../../../../tree/.git\n").unwrap();
        };
        check(relative, true);
    }

    #[test]
    fn worktree_whose_ends_disagree_is_not_trusted() {
        check(|root, _, own| fs::write(own.join("commondir"), root.join("secret").to_str().unwrap()).unwrap(), false);
        check(|root, _, own| fs::write(own.join("gitdir"), root.join("x/.git").to_str().unwrap()).unwrap(), false);
        check(|_, _, own| fs::remove_file(own.join("gitdir")).unwrap(), false);
        check(|root, _, _| fs::remove_dir(root.join("repo/.git/objects")).unwrap(), false);
        let link = |_: &Path, tree: &Path, _: &Path| {
            fs::rename(tree.join(".git"), tree.join("file")).unwrap();
            std::os::unix::fs::symlink("file", tree.join(".git")).unwrap();
        };
        check(link, false);
    }

    #[test]
    fn git_folder_inside_a_root_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (tree, _) = worktree(&root);
        assert_eq!(readable(&tree, &[root.clone(), tree.clone()]), None);
        assert_eq!(readable(&tree, &[root.join("repo")]), None, "the working folder lies in no root");
        assert_eq!(locate(&tree, &[]).map(|git| git.common), Some(root.join("repo/.git")));
    }
}
