//! Assigns the tools of MCP servers: servers of the user and of a trusted project serve every run of this host, servers that
//! an agent's file defines serve the runs of that agent and their child runs. Starts nothing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    authority::Allow,
    definition::AgentDefinition,
    diagnostic::Diagnostic,
    registry::Registry,
    rule::Rule,
    tool::{AgentToolSource, Tool},
};
use homing_load::Places;
use homing_sandbox::CommandEnv;
use homing_tools::{
    mcp::{McpApprovals, McpScope, OauthTokens, ServerConfig, tools_prefix},
    shell::commands::Commands,
};
use serde_json::Value;

use crate::{CodingSetup, HomingBuilder, PendingApproval};

/// The tools of all servers.
struct ServerTools {
    /// Tools for every run.
    tools: Vec<Arc<dyn Tool>>,
    /// Tools of servers that agents define.
    agent_tools: Option<Arc<dyn AgentToolSource>>,
    diagnostics: Vec<Diagnostic>,
    /// Servers whose tools are not approved.
    pending: Vec<PendingApproval>,
}

impl ServerTools {
    fn refuse(&mut self, refused: Refused) {
        self.diagnostics.push(*refused.diagnostic);
        self.pending.extend(refused.pending);
    }
}

/// A server whose tools are not available, and the reason.
struct Refused {
    diagnostic: Box<Diagnostic>,
    pending: Option<PendingApproval>,
}

/// Makes tools of servers from their approvals.
struct ServerStarter {
    commands: Arc<Commands>,
    /// The folder in which servers work, then the project's other folders. No server's program may be in one of them.
    folders: Vec<PathBuf>,
    approvals: McpApprovals,
    tokens: Option<OauthTokens>,
}

/// Tools of servers that agent files define.
struct AgentServers {
    starter: ServerStarter,
    /// The servers that were trusted when this host started. An agent in an old journal may name others, which are not started.
    trusted: Vec<(String, Value)>,
}

/// Returns the secrets in the configuration of all servers, which must not be recorded.
pub(crate) fn secrets(common: &BTreeMap<String, Value>, agents: &Registry, env: &CommandEnv) -> Vec<String> {
    let known = common.iter().chain(agents.definitions().flat_map(|agent| &agent.integrations.mcp_servers));
    let known = known.filter_map(|(name, value)| ServerConfig::parse(name, value).ok());
    known.flat_map(|config| config.secrets(env)).collect()
}

/// Adds the tools of `common` servers and of the servers that agents define.
pub(crate) fn add(
    setup: &CodingSetup,
    mut builder: HomingBuilder,
    common: &BTreeMap<String, Value>,
    commands: &Arc<Commands>,
) -> HomingBuilder {
    let folders = server_folders(&setup.places);
    let served = serve(common, &mut builder.registry, setup.approvals.as_deref(), commands, folders);
    builder.diagnostics.extend(served.diagnostics);
    builder.pending.extend(served.pending);
    builder.tools.agent_tools = served.agent_tools;
    builder.tools(served.tools)
}

/// Returns the folder in which MCP servers work, then the project's other folders. No server's program may be in one of them.
pub fn server_folders(places: &Places) -> Vec<PathBuf> {
    let around = places.project_folders().into_iter().filter(|folder| *folder != places.cwd);
    [places.cwd.clone()].into_iter().chain(around).collect()
}

/// Returns the tools of `common` servers for all runs and of the servers that `agents` define for each of them. Adds the tools
/// of the servers that an agent names to the agent's list of tools.
fn serve(
    common: &BTreeMap<String, Value>,
    agents: &mut Registry,
    approvals: Option<&Path>,
    commands: &Arc<Commands>,
    folders: Vec<PathBuf>,
) -> ServerTools {
    // Tokens and approvals are in one folder.
    let tokens = approvals.and_then(Path::parent).map(|data| OauthTokens::new(data.join("mcp-tokens")));
    let approvals = approvals.and_then(|path| McpApprovals::load(path).ok()).unwrap_or_default();
    let starter = ServerStarter { commands: commands.clone(), folders, approvals, tokens };
    let mut served = ServerTools { tools: Vec::new(), agent_tools: None, diagnostics: Vec::new(), pending: Vec::new() };
    let scope = starter.scope();
    for (name, value) in common {
        match starter.tools(&scope, name, value) {
            Ok(tools) => served.tools.extend(tools),
            Err(refused) => served.refuse(refused),
        }
    }
    let mut trusted = Vec::new();
    for agent in agents.definitions_mut().filter(|agent| !agent.integrations.mcp_servers.is_empty()) {
        for (name, value) in &agent.integrations.mcp_servers {
            let refused = match value {
                Value::Null if common.contains_key(name) => None,
                Value::Null => Some(Refused { diagnostic: Box::new(unknown(agent, name)), pending: None }),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    trusted.push((name.clone(), value.clone()));
                    starter.tools(&scope, name, value).err()
                }
            };
            if let Some(refused) = refused {
                served.refuse(refused);
            }
        }
        grant_own(agent);
    }
    if !trusted.is_empty() {
        served.agent_tools = Some(Arc::new(AgentServers { starter, trusted }));
    }
    served
}

/// Adds the tools of the servers that an agent names to its list of tools. The permissions of its parents still bound it.
fn grant_own(agent: &mut AgentDefinition) {
    let Allow::Only(rules) = &mut agent.tools.allowed else { return };
    for prefix in agent.integrations.mcp_servers.keys().map(|name| tools_prefix(name)) {
        // An agent that lists some of a server's tools gets only those.
        if !rules.iter().any(|rule| rule.tool.starts_with(&prefix)) {
            rules.push(Rule::tool(prefix));
        }
    }
}

fn unknown(agent: &AgentDefinition, name: &str) -> Diagnostic {
    let what = format!("agent {} names the MCP server `{name}`, which is not configured", agent.name);
    Diagnostic::warning(what).hint(format!("define it as [mcp.{name}] in your configuration, or in .mcp.json"))
}

impl ServerStarter {
    fn scope(&self) -> McpScope {
        McpScope::new(self.commands.clone(), self.folders.clone()).with_tokens(self.tokens.clone())
    }

    /// Returns the tools of a server as they were approved. The server starts when one of them is called.
    fn tools(&self, scope: &McpScope, name: &str, value: &Value) -> Result<Vec<Arc<dyn Tool>>, Refused> {
        let config = ServerConfig::parse(name, value)
            .map_err(|error| Refused { diagnostic: Box::new(Diagnostic::warning(error.to_string())), pending: None })?;
        scope.tools(&config, &self.approvals).map_err(|error| Refused {
            diagnostic: Box::new(Diagnostic::warning(error.to_string())),
            pending: Some(PendingApproval::Server(name.to_owned())),
        })
    }
}

impl AgentToolSource for AgentServers {
    fn tools_of(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>> {
        if agent.integrations.mcp_servers.is_empty() {
            return Vec::new();
        }
        let scope = self.starter.scope();
        let is_trusted = |name: &String, value: &Value| self.trusted.iter().any(|(n, v)| n == name && v == value);
        let servers = agent.integrations.mcp_servers.iter().filter(|(name, value)| is_trusted(name, value));
        servers.flat_map(|(name, value)| self.starter.tools(&scope, name, value).unwrap_or_default()).collect()
    }
}
