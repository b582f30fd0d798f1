//! `run --plan`: shows what a run would do and could cost. Calls no model and runs nothing.

use homing::Task;
use homing_core::{
    authority::{Decision, Grant, Layer, Network, Sandbox},
    fact::Spawned,
    limits::{Cap, Limit, usd},
    model::{Abilities, ModelCard, Models, Rates},
    rule::{Rule, Subjects},
    sanitize,
    tool::{Effect, ToolSpec},
    tool_names,
};
use homing_sandbox::denied_paths::{self, DeniedAccess};
use serde_json::{Value, json};

use crate::{
    exit::{Exit, Trouble, TroubleKind, print},
    progress::figures,
    session::Session,
    terminal,
};

/// Minimum number of bytes per token; a plan rounds costs up.
const BYTES_PER_TOKEN: u64 = 3;

pub(crate) fn show(session: &Session, task: Task, is_json: bool) -> anyhow::Result<Exit> {
    let plan = plan_json(session, task)?;
    print(&if is_json { terminal::json(&plan) } else { text(&plan) })?;
    Ok(Exit::Done)
}

/// Returns what a task would do and could cost.
pub(crate) fn plan_json(session: &Session, task: Task) -> Result<Value, Trouble> {
    let (spawned, tools) = session.homing.runtime().plan(task.clone()).map_err(Trouble::from)?;
    let model = spawned.models.first().cloned().unwrap_or_default();
    let found = session.catalog.get(&model).map_err(|error| Trouble::new(TroubleKind::Auth, error.to_string()))?;
    let mut plan = plan(&spawned, &tools, found.card(), &task);
    plan["warnings"] = spawned.warnings.iter().cloned().chain(session.hidden_agents()).collect();
    Ok(plan)
}

fn plan(spawned: &Spawned, tools: &[ToolSpec], card: &ModelCard, task: &Task) -> Value {
    let schemas = serde_json::to_vec(tools).map_or(0, |bytes| bytes.len() as u64);
    let input = (spawned.system.len() as u64 + spawned.task.len() as u64 + schemas).div_ceil(BYTES_PER_TOKEN);
    let output = 8_192;
    let own = &spawned.authority.own;
    json!({
        "agent": spawned.agent.name,
        "model": spawned.models.first(),
        "models": spawned.models,
        "priced": card.rates.is_some(),
        "card": card_json(card),
        "tools": tools_json(spawned, tools),
        "sandbox": own.sandbox,
        "network": own.network,
        "read": own.read,
        "write": own.write,
        "denied_to_commands": denied_json(own),
        "limits": limits_json(spawned, task),
        "prompt": {"bytes": spawned.system.len(), "task_bytes": spawned.task.len(), "tools_bytes": schemas, "tokens": input},
        "first_ask_micros": card.rates.as_ref().map(|rates| rates.worst(input, output)),
        "worst_case_micros": worst_case(spawned, card),
    })
}

/// Returns the most that the run can cost; `None` without a cost limit. A free model costs nothing, whatever the limit.
fn worst_case(spawned: &Spawned, card: &ModelCard) -> Option<u64> {
    let is_free = card.rates.as_ref().is_some_and(|rates| *rates == Rates::default());
    if is_free { Some(0) } else { spawned.limits.cost_micros.value() }
}

/// Returns the deny rules on paths and what they take from commands. Without a sandbox they bind the file tools only.
fn denied_json(own: &Grant) -> Value {
    let rule = |(rule, from, access): &(&Rule, &str, DeniedAccess)| {
        let effect = match (own.sandbox, access) {
            (Sandbox::Off, _) => "not enforced for commands: the sandbox is off",
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, DeniedAccess::Read) => "unreadable",
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, DeniedAccess::Write) => "read-only",
        };
        json!({"rule": rule.to_string(), "from": from, "effect": effect})
    };
    denied_paths::rules(own).iter().map(rule).collect()
}

/// Returns what is published about a model; `null` for what is not known.
fn card_json(card: &ModelCard) -> Value {
    json!({
        "context_window": card.context_window,
        "max_output": card.max_output,
        "abilities": card.abilities.map(Abilities::names),
    })
}

/// Formats [`card_json`] as one line; `None` if nothing is known.
fn card_line(card: &Value) -> Option<String> {
    let tokens = |name: &str, key: &str| Some(format!("{name} {}", figures::tokens(card[key].as_u64()?)));
    let limits = [tokens("context", "context_window"), tokens("output", "max_output")];
    let abilities = card["abilities"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let known: Vec<String> = limits.into_iter().flatten().chain(abilities).collect();
    (!known.is_empty()).then(|| format!("           {}", known.join(", ")))
}

/// Returns each tool of a run with the decision about its calls. If rules with patterns decide some of them, it depends.
pub(crate) fn tools_json(spawned: &Spawned, tools: &[ToolSpec]) -> Value {
    let own = &spawned.authority.own;
    let tool = |spec: &ToolSpec| match own.decide(&spec.name, spec.effect, &Subjects::None) {
        _ if spec.effect == Effect::Network && own.network == Network::Off => {
            json!({"name": spec.name, "decided": "denied", "by": "the network is off"})
        }
        Decision::Allow { .. } if !exceptions(own, spec).is_empty() => {
            let by = format!("allowed, but {}", exceptions(own, spec).join("; "));
            json!({"name": spec.name, "decided": "depends", "by": by})
        }
        Decision::Allow { by } => json!({"name": spec.name, "decided": "allowed", "by": rule_of(own, &by)}),
        Decision::Ask { by } => json!({"name": spec.name, "decided": "asked", "by": by}),
        // The runtime's own tools: they take the structured answer or search, and have no other effect.
        Decision::Deny { .. } if spec.name == tool_names::ANSWER => {
            json!({"name": spec.name, "decided": "allowed", "by": "the schema"})
        }
        Decision::Deny { .. } if tool_names::is_answer_or_search(&spec.name) => {
            json!({"name": spec.name, "decided": "allowed", "by": "nothing forbids it"})
        }
        Decision::Deny { why } => json!({"name": spec.name, "decided": "depends", "by": why}),
    };
    tools.iter().map(tool).collect()
}

/// Returns the rules that decide about some calls of a tool that is allowed otherwise, and the hosts that it is limited to.
fn exceptions(own: &Grant, spec: &ToolSpec) -> Vec<String> {
    let list = |verb: &str, layer: &Layer, rules: &[Rule]| {
        let rules: Vec<String> = rules
            .iter()
            .filter(|rule| rule.guards(&spec.name))
            .map(|rule| format!("{verb} {rule} ({})", layer.from))
            .collect();
        rules
    };
    let rules =
        own.layers.iter().flat_map(|layer| [list("asked about", layer, &layer.ask), list("not", layer, &layer.deny)]);
    let mut all: Vec<String> = rules.flatten().collect();
    if let (Effect::Network, Network::Hosts(hosts)) = (spec.effect, &own.network) {
        all.push(format!("only {}", hosts.join(", ")));
    }
    all
}

/// Returns the rule that decided, if there is one. The name of a layer alone is not a reason.
fn rule_of<'a>(own: &Grant, by: &'a str) -> &'a str {
    let is_layer = own.layers.is_empty() || own.layers.iter().any(|layer| layer.from == by);
    if is_layer { "nothing forbids it" } else { by }
}

/// Returns each limit of a run with its value and origin.
pub(crate) fn limits_json(spawned: &Spawned, task: &Task) -> Value {
    let limit = |limit: &Limit| {
        let from = match (task.limits.cap(*limit), spawned.agent.limits.cap(*limit)) {
            (Cap::Default, _) => "default",
            (set, agent) if set == agent => "the agent",
            (Cap::Unlimited | Cap::At(_), _) => "flags or configuration",
        };
        json!({"name": limit.name(), "value": spawned.limits.cap(*limit).value(), "from": from})
    };
    // The model's own limit applies to the output, unless it is set.
    let is_shown = |limit: &&Limit| **limit != Limit::Output || spawned.limits.output.value().is_some();
    Limit::SETTABLE.iter().filter(is_shown).map(limit).collect()
}

/// Formats the value of a limit of [`limits_json`] with its unit.
pub(crate) fn limit_value(limit: &Value) -> String {
    match (limit["value"].as_u64(), limit["name"].as_str()) {
        (None, _) => "none".to_owned(),
        (Some(value), Some("cost")) => usd(value),
        (Some(value), Some("wall" | "work")) => figures::time(value),
        (Some(value), _) => value.to_string(),
    }
}

fn text(plan: &Value) -> String {
    let text = |key: &str| sanitize::inert_line(plan[key].as_str().unwrap_or_default());
    let money = |key: &str, unknown: &str| plan[key].as_u64().map_or_else(|| unknown.to_owned(), usd);
    let mut lines = vec![
        format!("agent      {}", text("agent")),
        format!("model      {}", text("model")),
        format!("sandbox    {}, network {}", text("sandbox"), plan["network"].to_string().replace('"', "")),
        format!(
            "prompt     {} bytes, task {} bytes, tools {} bytes: about {} tokens",
            plan["prompt"]["bytes"],
            plan["prompt"]["task_bytes"],
            plan["prompt"]["tools_bytes"],
            figures::tokens(plan["prompt"]["tokens"].as_u64().unwrap_or(0))
        ),
        format!("first call at most {}", money("first_ask_micros", "unknown")),
        format!("worst case {}", money("worst_case_micros", "no cost limit")),
        "limits".to_owned(),
    ];
    if let Some(card) = card_line(&plan["card"]) {
        lines.insert(2, card);
    }
    let all = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
    for limit in all("limits") {
        lines.push(format!(
            "  {:<12}{:<12}{}",
            limit["name"].as_str().unwrap_or_default(),
            limit_value(&limit),
            limit["from"].as_str().unwrap_or_default()
        ));
    }
    let denied = all("denied_to_commands");
    lines.extend((!denied.is_empty()).then(|| "denied to commands".to_owned()));
    for denial in denied {
        let word = |key: &str| sanitize::inert_line(denial[key].as_str().unwrap_or_default());
        lines.push(format!("  {}: {} ({})", word("rule"), word("effect"), word("from")));
    }
    lines.push("tools".to_owned());
    for tool in all("tools") {
        let word = |key: &str| sanitize::inert_line(tool[key].as_str().unwrap_or_default());
        lines.push(format!("  {:<12}{:<9} {}", word("name"), word("decided"), word("by")));
    }
    let warnings = all("warnings");
    let warnings = warnings.iter().filter_map(Value::as_str);
    lines.extend(warnings.map(|warning| format!("warning: {}", sanitize::inert_line(warning))));
    lines.join("\n")
}
