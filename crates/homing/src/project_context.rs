//! The part of the prompt that describes the working folder: an environment block and the project's instruction files.

use std::{fmt::Write, fs, os::unix::fs::MetadataExt, path::Path};

use homing_runtime::PromptContext;

/// Maximum size of all instruction files together, in bytes. Every turn pays for them.
const MAX_BYTES: usize = 32 * 1024;

/// Names of instruction files, best first. One per folder is read.
const FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// Describes `folder` and reads the instruction files from the root of its repository down to it.
pub fn project_context(folder: &Path) -> PromptContext {
    PromptContext { environment: environment(folder), instructions: instructions(folder) }
}

fn environment(folder: &Path) -> String {
    let today = jiff::Zoned::now().date();
    let mut text = format!(
        "<environment>\nfolder: {}\nplatform: {} {}\ndate: {today}\n",
        folder.display(),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    match branch(folder) {
        Some(branch) => writeln!(text, "git: on {branch}"),
        None => writeln!(text, "git: no repository"),
    }
    .expect("writing to a string");
    text.push_str("</environment>");
    text
}

/// Returns the checked-out branch, read from the repository's files without running git.
fn branch(folder: &Path) -> Option<String> {
    let git = folder.ancestors().map(|parent| parent.join(".git")).find(|path| path.exists())?;
    let git = match fs::read_to_string(&git) {
        // In a worktree `.git` is a file that points to the repository's folder.
        Ok(pointer) => folder.join(pointer.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let head = head.trim();
    // A repository may name any file as its HEAD, so only a branch or a commit is shown.
    let is_commit = head.len() >= 12 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => branch.to_owned(),
        None if is_commit => format!("commit {}", cut(head, 12)),
        None => return None,
    };
    Some(cut(&name.replace(char::is_control, ""), 200).to_owned())
}

fn instructions(folder: &Path) -> String {
    let root = folder.ancestors().find(|parent| parent.join(".git").exists()).unwrap_or(folder);
    let mut folders: Vec<&Path> = folder.ancestors().take_while(|parent| parent.starts_with(root)).collect();
    folders.reverse();
    let file_in = |folder: &&Path| FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let mut text = String::new();
    for path in folders.iter().filter_map(file_in) {
        let left = MAX_BYTES.saturating_sub(text.len());
        let body = open_inside(&path, root).and_then(|file| read_head(file, left));
        let Some(body) = body.filter(|body| !body.trim().is_empty()) else { continue };
        write!(text, "<instructions from=\"{}\">\n{}\n</instructions>\n", path.display(), body.trim())
            .expect("writing to a string");
    }
    text
}

/// Opens a file of the project. A link may lead to another file of the project, but not out of it: a cloned repository
/// would otherwise send any file of the user to the provider.
fn open_inside(path: &Path, root: &Path) -> Option<fs::File> {
    let file = fs::File::open(path).ok()?;
    let real = path.canonicalize().ok().filter(|real| root.canonicalize().is_ok_and(|root| real.starts_with(root)))?;
    // The file that was opened must be the one that was checked, even if a link changed in between.
    let (opened, inside) = (file.metadata().ok()?, real.symlink_metadata().ok()?);
    let is_same = (opened.dev(), opened.ino()) == (inside.dev(), inside.ino());
    (is_same && opened.is_file()).then_some(file)
}

/// Reads at most `max` bytes of a file.
fn read_head(file: fs::File, max: usize) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    file.take(u64::try_from(max).unwrap_or(u64::MAX)).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_the_root_down() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(root.path().join(".git")).unwrap();
        fs::write(root.path().join(".git/HEAD"), "ref: refs/heads/topic\n").unwrap();
        fs::write(root.path().join("AGENTS.md"), "outer rules").unwrap();
        fs::write(root.path().join("CLAUDE.md"), "not read beside AGENTS.md").unwrap();
        fs::write(inner.join("CLAUDE.md"), "inner rules").unwrap();
        let context = project_context(&inner);
        assert!(context.environment.contains("git: on topic"), "{}", context.environment);
        let (outer, inner) = (context.instructions.find("outer rules"), context.instructions.find("inner rules"));
        assert!(outer.unwrap() < inner.unwrap() && !context.instructions.contains("not read"));
    }

    #[test]
    fn instruction_files_do_not_lead_out_of_the_project() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("repo");
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join("docs/inner")).unwrap();
        fs::write(outer.path().join("secret"), "SECRET OF THE USER").unwrap();
        fs::write(outer.path().join("HEAD"), "SECRETHEAD").unwrap();
        fs::write(root.join("docs/rules.md"), "shared rules").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("AGENTS.md")).unwrap();
        std::os::unix::fs::symlink(outer.path().join("HEAD"), root.join(".git/HEAD")).unwrap();
        std::os::unix::fs::symlink("../rules.md", root.join("docs/inner/CLAUDE.md")).unwrap();
        let context = project_context(&root.join("docs/inner"));
        assert!(!context.instructions.contains("SECRET"), "{}", context.instructions);
        assert!(context.instructions.contains("shared rules"), "{}", context.instructions);
        assert!(!context.environment.contains("SECRET"), "{}", context.environment);
    }

    #[test]
    fn huge_instruction_file_is_cut() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("AGENTS.md"), "x".repeat(1_000_000)).unwrap();
        assert!(project_context(root.path()).instructions.len() < MAX_BYTES + 200);
    }
}
