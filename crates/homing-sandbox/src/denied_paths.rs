//! Finds the files that deny rules on paths (`read(**/.env)`, `edit(/vendor)`) close to commands.
//!
//! Rules are patterns, but a mount or a Landlock rule needs a path, so the folders that a command may read are searched
//! before it starts. A file that appears later, or that has a second name by a hard link, is not covered. If the search is
//! too large to finish, the command is refused: a rule that silently covers half of the files is worse than none.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::Grant,
    rule::{Rule, Subject},
    tool_names,
};

use crate::{
    policy::{Access, PolicyError},
    roots::outermost,
};

/// Bounds of the search: entries of folders, and matching paths. Each matching path is a mount.
const MAX_ENTRIES: usize = 300_000;
const MAX_PATHS: usize = 1_000;

/// Names that no real file has. A rule that matches both in a folder covers the folder's whole content.
const PROBES: [&str; 2] = ["\u{10fffe}", "\u{10fffe}homing\u{10fffe}probe\u{10fffe}of\u{10fffe}a\u{10fffe}name"];

/// The access that a deny rule on paths takes from commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedAccess {
    /// Matching files can be neither read nor changed.
    Read,
    /// Matching files can be read but not changed.
    Write,
}

/// Paths that deny rules close to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedPaths {
    /// Existing files and folders that it can neither read nor change.
    pub unreadable: Vec<PathBuf>,
    /// Existing files and folders that it cannot change.
    pub read_only: Vec<PathBuf>,
    /// Paths that rules name exactly and that do not exist. They are removed if the command creates them.
    pub missing: Vec<PathBuf>,
}

/// Returns the deny rules of a grant that also apply to commands, with the source of each.
pub fn rules(grant: &Grant) -> Vec<(&Rule, &str, DeniedAccess)> {
    let all = grant.layers.iter().flat_map(|layer| layer.deny.iter().map(|rule| (rule, layer.from.as_str())));
    all.filter(|(rule, _)| rule.pattern.is_some())
        .filter_map(|(rule, from)| {
            if rule.guards(tool_names::READ) {
                return Some((rule, from, DeniedAccess::Read));
            }
            let is_write = rule.guards(tool_names::WRITE) || rule.guards(tool_names::EDIT);
            is_write.then_some((rule, from, DeniedAccess::Write))
        })
        .collect()
}

impl DeniedPaths {
    /// Finds the paths in the folders of `access` that the grant's deny rules match, as seen from `workdir`.
    ///
    /// # Errors
    /// Fails if there are too many files or too many matches.
    pub fn find(grant: &Grant, access: &Access, workdir: &Path) -> Result<Self, PolicyError> {
        let rules = rules(grant);
        if rules.is_empty() {
            return Ok(Self::default());
        }
        let workdir = workdir.canonicalize().unwrap_or_else(|_| workdir.to_owned());
        let mut search = Search { rules, workdir, found: Self::default(), entries: 0 };
        let mut roots: Vec<PathBuf> =
            access.read.iter().chain(&access.write).filter_map(|root| root.canonicalize().ok()).collect();
        roots.extend(search.rules.iter().filter_map(|(rule, ..)| absolute_start(rule)));
        roots.sort();
        roots.dedup();
        for root in outermost(&roots) {
            search.path(root)?;
        }
        search.add_missing(&roots);
        Ok(search.found)
    }

    /// Returns true if no rule matches an existing file, and none has to be watched.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The beginning of an absolute pattern, up to its first wildcard, if it exists.
fn absolute_start(rule: &Rule) -> Option<PathBuf> {
    let pattern = rule.pattern.as_deref()?;
    let pattern = pattern.strip_prefix('=').unwrap_or(pattern);
    let path = pattern.strip_prefix('/')?.starts_with('/').then(|| &pattern[1..])?;
    let literal: PathBuf = Path::new(path)
        .components()
        .take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?']))
        .collect();
    // The root of the file system would be searched as a whole.
    literal.canonicalize().ok().filter(|path| path.parent().is_some())
}

struct Search<'a> {
    rules: Vec<(&'a Rule, &'a str, DeniedAccess)>,
    workdir: PathBuf,
    found: DeniedPaths,
    entries: usize,
}

impl Search<'_> {
    /// Looks at a path and, unless a rule makes it unreadable, at everything below it.
    fn path(&mut self, path: &Path) -> Result<(), PolicyError> {
        let mut waiting = vec![(path.to_owned(), false)];
        while let Some((path, is_read_only)) = waiting.pop() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(self.refusal(format!("there are more than {MAX_ENTRIES} files to compare with them")));
            }
            let Ok(found) = path.symlink_metadata() else { continue };
            let denied = self.denied(&path, found.is_dir());
            // A rule on a link holds for the file behind it.
            let real = if found.is_symlink() { path.canonicalize().ok() } else { Some(path.clone()) };
            match (denied, real) {
                (Some(DeniedAccess::Read), Some(real)) => {
                    self.found.unreadable.push(real);
                    continue;
                }
                (Some(DeniedAccess::Write), Some(real)) if !is_read_only => self.found.read_only.push(real),
                (Some(_) | None, _) => (),
            }
            if self.found.unreadable.len() + self.found.read_only.len() > MAX_PATHS {
                return Err(self.refusal(format!("they match more than {MAX_PATHS} paths")));
            }
            if found.is_dir() {
                let is_read_only = is_read_only || denied == Some(DeniedAccess::Write);
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                waiting.extend(entries.map(|entry| (entry.path(), is_read_only)));
            }
        }
        Ok(())
    }

    fn denied(&self, path: &Path, is_folder: bool) -> Option<DeniedAccess> {
        let matches = |rule: &Rule, path: &Path| rule.matches(&Subject::Path(self.shown(path)));
        let covers = |rule: &Rule| {
            matches(rule, path) || (is_folder && PROBES.iter().all(|probe| matches(rule, &path.join(probe))))
        };
        let denied =
            |wanted: DeniedAccess| self.rules.iter().any(|(rule, _, access)| *access == wanted && covers(rule));
        [DeniedAccess::Read, DeniedAccess::Write].into_iter().find(|access| denied(*access))
    }

    /// Returns the path as rules see it: relative to the working folder if inside it, absolute otherwise.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.workdir).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Adds the missing paths that rules on writing name exactly, relative to the working folder.
    fn add_missing(&mut self, roots: &[PathBuf]) {
        let named =
            self.rules.iter().filter(|(_, _, access)| *access == DeniedAccess::Write).filter_map(|(rule, ..)| {
                let pattern = rule.pattern.as_deref()?.trim_start_matches('=').trim_start_matches("./");
                let is_plain = !pattern.contains(['*', '?']) && !pattern.starts_with("//") && pattern != "/";
                is_plain.then(|| self.workdir.join(pattern.trim_start_matches('/')))
            });
        let is_missing =
            |path: &PathBuf| path.symlink_metadata().is_err() && roots.iter().any(|root| path.starts_with(root));
        self.found.missing = named.filter(is_missing).collect();
    }

    fn refusal(&self, why: String) -> PolicyError {
        let rules = self.rules.iter().map(|(rule, ..)| rule.to_string()).collect::<Vec<_>>().join(", ");
        PolicyError::Denied { rules, why }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, sync::Arc};

    use homing_core::authority::{Layer, Network, Sandbox};

    use super::*;
    use crate::policy::SandboxOptions;

    fn check(deny: &[&str], unreadable: &[&str], read_only: &[&str], missing: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in [".env", "a/.env", "a/b", "vendor/x/y", "vendor/z", "secret/key"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        symlink("../secret/key", root.join("a/link")).unwrap();
        let deny = deny.iter().map(|rule| rule.parse().unwrap()).collect();
        let grant = Grant::new(vec![Arc::new(Layer::everything("test").deny(deny))])
            .read(vec![root.clone()])
            .write(vec![root.clone()])
            .network(Network::Off)
            .sandbox(Sandbox::WorkspaceWrite);
        let access = Access::of(&grant, &SandboxOptions::default());
        let found = DeniedPaths::find(&grant, &access, &root).unwrap();
        let names = |paths: &[PathBuf]| {
            let mut names: Vec<String> =
                paths.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&found.unreadable), unreadable);
        assert_eq!(names(&found.read_only), read_only);
        assert_eq!(names(&found.missing), missing);
    }

    #[test]
    fn deny_rules_on_paths_are_resolved_to_files_and_folders() {
        check(&[], &[], &[], &[]);
        check(&["bash(git push *)", "read", "fetch(domain:a.b)"], &[], &[], &[]);
        check(&["read(**/.env)"], &[".env", "a/.env"], &[], &[]);
        check(&["read(=.env)", "edit(vendor/**)"], &[".env"], &["vendor"], &[]);
        check(&["write(a/.env)", "write(dist)", "edit(/Cargo.lock)"], &[], &["a/.env"], &["Cargo.lock", "dist"]);
        check(&["read(vendor)", "edit(vendor/z)"], &["vendor"], &[], &[]);
        check(&["read(a/link)"], &["secret/key"], &[], &[]);
        check(&["read(vendor/*)"], &["vendor"], &[], &[]);
    }
}
