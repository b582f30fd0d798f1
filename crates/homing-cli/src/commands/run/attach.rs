//! Files that belong to a task: those given with `--attach`, and words `@path` of a task on the command line.

use std::path::{Path, PathBuf};

use homing::{AttachError, AttachFilesError, Task};

use crate::{
    cli::run::{RunArgs, TaskArgs},
    exit::{Trouble, TroubleKind},
    session::{Session, working_folder},
};

/// Punctuation that may follow a path in a sentence.
const AFTER_PATH: [char; 8] = [',', '.', ';', ':', '!', '?', ')', '\''];

/// Attaches the files to the task. Everything is checked before anything is spent.
pub(super) fn attach(task: Task, args: &RunArgs, session: &Session) -> Result<Task, Trouble> {
    let TaskArgs { task: words, attach: given, .. } = &args.input;
    attach_files(task, given, words, &working_folder(args.with.cwd.as_deref())?, session)
}

/// Attaches the files at the paths `given`, and those of the folder that a word `@path` names.
pub(crate) fn attach_files(
    task: Task,
    given: &[PathBuf],
    words: &[String],
    workdir: &Path,
    session: &Session,
) -> Result<Task, Trouble> {
    if given.is_empty() && !words.iter().any(|word| word.contains('@')) {
        return Ok(task);
    }
    let paths = paths(given, words, workdir)?;
    session.homing.attach(task, &paths).map_err(|error| match error {
        AttachFilesError::Spawn(error) => error.into(),
        AttachFilesError::File(error @ AttachError::Denied { .. }) => {
            Trouble::new(TroubleKind::Refused, error.to_string())
        }
        AttachFilesError::File(error @ AttachError::Secret { .. }) => {
            Trouble::new(TroubleKind::Refused, error.to_string())
                .hint("copy what the agent needs into another file, or rename it if it holds none")
        }
        other => Trouble::usage(other.to_string()),
    })
}

/// The absolute paths of the files, each once.
fn paths(given: &[PathBuf], words: &[String], workdir: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let mut paths = Vec::new();
    for path in given {
        let absolute = std::path::absolute(path).map_err(|error| Trouble::usage(format!("--attach: {error}")))?;
        paths.push(absolute);
    }
    for word in words {
        // An argument of several words may be the quoted name of a file.
        match named_file(word, workdir)? {
            Some(path) => paths.push(path),
            None => {
                for word in word.split_whitespace() {
                    paths.extend(named_file(word, workdir)?);
                }
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    Ok(paths)
}

/// The file that a word `@path` names. Other words are text.
fn named_file(word: &str, workdir: &Path) -> Result<Option<PathBuf>, Trouble> {
    let Some(name) = word.strip_prefix('@').filter(|name| !name.is_empty()) else { return Ok(None) };
    let file = |name: &str| Some(workdir.join(name)).filter(|path| path.is_file());
    let Some(path) = file(name).or_else(|| file(name.trim_end_matches(AFTER_PATH))) else { return Ok(None) };
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let root = workdir.canonicalize().unwrap_or_else(|_| workdir.to_owned());
    if !real.starts_with(&root) {
        let message = format!("@{name} is outside the working folder {}", workdir.display());
        return Err(Trouble::usage(message).hint(format!("attach it with --attach {}", path.display())));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_name_a_file_of_the_folder_are_attached() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        std::fs::create_dir_all(root.join("src")).unwrap();
        for name in ["project/src/a.rs", "project/my file.txt", "outside.txt"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let found = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            paths(&[], &words, &root).map(|paths| {
                paths.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect::<Vec<_>>()
            })
        };
        assert_eq!(found(&["compare @src/a.rs, with", "@src/a.rs"]).unwrap(), ["src/a.rs"]);
        assert_eq!(found(&["read", "@my file.txt"]).unwrap(), ["my file.txt"]);
        let text: Vec<String> = Vec::new();
        assert_eq!(found(&["mail me@src/a.rs and @someone about @src and @types/node @"]).unwrap(), text);
        let error = found(&["see @../outside.txt"]).unwrap_err();
        assert!(error.message.starts_with("@../outside.txt is outside the working folder"), "{error}");
    }
}
