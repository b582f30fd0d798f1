//! Names of protected paths: files that decide what git, an agent or an editor will later execute. The file tools and the
//! sandbox share this list. It compares names only and never reads files.

use std::path::{Component, Path, PathBuf};

/// Folders, anywhere below a root, in which nothing may be written: they hold agents, hooks, settings and server lists.
pub const FOLDERS: &[&str] = &[
    ".acai",
    ".agents",
    ".amp",
    ".claude",
    ".claude-plugin",
    ".codex",
    ".continue",
    ".copilot",
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
    ".kilocodemodes",
    ".mcp.json",
    ".roomodes",
    "homing.toml",
    "kilo.json",
    "kilo.jsonc",
    "opencode.json",
    "opencode.jsonc",
    "recipe.json",
    "recipe.yaml",
];

/// Folders of other programs, anywhere below a root: they name commands that an editor, a hook manager or a version control
/// system executes. They say nothing to agents, so trust in a project does not depend on them.
pub const TOOL_FOLDERS: &[&str] = &[".devcontainer", ".githooks", ".husky", ".idea", ".jj", ".zed"];

/// As [`TOOL_FOLDERS`], but files.
pub const TOOL_FILES: &[&str] = &[".devcontainer.json", ".envrc"];

/// Files in `.hg` that decide what Mercurial executes.
pub const HG: &[&str] = &["hgrc", "hgrc-not-shared"];

/// Folders in `.github` that define agents or skills.
pub const GITHUB: &[&str] = &["agents", "chatmodes", "skills"];

/// Names in a git folder that decide what git executes. Objects, refs and the index are not listed, because git writes them.
pub const GIT: &[&str] = &["hooks", "config", "config.worktree", "info", "modules", "commondir", "gitdir", "worktrees"];

/// Returns every protected path outside git folders, relative to the folder it lies in.
pub fn names() -> impl Iterator<Item = PathBuf> {
    let mercurial = HG.iter().map(|name| Path::new(".hg").join(name));
    authority_names().chain(TOOL_FOLDERS.iter().chain(TOOL_FILES).map(PathBuf::from)).chain(mercurial)
}

/// Returns the protected paths that carry authority: agents, hooks, settings and servers.
pub fn authority_names() -> impl Iterator<Item = PathBuf> {
    let github = GITHUB.iter().map(|name| Path::new(".github").join(name));
    FOLDERS.iter().chain(FILES).map(PathBuf::from).chain(github)
}

/// Returns the reason why an agent must not write `path`, which is relative to a root; `None` if it may.
///
/// Case, invisible characters and trailing dots or spaces are ignored, because some file systems treat `.CLAUDE` or `.git.`
/// as the same name.
pub fn protects(path: &Path) -> Option<String> {
    let names: Vec<String> = path.components().filter_map(name).collect();
    let rest = |at: usize| names.get(at + 1).map(String::as_str);
    names.iter().enumerate().find_map(|(at, name)| match name.as_str() {
        ".git" => git(names.get(at + 1..).unwrap_or_default()),
        ".github" if rest(at).is_some_and(|next| GITHUB.contains(&next)) => Some("it defines agents".to_owned()),
        ".hg" if rest(at).is_some_and(|next| HG.contains(&next)) => {
            Some("it decides what Mercurial executes".to_owned())
        }
        tool if TOOL_FOLDERS.contains(&tool) || TOOL_FILES.contains(&tool) => {
            Some(format!("`{tool}` decides what an editor or another program executes"))
        }
        folder if FOLDERS.contains(&folder) => Some(format!("`{folder}` holds agents, hooks or settings")),
        file if FILES.contains(&file) => Some(format!("`{file}` decides what is executed")),
        _ => None,
    })
}

/// Returns true for the folder of one agent's memory, which only that agent gets as a root of its own, and for files in it.
pub fn is_agent_memory(path: &Path) -> bool {
    let names: Vec<String> = path.components().filter_map(name).collect();
    let is_memories = |name: &str| matches!(name, "agent-memory" | "agent-memory-local");
    names.windows(3).any(|names| names[0] == ".claude" && is_memories(&names[1]))
}

/// Returns the reason why an agent must not write `path`, which is relative to a git folder; `None` if it may.
pub fn protects_in_git(path: &Path) -> Option<String> {
    let first = path.components().find_map(name)?;
    GIT.contains(&first.as_str()).then(|| format!("`{first}` in a git folder decides what git executes"))
}

/// The file tools write nothing in a git folder at all: git commands exist for that.
fn git(below: &[String]) -> Option<String> {
    Some(match below.first() {
        None => "`.git` decides which repository this is".to_owned(),
        Some(name) if GIT.contains(&name.as_str()) => format!("`.git/{name}` decides what git executes"),
        Some(_) => "only git commands may change git's own files".to_owned(),
    })
}

fn name(component: Component<'_>) -> Option<String> {
    let Component::Normal(name) = component else { return None };
    let folded: String = name
        .to_string_lossy()
        .chars()
        .filter(|letter| !homing_core::sanitize::is_invisible(*letter))
        .flat_map(char::to_lowercase)
        .collect();
    Some(folded.trim_end_matches(['.', ' ']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_p14_protected_paths_are_recognized_in_every_spelling() {
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
            ".husky/pre-commit",
            "a/.idea/workspace.xml",
            ".envrc",
            ".devcontainer/devcontainer.json",
            ".hg/hgrc",
            ".jj/repo/config.toml",
            ".zed/tasks.json",
        ];
        for path in protected {
            assert!(protects(Path::new(path)).is_some(), "{path:?}");
        }
        for path in [
            "src/git/hooks.rs",
            ".gitignore",
            ".github/CODEOWNERS",
            "claude/agents/x.md",
            "a.git/x",
            ".env",
            ".hg/store/x",
        ] {
            assert_eq!(protects(Path::new(path)), None, "{path:?}");
        }
    }
}
