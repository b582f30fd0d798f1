//! What agents are told about the folder they work in: the environment block and the project's instruction files.

use std::{fmt::Write, fs, path::Path};

use homing_runtime::PromptContext;

/// The most of all instruction files together, in bytes; they are data that every turn pays for.
const MOST: usize = 32 * 1024;

/// Instruction files, best first; one per folder is read.
const FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// Looks at `folder` and up to its repository's root.
pub fn surroundings(folder: &Path) -> PromptContext {
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

/// The checked-out branch, read from the repository's files: git itself is not run for this.
fn branch(folder: &Path) -> Option<String> {
    let git = folder.ancestors().map(|it| it.join(".git")).find(|it| it.exists())?;
    let git = match fs::read_to_string(&git) {
        // In a worktree `.git` is a file that says where the rest is.
        Ok(pointer) => folder.join(pointer.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let head = head.trim();
    let name = head.strip_prefix("ref: refs/heads/").map_or_else(|| format!("commit {}", cut(head, 12)), str::to_owned);
    Some(cut(&name.replace(|it: char| it.is_control(), ""), 200).to_owned())
}

fn instructions(folder: &Path) -> String {
    let root = folder.ancestors().find(|it| it.join(".git").exists()).unwrap_or(folder);
    let mut folders: Vec<&Path> = folder.ancestors().take_while(|it| it.starts_with(root)).collect();
    folders.reverse();
    let mut text = String::new();
    for path in folders.iter().filter_map(|it| FILES.iter().map(|name| it.join(name)).find(|path| path.is_file())) {
        let room = MOST.saturating_sub(text.len());
        let Some(body) = read_head(&path, room).filter(|it| !it.trim().is_empty()) else { continue };
        write!(text, "<instructions from=\"{}\">\n{}\n</instructions>\n", path.display(), body.trim())
            .expect("writing to a string");
    }
    text
}

/// At most `most` bytes of a regular file.
fn read_head(path: &Path, most: usize) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_the_repositorys_root_down_and_the_block_names_the_branch() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(root.path().join(".git")).unwrap();
        fs::write(root.path().join(".git/HEAD"), "ref: refs/heads/topic\n").unwrap();
        fs::write(root.path().join("AGENTS.md"), "outer rules").unwrap();
        fs::write(root.path().join("CLAUDE.md"), "not read beside AGENTS.md").unwrap();
        fs::write(inner.join("CLAUDE.md"), "inner rules").unwrap();
        let setting = surroundings(&inner);
        assert!(setting.environment.contains("git: on topic"), "{}", setting.environment);
        let (outer, inner) = (setting.instructions.find("outer rules"), setting.instructions.find("inner rules"));
        assert!(outer.unwrap() < inner.unwrap() && !setting.instructions.contains("not read"));
    }

    #[test]
    fn a_huge_instruction_file_is_cut() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("AGENTS.md"), "x".repeat(1_000_000)).unwrap();
        assert!(surroundings(root.path()).instructions.len() < MOST + 200);
    }
}
