//! Taint: a run tree that has read untrusted content, and can read secrets, may send those secrets away if the content tells
//! it to. Facts name the untrusted content that calls read; network use after that needs approval.

use serde::{Deserialize, Serialize};

use crate::{
    authority::{Grant, Network},
    tool::{Effect, ToolSpec},
    tool_names,
};

/// Origin of untrusted content that a call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Pages and search results.
    Web,
    /// Results of MCP servers.
    Mcp,
    /// Files of a project that the user does not trust.
    Project,
}

/// Treatment of network use after untrusted content was read, if secrets are in reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaintMode {
    /// It is allowed like any other call.
    Off,
    /// It needs the user's approval.
    #[default]
    Ask,
    /// It is denied.
    Deny,
}

impl Origin {
    /// Returns the origin of untrusted content that a call of `tool` may read; `None` if there is none.
    pub fn of_call(tool: &str, grant: &Grant, trusts_project: bool) -> Option<Self> {
        match tool {
            tool_names::FETCH | tool_names::WEBSEARCH => Some(Self::Web),
            tool_names::BASH if grant.network != Network::Off => Some(Self::Web),
            mcp if is_mcp(mcp) => Some(Self::Mcp),
            tool_names::READ
            | tool_names::GREP
            | tool_names::GLOB
            | tool_names::LS
            | tool_names::TREE
            | tool_names::DIFF
            | tool_names::SKILL
            | tool_names::BASH
                if !trusts_project =>
            {
                Some(Self::Project)
            }
            _ => None,
        }
    }

    /// Describes the content for users.
    pub fn description(self) -> &'static str {
        match self {
            Self::Web => "web pages",
            Self::Mcp => "results of MCP servers",
            Self::Project => "files of an untrusted project",
        }
    }
}

/// Returns whether a call of this tool may send data to another machine.
pub fn uses_network(spec: &ToolSpec, grant: &Grant) -> bool {
    spec.effect == Effect::Network
        || is_mcp(&spec.name)
        || (spec.name == tool_names::BASH && grant.network != Network::Off)
}

fn is_mcp(tool: &str) -> bool {
    tool.starts_with("mcp__")
}
