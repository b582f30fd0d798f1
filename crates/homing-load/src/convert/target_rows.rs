//! The forms that agents can be written in: one row per dialect. Keys and tool names are those that the other program itself
//! obeys; their meaning is not repeated here, but taken from the loader.

use std::fmt::Write;

use homing_core::{definition::PermissionMode, limits::Limit, model::Effort};

use super::base_targets::{CLAUDE, CLAUDE_COLORS, HOMING, NAMES, OPENCODE, PLAIN, TURNS};
use super::targets::{Access, Colors, EmptyList, ListForm, McpForm, ModelForm, ServerForm, Syntax, Target, ToolNames};
use crate::fields::{Field as F, Setting, Unit};

/// All forms, in the order of the dialects.
static ALL: &[Target] = &[
    HOMING,
    CLAUDE,
    Target { dialect: "agents", program: "the format of .agents/agents", folder: ".agents/agents", ..CLAUDE },
    Target {
        dialect: "acai",
        program: "acai",
        folder: ".acai/subagents",
        keys: &[
            (F::Name, "name"),
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Model, "model"),
            (F::Limit(Limit::Wall, Unit::Seconds), "timeout"),
        ],
        access: Access::Names(ToolNames {
            names: &["Read", "Write", "Edit", "Bash", "Grep", "Glob", "LS", "DirectoryTree", "Think", "Skill"],
            list: ListForm::Commas,
            mcp: McpForm::None,
            empty: EmptyList::Harmless("Think"),
            ..NAMES
        }),
        models: ModelForm::Colon,
        ..PLAIN
    },
    Target {
        dialect: "codex",
        program: "Codex",
        folder: ".codex/agents",
        ending: ".toml",
        syntax: Syntax::Toml,
        keys: &[
            (F::Name, "name"),
            (F::Description, "description"),
            (F::Model, "model"),
            (F::Effort, "model_reasoning_effort"),
            (F::PermissionMode, "sandbox_mode"),
            (F::Prompt, "developer_instructions"),
            (F::McpServers, "mcp_servers"),
        ],
        access: Access::ReadOnly,
        modes: &[
            (PermissionMode::Plan, "read-only"),
            (PermissionMode::Edit, "workspace-write"),
            (PermissionMode::All, "danger-full-access"),
        ],
        models: ModelForm::Bare(&["openai"]),
        efforts: &[
            (Effort::None, "none"),
            (Effort::Minimal, "minimal"),
            (Effort::Low, "low"),
            (Effort::Medium, "medium"),
            (Effort::High, "high"),
            (Effort::Xhigh, "xhigh"),
            (Effort::Max, "xhigh"),
        ],
        servers: ServerForm::Codex,
        ..PLAIN
    },
    Target {
        dialect: "copilot",
        program: "Copilot",
        folder: ".github/agents",
        ending: ".agent.md",
        keys: &[
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Model, "model"),
            (F::McpServers, "mcp-servers"),
            (F::NotForModels(true), "disable-model-invocation"),
            (F::NotForUser(false), "user-invocable"),
        ],
        access: Access::Names(ToolNames {
            names: &["read", "edit", "search", "execute", "web", "todo", "agent"],
            mcp: McpForm::Slash,
            ..NAMES
        }),
        models: ModelForm::Dotted,
        servers: ServerForm::Copilot,
        keeps_notes: true,
        ..PLAIN
    },
    Target {
        dialect: "cursor",
        program: "Cursor",
        folder: ".cursor/agents",
        keys: &[
            (F::Name, "name"),
            (F::Description, "description"),
            (F::Model, "model"),
            (F::ReadOnly, "readonly"),
            (F::Background, "is_background"),
        ],
        access: Access::ReadOnly,
        modes: &[(PermissionMode::Plan, "true")],
        models: ModelForm::Words(&["fast"]),
        ..PLAIN
    },
    Target {
        dialect: "factory",
        program: "Factory",
        folder: ".factory/droids",
        keys: &[
            (F::Name, "name"),
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Model, "model"),
            (F::Effort, "reasoningEffort"),
            (F::McpServers, "mcpServers"),
        ],
        access: Access::Names(ToolNames {
            names: &[
                "Read",
                "LS",
                "Grep",
                "Glob",
                "Create",
                "Edit",
                "Execute",
                "WebSearch",
                "FetchUrl",
                "TodoWrite",
                "Skill",
                "Task",
            ],
            mcp: McpForm::Group("mcp"),
            empty: EmptyList::Harmless("TodoWrite"),
            ..NAMES
        }),
        models: ModelForm::Bare(&[]),
        efforts: &[(Effort::None, "none"), (Effort::Low, "low"), (Effort::Medium, "medium"), (Effort::High, "high")],
        servers: ServerForm::Names,
        ..PLAIN
    },
    Target {
        dialect: "gemini",
        program: "Gemini CLI",
        folder: ".gemini/agents",
        keys: &[
            (F::Name, "name"),
            (F::Title, "display_name"),
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Model, "model"),
            (F::Sampling(Setting::Temperature), "temperature"),
            (TURNS, "max_turns"),
            (F::Limit(Limit::Wall, Unit::Minutes), "timeout_mins"),
            (F::McpServers, "mcp_servers"),
        ],
        access: Access::Names(ToolNames {
            names: &[
                "read_file",
                "write_file",
                "replace",
                "run_shell_command",
                "grep_search",
                "glob",
                "list_directory",
                "web_fetch",
                "google_web_search",
                "write_todos",
                "activate_skill",
                "ask_user",
                "invoke_agent",
            ],
            mcp: McpForm::Gemini,
            ..NAMES
        }),
        models: ModelForm::Bare(&["gemini"]),
        servers: ServerForm::Gemini,
        ..PLAIN
    },
    Target {
        dialect: "goose",
        program: "Goose",
        folder: ".goose/agents",
        keys: &[(F::Name, "name"), (F::Description, "description"), (F::Model, "model")],
        models: ModelForm::Bare(&[]),
        ..PLAIN
    },
    Target {
        dialect: "goose-recipe",
        program: "Goose",
        folder: ".goose/recipes",
        ending: ".yaml",
        syntax: Syntax::Yaml,
        keys: &[
            (F::Name, "title"),
            (F::Description, "description"),
            (F::Prompt, "instructions"),
            (F::InitialPrompt, "prompt"),
            (F::Parameters, "parameters"),
            (F::Extensions, "extensions"),
            (F::Provider, "settings.goose_provider"),
            (F::Model, "settings.goose_model"),
            (F::Sampling(Setting::Temperature), "settings.temperature"),
            (TURNS, "settings.max_turns"),
            (F::Response, "response.json_schema"),
        ],
        access: Access::Extensions,
        models: ModelForm::Split,
        ..PLAIN
    },
    Target {
        dialect: "instructor",
        program: "instructor-php",
        folder: ".claude/agents",
        ending: ".yaml",
        syntax: Syntax::Yaml,
        keys: &[
            (F::Name, "name"),
            (F::Title, "label"),
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Denied, "toolsDeny"),
            (F::Skills, "skills"),
            (TURNS, "budget.maxSteps"),
            (F::Limit(Limit::Tokens, Unit::Count), "budget.maxTokens"),
            (F::Limit(Limit::Wall, Unit::Seconds), "budget.maxSeconds"),
            (F::Limit(Limit::Cost, Unit::Dollars), "budget.maxCost"),
            (F::Metadata, "metadata"),
            (F::Prompt, "systemPrompt"),
        ],
        access: Access::Names(ToolNames {
            names: &[
                "read_file",
                "write_file",
                "edit_file",
                "search_files",
                "list_dir",
                "bash",
                "todo_write",
                "spawn_subagent",
                "load_skill",
            ],
            mcp: McpForm::None,
            empty: EmptyList::Harmless("todo_write"),
            ..NAMES
        }),
        ..PLAIN
    },
    Target { dialect: "kilo", program: "Kilo", folder: ".kilo/agents", ..OPENCODE },
    Target {
        dialect: "kiro",
        program: "Kiro",
        folder: ".kiro/agents",
        ending: ".json",
        syntax: Syntax::Json,
        keys: &[
            (F::Name, "name"),
            (F::Description, "description"),
            (F::Prompt, "prompt"),
            (F::Model, "model"),
            (F::Tools, "tools"),
            (F::McpServers, "mcpServers"),
        ],
        access: Access::Names(ToolNames {
            names: &["fs_read", "fs_write", "execute_bash", "grep", "glob", "web_fetch", "web_search"],
            all: Some(&["*"]),
            mcp: McpForm::At,
            ..NAMES
        }),
        models: ModelForm::Dotted,
        servers: ServerForm::Map,
        ..PLAIN
    },
    OPENCODE,
    Target {
        dialect: "pi",
        program: "pi-subagents",
        folder: ".pi/agents",
        keys: &[
            (F::Name, "name"),
            (F::Aliases, "aliases"),
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Model, "model"),
            (F::FallbackModels, "fallbackModels"),
            (F::Effort, "thinking"),
            (F::NoProject(false), "inheritProjectContext"),
            (F::Inherit, "defaultContext"),
            (F::Skills, "skills"),
            (F::Resources, "defaultReads"),
            (F::Limit(Limit::Wall, Unit::Millis), "timeoutMs"),
            (TURNS, "turnBudget.maxTurns"),
        ],
        access: Access::Names(ToolNames {
            names: &["read", "write", "edit", "bash", "grep", "find", "ls", "web_search", "subagent"],
            list: ListForm::Commas,
            mcp: McpForm::Colon,
            empty: EmptyList::MaybeAll,
            ..NAMES
        }),
        models: ModelForm::Slash,
        efforts: &[
            (Effort::None, "off"),
            (Effort::Minimal, "minimal"),
            (Effort::Low, "low"),
            (Effort::Medium, "medium"),
            (Effort::High, "high"),
            (Effort::Xhigh, "xhigh"),
        ],
        ..PLAIN
    },
    Target {
        dialect: "qwen",
        program: "Qwen Code",
        folder: ".qwen/agents",
        keys: &[
            (F::Name, "name"),
            (F::Description, "description"),
            (F::Tools, "tools"),
            (F::Denied, "disallowedTools"),
            (F::Model, "model"),
            (F::PermissionMode, "approvalMode"),
            (TURNS, "maxTurns"),
            (F::McpServers, "mcpServers"),
            (F::Hooks, "hooks"),
            (F::Background, "background"),
            (F::Color, "color"),
        ],
        access: Access::Names(ToolNames {
            names: &[
                "read_file",
                "write_file",
                "edit",
                "run_shell_command",
                "grep_search",
                "glob",
                "list_directory",
                "web_fetch",
                "web_search",
                "todo_write",
                "skill",
                "ask_user_question",
                "agent",
            ],
            empty: EmptyList::Harmless("todo_write"),
            ..NAMES
        }),
        modes: &[
            (PermissionMode::Plan, "plan"),
            (PermissionMode::Ask, "bubble"),
            (PermissionMode::Edit, "auto-edit"),
            (PermissionMode::All, "yolo"),
        ],
        models: ModelForm::Bare(&["qwen", "dashscope"]),
        servers: ServerForm::Map,
        colors: Colors::Named(CLAUDE_COLORS),
        keeps_notes: true,
        ..PLAIN
    },
    Target {
        dialect: "roo",
        program: "Roo",
        folder: "",
        ending: ".roomodes",
        syntax: Syntax::Modes,
        keys: &[
            (F::Name, "slug"),
            (F::Title, "name"),
            (F::Description, "whenToUse"),
            (F::Prompt, "roleDefinition"),
            (F::Groups, "groups"),
        ],
        access: Access::Names(ToolNames {
            names: &["read", "edit", "browser", "command"],
            all: Some(&["read", "edit", "browser", "command", "mcp"]),
            mcp: McpForm::Group("mcp"),
            ..NAMES
        }),
        ..PLAIN
    },
];

/// Returns all forms.
pub fn targets() -> &'static [Target] {
    ALL
}

/// Returns the form called `name`: the name of its dialect, or the usual name of its program.
pub fn target(name: &str) -> Option<&'static Target> {
    let name = match name {
        "claude" => "claude-code",
        "vscode" => "copilot",
        "gemini-cli" => "gemini",
        "qwen-code" => "qwen",
        "recipe" => "goose-recipe",
        other => other,
    };
    ALL.iter().find(|target| target.dialect == name)
}

/// Returns a Markdown table of the forms: their files, their keys and the way in which they restrict tools.
pub fn form_table() -> String {
    let mut table = "| form | file | keys | restricts tools by |\n|---|---|---|---|\n".to_owned();
    for form in ALL {
        let name = if form.dialect == "claude-code" { "claude" } else { form.dialect };
        let file = match form.syntax {
            Syntax::Modes => form.ending.to_owned(),
            _ => format!("{}/NAME{}", form.folder, form.ending),
        };
        let keys: Vec<String> = form.keys.iter().map(|(_, key)| format!("`{key}`")).collect();
        writeln!(table, "| {name} | `{file}` | {} | {} |", keys.join(", "), restriction(form))
            .expect("writing to a string");
    }
    table
}

fn restriction(form: &Target) -> &'static str {
    match form.access {
        Access::Names(names) if names.has_patterns => "rules with patterns, denials, approval",
        Access::Names(_) if form.key(F::Denied).is_some() => "names, denials",
        Access::Names(_) => "names",
        Access::Permission => "permissions with patterns, denials, approval",
        Access::Extensions => "extensions",
        Access::ReadOnly => "nothing but a read-only mode",
        Access::Nothing => "nothing",
    }
}
