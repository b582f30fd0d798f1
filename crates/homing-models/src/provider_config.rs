//! [`ProviderConfig`]: what the user's configuration says about a provider.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use crate::{
    prices::GivenPrice,
    provider::{Auth, ProviderRow},
    sampling::SamplingConfig,
    wire::{Delivery, Wire, chat::Quirks},
};

/// A provider in the user's configuration. Absent fields keep the value of the built-in row of the same name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderConfig {
    /// Wire format; chat completions for a new provider.
    pub wire: Option<Wire>,
    /// Base URL, with or without a trailing slash or `/v1`.
    pub base_url: Option<String>,
    /// Environment variables that may hold the API key.
    pub api_key_env: Option<OneOrMore>,
    /// Additional headers for every request.
    pub headers: BTreeMap<String, String>,
    /// Header that carries the API key.
    pub auth: Option<Auth>,
    /// Differences from other providers of the same wire.
    pub quirks: Option<Quirks>,
    /// Prices by model; `*` matches every other model.
    pub prices: BTreeMap<String, GivenPrice>,
    /// Output limits in tokens by model; `*` matches every other model.
    pub max_output: BTreeMap<String, u64>,
    /// Model to use if nothing names one.
    pub default_model: Option<String>,
    /// Seconds to wait for the first content of a reply, if longer than the default timeout.
    pub patience: Option<u64>,
    /// `false` for servers that cannot stream replies.
    pub stream: Option<bool>,
    /// Settings that every request carries.
    pub sampling: SamplingConfig,
}

/// One string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One string.
    One(String),
    /// A list.
    More(Vec<String>),
}

impl ProviderConfig {
    /// Changes a built-in row.
    pub(crate) fn apply(self, row: &mut ProviderRow) {
        row.wire = self.wire.unwrap_or(row.wire);
        if let Some(url) = self.base_url {
            row.base_url = url;
            row.has_own_url = true;
        }
        if let Some(vars) = self.api_key_env {
            row.key_vars = vars.into();
        }
        row.headers.extend(self.headers);
        row.auth = self.auth.unwrap_or(row.auth);
        row.quirks = self.quirks.unwrap_or(row.quirks);
        row.prices.extend(self.prices);
        row.max_output.extend(self.max_output);
        row.default_model = self.default_model.or(row.default_model.take());
        row.patience = self.patience.map(Duration::from_secs).or(row.patience);
        if let Some(is_streamed) = self.stream {
            row.delivery = if is_streamed { Delivery::Streamed } else { Delivery::Whole };
        }
        row.sampling = self.sampling.or(std::mem::take(&mut row.sampling));
    }

    /// The row of a provider that is not built in.
    pub(crate) fn into_row(self, name: &str) -> ProviderRow {
        let wire = self.wire.unwrap_or(Wire::Chat);
        let mut row = ProviderRow {
            price_table: Some(name.to_owned()),
            name: name.to_owned(),
            wire,
            base_url: String::new(),
            key_vars: Vec::new(),
            headers: BTreeMap::new(),
            auth: if wire == Wire::Anthropic { Auth::XApiKey } else { Auth::Bearer },
            quirks: Quirks::default(),
            prices: BTreeMap::new(),
            max_output: BTreeMap::new(),
            default_model: None,
            has_own_url: false,
            patience: None,
            delivery: Delivery::Streamed,
            sampling: SamplingConfig::default(),
        };
        self.apply(&mut row);
        // A new provider with a key variable needs that key.
        row.has_own_url = false;
        row
    }
}

impl OneOrMore {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::More(names) => names,
        }
    }
}

impl From<OneOrMore> for Vec<String> {
    fn from(names: OneOrMore) -> Self {
        match names {
            OneOrMore::One(name) => vec![name],
            OneOrMore::More(names) => names,
        }
    }
}
