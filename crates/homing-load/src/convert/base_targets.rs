//! The forms that others are variants of.

use homing_core::{definition::PermissionMode, limits::Limit, model::Effort};

use super::targets::{Access, Colors, EmptyList, ListForm, McpForm, ModelForm, ServerForm, Syntax, Target, ToolNames};
use crate::fields::{
    Field::{self, self as F},
    ObserverKey, Setting, Unit,
};

pub(super) const TURNS: Field = F::Limit(Limit::Turns, Unit::Count);

pub(super) const CLAUDE_COLORS: &[&str] = &["red", "blue", "green", "yellow", "purple", "orange", "pink", "cyan"];

const CLAUDE_TOOLS: &[&str] = &[
    "Read",
    "Write",
    "Edit",
    "Bash",
    "Grep",
    "Glob",
    "LS",
    "WebFetch",
    "WebSearch",
    "TodoWrite",
    "Skill",
    "AskUserQuestion",
    "Agent",
    "TaskOutput",
    "SendMessage",
    "TaskStop",
];

pub(super) const NAMES: ToolNames = ToolNames {
    names: &[],
    all: None,
    list: ListForm::List,
    mcp: McpForm::Ours,
    has_patterns: false,
    closes_denials: false,
    empty: EmptyList::NoTools,
};

const NAME_AND_DESCRIPTION: &[(Field, &str)] = &[(F::Name, "name"), (F::Description, "description")];

pub(super) const PLAIN: Target = Target {
    dialect: "",
    program: "",
    folder: "",
    ending: ".md",
    syntax: Syntax::Markdown,
    keys: NAME_AND_DESCRIPTION,
    access: Access::Nothing,
    modes: &[],
    models: ModelForm::None,
    efforts: &[],
    servers: ServerForm::None,
    colors: Colors::Any,
    keeps_notes: false,
};

pub(super) const CLAUDE: Target = Target {
    dialect: "claude-code",
    program: "Claude Code",
    folder: ".claude/agents",
    keys: &[
        (F::Name, "name"),
        (F::Description, "description"),
        (F::Tools, "tools"),
        (F::Denied, "disallowedTools"),
        (F::Model, "model"),
        (F::Effort, "effort"),
        (F::PermissionMode, "permissionMode"),
        (TURNS, "maxTurns"),
        (F::Skills, "skills"),
        (F::McpServers, "mcpServers"),
        (F::Hooks, "hooks"),
        (F::Memory, "memory"),
        (F::Background, "background"),
        (F::Isolation, "isolation"),
        (F::NoProject(true), "omitClaudeMd"),
        (F::CompactWindow, "autoCompactWindow"),
        (F::Observer(ObserverKey::Agents), "observer"),
        (F::Observer(ObserverKey::Message), "observerMessage"),
        (F::Observer(ObserverKey::Subagents), "observeSubagents"),
        (F::InitialPrompt, "initialPrompt"),
        (F::Color, "color"),
    ],
    access: Access::Names(ToolNames { names: CLAUDE_TOOLS, list: ListForm::Commas, closes_denials: true, ..NAMES }),
    modes: &[
        (PermissionMode::Plan, "plan"),
        // There, it denies all that would need approval.
        (PermissionMode::Ask, "dontAsk"),
        (PermissionMode::Edit, "acceptEdits"),
        (PermissionMode::All, "bypassPermissions"),
    ],
    models: ModelForm::Claude,
    efforts: &[
        (Effort::Low, "low"),
        (Effort::Medium, "medium"),
        (Effort::High, "high"),
        (Effort::Xhigh, "xhigh"),
        (Effort::Max, "max"),
    ],
    servers: ServerForm::List,
    colors: Colors::Named(CLAUDE_COLORS),
    keeps_notes: true,
    ..PLAIN
};

pub(super) const HOMING: Target = Target {
    dialect: "homing",
    program: "Homing",
    folder: ".homing/agents",
    keys: &[
        (F::Name, "name"),
        (F::Title, "title"),
        (F::Aliases, "aliases"),
        (F::Description, "description"),
        (F::Tools, "tools"),
        (F::Denied, "disallowedTools"),
        (F::Permission, "permission"),
        (F::Delegates, "delegates"),
        (F::Model, "model"),
        (F::Effort, "effort"),
        (F::Sampling(Setting::Temperature), "temperature"),
        (F::Sampling(Setting::TopP), "top_p"),
        (F::Sampling(Setting::Seed), "seed"),
        (F::Sampling(Setting::ServiceTier), "service_tier"),
        (F::CompactWindow, "autoCompactWindow"),
        (F::Observer(ObserverKey::Agents), "observer"),
        (F::Observer(ObserverKey::Message), "observerMessage"),
        (F::Observer(ObserverKey::Subagents), "observeSubagents"),
        (F::PermissionMode, "permissionMode"),
        (F::Limits, "limits"),
        (F::Skills, "skills"),
        (F::Resources, "resources"),
        (F::McpServers, "mcpServers"),
        (F::Hooks, "hooks"),
        (F::Memory, "memory"),
        (F::Background, "background"),
        (F::Isolation, "isolation"),
        (F::ProjectContext, "context"),
        (F::Inherit, "inherit"),
        (F::SharedContext, "shared_context"),
        (F::Schema, "schema"),
        (F::SchemaOptional, "schema_optional"),
        (F::OnFailure, "on_failure"),
        (F::Taint, "taint"),
        (F::InitialPrompt, "initialPrompt"),
        (F::NotForModels(true), "disable-model-invocation"),
        (F::NotForUser(false), "user-invocable"),
        (F::Color, "color"),
        (F::Metadata, "metadata"),
    ],
    access: Access::Names(ToolNames { has_patterns: true, ..NAMES }),
    modes: &[
        (PermissionMode::Plan, "plan"),
        (PermissionMode::Ask, "ask"),
        (PermissionMode::Edit, "edit"),
        (PermissionMode::All, "all"),
    ],
    models: ModelForm::AsWritten,
    efforts: &[
        (Effort::None, "none"),
        (Effort::Minimal, "minimal"),
        (Effort::Low, "low"),
        (Effort::Medium, "medium"),
        (Effort::High, "high"),
        (Effort::Xhigh, "xhigh"),
        (Effort::Max, "max"),
    ],
    servers: ServerForm::List,
    ..PLAIN
};

pub(super) const OPENCODE: Target = Target {
    dialect: "opencode",
    program: "OpenCode",
    folder: ".opencode/agent",
    keys: &[
        (F::Description, "description"),
        (F::Mode, "mode"),
        (F::NotForUser(true), "hidden"),
        (F::Model, "model"),
        (F::Sampling(Setting::Temperature), "temperature"),
        (TURNS, "steps"),
        (F::Permission, "permission"),
        (F::Color, "color"),
    ],
    access: Access::Permission,
    models: ModelForm::Slash,
    colors: Colors::Hex(&["primary", "secondary", "accent", "success", "warning", "error", "info"]),
    ..PLAIN
};
