//! `homing agents`: which agents there are, where they come from, and what each may do.

use std::io::Write;

use anyhow::bail;
use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, ModelChoice, Scope, Source},
    diagnostic::{Diagnostic, Severity},
    limits::{Cap, Limit},
    registry::RegistryEntry,
    sanitize,
};
use homing_load::{Discovered, ParseOptions};
use serde_json::{Map, Value, json};

use super::check::diagnostic_as_json;
use crate::{cli::AgentsArgs, exit::Exit, places, terminal};

mod explain;

pub(crate) fn run(args: &AgentsArgs) -> anyhow::Result<Exit> {
    let mut places = places::from_environment()?;
    places.agents_json.clone_from(&args.agents);
    places.plugins.extend(args.plugin.iter().cloned());
    let loaded = homing_load::discover(&places, &ParseOptions { strict: args.strict, ..ParseOptions::default() });
    if let Some(error) = loaded.diagnostics.iter().find(|it| it.path.is_none() && it.severity == Severity::Error) {
        bail!("--agents{error}");
    }
    let mut out = anstream::stdout().lock();
    match (&args.name, args.json) {
        (Some(name), true) => {
            let one = as_json(loaded.registry.registered(name)?, &loaded);
            writeln!(out, "{}", terminal::json(&one))?;
        }
        (Some(name), false) => explain::explain(loaded.registry.registered(name)?, &loaded, &mut out)?,
        (None, true) => {
            let all: Vec<Value> = loaded.registry.all().map(|it| as_json(it, &loaded)).collect();
            writeln!(out, "{}", terminal::json(&Value::Array(all)))?;
        }
        (None, false) => list(&loaded, &mut out)?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn list(loaded: &Discovered, out: &mut dyn Write) -> std::io::Result<()> {
    let rows: Vec<[String; 3]> = loaded.registry.all().map(row).collect();
    let widest = |column: usize| rows.iter().map(|it| it[column].chars().count()).max().unwrap_or(0);
    let (names, sources) = (widest(0).min(40), widest(1));
    let room = terminal::width().map_or(usize::MAX, |it| it.saturating_sub(names + sources + 4).max(20));
    for [name, source, description] in &rows {
        writeln!(out, "{name:names$}  {source:sources$}  {}", terminal::cut(description, room))?;
    }
    let count = loaded.diagnostics.iter().filter(|it| it.severity > Severity::Info).count();
    if count > 0 {
        anstream::eprintln!(
            "{count} remark{} on these files; `homing check` shows them",
            if count == 1 { "" } else { "s" }
        );
    }
    Ok(())
}

fn row(registered: &RegistryEntry) -> [String; 3] {
    let definition = &registered.definition;
    let hidden = match registered.shadows.len() {
        0 => String::new(),
        count => format!(" (hides {count})"),
    };
    let source = format!("{}{hidden}", scope(definition.source.kind));
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
    }
}

/// The remarks on an agent's own file.
fn remarks<'a>(definition: &'a AgentDefinition, loaded: &'a Discovered) -> impl Iterator<Item = &'a Diagnostic> {
    let path = definition.source.path.as_ref();
    loaded.diagnostics.iter().filter(move |it| path.is_some() && it.path.as_deref() == path)
}

fn as_json(registered: &RegistryEntry, loaded: &Discovered) -> Value {
    let definition = &registered.definition;
    json!({
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "source": source_as_json(&definition.source),
        "shadows": registered.shadows.iter().map(|it| source_as_json(&it.source)).collect::<Vec<_>>(),
        "model": model_as_json(&definition.model),
        "tools": tools_as_json(&definition.tools),
        "denied": definition.denied.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "asked": definition.asked.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "skills": definition.skills,
        "limits": limits_as_json(definition),
        "diagnostics": remarks(definition, loaded).map(diagnostic_as_json).collect::<Vec<_>>(),
    })
}

fn source_as_json(source: &Source) -> Value {
    json!({
        "kind": source.kind,
        "path": source.path.as_ref().map(|it| it.display().to_string()),
        "dialect": source.dialect,
    })
}

fn model_as_json(model: &ModelChoice) -> Value {
    match model {
        ModelChoice::Inherit => json!("inherit"),
        ModelChoice::Default => json!("default"),
        ModelChoice::Named(names) => match names.as_slice() {
            [one] => json!(one),
            several => json!(several),
        },
    }
}

/// `null` is every tool that there is.
fn tools_as_json(tools: &Allow) -> Value {
    match tools {
        Allow::All => Value::Null,
        Allow::Only(rules) => json!(rules.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// What the file says; a limit that is not here is the default of the run's position.
fn limits_as_json(definition: &AgentDefinition) -> Value {
    let said = Limit::SETTABLE.iter().filter_map(|limit| match definition.limits.cap(*limit) {
        Cap::Default => None,
        Cap::Unlimited => Some((key(*limit), json!("none"))),
        Cap::At(value) => Some((key(*limit), json!(value))),
    });
    Value::Object(said.collect::<Map<_, _>>())
}

/// Numbers carry their unit in their name.
fn key(limit: Limit) -> String {
    match limit {
        Limit::Cost => "cost_micros".to_owned(),
        Limit::Wall => "wall_ms".to_owned(),
        Limit::Work => "work_ms".to_owned(),
        other => other.name().to_owned(),
    }
}
