//! One table that maps every ecosystem's tool names onto ours.

use std::{collections::HashMap, sync::LazyLock};

/// Our names, each with what the field calls the same thing. Matched without regard to case, `-`, `_` and spaces.
const TABLE: &[(&str, &[&str])] = &[
    (
        "read",
        &[
            "Read",
            "NotebookRead",
            "read_file",
            "read_many_files",
            "ReadFile",
            "read/readFile",
            "codebase",
            "view",
            "view_file",
            "cat",
            "open_file",
            "read/problems",
            "readFile",
        ],
    ),
    ("write", &["Write", "write_file", "WriteFile", "Create", "create_file", "edit/createFile", "createFile"]),
    (
        "edit",
        &[
            "Edit",
            "MultiEdit",
            "NotebookEdit",
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
            "edit/editNotebook",
            "editNotebook",
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
            "BashOutput",
            "KillShell",
            "KillBash",
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
}
