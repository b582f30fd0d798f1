//! The MCP resources: definitions of agents, and results and transcripts of the client's own runs.

use homing::{AgentDefinition, RunHandle};
use rmcp::{
    ErrorData,
    model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use serde_json::Value;
use uuid::Uuid;

use crate::{client::Client, tools};

const AGENTS: &str = "homing://agents/";
const RUNS: &str = "homing://runs/";
const TRANSCRIPT: &str = "/transcript";
const JSON: &str = "application/json";

/// Lists the resources that a client can read.
pub(crate) fn list(client: &Client) -> Vec<Resource> {
    let homing = client.server.homing();
    let agents = homing.registry().all().map(|agent| agent_entry(&agent.definition));
    let runs = client.runs().into_iter().rev().flat_map(|run| run_entries(&run.handle));
    agents.chain(runs).collect()
}

/// Lists the URI templates of the resources.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: String, name: &str, description: &str| {
        ResourceTemplate::new(uri, name).with_description(description).with_mime_type(JSON)
    };
    vec![
        template(format!("{AGENTS}{{name}}"), "agent", "The definition of an agent."),
        template(format!("{RUNS}{{run}}"), "run", "The result of one of your runs, partial if it has not ended."),
        template(
            format!("{RUNS}{{run}}{TRANSCRIPT}"),
            "transcript",
            "The messages and tool calls of one of your runs.",
        ),
    ]
}

/// Reads the resource with this URI.
pub(crate) fn read(client: &Client, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let missing = || ErrorData::resource_not_found(format!("there is no resource {uri}"), None);
    let value = if let Some(name) = uri.strip_prefix(AGENTS) {
        agent(client, name)
    } else if let Some(rest) = uri.strip_prefix(RUNS) {
        run(client, rest)
    } else {
        None
    };
    let text = format!("{:#}", value.ok_or_else(missing)?);
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(JSON)]))
}

/// Returns the run that a URI names, if it names one.
pub(crate) fn run_of(uri: &str) -> Option<Uuid> {
    let rest = uri.strip_prefix(RUNS)?;
    Uuid::try_parse(rest.strip_suffix(TRANSCRIPT).unwrap_or(rest)).ok()
}

fn agent_entry(agent: &AgentDefinition) -> Resource {
    Resource::new(format!("{AGENTS}{}", encode(&agent.name)), agent.name.clone())
        .with_description(tools::shown_description(&agent.description))
        .with_mime_type(JSON)
}

fn run_entries(run: &RunHandle) -> [Resource; 2] {
    let (id, status, agent) = (run.id(), run.status().name(), run.envelope().agent);
    let entry = |uri: String, what: &str| {
        let name = format!("{agent} {id}");
        Resource::new(uri, name).with_description(format!("{what}; status: {status}")).with_mime_type(JSON)
    };
    [
        entry(format!("{RUNS}{id}"), "The result"),
        entry(format!("{RUNS}{id}{TRANSCRIPT}"), "The messages and tool calls"),
    ]
}

/// Returns an agent's definition without the parts that may contain secrets: server commands, hooks and unknown keys.
fn agent(client: &Client, name: &str) -> Option<Value> {
    let homing = client.server.homing();
    let mut definition = AgentDefinition::clone(homing.registry().get(&decode(name)?).ok()?);
    definition.integrations.mcp_servers.values_mut().for_each(|server| *server = Value::Null);
    definition.integrations.hooks = Value::Null;
    definition.extra.unknown.clear();
    serde_json::to_value(definition).ok()
}

fn run(client: &Client, rest: &str) -> Option<Value> {
    let (id, is_transcript) = rest.strip_suffix(TRANSCRIPT).map_or((rest, false), |id| (id, true));
    let run = client.find(Uuid::try_parse(id).ok()?)?;
    if !is_transcript {
        return serde_json::to_value(run.envelope()).ok();
    }
    let tree = run.tree();
    let messages: Vec<_> = tree.get(run.id())?.transcript().iter().map(|entry| &entry.message).collect();
    serde_json::to_value(messages).ok()
}

/// Escapes a name for a URI. The colon in names of plugin agents stays.
fn encode(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let escape = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escape).collect()
}

fn decode(name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                (digit(*high)? * 16 + digit(*low)?, after)
            }
            (b'%', _) => return None,
            (plain, after) => (*plain, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_unusual_agent_names_survive_uri_escaping() {
        for name in ["explore", "plugin:name", "a b/c%", "ümläut", "..", "\u{1b}[31m"] {
            let encoded = encode(name);
            assert!(!encoded.contains(['/', ' ', '\u{1b}']), "{encoded}");
            assert_eq!(decode(&encoded).as_deref(), Some(name));
        }
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
