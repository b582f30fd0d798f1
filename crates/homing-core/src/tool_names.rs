//! Canonical tool names, and the table that maps the names of other programs to them.

use std::{collections::HashSet, sync::LazyLock};

use crate::id_map::IdMap;

/// Reads a file.
pub const READ: &str = "read";
/// Writes a file.
pub const WRITE: &str = "write";
/// Changes a file.
pub const EDIT: &str = "edit";
/// Runs a command.
pub const BASH: &str = "bash";
/// Searches file contents.
pub const GREP: &str = "grep";
/// Finds files by pattern.
pub const GLOB: &str = "glob";
/// Lists a folder.
pub const LS: &str = "ls";
/// Lists a folder and its subfolders.
pub const TREE: &str = "tree";
/// Fetches a URL.
pub const FETCH: &str = "fetch";
/// Searches the web.
pub const WEBSEARCH: &str = "websearch";
/// Records a thought.
pub const THINK: &str = "think";
/// Keeps a task list.
pub const TODO: &str = "todo";
/// Loads a skill.
pub const SKILL: &str = "skill";
/// Asks the user.
pub const ASK: &str = "ask";
/// Shows uncommitted changes.
pub const DIFF: &str = "diff";
/// Spawns a child run.
pub const DELEGATE: &str = "delegate";
/// Waits for child runs.
pub const WAIT: &str = "wait";
/// Sends a message to a child run.
pub const TELL: &str = "tell";
/// Cancels a child run.
pub const CANCEL: &str = "cancel";
/// Gives the structured answer.
pub const ANSWER: &str = "answer";
/// Restores a file's contents from before a change. Models are never offered it.
pub const RESTORE: &str = "restore";
/// Finds and loads tools that are offered on demand.
pub const FIND_TOOLS: &str = "find_tools";
/// Finds agents to delegate to.
pub const FIND_AGENTS: &str = "find_agents";

/// Canonical names, each with the names of the same tool in other programs. Matching ignores case, `-`, `_` and spaces.
const TABLE: &[(&str, &[&str])] = &[
    (
        READ,
        &[
            "Read",
            "read_file",
            "read_many_files",
            "ReadFile",
            "read/readFile",
            "codebase",
            "view",
            "view_file",
            "cat",
            "open_file",
            "readFile",
        ],
    ),
    (WRITE, &["Write", "write_file", "WriteFile", "Create", "create_file", "edit/createFile", "createFile"]),
    (
        EDIT,
        &[
            "Edit",
            "MultiEdit",
            "replace",
            "edit_file",
            "EditFile",
            "ApplyPatch",
            "apply_patch",
            "edit/editFiles",
            "editFiles",
            "str_replace",
            "str_replace_editor",
            "str_replace_based_edit_tool",
            "patch",
            "search_replace",
        ],
    ),
    (
        BASH,
        &[
            "Bash",
            "PowerShell",
            "shell",
            "run_shell_command",
            "execute",
            "Execute",
            "execute/runInTerminal",
            "runInTerminal",
            "run_in_terminal",
            "runCommands",
            "run_command",
            "terminal",
            "exec",
            "command",
            "execute_command",
            "runTasks",
        ],
    ),
    (
        GREP,
        &[
            "Grep",
            "grep_search",
            "search_file_content",
            "search_files",
            "search",
            "search/codebase",
            "usages",
            "text_search",
            "ripgrep",
            "rg",
            "search/textSearch",
            "textSearch",
            "search/usages",
        ],
    ),
    (GLOB, &["Glob", "find_files", "file_search", "search/fileSearch", "fileSearch", "find"]),
    (LS, &["LS", "list", "list_directory", "list_dir", "ListDir", "listDirectory", "search/listDirectory"]),
    (TREE, &["DirectoryTree", "directory_tree"]),
    (FETCH, &["WebFetch", "web_fetch", "web/fetch", "fetch_url", "url_fetch", "fetch_webpage"]),
    (WEBSEARCH, &["WebSearch", "web_search", "google_web_search", "web", "web/search", "search_web"]),
    (THINK, &["Think", "sequential_thinking"]),
    (
        TODO,
        &[
            "TodoWrite",
            "TodoRead",
            "todo_write",
            "write_todos",
            "todos",
            "update_plan",
            "TaskCreate",
            "TaskGet",
            "TaskList",
            "TaskUpdate",
            "todo_read",
        ],
    ),
    (SKILL, &["Skill", "load_skill", "activate_skill", "use_skill"]),
    (ASK, &["AskUserQuestion", "question", "ask_user", "ask_user_question", "vscode/askQuestions"]),
    (DIFF, &["changes", "git_diff", "search/changes"]),
    (
        DELEGATE,
        &[
            "Agent",
            "Task",
            "Subagent",
            "spawn_subagent",
            "invoke_agent",
            "custom-agent",
            "runSubagent",
            "spawn_agent",
            "agent/runSubagent",
            "new_task",
            "spawn",
        ],
    ),
    (WAIT, &["TaskOutput", "wait_agent"]),
    (TELL, &["SendMessage", "send_input"]),
    (CANCEL, &["TaskStop", "close_agent"]),
    (ANSWER, &["structured_output"]),
];

/// Tools of other programs that do only part of what one of our tools does, or something that none of them does.
///
/// They must not be mapped: `BashOutput` reads the output of a command and `KillShell` ends one, but `bash` runs any
/// command; `NotebookEdit` changes notebooks, but `edit` changes any file. Mapped, such a name would grant more than its
/// author meant, or deny more.
const WITHOUT_COUNTERPART: &[&str] = &[
    // Claude Code
    "BashOutput",
    "KillShell",
    "KillBash",
    "Monitor",
    "NotebookEdit",
    "NotebookRead",
    "ListMcpResources",
    "ListMcpResourcesTool",
    "ReadMcpResource",
    "ReadMcpResourceTool",
    "EnterPlanMode",
    "ExitPlanMode",
    "EnterWorktree",
    "ExitWorktree",
    "LSP",
    "SlashCommand",
    "ToolSearch",
    // Codex and OpenCode
    "write_stdin",
    "list_mcp_resources",
    "list_mcp_resource_templates",
    "read_mcp_resource",
    "view_image",
    "codesearch",
    "external_directory",
    "doom_loop",
    "plan_enter",
    "plan_exit",
    // Gemini CLI, Qwen Code, Factory, Copilot CLI
    "save_memory",
    "exit_plan_mode",
    "exit_spec_mode",
    "read_bash",
    "write_bash",
    "stop_bash",
    "list_bash",
    "read_powershell",
    "write_powershell",
    "stop_powershell",
    // VS Code
    "problems",
    "read/problems",
    "editNotebook",
    "edit/editNotebook",
    "read/getNotebookSummary",
    "getTerminalOutput",
    "get_terminal_output",
    "execute/getTerminalOutput",
    "execute/awaitTerminal",
    "execute/killTerminal",
    "execute/testFailure",
    "terminalLastCommand",
    "terminalSelection",
    "read/terminalLastCommand",
    "read/terminalSelection",
    "getTaskOutput",
    "get_task_output",
    "testFailure",
];

/// Returns whether `name` is a known tool of another program that has no counterpart here.
pub fn lacks_counterpart(name: &str) -> bool {
    FOREIGN.contains(&fold(name.trim()))
}

static FOREIGN: LazyLock<HashSet<String>> =
    LazyLock::new(|| WITHOUT_COUNTERPART.iter().map(|name| fold(name)).collect());

/// Returns the canonical name for `name`, if there is such a tool.
pub fn canonical(name: &str) -> Option<&'static str> {
    // Each call of a tool asks several times, nearly always with a short ASCII name.
    let (mut short, mut length) = ([0_u8; 32], 0);
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.len() > short.len() || !name.bytes().all(is_simple) {
        return BY_NAME.get(fold(name.trim()).as_bytes()).copied();
    }
    for byte in name.bytes().filter(|byte| !matches!(byte, b'-' | b'_')) {
        short[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    BY_NAME.get(&short[..length]).copied()
}

/// The table inverted, because loading ten thousand files needs fifty thousand lookups.
static BY_NAME: LazyLock<IdMap<Vec<u8>, &'static str>> = LazyLock::new(|| {
    let folded = |name: &&str| fold(name).into_bytes();
    let names = TABLE.iter().flat_map(|(ours, theirs)| theirs.iter().chain([ours]).map(|name| (folded(name), *ours)));
    // Of a list the size is known, so that the map does not grow.
    names.collect::<Vec<_>>().into_iter().collect()
});

/// Returns all canonical names.
pub fn all() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(ours, _)| *ours)
}

/// Returns the tools through which a run reaches other runs.
pub fn delegation() -> impl Iterator<Item = &'static str> {
    [DELEGATE, WAIT, TELL, CANCEL].into_iter()
}

/// Returns whether `tool` is one of the tools through which a run reaches other runs.
pub fn is_delegation(tool: &str) -> bool {
    matches!(tool, DELEGATE | WAIT | TELL | CANCEL)
}

/// Returns whether `tool` is carried out by the runtime itself and has no effect outside it.
pub fn is_answer_or_search(tool: &str) -> bool {
    matches!(tool, ANSWER | FIND_TOOLS | FIND_AGENTS)
}

fn fold(name: &str) -> String {
    if name.is_ascii() {
        let letters = name.bytes().filter(|byte| !matches!(byte, b'-' | b'_' | b' '));
        let mut folded = String::with_capacity(name.len());
        folded.extend(letters.map(|byte| char::from(byte.to_ascii_lowercase())));
        return folded;
    }
    name.chars().filter(|letter| !matches!(letter, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_foreign_names_are_mapped() {
        let mapped = [
            ("read_file", "read"),
            ("search_files", "grep"),
            ("list_dir", "ls"),
            ("todo_write", "todo"),
            ("spawn_subagent", "delegate"),
            ("load_skill", "skill"),
            ("LS", "ls"),
            ("DirectoryTree", "tree"),
            ("Think", "think"),
            ("Subagent", "delegate"),
            ("MultiEdit", "edit"),
            ("google_web_search", "websearch"),
        ];
        for (theirs, ours) in mapped {
            assert_eq!(canonical(theirs), Some(ours), "{theirs}");
        }
        assert_eq!(canonical("Bassh"), None);
    }

    #[test]
    fn no_name_maps_to_two_tools() {
        let mut seen = std::collections::BTreeMap::new();
        for (ours, theirs) in TABLE {
            for name in theirs.iter().chain([ours]) {
                let before = seen.insert(fold(name), *ours);
                assert!(before.is_none_or(|earlier| earlier == *ours), "{name} is both {ours} and {before:?}");
            }
        }
    }

    #[test]
    fn partial_counterparts_are_never_mapped() {
        let partial = ["BashOutput", "KillShell", "kill_bash", "NotebookEdit", "notebook-read", "edit/editNotebook"];
        for name in partial.iter().chain(WITHOUT_COUNTERPART) {
            assert_eq!(canonical(name), None, "{name}");
            assert!(lacks_counterpart(name), "{name}");
        }
        assert!(!lacks_counterpart("Bash") && !lacks_counterpart("Bassh"));
    }
}
