//! Files that give authority: whoever writes them decides what git, an agent or an editor will later run.
//! One list for the file tools and the sandbox; it knows names, not files.

use std::path::{Component, Path, PathBuf};

/// Folders, anywhere below a root, in which nothing may be written: agents, hooks, settings and servers live there.
pub const FOLDERS: &[&str] = &[
    ".acai",
    ".agents",
    ".amp",
    ".claude",
    ".claude-plugin",
    ".codex",
    ".continue",
    ".cursor",
    ".factory",
    ".gemini",
    ".goose",
    ".homing",
    ".kilo",
    ".kiro",
    ".opencode",
    ".pi",
    ".qwen",
    ".roo",
    ".vscode",
    ".windsurf",
];

/// Files, anywhere below a root, that may not be written.
pub const FILES: &[&str] = &[
    ".claude.json",
    ".gitconfig",
    ".gitmodules",
    ".mcp.json",
    ".roomodes",
    "homing.toml",
    "kilo.json",
    "kilo.jsonc",
    "opencode.json",
    "opencode.jsonc",
];

/// What in `.github` defines agents.
pub const GITHUB: &[&str] = &["agents", "chatmodes"];

/// What in a git folder decides what git runs. Object files, refs and the index are not on the list: git writes them.
pub const GIT: &[&str] = &["hooks", "config", "config.worktree", "info", "modules", "commondir", "gitdir", "worktrees"];

/// Every authority file that is no part of a git folder, relative to the folder it lies in.
pub fn names() -> impl Iterator<Item = PathBuf> {
    let github = GITHUB.iter().map(|name| Path::new(".github").join(name));
    FOLDERS.iter().chain(FILES).map(PathBuf::from).chain(github)
}

/// Why `path`, relative to a root, must not be written by an agent; `None` where it may.
///
/// Names are compared without regard to case, invisible characters and trailing dots or spaces, because some file
/// systems take `.CLAUDE` or `.git.` for the real thing.
pub fn protects(path: &Path) -> Option<String> {
    let names: Vec<String> = path.components().filter_map(name).collect();
    let rest = |at: usize| names.get(at + 1).map(String::as_str);
    names.iter().enumerate().find_map(|(at, name)| match name.as_str() {
        ".git" => git(names.get(at + 1..).unwrap_or_default()),
        ".github" if rest(at).is_some_and(|it| GITHUB.contains(&it)) => Some("it defines agents".to_owned()),
        it if FOLDERS.contains(&it) => Some(format!("`{it}` holds agents, hooks or settings")),
        it if FILES.contains(&it) => Some(format!("`{it}` decides what is run")),
        _ => None,
    })
}

/// Why `path`, relative to a git folder, must not be written by an agent; `None` where it may.
pub fn protects_in_git(path: &Path) -> Option<String> {
    let first = path.components().find_map(name)?;
    GIT.contains(&first.as_str()).then(|| format!("`{first}` of a git folder decides what git runs"))
}

/// Through the file tools nothing in a git folder is written at all: git itself has commands for that.
fn git(below: &[String]) -> Option<String> {
    Some(match below.first() {
        None => "`.git` decides which repository this is".to_owned(),
        Some(it) if GIT.contains(&it.as_str()) => format!("`.git/{it}` decides what git runs"),
        Some(_) => "git's own files are changed by git commands only".to_owned(),
    })
}

fn name(component: Component<'_>) -> Option<String> {
    let Component::Normal(name) = component else { return None };
    let folded: String = name
        .to_string_lossy()
        .chars()
        .filter(|it| !homing_core::sanitize::is_invisible(*it))
        .flat_map(char::to_lowercase)
        .collect();
    Some(folded.trim_end_matches(['.', ' ']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_p14_authority_files_are_protected_in_every_spelling() {
        let protected = [
            ".git/hooks/pre-commit",
            ".git",
            ".git/config",
            "sub/.git/HEAD",
            ".GIT/Hooks/x",
            ".git./hooks/x",
            ".g\u{200c}it/config",
            ".claude/agents/evil.md",
            ".CLAUDE/settings.json",
            ".mcp.json",
            "deep/.MCP.json ",
            ".homing/config.toml",
            ".codex/config.toml",
            ".github/agents/x.agent.md",
            ".vscode/tasks.json",
        ];
        for path in protected {
            assert!(protects(Path::new(path)).is_some(), "{path:?}");
        }
        for path in ["src/git/hooks.rs", ".gitignore", ".github/CODEOWNERS", "claude/agents/x.md", "a.git/x", ".env"] {
            assert_eq!(protects(Path::new(path)), None, "{path:?}");
        }
    }
}
