//! `homing agents`: lists agents, or explains one. Uses the same session as `homing run`, so that trust, configuration, rules
//! and MCP tools count here as they do there.

use std::io::Write;

use homing::Task;
use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, ModelChoice, OfferedTo, Scope, Source},
    diagnostic::{Diagnostic, Severity},
    fact::Spawned,
    limits::{Cap, Limit, Limits},
    registry::RegistryEntry,
    sanitize,
    tool::ToolSpec,
};
use homing_load::{field_lines, is_about_hidden_agent};
use serde_json::{Map, Value, json};

use super::{check::diagnostic_as_json, run::plan};
use crate::{
    cli::{AgentsArgs, run::WithArgs},
    columns,
    exit::{Exit, Trouble},
    session::{Session, SessionRequest, warnings_line},
    terminal,
};

mod explain;

pub(crate) async fn run(args: &AgentsArgs) -> anyhow::Result<Exit> {
    let with = WithArgs { agents: args.agents.clone(), strict: args.strict, ..WithArgs::default() };
    let request = SessionRequest {
        agent: args.name.as_deref(),
        plugins: args.plugin.clone(),
        is_inspection: true,
        ..SessionRequest::default()
    };
    let session = Session::open(&with, request).await?;
    // A line at a time would be a system call for each of many agents.
    let mut out = std::io::BufWriter::new(anstream::stdout().lock());
    match (&args.name, args.json) {
        (Some(name), false) if args.prompt => {
            let spawned = planned(&session, &session.agent(name)?.definition)?.0;
            writeln!(out, "{}", sanitize::inert(&spawned.system))?;
        }
        (Some(name), true) => {
            writeln!(out, "{}", terminal::json(&agent_json(&session, name)?))?;
        }
        (Some(name), false) => {
            let entry = session.agent(name)?;
            explain::explain(entry, &session, &effective(&session, &entry.definition)?, &mut out)?;
        }
        (None, true) => {
            writeln!(out, "{}", terminal::json(&agents_json(&session)))?;
        }
        (None, false) => list(&session, &mut out)?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Returns every agent as JSON.
pub(crate) fn agents_json(session: &Session) -> Value {
    session.homing.registry().all().map(|entry| as_json(entry, session)).collect()
}

/// Returns everything about one agent as JSON.
pub(crate) fn agent_json(session: &Session, name: &str) -> anyhow::Result<Value> {
    let entry = session.agent(name)?;
    let mut value = as_json(entry, session);
    value["definition"] = whole(&entry.definition)?;
    value["from"] = origins(&entry.definition);
    value["effective"] = effective(session, &entry.definition)?;
    Ok(value)
}

/// Returns the tools and limits of a root run of the agent, as `homing run --plan` shows them.
fn effective(session: &Session, agent: &AgentDefinition) -> Result<Value, Trouble> {
    let (spawned, tools, task) = planned(session, agent)?;
    Ok(json!({
        "prompt": spawned.system,
        "tools": plan::tools_json(&spawned, &tools),
        "limits": plan::limits_json(&spawned, &task),
        "sandbox": spawned.authority.own.sandbox,
        "network": spawned.authority.own.network,
    }))
}

/// Plans a root run of the agent.
fn planned(session: &Session, agent: &AgentDefinition) -> Result<(Spawned, Vec<ToolSpec>, Task), Trouble> {
    // Tools and limits do not depend on the model; the offline one needs no key.
    let mut task = Task::new(agent.name.clone(), "explain").model("offline");
    // A parameter without a default stands for itself.
    let open = agent.task.parameters.iter().filter(|(_, default)| default.is_none());
    task.context = open.map(|(key, _)| (key.clone(), Value::from(format!("{{{{{key}}}}}")))).collect();
    let task = session.bounded(task, Limits::default());
    let (spawned, tools) = session.homing.runtime().plan(task.clone())?;
    Ok((spawned, tools, task))
}

/// Adds the fields that have their defaults and are left out of the JSON form.
fn whole(definition: &AgentDefinition) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(definition)?;
    for field in LEFT_OUT.iter().filter(|field| value.get(**field).is_none()).collect::<Vec<_>>() {
        value[*field] = Value::Null;
    }
    Ok(value)
}

/// Fields of a definition that are left out of its JSON form if they have their defaults.
const LEFT_OUT: &[&str] = &[
    "title",
    "aliases",
    "denied",
    "asked",
    "delegates",
    "effort",
    "temperature_milli",
    "skills",
    "resources",
    "shared_context",
    "permission_mode",
    "background",
    "memory",
    "offered_to",
    "taint",
    "mcp_servers",
    "hooks",
    "schema",
    "schema_optional",
    "initial_prompt",
    "parameters",
    "color",
    "metadata",
    "unknown",
];

/// Returns where each value of a definition came from: its file and line, or the default.
fn origins(definition: &AgentDefinition) -> Value {
    let fields = |definition: &AgentDefinition| match serde_json::to_value(definition) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    let empty = fields(&AgentDefinition::default());
    let file = definition.source.path.as_ref().map(|path| path.display().to_string());
    let file = file.unwrap_or_else(|| scope(definition.source.kind).to_owned());
    let lines = definition.source.path.as_ref().map(|path| field_lines(path, definition)).unwrap_or_default();
    let from = |(key, value): (String, Value)| {
        let from = match lines.get(key.as_str()) {
            _ if empty.get(&key) == Some(&value) => "default".to_owned(),
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        };
        (key, Value::from(from))
    };
    let left_out = LEFT_OUT.iter().map(|field| ((*field).to_owned(), Value::from("default")));
    Value::Object(left_out.chain(fields(definition).into_iter().map(from)).collect())
}

fn list(session: &Session, out: &mut dyn Write) -> std::io::Result<()> {
    let rows: Vec<[String; 3]> = session.homing.registry().all().map(row).collect();
    let widest = |column: usize| columns::widest(rows.iter().map(|row| row[column].as_str()));
    let (names, sources) = (widest(0).min(40), widest(1));
    let width = terminal::width().map_or(usize::MAX, |width| width.saturating_sub(names + sources + 4).max(20));
    for [name, source, description] in &rows {
        let (name, source) = (columns::cell(name, names), columns::cell(source, sources));
        writeln!(out, "{name}  {source}  {}", columns::cut(description, width))?;
    }
    for warning in session.hidden_agents() {
        terminal::say(&format!("warning: {warning}"));
    }
    let is_warning = |diagnostic: &&Diagnostic| {
        diagnostic.path.is_some() && diagnostic.severity > Severity::Info && !is_about_hidden_agent(diagnostic)
    };
    let count = session.homing.diagnostics().iter().filter(is_warning).count();
    if count > 0 {
        terminal::say(&warnings_line(count));
    }
    Ok(())
}

fn row(entry: &RegistryEntry) -> [String; 3] {
    let definition = &entry.definition;
    let hidden = match entry.shadows.len() {
        0 => String::new(),
        count => format!(" (hides {count})"),
    };
    let offered = match definition.execution.offered_to {
        OfferedTo::Everyone => "",
        OfferedTo::User => " (yours alone)",
        OfferedTo::Models => " (for models)",
    };
    let source = format!("{}{hidden}{offered}", scope(definition.source.kind));
    [sanitize::inert_line(&definition.name), source, sanitize::inert_line(&definition.description)]
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::BuiltIn => "built-in",
        Scope::User => "user",
        Scope::Plugin => "plugin",
        Scope::Project => "project",
        Scope::CommandLine => "command line",
        Scope::Managed => "managed",
        _ => "other",
    }
}

/// Returns the diagnostics about an agent's own file, and about files that claim its name.
fn diagnostics<'a>(entry: &'a RegistryEntry, session: &'a Session) -> impl Iterator<Item = &'a Diagnostic> {
    let is_of = |definition: &AgentDefinition, diagnostic: &Diagnostic| {
        let path = definition.source.path.as_ref();
        path.is_some() && diagnostic.path.as_deref() == path
    };
    session.homing.diagnostics().iter().filter(move |diagnostic| {
        let claims_name = || entry.shadows.iter().any(|hidden| is_of(hidden, diagnostic));
        is_of(&entry.definition, diagnostic) || (is_about_hidden_agent(diagnostic) && claims_name())
    })
}

fn as_json(entry: &RegistryEntry, session: &Session) -> Value {
    let definition = &entry.definition;
    json!({
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "source": source_as_json(&definition.source),
        "shadows": entry.shadows.iter().map(|hidden| source_as_json(&hidden.source)).collect::<Vec<_>>(),
        "model": model_as_json(&definition.model.choice),
        "tools": tools_as_json(&definition.tools.allowed),
        "denied": definition.tools.denied.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "asked": definition.tools.asked.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "skills": definition.attachments.skills,
        "limits": limits_as_json(definition),
        "diagnostics": diagnostics(entry, session).map(diagnostic_as_json).collect::<Vec<_>>(),
    })
}

fn source_as_json(source: &Source) -> Value {
    json!({
        "kind": source.kind,
        "path": source.path.as_ref().map(|path| path.display().to_string()),
        "dialect": source.dialect,
    })
}

fn model_as_json(model: &ModelChoice) -> Value {
    match model {
        ModelChoice::Inherit => json!("inherit"),
        ModelChoice::Named(names) => match names.as_slice() {
            [one] => json!(one),
            several => json!(several),
        },
        ModelChoice::Exact(name) => json!(name),
        _ => json!("default"),
    }
}

/// Returns the rules, or `null` for all tools.
fn tools_as_json(tools: &Allow) -> Value {
    match tools {
        Allow::All => Value::Null,
        Allow::Only(rules) => json!(rules.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// Returns the limits that the definition sets. The others have the default of the run's position.
fn limits_as_json(definition: &AgentDefinition) -> Value {
    let set = Limit::SETTABLE.iter().filter_map(|limit| match definition.limits.cap(*limit) {
        Cap::Default => None,
        Cap::Unlimited => Some((key(*limit), json!("none"))),
        Cap::At(value) => Some((key(*limit), json!(value))),
    });
    Value::Object(set.collect::<Map<_, _>>())
}

/// Returns the name of a limit with its unit.
fn key(limit: Limit) -> String {
    match limit {
        Limit::Cost => "cost_micros".to_owned(),
        Limit::Wall => "wall_ms".to_owned(),
        Limit::Work => "work_ms".to_owned(),
        other => other.name().to_owned(),
    }
}
