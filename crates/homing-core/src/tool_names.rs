//! One table that maps every ecosystem's tool names onto ours.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

/// Our names, each with what the field calls the same thing. Matched without regard to case, `-`, `_` and spaces.
const TABLE: &[(&str, &[&str])] = &[
    (
        "read",
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
    ("write", &["Write", "write_file", "WriteFile", "Create", "create_file", "edit/createFile", "createFile"]),
    (
        "edit",
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
        "bash",
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
        "grep",
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
    ("glob", &["Glob", "find_files", "file_search", "search/fileSearch", "fileSearch", "find"]),
    ("ls", &["LS", "list", "list_directory", "list_dir", "ListDir", "listDirectory", "search/listDirectory"]),
    ("tree", &["DirectoryTree", "directory_tree"]),
    ("fetch", &["WebFetch", "web_fetch", "web/fetch", "fetch_url", "url_fetch", "fetch_webpage"]),
    ("websearch", &["WebSearch", "web_search", "google_web_search", "web", "web/search", "search_web"]),
    ("think", &["Think", "sequential_thinking"]),
    (
        "todo",
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
    ("skill", &["Skill", "load_skill", "activate_skill", "use_skill"]),
    ("ask", &["AskUserQuestion", "question", "ask_user", "ask_user_question", "vscode/askQuestions"]),
    ("diff", &["changes", "git_diff", "search/changes"]),
    (
        "delegate",
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
    ("wait", &["TaskOutput", "wait_agent"]),
    ("tell", &["SendMessage", "send_input"]),
    ("cancel", &["TaskStop", "close_agent"]),
    ("answer", &["structured_output"]),
];

/// Names of other programs' tools that do a part of what one of ours does, or something that none of ours does.
///
/// None of them may stand for a tool of ours: `BashOutput` reads what a command printed and `KillShell` ends one, but
/// `bash` starts any; `NotebookEdit` changes notebooks, but `edit` changes every file. As a permission such a name would
/// grant more than its author meant, and as a denial it would take more away.
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

/// Whether `name` is a tool of another program that none of ours stands for.
pub fn lacks_counterpart(name: &str) -> bool {
    FOREIGN.contains(&fold(name.trim()))
}

static FOREIGN: LazyLock<HashSet<String>> = LazyLock::new(|| WITHOUT_COUNTERPART.iter().map(|it| fold(it)).collect());

/// Our name for `name`, if we have such a tool.
pub fn canonical(name: &str) -> Option<&'static str> {
    BY_NAME.get(&fold(name.trim())).copied()
}

/// The table the other way round: loading ten thousand files asks fifty thousand times.
static BY_NAME: LazyLock<HashMap<String, &'static str>> = LazyLock::new(|| {
    let names = TABLE.iter().flat_map(|(ours, theirs)| theirs.iter().chain([ours]).map(|it| (fold(it), *ours)));
    names.collect()
});

/// Every canonical name.
pub fn all() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(ours, _)| *ours)
}

fn fold(name: &str) -> String {
    name.chars().filter(|it| !matches!(it, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_names_are_known() {
        let seeds = [
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
        for (theirs, ours) in seeds {
            assert_eq!(canonical(theirs), Some(ours), "{theirs}");
        }
        assert_eq!(canonical("Bassh"), None);
    }

    #[test]
    fn no_name_stands_for_two_tools() {
        let mut seen = std::collections::BTreeMap::new();
        for (ours, theirs) in TABLE {
            for name in theirs.iter().chain([ours]) {
                let before = seen.insert(fold(name), *ours);
                assert!(before.is_none_or(|it| it == *ours), "{name} is both {ours} and {before:?}");
            }
        }
    }

    #[test]
    fn names_that_do_less_than_a_tool_of_ours_never_stand_for_it() {
        let partial = ["BashOutput", "KillShell", "kill_bash", "NotebookEdit", "notebook-read", "edit/editNotebook"];
        for name in partial.iter().chain(WITHOUT_COUNTERPART) {
            assert_eq!(canonical(name), None, "{name}");
            assert!(lacks_counterpart(name), "{name}");
        }
        assert!(!lacks_counterpart("Bash") && !lacks_counterpart("Bassh"));
    }
}
