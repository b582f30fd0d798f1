//! What clients can read: the agents' definitions, and the results and transcripts of their own runs.

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

/// Everything that this client can read.
pub(crate) fn list(client: &Client) -> Vec<Resource> {
    let homing = client.served.homing();
    let agents = homing.registry().all().map(|it| agent_entry(&it.definition));
    let runs = client.runs().into_iter().rev().flat_map(|it| run_entries(&it.handle));
    agents.chain(runs).collect()
}

/// The shapes of the addresses.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: String, name: &str, what: &str| {
        ResourceTemplate::new(uri, name).with_description(what).with_mime_type(JSON)
    };
    vec![
        template(format!("{AGENTS}{{name}}"), "agent", "The definition of an agent."),
        template(format!("{RUNS}{{run}}"), "run", "The result of a run of yours, as far as it has one."),
        template(format!("{RUNS}{{run}}{TRANSCRIPT}"), "transcript", "What was said and done in a run of yours."),
    ]
}

/// The content behind an address.
pub(crate) fn read(client: &Client, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let missing = || ErrorData::resource_not_found(format!("there is nothing at {uri}"), None);
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

fn agent_entry(agent: &AgentDefinition) -> Resource {
    Resource::new(format!("{AGENTS}{}", encode(&agent.name)), agent.name.clone())
        .with_description(tools::described(&agent.description))
        .with_mime_type(JSON)
}

fn run_entries(run: &RunHandle) -> [Resource; 2] {
    let (id, status, agent) = (run.id(), run.status().name(), run.envelope().agent);
    let entry = |uri: String, what: &str| {
        let name = format!("{agent} {id}");
        Resource::new(uri, name).with_description(format!("{what}; it is {status}")).with_mime_type(JSON)
    };
    [entry(format!("{RUNS}{id}"), "The result"), entry(format!("{RUNS}{id}{TRANSCRIPT}"), "What was said and done")]
}

/// A definition without what may carry secrets: how its servers and hooks are started, and what nobody here understands.
fn agent(client: &Client, name: &str) -> Option<Value> {
    let homing = client.served.homing();
    let mut definition = AgentDefinition::clone(homing.registry().get(&decode(name)?).ok()?);
    definition.mcp_servers.values_mut().for_each(|it| *it = Value::Null);
    definition.hooks = Value::Null;
    definition.unknown.clear();
    serde_json::to_value(definition).ok()
}

fn run(client: &Client, rest: &str) -> Option<Value> {
    let (id, transcript) = rest.strip_suffix(TRANSCRIPT).map_or((rest, false), |id| (id, true));
    let run = client.find(Uuid::try_parse(id).ok()?)?;
    match transcript {
        false => serde_json::to_value(run.envelope()).ok(),
        true => {
            let tree = run.tree();
            let messages: Vec<_> = tree.get(run.id())?.transcript().iter().map(|it| &it.message).collect();
            serde_json::to_value(messages).ok()
        }
    }
}

/// Names of plugins' agents have a colon, which stays; what an address cannot hold is escaped.
fn encode(name: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"-._~:".contains(&it);
    let escape = |it: u8| if plain(it) { char::from(it).to_string() } else { format!("%{it:02X}") };
    name.bytes().map(escape).collect()
}

fn decode(name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
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
    fn m5_odd_names_survive_the_way_through_an_address() {
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
