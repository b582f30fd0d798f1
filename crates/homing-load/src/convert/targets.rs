//! The differences between the forms that agents can be written in.

use homing_core::{definition::PermissionMode, model::Effort};

use crate::{
    dialect::{self, Dialect},
    fields::Field,
};

/// A form that agents can be written in.
#[derive(Debug)]
pub struct Target {
    /// The name of the dialect.
    pub(super) dialect: &'static str,
    /// The program that reads the files, for messages.
    pub(super) program: &'static str,
    pub(super) folder: &'static str,
    pub(super) ending: &'static str,
    pub(super) syntax: Syntax,
    /// The keys that the program obeys; a dot separates the keys of nested maps.
    pub(super) keys: &'static [(Field, &'static str)],
    pub(super) access: Access,
    pub(super) modes: &'static [(PermissionMode, &'static str)],
    pub(super) models: ModelForm,
    pub(super) efforts: &'static [(Effort, &'static str)],
    pub(super) servers: ServerForm,
    pub(super) colors: Colors,
    /// True if the program ignores the author's own keys.
    pub(super) keeps_notes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Front matter and the prompt below it.
    Markdown,
    Toml,
    Yaml,
    Json,
    /// One file with a list of all agents.
    Modes,
}

/// The way in which a form restricts tools.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// A list of names.
    Names(ToolNames),
    /// OpenCode's permissions.
    Permission,
    /// Goose's extensions.
    Extensions,
    /// Only a switch against all changes, as the key and its value.
    ReadOnly,
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ToolNames {
    /// The names that the program knows. The loader says what they mean.
    pub(super) names: &'static [&'static str],
    /// The entry for all tools; `None` if all tools are meant without a list.
    pub(super) all: Option<&'static [&'static str]>,
    pub(super) list: ListForm,
    pub(super) mcp: McpForm,
    /// True if `bash(git log *)` restricts calls.
    pub(super) has_patterns: bool,
    /// True if the denial of some calls, such as `Bash(rm *)`, denies the whole tool there.
    pub(super) closes_denials: bool,
    pub(super) empty: EmptyList,
}

/// The meaning of an empty list of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptyList {
    NoTools,
    /// It means all tools, or that is not known; this name of a tool without any effect is written instead.
    Harmless(&'static str),
    /// It means all tools, or that is not known, and there is no such tool.
    MaybeAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListForm {
    List,
    Commas,
}

/// The spelling of MCP tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum McpForm {
    /// `mcp__server__tool`, `mcp__server`
    Ours,
    /// `mcp_server_tool`, `mcp_server_*`, `mcp_*`
    Gemini,
    /// `server/tool`, `server/*`
    Slash,
    /// `mcp:server/tool`
    Colon,
    /// `@server/tool`, `@server`
    At,
    /// One name for all.
    Group(&'static str),
    None,
}

/// The spelling of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelForm {
    /// As the file had it.
    AsWritten,
    /// `sonnet`, or the id of a model of Anthropic.
    Claude,
    /// `provider/model`
    Slash,
    /// `provider:model`
    Colon,
    /// The id alone, of these providers; of all if there are none.
    Bare(&'static [&'static str]),
    /// The id with dots in version numbers.
    Dotted,
    /// The provider and the id under keys of their own.
    Split,
    /// Only these words.
    Words(&'static [&'static str]),
    None,
}

/// The form of MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerForm {
    /// A list of names and of maps of name to configuration.
    List,
    /// A map of name to configuration.
    Map,
    Codex,
    Copilot,
    Gemini,
    /// A list of names.
    Names,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colors {
    Any,
    Named(&'static [&'static str]),
    /// `#rrggbb`, or one of these.
    Hex(&'static [&'static str]),
}

impl Target {
    /// The name of its dialect.
    pub fn name(&self) -> &'static str {
        self.dialect
    }

    pub(super) fn dialect(&self) -> &'static Dialect {
        dialect::named(self.dialect).unwrap_or(dialect::own())
    }

    /// The key for a field.
    pub(super) fn key(&self, field: Field) -> Option<&'static str> {
        self.keys.iter().find(|(other, _)| *other == field).map(|(_, key)| *key)
    }
}
