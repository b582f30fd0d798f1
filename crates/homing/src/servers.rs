//! MCP servers and who gets their tools: those of the user and of a trusted project serve every run of this host, those that
//! an agent's file defines serve the runs of that agent and what they delegate to. Nothing is started here.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    authority::Allow,
    definition::AgentDefinition,
    diagnostic::Diagnostic,
    rule::Rule,
    tool::{AgentToolSource, Tool},
};
use homing_tools::{
    mcp::{McpScope, Pins, ServerConfig, tools_prefix},
    shell::commands::Commands,
};
use serde_json::Value;

/// What was made of everybody's servers.
pub(crate) struct ServerTools {
    /// Tools for every run.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Tools that agents bring along.
    pub(crate) brought: Option<Arc<dyn AgentToolSource>>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// How servers are started, and which of their tools are approved.
struct Starting {
    commands: Arc<Commands>,
    /// Where servers work, then the folders around it: no server's program comes from any of them.
    folders: Vec<PathBuf>,
    pins: Pins,
}

/// Servers that agent files define.
struct OfAgents {
    starting: Starting,
    /// What was believed when this host started. An agent in an old journal may name others; they are not started.
    vouched: Vec<(String, Value)>,
}

/// Puts servers to work: `common` ones for everybody, those of `agents` for each of them. An agent that lists its tools
/// has those of the servers that it names as well.
pub(crate) fn serve(
    common: &BTreeMap<String, Value>,
    agents: &mut [AgentDefinition],
    pins: Option<&Path>,
    commands: &Arc<Commands>,
    folders: Vec<PathBuf>,
) -> ServerTools {
    let pins = pins.and_then(|path| Pins::load(path).ok()).unwrap_or_default();
    let starting = Starting { commands: commands.clone(), folders, pins };
    let mut served = ServerTools { tools: Vec::new(), brought: None, diagnostics: Vec::new() };
    let scope = starting.scope();
    for (name, value) in common {
        match starting.tools(&scope, name, value) {
            Ok(tools) => served.tools.extend(tools),
            Err(remark) => served.diagnostics.push(remark),
        }
    }
    let mut vouched = Vec::new();
    for agent in agents.iter_mut().filter(|it| !it.mcp_servers.is_empty()) {
        for (name, value) in &agent.mcp_servers {
            let remark = match value {
                Value::Null if common.contains_key(name) => None,
                Value::Null => Some(unknown(agent, name)),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    vouched.push((name.clone(), value.clone()));
                    starting.tools(&scope, name, value).err()
                }
            };
            served.diagnostics.extend(remark);
        }
        grant_own(agent);
    }
    if !vouched.is_empty() {
        served.brought = Some(Arc::new(OfAgents { starting, vouched }));
    }
    served
}

/// Naming a server is asking for its tools; what runs above may use still bounds it.
fn grant_own(agent: &mut AgentDefinition) {
    let Allow::Only(rules) = &mut agent.tools else { return };
    let wanted = agent.mcp_servers.keys().map(|name| tools_prefix(name));
    for prefix in wanted {
        // Who lists some of a server's tools wants just those.
        if !rules.iter().any(|rule| rule.tool.starts_with(&prefix)) {
            rules.push(Rule::tool(prefix));
        }
    }
}

fn unknown(agent: &AgentDefinition, name: &str) -> Diagnostic {
    let what = format!("agent {} wants the MCP server `{name}`, and nobody has one of this name", agent.name);
    Diagnostic::warning(what).hint(format!("write it as [mcp.{name}] in your configuration, or in .mcp.json"))
}

impl Starting {
    fn scope(&self) -> McpScope {
        McpScope::new(self.commands.clone(), self.folders.clone())
    }

    /// The tools of a server as they were approved. It starts when one of them is called.
    fn tools(&self, scope: &McpScope, name: &str, value: &Value) -> Result<Vec<Arc<dyn Tool>>, Diagnostic> {
        let config = ServerConfig::parse(name, value).map_err(|error| Diagnostic::warning(error.to_string()))?;
        scope.tools(&config, &self.pins).map_err(|error| {
            let hint = format!("look at its tools and approve them: homing trust --server {name}");
            Diagnostic::warning(error.to_string()).hint(hint)
        })
    }
}

impl AgentToolSource for OfAgents {
    fn brought_by(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>> {
        let scope = self.starting.scope();
        let believed = |name: &String, value: &Value| self.vouched.iter().any(|(n, v)| n == name && v == value);
        let servers = agent.mcp_servers.iter().filter(|(name, value)| believed(name, value));
        servers.flat_map(|(name, value)| self.starting.tools(&scope, name, value).unwrap_or_default()).collect()
    }
}
