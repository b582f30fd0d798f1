//! The part of the prompt that describes the working folder: an environment block and the project's instruction files.

use std::{
    collections::HashSet,
    fmt::Write,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use homing_runtime::PromptContext;

/// Maximum size of all instruction files together, in bytes. Every turn pays for them.
const MAX_BYTES: usize = 32 * 1024;

/// Maximum number of instruction files, including those that they import.
const MAX_FILES: usize = 50;

/// Maximum number of imports on the way to a file.
const MAX_IMPORT_DEPTH: usize = 5;

/// Selects whether `@path` in a file imports another one.
#[derive(Clone, Copy)]
enum Imports {
    Followed,
    Text,
}

/// Instruction files of a folder, in the order in which they are read: those that all programs share, Claude Code's, Gemini
/// CLI's, Qwen Code's and Copilot's.
const FILES: [(&str, Imports); 7] = [
    ("AGENTS.md", Imports::Text),
    ("CLAUDE.md", Imports::Followed),
    (".claude/CLAUDE.md", Imports::Followed),
    ("CLAUDE.local.md", Imports::Followed),
    ("GEMINI.md", Imports::Followed),
    ("QWEN.md", Imports::Followed),
    (".github/copilot-instructions.md", Imports::Text),
];

/// Describes `folder` and reads the instruction files from the root of its repository down to it.
pub fn project_context(folder: &Path) -> PromptContext {
    let project = Some(homing_runtime::project_folder(folder));
    PromptContext { environment: environment(folder), instructions: instructions(folder), project }
}

fn environment(folder: &Path) -> String {
    let today = crate::environment::today();
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
    let mut found = Instructions { root, text: String::new(), paths: HashSet::new(), bodies: HashSet::new() };
    for folder in folders {
        for (name, imports) in FILES {
            found.add(&folder.join(name), imports, 0);
        }
    }
    found.text
}

/// Collects instruction files, each once.
struct Instructions<'a> {
    root: &'a Path,
    text: String,
    paths: HashSet<PathBuf>,
    /// Projects often keep the same text under several names.
    bodies: HashSet<String>,
}

impl Instructions<'_> {
    /// Adds a file and, after it, the files that it imports.
    fn add(&mut self, path: &Path, imports: Imports, depth: usize) {
        let left = MAX_BYTES.saturating_sub(self.text.len());
        if left == 0 || depth > MAX_IMPORT_DEPTH || self.paths.len() >= MAX_FILES {
            return;
        }
        let Some(body) = open_inside(path, self.root).and_then(|file| read_head(file, left)) else { return };
        let is_new = path.canonicalize().is_ok_and(|real| self.paths.insert(real));
        if !is_new || body.trim().is_empty() {
            return;
        }
        let imported = match imports {
            Imports::Followed => imported(&body),
            Imports::Text => Vec::new(),
        };
        let is_only_imports = !imported.is_empty() && body.split_whitespace().count() == imported.len();
        if !is_only_imports && self.bodies.insert(body.trim().to_owned()) {
            write!(self.text, "<instructions from=\"{}\">\n{}\n</instructions>\n", path.display(), body.trim())
                .expect("writing to a string");
        }
        let folder = path.parent().unwrap_or(self.root);
        for import in imported {
            self.add(&folder.join(import), imports, depth + 1);
        }
    }
}

/// Returns the paths that a text imports as `@path`, at the beginning of a word and outside of code.
fn imported(body: &str) -> Vec<&str> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for line in body.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second part is between back quotes.
        let prose = line.split('`').step_by(2);
        let words = prose.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix('@'));
        found.extend(words.map(|path| path.trim_end_matches([',', ';', ':', ')'])).filter(|path| !path.is_empty()));
    }
    found
}

/// Opens a file of the project. A link may lead to another file of the project, but not out of it: a cloned repository
/// would otherwise send any file of the user to the provider.
pub(crate) fn open_inside(path: &Path, root: &Path) -> Option<fs::File> {
    let file = fs::File::open(path).ok()?;
    let real = path.canonicalize().ok().filter(|real| root.canonicalize().is_ok_and(|root| real.starts_with(root)))?;
    // The file that was opened must be the one that was checked, even if a link changed in between.
    let (opened, inside) = (file.metadata().ok()?, real.symlink_metadata().ok()?);
    let is_same = (opened.dev(), opened.ino()) == (inside.dev(), inside.ino());
    (is_same && opened.is_file()).then_some(file)
}

/// Reads at most `max` bytes of a file.
pub(crate) fn read_head(file: fs::File, max: usize) -> Option<String> {
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
        fs::write(inner.join("CLAUDE.md"), "inner rules").unwrap();
        let context = project_context(&inner);
        assert!(context.environment.contains("git: on topic"), "{}", context.environment);
        let (outer, inner) = (context.instructions.find("outer rules"), context.instructions.find("inner rules"));
        assert!(outer.unwrap() < inner.unwrap());
    }

    /// Writes files into a new project and returns its instructions, with the folder left out.
    fn instructions_of(files: &[(&str, &str)]) -> String {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        project_context(root.path()).instructions.replace(&root.path().display().to_string(), "")
    }

    #[test]
    fn instruction_files_of_all_programs_are_read_once() {
        let text = instructions_of(&[
            ("AGENTS.md", "shared"),
            ("CLAUDE.md", "claude"),
            (".claude/CLAUDE.md", "inner claude"),
            ("CLAUDE.local.md", "mine"),
            ("GEMINI.md", "shared"),
            ("QWEN.md", "@AGENTS.md"),
            (".github/copilot-instructions.md", "copilot"),
        ]);
        let expected = ["shared", "claude", "inner claude", "mine", "copilot"];
        let bodies: Vec<&str> = text.lines().filter(|line| !line.starts_with('<')).collect();
        assert_eq!(bodies, expected, "{text}");
    }

    #[test]
    fn imports_are_followed_inside_the_project_and_bounded() {
        let text = instructions_of(&[
            (
                "CLAUDE.md",
                "See @docs/a.md, mail x@docs/b.md and `@docs/b.md`.\n```\n@docs/b.md\n```\n@/etc/hostname @~/x @../up",
            ),
            ("docs/a.md", "A @deep/1.md @a.md"),
            ("docs/b.md", "B"),
            ("docs/deep/1.md", "1 @2.md"),
            ("docs/deep/2.md", "2 @3.md"),
            ("docs/deep/3.md", "3 @4.md"),
            ("docs/deep/4.md", "4 @5.md"),
            ("docs/deep/5.md", "5"),
            ("AGENTS.md", "@docs/b.md is text here"),
        ]);
        let read: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("<instructions from=\"")).collect();
        let expected = [
            "/AGENTS.md",
            "/CLAUDE.md",
            "/docs/a.md",
            "/docs/deep/1.md",
            "/docs/deep/2.md",
            "/docs/deep/3.md",
            "/docs/deep/4.md",
        ];
        assert_eq!(read, expected.map(|path| format!("{path}\">")), "{text}");
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
