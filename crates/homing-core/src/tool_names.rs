//! Canonical tool names, and the table that maps the names of other programs to them.

use std::{collections::HashSet, sync::LazyLock};

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
    let (mut short, mut length, mut hash) = ([0_u8; 32], 0, 0);
    if name.len() > short.len() {
        return find_folded(name);
    }
    for byte in name.bytes() {
        let letter = match byte {
            b'a'..=b'z' | b'0'..=b'9' => byte,
            b'A'..=b'Z' => byte.to_ascii_lowercase(),
            b'-' | b'_' => continue,
            _ => return find_folded(name),
        };
        short[length] = letter;
        hash = with_letter(hash, letter);
        length += 1;
    }
    find(&short[..length], hash)
}

/// Finds a name in any spelling.
fn find_folded(name: &str) -> Option<&'static str> {
    let folded = fold(name.trim());
    find(folded.as_bytes(), folded.bytes().fold(0, with_letter))
}

/// Finds a folded name by its hash.
fn find(folded: &[u8], hash: u32) -> Option<&'static str> {
    let mut slot = first_slot(hash);
    while let Some(name) = BY_NAME[slot] {
        let (ours, theirs) = TABLE[usize::from(name.row)];
        let is_it = name.check == check(hash)
            && match name.number {
                // Ours have neither capital letters nor separators.
                0 => ours.as_bytes() == folded,
                number => {
                    let letters = theirs[usize::from(number) - 1].bytes().filter(|byte| !is_separator(*byte));
                    letters.map(|byte| byte.to_ascii_lowercase()).eq(folded.iter().copied())
                }
            };
        if is_it {
            return Some(ours);
        }
        slot = (slot + 1) % SLOTS;
    }
    None
}

/// A name of the table.
#[derive(Clone, Copy)]
struct Name {
    row: u8,
    /// Its number in the row: 0 is our own.
    number: u8,
    /// A part of its hash, which tells most other names apart without looking at them.
    check: u8,
}

/// At least twice the number of names, so that most names are in their first slot, and most others find it empty.
const SLOTS: usize = 512;

/// The table inverted, because loading ten thousand files needs fifty thousand lookups: a hash table from folded names to their
/// position, with open addressing. The compiler fills it: a process with one call would spend a twelfth of its instructions on that.
static BY_NAME: [Option<Name>; SLOTS] = filled_slots();

const fn filled_slots() -> [Option<Name>; SLOTS] {
    let mut slots = [None; SLOTS];
    let mut number = 0;
    // Our own names come first: they are looked up most.
    while number <= u8::MAX as usize {
        let mut row = 0;
        while row < TABLE.len() {
            let (ours, theirs) = TABLE[row];
            if number <= theirs.len() {
                let name = if number == 0 { ours } else { theirs[number - 1] };
                let hash = hash_of(name.as_bytes());
                let mut slot = first_slot(hash);
                while slots[slot].is_some() {
                    slot = (slot + 1) % SLOTS;
                }
                slots[slot] = Some(Name { row: row as u8, number: number as u8, check: check(hash) });
            }
            row += 1;
        }
        number += 1;
    }
    slots
}

/// The hash of a name in any spelling.
const fn hash_of(name: &[u8]) -> u32 {
    let (mut hash, mut at) = (0, 0);
    while at < name.len() {
        if !is_separator(name[at]) {
            hash = with_letter(hash, name[at].to_ascii_lowercase());
        }
        at += 1;
    }
    hash
}

const fn with_letter(hash: u32, letter: u8) -> u32 {
    (hash.rotate_left(5) ^ letter as u32).wrapping_mul(0x9e37_79b9)
}

/// The slot of a name with this hash, unless another name was there first.
const fn first_slot(hash: u32) -> usize {
    (hash >> 16) as usize % SLOTS
}

const fn check(hash: u32) -> u8 {
    (hash >> 25) as u8
}

const fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b' ')
}

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
        let letters = name.bytes().filter(|byte| !is_separator(*byte));
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
    fn every_name_is_found_in_every_spelling() {
        for (ours, theirs) in TABLE {
            assert_eq!(*ours, fold(ours), "our names are compared as they are");
            for name in theirs.iter().chain([ours]) {
                // A name that belonged to two tools would be found for only one of them.
                assert_eq!(canonical(name), Some(*ours), "{name}");
                assert_eq!(canonical(&name.to_uppercase()), Some(*ours), "{name}");
                assert_eq!(canonical(&format!(" {}-", name.replace('_', " "))), Some(*ours), "{name}");
                assert_ne!(canonical(&format!("{name}x")), Some(*ours), "{name}");
            }
        }
        assert_eq!((canonical(""), canonical("-_ ")), (None, None));
    }

    #[test]
    fn table_of_names_is_at_most_half_full() {
        let names: usize = TABLE.iter().map(|(_, theirs)| 1 + theirs.len()).sum();
        assert!(2 * names <= SLOTS, "{names} names");
    }

    #[test]
    fn our_own_names_are_found_at_once() {
        for name in all() {
            assert_eq!(BY_NAME[first_slot(hash_of(name.as_bytes()))].map(|name| name.number), Some(0), "{name}");
        }
    }

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
