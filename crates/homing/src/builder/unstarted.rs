//! Parts of agents that only a coding setup starts: hooks and MCP servers. An agent that the host gives must not lose them
//! silently, because a hook may be what keeps it from doing something.

use homing_core::{definition::AgentDefinition, registry::Registry};

use super::{BuildError, tool_sources::ToolSources};

/// Fails if an agent has hooks or MCP servers, which a builder without a coding setup does not start.
pub(super) fn check_started(agents: &Registry, tools: &ToolSources) -> Result<(), BuildError> {
    let unstarted = agents.definitions().find_map(|agent| Some((agent, unstarted_part(agent, tools)?)));
    match unstarted {
        Some((agent, what)) => Err(BuildError::NeedsCodingSetup { agent: agent.name.clone(), what }),
        None => Ok(()),
    }
}

fn unstarted_part(agent: &AgentDefinition, tools: &ToolSources) -> Option<&'static str> {
    let has_hooks = !agent.integrations.hooks.is_null();
    if has_hooks && tools.extensions.hooks.is_none() {
        return Some("hooks");
    }
    #[cfg(feature = "mcp")]
    {
        // A host may have the tools of a server itself, as when it replays a recording.
        let is_given = |server: &String| {
            let prefix = format!("{}__", homing_tools::mcp::tools_prefix(server));
            tools.tools.iter().any(|tool| tool.spec().name.starts_with(&prefix))
        };
        if !agent.integrations.mcp_servers.keys().all(is_given) {
            return Some("MCP servers");
        }
    }
    None
}
