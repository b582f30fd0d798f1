//! `homing models`: lists providers, or the models of one with their limits and prices. Servers on this machine are asked.

use std::time::Duration;

use clap::Args;
use homing::{Folders, environment};
use homing_core::{limits::usd, model::ModelCard, sanitize};
use homing_models::{ProviderRow, Providers};
use serde_json::{Value, json};

use crate::{
    columns, completion,
    config::Layered,
    exit::{Exit, Trouble, print},
    progress::figures,
    session, terminal,
};

/// Maximum time for a server on this machine to list its models.
const LOCAL: Duration = Duration::from_secs(2);
/// Maximum time for another provider.
const REMOTE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  homing models
  homing models anthropic
  homing models ollama --json

A provider whose API key is set is asked for its models, which costs nothing. Otherwise its models are those of a published table.")]
pub(crate) struct ModelsArgs {
    /// Provider whose models to list.
    #[arg(add = completion::provider())]
    provider: Option<String>,
    /// Connect to no provider.
    #[arg(long)]
    offline: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ModelsArgs) -> anyhow::Result<Exit> {
    let folder = environment::current_folder().unwrap_or_default();
    let config = Layered::read(Folders::from_env().config.as_deref(), &folder)?;
    let providers = super::doctor::providers(Some(&config));
    let Some(name) = &args.provider else { return overview(args, &providers).await };
    let known = || providers.rows().iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(", ");
    let row = providers.row(name).ok_or_else(|| {
        Trouble::usage(format!("unknown provider `{name}`")).hint(format!("known providers: {}", known()))
    })?;
    let offered = Offered::find(&providers, &row, args.offline).await;
    let cards: Vec<ModelCard> = offered.models.iter().filter_map(|model| providers.known_card(name, model)).collect();
    if args.json {
        let models: Vec<Value> = cards.iter().map(card_json).collect();
        print(&terminal::json(
            &json!({"provider": name, "usable": providers.is_usable(name), "source": offered.source, "models": models}),
        ))?;
        return Ok(Exit::Done);
    }
    let width = columns::widest(cards.iter().map(|card| card.name.as_str())).min(60);
    for card in &cards {
        print(&card_line(card, width))?;
    }
    terminal::say(&format!("{} ({})", figures::count(cards.len() as u64, "model"), offered.source));
    terminal::say(&key_line(&providers, &row));
    Ok(Exit::Done)
}

/// The models of a provider, and how they are known.
struct Offered {
    models: Vec<String>,
    source: String,
}

impl Offered {
    async fn find(providers: &Providers, row: &ProviderRow, offline: bool) -> Self {
        let listed = |why: String| {
            let source = format!("published table; {why}");
            Self { models: providers.listed_models(&row.name), source }
        };
        if offline {
            return listed("the provider was not asked".to_owned());
        }
        if !providers.is_usable(&row.name) {
            return listed("the provider was not asked, because no API key is set".to_owned());
        }
        let redact = session::redactor(providers);
        match tokio::time::timeout(REMOTE, providers.served_models(&row.name)).await {
            Ok(Ok(mut models)) => {
                models.sort();
                models.dedup();
                Self { models, source: format!("as {} lists them", row.base_url) }
            }
            Ok(Err(error)) => listed(format!("the provider could not be asked: {}", redact(&error.to_string()))),
            Err(_) => listed("the provider did not answer in time".to_owned()),
        }
    }
}

async fn overview(args: &ModelsArgs, providers: &Providers) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    for row in providers.rows() {
        let is_local = row.key_vars.is_empty();
        let served = match tokio::time::timeout(LOCAL, providers.served_models(&row.name)) {
            asked if is_local && !args.offline => asked.await.ok().and_then(Result::ok),
            _ => None,
        };
        // Most users run none of the local servers.
        if is_local && served.is_none() && !row.has_own_url {
            continue;
        }
        let count = served.as_ref().map_or_else(|| providers.listed_models(&row.name).len(), Vec::len);
        rows.push(json!({
            "provider": row.name,
            "usable": providers.is_usable(&row.name),
            "key": key_line(providers, &row),
            "default": row.default_model,
            "models": count,
            "running": is_local.then_some(served.is_some()),
        }));
    }
    if args.json {
        print(&terminal::json(&json!(rows)))?;
        return Ok(Exit::Done);
    }
    print("offline       needs no API key: a keyword search, for trying things out")?;
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let models = figures::count(row["models"].as_u64().unwrap_or(0), "model");
        let default = row["default"].as_str().map(|name| format!(", default {name}")).unwrap_or_default();
        print(&sanitize::inert(&format!("{:<12}  {}; {models}{default}", text("provider"), text("key"))))?;
    }
    terminal::say("`homing models PROVIDER` lists the models of one");
    Ok(Exit::Done)
}

fn key_line(providers: &Providers, row: &ProviderRow) -> String {
    match providers.why_usable(&row.name) {
        Some(why) => why,
        None if row.key_vars.is_empty() => "it needs no API key".to_owned(),
        None => format!("no API key: set {}", row.key_vars.join(" or ")),
    }
}

fn card_line(card: &ModelCard, width: usize) -> String {
    let tokens = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), figures::tokens);
    let price = card.rates.as_ref().map_or_else(
        || "price not known".to_owned(),
        |rates| format!("{} in, {} out per million", usd(rates.input), usd(rates.output)),
    );
    let abilities = card.abilities.map(|abilities| abilities.names().join(", ")).unwrap_or_default();
    let (window, output) = (tokens(card.context_window), tokens(card.max_output));
    let name = sanitize::inert_line(&card.name);
    format!("{name:<width$}  {window:>7} window  {output:>7} output  {price}  {abilities}").trim_end().to_owned()
}

fn card_json(card: &ModelCard) -> Value {
    let price =
        card.rates.as_ref().map(|rates| json!({"input": rates.input, "cached": rates.cached, "output": rates.output}));
    json!({
        "name": card.name,
        "context_window": card.context_window,
        "max_output": card.max_output,
        "micros_per_million": price,
        "abilities": card.abilities.map(homing_core::model::Abilities::names),
    })
}
