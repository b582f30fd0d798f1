//! Files that give authority: whoever writes them decides what git, an agent or an editor will later run.
//! One list for the file tools and the sandbox; it knows names, not files.

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
    ".kiro",
    ".opencode",
    ".qwen",
    ".roo",
    ".vscode",
    ".windsurf",
];

/// Files, anywhere below a root, that may not be written.
pub const FILES: &[&str] =
    &[".claude.json", ".gitconfig", ".gitmodules", ".mcp.json", "homing.toml", "opencode.json", "opencode.jsonc"];

/// What in `.github` defines agents.
pub const GITHUB: &[&str] = &["agents", "chatmodes"];

/// What in a git folder decides what git runs. Object files, refs and the index are not on the list: git writes them.
pub const GIT: &[&str] = &["hooks", "config", "config.worktree", "info", "modules", "commondir", "gitdir", "worktrees"];
