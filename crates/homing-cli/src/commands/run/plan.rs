//! `run --plan`: what a run would do and could cost. It asks nobody and runs nothing.

use homing::Task;
use homing_core::{
    authority::Decision,
    fact::Spawned,
    limits::{Cap, Limit, usd},
    model::{ModelCard, Models},
    rule::Subjects,
    sanitize,
    tool::ToolSpec,
};
use serde_json::{Value, json};

use crate::{
    exit::{Exit, Trouble, TroubleKind, print},
    progress::figures,
    session::Session,
    terminal,
};

/// Bytes per token at most; a plan rounds up.
const BYTES_PER_TOKEN: u64 = 3;

pub(crate) fn show(session: &Session, task: Task, is_json: bool) -> anyhow::Result<Exit> {
    let (spawned, tools) = session.homing.runtime().plan(task.clone()).map_err(Trouble::from)?;
    let model = spawned.models.first().cloned().unwrap_or_default();
    let found = session.catalog.get(&model).map_err(|error| Trouble::new(TroubleKind::Auth, error.to_string()))?;
    let plan = plan(&spawned, &tools, found.card(), &task);
    match is_json {
        true => print(&terminal::json(&plan))?,
        false => print(&words(&plan))?,
    }
    Ok(Exit::Done)
}

fn plan(spawned: &Spawned, tools: &[ToolSpec], card: &ModelCard, task: &Task) -> Value {
    let schemas = serde_json::to_vec(tools).map_or(0, |it| it.len() as u64);
    let input = (spawned.system.len() as u64 + spawned.task.len() as u64 + schemas).div_ceil(BYTES_PER_TOKEN);
    let output = 8_192;
    let first = card.rates.as_ref().map(|it| it.worst(input, output));
    let own = &spawned.authority.own;
    let tool = |spec: &ToolSpec| match own.decide(&spec.name, &Subjects::None) {
        Decision::Allow { by } => json!({"name": spec.name, "decided": "allowed", "by": deciding(&by)}),
        Decision::Ask { by } => json!({"name": spec.name, "decided": "asked", "by": by}),
        // The runtime's own: it takes the structured answer, and touches nothing.
        Decision::Deny { .. } if spec.name == "answer" => {
            json!({"name": "answer", "decided": "allowed", "by": "the schema"})
        }
        Decision::Deny { why } => json!({"name": spec.name, "decided": "depends", "by": why}),
    };
    json!({
        "agent": spawned.agent.name,
        "model": spawned.models.first(),
        "models": spawned.models,
        "priced": card.rates.is_some(),
        "tools": tools.iter().map(tool).collect::<Vec<_>>(),
        "sandbox": own.sandbox,
        "network": own.network,
        "read": own.read,
        "write": own.write,
        "limits": Limit::SETTABLE.iter().map(|limit| limit_json(*limit, spawned, task)).collect::<Vec<_>>(),
        "prompt": {"bytes": spawned.system.len(), "task_bytes": spawned.task.len(), "tools_bytes": schemas, "tokens": input},
        "first_ask_micros": first,
        "worst_case_micros": spawned.limits.cost_micros.value(),
        "warnings": spawned.warnings,
    })
}

/// The rule that decided, where one did; the name of a layer alone is no reason.
fn deciding(by: &str) -> &str {
    if by.contains(" (") { by } else { "nothing forbids it" }
}

fn limit_json(limit: Limit, spawned: &Spawned, task: &Task) -> Value {
    let from = match (task.limits.cap(limit), spawned.agent.limits.cap(limit)) {
        (Cap::Default, _) => "default",
        (said, agent) if said == agent => "the agent",
        (Cap::Unlimited | Cap::At(_), _) => "flags or configuration",
    };
    json!({"name": limit.name(), "value": spawned.limits.cap(limit).value(), "from": from})
}

fn words(plan: &Value) -> String {
    let text = |key: &str| sanitize::inert_line(plan[key].as_str().unwrap_or_default());
    let money = |key: &str| plan[key].as_u64().map_or_else(|| "unknown".to_owned(), usd);
    let mut lines = vec![
        format!("agent     {}", text("agent")),
        format!("model     {}", text("model")),
        format!("sandbox   {}, network {}", text("sandbox"), plan["network"].to_string().replace('"', "")),
        format!(
            "prompt    {} bytes, task {} bytes, tools {} bytes: about {} tokens",
            plan["prompt"]["bytes"],
            plan["prompt"]["task_bytes"],
            plan["prompt"]["tools_bytes"],
            figures::tokens(plan["prompt"]["tokens"].as_u64().unwrap_or(0))
        ),
        format!("first ask at most {}", money("first_ask_micros")),
        format!(
            "worst case {}",
            plan["worst_case_micros"].as_u64().map_or_else(|| "not limited in money".to_owned(), usd)
        ),
        "limits".to_owned(),
    ];
    let all = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
    for limit in all("limits") {
        let value = limit["value"].as_u64().map_or_else(|| "none".to_owned(), |it| shown(&limit["name"], it));
        lines.push(format!(
            "  {:<12}{value:<12}{}",
            limit["name"].as_str().unwrap_or_default(),
            limit["from"].as_str().unwrap_or_default()
        ));
    }
    lines.push("tools".to_owned());
    for tool in all("tools") {
        let word = |key: &str| sanitize::inert_line(tool[key].as_str().unwrap_or_default());
        lines.push(format!("  {:<12}{:<9} {}", word("name"), word("decided"), word("by")));
    }
    lines.extend(
        all("warnings").iter().map(|it| format!("warning: {}", sanitize::inert_line(it.as_str().unwrap_or_default()))),
    );
    lines.join("\n")
}

fn shown(name: &Value, value: u64) -> String {
    match name.as_str() {
        Some("cost") => usd(value),
        Some("wall" | "work") => figures::time(value),
        _ => value.to_string(),
    }
}
