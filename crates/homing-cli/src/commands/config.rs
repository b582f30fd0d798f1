//! `homing config`: shows every setting and its origin.

use std::{collections::BTreeMap, fs, path::Path};

use homing::{Folders, environment};
use homing_core::{
    limits::{Limit, Limits, usd},
    sanitize,
};
use homing_load::Places;
use homing_runtime::OnDemand;
use serde_json::{Value, json};

use crate::{
    cli::{ConfigArgs, ConfigCommand},
    columns,
    config::Layered,
    exit::{Exit, Trouble, print},
    progress::figures,
    session, terminal,
};

mod edit;

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<Exit> {
    let folder = session::working_folder(None)?;
    let folders = Folders::from_env();
    let mut places = Places::new(folder.clone());
    places.home.clone_from(&folders.home);
    let project = places.project_folders().into_iter().next().unwrap_or(folder);
    if matches!(args.command, Some(ConfigCommand::Edit)) {
        // A file with an error can be opened, too.
        edit::open(&folders)?;
        return Ok(Exit::Done);
    }
    let layered = Layered::read(folders.config.as_deref(), &project)?;
    match &args.command {
        Some(ConfigCommand::Path) => paths(&layered)?,
        Some(ConfigCommand::Set { key, value }) => edit::set(&layered, key, value)?,
        Some(ConfigCommand::Unset { key }) => edit::unset(&layered, key)?,
        Some(ConfigCommand::Show { json: true }) => show_json(&values(&layered, &folders)?)?,
        Some(ConfigCommand::Show { json: false } | ConfigCommand::Edit) | None => show(&layered, &folders)?,
    }
    Ok(Exit::Done)
}

fn paths(layered: &Layered) -> anyhow::Result<()> {
    let state = |path: &Path| if path.exists() { "" } else { "  (missing)" };
    match &layered.user_path {
        Some(path) => print(&format!("user     {}{}", path.display(), state(path)))?,
        None => print("user     (HOME is not set)")?,
    }
    Ok(print(&format!("project  {}{}", layered.project_path.display(), state(&layered.project_path)))?)
}

/// A value and its origin, by key. Later layers win.
type Values = BTreeMap<String, (String, String)>;

/// Returns every value and its origin.
fn values(layered: &Layered, folders: &Folders) -> anyhow::Result<Values> {
    let mut values = defaults(folders);
    if let Some(path) = &layered.user_path {
        add_file(&mut values, path)?;
    }
    add_narrowed(&mut values, layered);
    for (key, variable) in [("model", "HOMING_MODEL"), ("journal", "HOMING_JOURNAL")] {
        if let Some(value) = environment::variable(variable) {
            values.insert(key.to_owned(), (format!("{value:?}"), format!("${variable}")));
        }
    }
    Ok(values)
}

fn show_json(values: &Values) -> anyhow::Result<()> {
    let rows = values.iter().map(|(key, (value, from))| json!({"key": key, "value": as_json(value), "from": from}));
    Ok(print(&terminal::json(&rows.collect::<Vec<_>>().into()))?)
}

/// Returns a value that is written as in the file.
fn as_json(value: &str) -> Value {
    let read = toml::from_str::<Value>(&format!("value = {value}"));
    read.ok().and_then(|table| table.get("value").cloned()).unwrap_or_else(|| value.into())
}

fn show(layered: &Layered, folders: &Folders) -> anyhow::Result<()> {
    let values = values(layered, folders)?;
    let keys = columns::widest(values.keys().map(String::as_str)).min(40);
    for (key, (value, from)) in &values {
        print(&sanitize::inert(&format!("{key:<keys$} = {value:<24}  # {from}")))?;
    }
    for warning in layered.warnings() {
        terminal::say(&format!("warning: {warning}"));
    }
    Ok(())
}

fn defaults(folders: &Folders) -> Values {
    let mut values = Values::new();
    let mut add = |key: &str, value: String| {
        values.insert(key.to_owned(), (value, "default".to_owned()));
    };
    for limit in Limit::SETTABLE.into_iter().filter(|limit| !matches!(limit, Limit::Work | Limit::Output)) {
        let value =
            Limits::root().cap(limit).value().map_or_else(|| "\"none\"".to_owned(), |value| shown(limit, value));
        add(&format!("limits.{}", name(limit)), value);
    }
    add("sandbox.mode", "\"workspace-write\"".to_owned());
    add("sandbox.network", "\"off\"".to_owned());
    add("parallel", "16".to_owned());
    let OnDemand { tools, bytes, .. } = OnDemand::default();
    add("on_demand.tools", tools.to_string());
    add("on_demand.bytes", bytes.to_string());
    add("model", "the first provider with a key".to_owned());
    let journal = folders.journal().map_or_else(|| "off".to_owned(), |path| path.display().to_string());
    add("journal", format!("{journal:?}"));
    values
}

fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::Wall => "time",
        other => other.name(),
    }
}

fn shown(limit: Limit, value: u64) -> String {
    match limit {
        Limit::Cost => usd(value).trim_start_matches('$').to_owned(),
        Limit::Wall => format!("{:?}", figures::time(value)),
        _ => value.to_string(),
    }
}

fn add_file(values: &mut Values, path: &Path) -> Result<(), Trouble> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| Trouble::config(format!("{}: {error}", path.display())))?;
    flatten("", &toml::Value::Table(table), &path.display().to_string(), values);
    Ok(())
}

fn flatten(key: &str, value: &toml::Value, from: &str, values: &mut Values) {
    match value {
        toml::Value::Table(table) => {
            for (name, inner) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(&key, inner, from, values);
            }
        }
        other => {
            let is_secret = key.contains(".headers.");
            let value = if is_secret { "\"[hidden]\"".to_owned() } else { other.to_string() };
            values.insert(key.to_owned(), (value, from.to_owned()));
        }
    }
}

/// Adds what the project narrows. Its file may set values that have no effect, so the effective values are shown.
fn add_narrowed(values: &mut Values, layered: &Layered) {
    let from = format!("narrowed by {}", layered.project_path.display());
    let without = Layered {
        user: layered.user.clone(),
        user_path: None,
        project: crate::config::Config::default(),
        project_path: layered.project_path.clone(),
    };
    let limits = |layered: &Layered| layered.limits(Limits::default(), Limits::default()).or(Limits::root());
    let (before, after) = (limits(&without), limits(layered));
    for limit in Limit::SETTABLE.into_iter().filter(|limit| before.cap(*limit) != after.cap(*limit)) {
        let value = after.cap(limit).value().map_or_else(|| "\"none\"".to_owned(), |value| shown(limit, value));
        values.insert(format!("limits.{}", name(limit)), (value, from.clone()));
    }
    let quoted = |value: serde_json::Value| value.to_string();
    if layered.sandbox(None) != without.sandbox(None) {
        values.insert("sandbox.mode".to_owned(), (quoted(serde_json::json!(layered.sandbox(None))), from.clone()));
    }
    if layered.network(None) != without.network(None) {
        values.insert("sandbox.network".to_owned(), (quoted(serde_json::json!(layered.network(None))), from.clone()));
    }
    if let Some(parallel) = layered.parallel(None).filter(|runs| Some(*runs) != without.parallel(None)) {
        values.insert("parallel".to_owned(), (parallel.to_string(), from.clone()));
    }
    let (OnDemand { tools, bytes, .. }, before) = (layered.on_demand(), without.on_demand());
    for (key, now, before) in [("tools", tools, before.tools), ("bytes", bytes, before.bytes)] {
        if now != before {
            values.insert(format!("on_demand.{key}"), (now.to_string(), from.clone()));
        }
    }
    for (key, rules) in [("rules.deny", &layered.project.rules.deny), ("rules.ask", &layered.project.rules.ask)] {
        if !rules.is_empty() {
            let list: Vec<String> = rules.iter().map(|rule| format!("{:?}", rule.to_string())).collect();
            let more = format!("{key} (project)");
            values.insert(more, (format!("[{}]", list.join(", ")), layered.project_path.display().to_string()));
        }
    }
}
