//! Tools on demand: if a run has many tools, the schemas of most are left out of its requests, and the model finds and
//! loads them by one search tool.
//!
//! A found tool is loaded by the recorded result of the search: the requests after it contain its schema. So a resumed or
//! replayed run sends the same requests, and nothing else needs to be recorded.

use homing_core::{
    run::Run,
    tool::{Effect, Replay, ToolOutput, ToolSpec},
    tool_names,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::catalog::{Catalog, Detail, Entry, brief};

/// The size from which on tools are offered on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnDemand {
    /// Maximum number of tools whose specifications every request carries.
    pub tools: usize,
    /// Maximum size of these specifications, in bytes of JSON.
    pub bytes: usize,
}

impl OnDemand {
    /// Creates limits for the specifications that every request carries: their number, and their size in bytes of JSON.
    pub fn new(tools: usize, bytes: usize) -> Self {
        Self { tools, bytes }
    }
}

impl Default for OnDemand {
    fn default() -> Self {
        Self { tools: 40, bytes: 32_000 }
    }
}

/// The most tools that a request may carry. Providers reject more.
const MAX_SENT: usize = 128;

/// The size of the listing in the search tool's description, in bytes.
const MAX_LISTING: usize = 12_000;

/// The tools of a run: those that every request carries, and those that the model must load first.
#[derive(Debug, Default)]
pub(crate) struct OfferedTools {
    pub(crate) sent: Vec<ToolSpec>,
    pub(crate) on_demand: Vec<ToolSpec>,
}

/// The part of a search result that later requests are made from.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Loaded {
    loaded: Vec<String>,
}

/// Returns true if requests can carry all of these tools, which have `bytes` bytes of JSON together. If it returns false, [`split`] decides.
pub(crate) fn are_surely_sent(specs: &[ToolSpec], bytes: usize, most: OnDemand) -> bool {
    specs.len() <= most.tools.min(MAX_SENT) && bytes <= most.bytes
}

/// Decides which tools are offered on demand: none if all are small enough together, else those of MCP servers, and the
/// host's other tools if even that is not enough. The usual tools (files, commands, delegation) are always sent.
pub(crate) fn split(specs: Vec<ToolSpec>, most: OnDemand) -> OfferedTools {
    if fits(&specs, most) && specs.len() <= MAX_SENT {
        return OfferedTools { sent: specs, on_demand: Vec::new() };
    }
    let is_mcp = |spec: &ToolSpec| spec.name.starts_with("mcp__");
    let (mut on_demand, mut sent): (Vec<_>, Vec<_>) = specs.into_iter().partition(is_mcp);
    if !fits(&sent, most) {
        let is_usual = |spec: &ToolSpec| tool_names::canonical(&spec.name).is_some() || is_own(spec);
        let (usual, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(is_usual);
        on_demand.extend(others);
        sent = usual;
    }
    if !on_demand.is_empty() {
        sent.push(search_spec(&on_demand));
    }
    OfferedTools { sent, on_demand }
}

/// Returns the specifications to send after these tools were loaded. If there are too many, the ones loaded last count.
pub(crate) fn with_loaded(sent: &[ToolSpec], on_demand: &[ToolSpec], loaded: &[String]) -> Vec<ToolSpec> {
    let specs = loaded.iter().filter_map(|name| on_demand.iter().find(|spec| spec.name == *name));
    let specs: Vec<&ToolSpec> = specs.collect();
    let room = MAX_SENT.saturating_sub(sent.len());
    let latest = &specs[specs.len().saturating_sub(room)..];
    // Loaded tools follow the others, which stay as they were.
    sent.iter().chain(latest.iter().copied()).cloned().collect()
}

/// Returns the names of the tools that a run has loaded, in the order of loading.
pub(crate) fn loaded(run: &Run) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for data in run.results(tool_names::FIND_TOOLS).filter_map(|result| result.data.as_ref()) {
        let found = data.parse::<Loaded>().unwrap_or_default();
        names.extend(found.loaded.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    }
    names
}

/// Carries out a search: its result loads what was found.
pub(crate) fn find_tools(on_demand: &[ToolSpec], args: &Value) -> ToolOutput {
    let found = catalog(on_demand).search(&query(args));
    if found.best.is_empty() {
        return ToolOutput::text("no tool matches; try other words");
    }
    let mut text = "You can call these tools from now on:".to_owned();
    found.best.iter().for_each(|entry| text.push_str(&line(entry)));
    if !found.also.is_empty() {
        text.push_str(&format!("\n\nNot loaded, but they match too: {}", found.also.join(", ")));
    }
    let loaded = Loaded { loaded: found.best.iter().map(|entry| entry.name.to_owned()).collect() };
    let data = serde_json::to_value(loaded).expect("a list of names is JSON");
    ToolOutput::text(text).data(data)
}

/// Carries out a search for agents.
pub(crate) fn find_agents<'a>(agents: impl Iterator<Item = Entry<'a>>, args: &Value) -> ToolOutput {
    let found = Catalog::new(agents).search(&query(args));
    if found.best.is_empty() {
        return ToolOutput::text("no agent matches; try other words");
    }
    let mut text = "Agents that match:".to_owned();
    found.best.iter().for_each(|entry| text.push_str(&line(entry)));
    if !found.also.is_empty() {
        text.push_str(&format!("\n\nThese match too: {}", found.also.join(", ")));
    }
    ToolOutput::text(text)
}

/// A note for the user about tools that are offered on demand.
pub(crate) fn note(on_demand: &[ToolSpec]) -> Option<String> {
    let count = on_demand.len();
    let bytes = size(on_demand);
    let search = tool_names::FIND_TOOLS;
    (count > 0).then(|| {
        format!("{count} tools ({bytes} bytes of specifications) are offered on demand: the model loads them with `{search}`")
    })
}

/// The specification of a search tool, which takes words.
pub(crate) fn search_tool(name: &str, description: String) -> ToolSpec {
    let words = "Words to look for, or exact names";
    ToolSpec::new(
        name,
        description,
        json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": words}},
            "required": ["query"],
        }),
    )
    .replay(Replay::Safe)
    .effect(Effect::Reads)
}

fn search_spec(on_demand: &[ToolSpec]) -> ToolSpec {
    let catalog = catalog(on_demand);
    let count = catalog.len();
    let about = format!(
        "Finds and loads tools. There are {count} more tools than you see here; you can call one after it was found. Search \
         by words of its name and purpose, or by exact names."
    );
    let listing = match catalog.detail(80, MAX_LISTING) {
        detail @ (Detail::Described(_) | Detail::Names) => format!("\n\nTools to load:{}", catalog.listing(detail)),
        Detail::Search => format!("\n\nTools to load, by server: {}", servers(on_demand)),
    };
    search_tool(tool_names::FIND_TOOLS, about + &listing)
}

/// The servers of these tools with their numbers of tools.
fn servers(on_demand: &[ToolSpec]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for spec in on_demand {
        let server = spec.name.strip_prefix("mcp__").and_then(|rest| rest.split("__").next()).unwrap_or("others");
        match counts.iter_mut().find(|(known, _)| *known == server) {
            Some((_, count)) => *count += 1,
            None => counts.push((server, 1)),
        }
    }
    let listed = counts.iter().map(|(server, count)| format!("{server} ({count})")).collect::<Vec<_>>().join(", ");
    brief(&listed, MAX_LISTING)
}

fn catalog(specs: &[ToolSpec]) -> Catalog<'_> {
    Catalog::new(specs.iter().map(|spec| Entry { name: &spec.name, description: &spec.description }))
}

fn line(entry: &Entry<'_>) -> String {
    format!("\n- {}: {}", entry.name, brief(entry.description, 400))
}

fn query(args: &Value) -> String {
    match args.get("query").or_else(|| args.get("names")).or_else(|| args.get("name")) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(_) | None => String::new(),
    }
}

/// Returns true if the specifications are small enough to be sent. Those of the runtime itself do not count: they cannot be
/// offered on demand, and the list of agents has its own limit.
fn fits(specs: &[ToolSpec], most: OnDemand) -> bool {
    let others: Vec<&ToolSpec> = specs.iter().filter(|spec| !is_own(spec)).collect();
    others.len() <= most.tools && size(&others) <= most.bytes
}

fn is_own(spec: &ToolSpec) -> bool {
    tool_names::is_delegation(&spec.name) || tool_names::is_answer_or_search(&spec.name)
}

fn size(specs: &(impl Serialize + ?Sized)) -> usize {
    serde_json::to_vec(specs).map_or(0, |json| json.len())
}
