//! Providers are rows of a table, which users extend; a model is a row, a key and a name.
//! Keys and addresses are handed in by the host: nothing here reads the environment.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use homing_core::model::{Model, ModelCard, Rates};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{
    genai::GenaiModel,
    http::{Http, Timeouts},
    native_model::NativeModel,
    output_limits,
    prices::{self, GivenPrice, KnownPrice},
    provider_table,
    secret::Key,
    wire::{Delivery, Wire, chat::Quirks},
};

/// A provider as a user writes it in the configuration; what is absent is as in the built-in row of the same name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderConfig {
    /// How it is spoken to; chat completions where absent.
    pub wire: Option<Wire>,
    /// Where it is, with or without a trailing slash or `/v1`.
    pub base_url: Option<String>,
    /// Where its key is found: one name or several to try.
    pub api_key_env: Option<OneOrMore>,
    /// More headers for every request.
    pub headers: BTreeMap<String, String>,
    /// How the key is sent.
    pub auth: Option<Auth>,
    /// Where it differs from others of its wire.
    pub quirks: Option<Quirks>,
    /// Prices by model; `*` stands for all others.
    pub prices: BTreeMap<String, GivenPrice>,
    /// The most tokens of one reply by model, where that is less than what is usually asked for; `*` stands for all others.
    pub max_output: BTreeMap<String, u64>,
    /// The model to use where nothing names one.
    pub default_model: Option<String>,
    /// Seconds until its answer must have begun, where that takes longer than usual.
    pub patience: Option<u64>,
    /// Whether answers are streamed; `false` for servers that cannot.
    pub stream: Option<bool>,
}

/// One string or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

/// How a key is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// `Authorization: Bearer …`
    #[default]
    Bearer,
    /// `x-api-key: …`
    XApiKey,
    /// `api-key: …`
    ApiKey,
}

/// A complete row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderRow {
    /// What stands before the slash in a model's name.
    pub name: String,
    /// How it is spoken to.
    pub wire: Wire,
    /// Where it is.
    pub base_url: String,
    /// Which variable may name another address.
    pub base_url_env: Option<String>,
    /// Which variables may hold its key; none where it needs no key.
    pub key_vars: Vec<String>,
    /// More headers for every request.
    pub headers: BTreeMap<String, String>,
    /// How the key is sent.
    pub auth: Auth,
    /// Where it differs from others of its wire.
    pub quirks: Quirks,
    /// What the price table calls it; `None` where its tokens cost nothing.
    pub price_table: Option<String>,
    /// Prices that the user gave.
    pub prices: BTreeMap<String, GivenPrice>,
    /// Limits of replies that the user gave.
    pub max_output: BTreeMap<String, u64>,
    /// The model to use where nothing names one.
    pub default_model: Option<String>,
    /// The address is the user's own: it may do without a key.
    pub is_moved: bool,
    /// How long it may take until its answer begins, where that is longer than usual: a model on this machine may
    /// have to be loaded first.
    pub patience: Option<Duration>,
    /// How its answers come.
    pub delivery: Delivery,
}

/// Why a model cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoModelError {
    /// No such provider.
    #[error("no provider `{provider}` (known: {known})")]
    UnknownProvider {
        /// As written.
        provider: String,
        /// What there is.
        known: String,
    },
    /// The name has no provider in front.
    #[error("`{0}` names no provider: write provider/model, such as anthropic/{0}")]
    NoProvider(String),
    /// The provider needs a key and there is none.
    #[error("no key for {provider}: set {vars}")]
    NoKey {
        /// The provider.
        provider: String,
        /// Where a key was looked for.
        vars: String,
    },
    /// The row cannot work.
    #[error("provider `{provider}`: {why}")]
    BadRow {
        /// The provider.
        provider: String,
        /// Why.
        why: String,
    },
}

/// Finds keys and addresses by the name of their variable.
type Lookup = Box<dyn Fn(&str) -> Option<SecretString> + Send + Sync>;

/// Every provider that can be had, and the connections to them.
pub struct Providers {
    rows: Vec<ProviderRow>,
    lookup: Lookup,
    http: Arc<Http>,
}

impl Providers {
    /// The built-in rows, changed and extended by `configured`. `lookup` finds keys and addresses by variable name.
    pub fn new(
        configured: BTreeMap<String, ProviderConfig>,
        lookup: impl Fn(&str) -> Option<SecretString> + Send + Sync + 'static,
    ) -> Self {
        Self::with_clocks(configured, lookup, Timeouts::default(), None)
    }

    /// The same with other clocks, and through a proxy where one is given.
    pub fn with_clocks(
        configured: BTreeMap<String, ProviderConfig>,
        lookup: impl Fn(&str) -> Option<SecretString> + Send + Sync + 'static,
        clocks: Timeouts,
        proxy: Option<String>,
    ) -> Self {
        let mut rows = provider_table::rows();
        for (name, config) in configured {
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => change(row, config),
                None => rows.push(added(name, config)),
            }
        }
        let lookup: Lookup = Box::new(lookup);
        for row in rows.iter_mut().filter(|row| !row.is_moved) {
            let moved = row.base_url_env.as_deref().and_then(&lookup).map(|it| it.expose_secret().trim().to_owned());
            if let Some(url) = moved.filter(|it| !it.is_empty()) {
                row.base_url = url;
                row.is_moved = true;
            }
        }
        Self { rows, lookup, http: Arc::new(Http::new(clocks, proxy)) }
    }

    /// The rows, in the order in which they are tried.
    pub fn rows(&self) -> &[ProviderRow] {
        &self.rows
    }

    /// Whether there is such a provider.
    pub fn has(&self, provider: &str) -> bool {
        self.rows.iter().any(|row| row.name == provider)
    }

    /// Whether the provider can be asked: its key is there, or it needs none.
    pub fn is_usable(&self, provider: &str) -> bool {
        self.rows.iter().find(|row| row.name == provider).is_some_and(|row| self.key(row).is_ok())
    }

    /// Why the provider can be asked, as the end of a sentence; `None` where it cannot.
    pub fn why_usable(&self, provider: &str) -> Option<String> {
        let row = self.rows.iter().find(|row| row.name == provider)?;
        let is_set = |name: &&String| Key::new((self.lookup)(name)).expose().is_some();
        match row
            .key_vars
            .iter()
            .find(is_set)
            .or_else(|| row.base_url_env.as_ref().filter(|_| row.is_moved).filter(is_set))
        {
            Some(name) => Some(format!("{name} is set")),
            None if row.is_moved => Some("its address is configured".to_owned()),
            None if row.key_vars.is_empty() => Some("it needs no key".to_owned()),
            None => None,
        }
    }

    /// The model called `provider/model`, or `offline`.
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, NoModelError> {
        let Some((provider, model)) = name.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            return Err(NoModelError::NoProvider(name.to_owned()));
        };
        let row = self.rows.iter().find(|row| row.name == provider).ok_or_else(|| NoModelError::UnknownProvider {
            provider: provider.to_owned(),
            known: self.rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let key = self.key(row)?;
        let card = card(row, model, &key);
        match row.wire {
            Wire::Chat | Wire::Anthropic => Ok(Arc::new(NativeModel::new(row, model, key, card, self.http.clone())?)),
            Wire::Genai => Ok(Arc::new(GenaiModel::new(row, model, key, card, self.http.clone())?)),
        }
    }

    fn key(&self, row: &ProviderRow) -> Result<Key, NoModelError> {
        let key = Key::new(row.key_vars.iter().find_map(|name| (self.lookup)(name)));
        if key.expose().is_none() && !row.key_vars.is_empty() && !row.is_moved {
            return Err(NoModelError::NoKey { provider: row.name.clone(), vars: row.key_vars.join(" or ") });
        }
        Ok(key)
    }
}

fn change(row: &mut ProviderRow, config: ProviderConfig) {
    row.wire = config.wire.unwrap_or(row.wire);
    if let Some(url) = config.base_url {
        row.base_url = url;
        row.is_moved = true;
    }
    if let Some(vars) = config.api_key_env {
        row.key_vars = vars.into();
    }
    row.headers.extend(config.headers);
    row.auth = config.auth.unwrap_or(row.auth);
    row.quirks = config.quirks.unwrap_or(row.quirks);
    row.prices.extend(config.prices);
    row.max_output.extend(config.max_output);
    row.default_model = config.default_model.or(row.default_model.take());
    row.patience = config.patience.map(Duration::from_secs).or(row.patience);
    row.delivery = match config.stream {
        None => row.delivery,
        Some(true) => Delivery::Streamed,
        Some(false) => Delivery::Whole,
    };
}

fn added(name: String, config: ProviderConfig) -> ProviderRow {
    let wire = config.wire.unwrap_or(Wire::Chat);
    let mut row = ProviderRow {
        price_table: Some(name.clone()),
        name,
        wire,
        base_url: String::new(),
        base_url_env: None,
        key_vars: Vec::new(),
        headers: BTreeMap::new(),
        auth: if wire == Wire::Anthropic { Auth::XApiKey } else { Auth::Bearer },
        quirks: Quirks::default(),
        prices: BTreeMap::new(),
        max_output: BTreeMap::new(),
        default_model: None,
        is_moved: false,
        patience: None,
        delivery: Delivery::Streamed,
    };
    change(&mut row, config);
    // A key that was asked for by name is needed.
    row.is_moved = false;
    row
}

impl From<OneOrMore> for Vec<String> {
    fn from(names: OneOrMore) -> Self {
        match names {
            OneOrMore::One(name) => vec![name],
            OneOrMore::More(names) => names,
        }
    }
}

fn card(row: &ProviderRow, model: &str, key: &Key) -> ModelCard {
    let known = match &row.price_table {
        Some(table) => prices::known(table, model),
        None => KnownPrice { rates: Some(Rates::default()), context_window: None },
    };
    let given = row.prices.get(model).or_else(|| row.prices.get("*")).and_then(GivenPrice::rates);
    // A reply of no tokens is no reply; such a limit is a mistake.
    let limit = row.max_output.get(model).or_else(|| row.max_output.get("*")).copied().filter(|it| *it > 0);
    ModelCard {
        name: format!("{}/{model}", row.name),
        gate: format!("{} {}", row.name, key.fingerprint()),
        rates: given.or(known.rates),
        context_window: known.context_window,
        max_output: limit.or_else(|| output_limits::published(model)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_said_before_anything_is_sent() {
        let providers = Providers::new(BTreeMap::new(), |_| None);
        let why = providers.model("anthropic/claude-sonnet-4-5").map(|_| ()).unwrap_err().to_string();
        assert_eq!(why, "no key for anthropic: set ANTHROPIC_API_KEY");
        assert!(providers.model("nowhere/x").is_err());
        assert!(providers.model("claude").is_err());
        assert!(providers.model("ollama/llama3").is_ok());
    }

    #[test]
    fn the_gate_tells_keys_apart_and_hides_them() {
        let with = |key: &'static str| {
            let lookup = move |name: &str| (name == "OPENAI_API_KEY").then(|| SecretString::from(key));
            let providers = Providers::new(BTreeMap::new(), lookup);
            providers.model("openai/gpt-4.1").unwrap().card().gate.clone()
        };
        assert_ne!(with("sk-one-one-one"), with("sk-two-two-two"));
        assert!(!with("sk-one-one-one").contains("one-one"));
    }

    #[test]
    fn users_extend_the_table() {
        let config: ProviderConfig = serde_json::from_value(serde_json::json!({
            "wire": "anthropic", "base_url": "http://localhost:9", "api_key_env": "MY_KEY",
            "headers": {"x-team": "a"}, "prices": {"*": {"input": 1.0, "output": 2.0}}, "max_output": {"*": 2000, "x": 0},
        }))
        .unwrap();
        let lookup = |name: &str| (name == "MY_KEY").then(|| SecretString::from("secret"));
        let providers = Providers::new(BTreeMap::from([("mine".to_owned(), config)]), lookup);
        let card = providers.model("mine/some-model").unwrap().card().clone();
        assert_eq!((card.rates.unwrap().output, card.max_output), (2_000_000, Some(2_000)));
        assert_eq!(providers.model("mine/x").unwrap().card().max_output, None, "no reply has no tokens");
        let lookup = |name: &str| name.ends_with("_KEY").then(|| SecretString::from("k"));
        let published = Providers::new(BTreeMap::new(), lookup);
        assert_eq!(published.model("anthropic/claude-3-haiku-20240307").unwrap().card().max_output, Some(4_096));
    }
}
