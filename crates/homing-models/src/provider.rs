//! [`Providers`]: the built-in provider table, extended by the configuration, and the models behind it.
//! The host supplies keys and addresses: nothing here reads the environment.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homing_core::model::{Model, ModelCard, ModelError, Rates};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

#[cfg(feature = "genai")]
use crate::genai::GenaiModel;
use crate::{
    address::{self, Place},
    aws::{self, AwsProfile, AwsSigner, CredentialSource, Lookup},
    http::Http,
    model_table,
    native_model::{self, NativeModel},
    prices::{self, GivenPrice, PriceTableEntry},
    provider_config::{OneOrMore, ProviderConfig},
    provider_error::{NoModelError, RowError},
    provider_table,
    sampling::SamplingConfig,
    secret::ApiKey,
    timeouts::Timeouts,
    wire::{Delivery, Wire, chat::Quirks},
};

/// Header that carries the API key.
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

/// A complete row of the provider table.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderRow {
    /// Name of the provider: the part before the slash in `provider/model`.
    pub name: String,
    /// Wire format.
    pub wire: Wire,
    /// Base URL.
    pub base_url: String,
    /// Environment variables that may hold the API key; empty if it needs none.
    pub key_vars: Vec<String>,
    /// Additional headers for every request.
    pub headers: BTreeMap<String, String>,
    /// Header that carries the API key.
    pub auth: Auth,
    /// Differences from other providers of the same wire.
    pub quirks: Quirks,
    /// Name of the provider in the price table; `None` if its tokens cost nothing.
    pub price_table: Option<String>,
    /// Prices from the configuration.
    pub prices: BTreeMap<String, GivenPrice>,
    /// Output limits from the configuration.
    pub max_output: BTreeMap<String, u64>,
    /// Model to use if nothing names one.
    pub default_model: Option<String>,
    /// The user has set the base URL, so the server may need no key.
    pub has_own_url: bool,
    /// Time to wait for the first content of a reply, if it was set and is longer than the default timeout.
    pub patience: Option<Duration>,
    /// Streamed or whole replies.
    pub delivery: Delivery,
    /// Settings that every request carries.
    pub sampling: SamplingConfig,
}

impl ProviderRow {
    /// Returns true if the user has moved the provider to an address that is not its own: its prices do not apply there, and
    /// any model may be available.
    pub fn is_foreign(&self) -> bool {
        self.has_own_url && !provider_table::is_own_address(&self.name, &self.base_url)
    }

    /// Time to wait for the first content of a reply, if longer than the default timeout: a model near by may have to be loaded
    /// first.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let is_near = || address::place(&self.base_url) != Place::Public;
        self.patience.or_else(|| is_near().then_some(provider_table::LOCAL_PATIENCE))
    }

    /// Prices and context window of `model` in the price table.
    fn listed(&self, model: &str) -> PriceTableEntry {
        let free = || PriceTableEntry { rates: Some(Rates::default()), context_window: None };
        match &self.price_table {
            None => free(),
            Some(_) if address::place(&self.base_url) == Place::Local => free(),
            Some(_) if self.is_foreign() => PriceTableEntry::default(),
            Some(table) => prices::listed(table, model),
        }
    }
}

/// All known providers, and the connections to them.
pub struct Providers {
    /// Changes and additions to the built-in table.
    configured: BTreeMap<String, ProviderConfig>,
    /// The rows that were asked for: most programs use one provider.
    rows: Mutex<Vec<Arc<ProviderRow>>>,
    /// Looks up keys and addresses by the name of their environment variable.
    lookup: Lookup,
    aws_profile: Option<Arc<dyn AwsProfile>>,
    http: Arc<Http>,
}

impl Providers {
    /// Creates the table from the built-in rows and `configured`. `lookup` returns the value of an environment variable; the
    /// address of a provider is looked up when it is first asked for.
    pub fn new(
        configured: BTreeMap<String, ProviderConfig>,
        lookup: impl Fn(&str) -> Option<SecretString> + Send + Sync + 'static,
    ) -> Self {
        Self::with_timeouts(configured, lookup, Timeouts::default(), None)
    }

    /// Like [`Providers::new`], with other timeouts and optionally through a proxy.
    pub fn with_timeouts(
        configured: BTreeMap<String, ProviderConfig>,
        lookup: impl Fn(&str) -> Option<SecretString> + Send + Sync + 'static,
        timeouts: Timeouts,
        proxy: Option<String>,
    ) -> Self {
        let (rows, http) = (Mutex::default(), Arc::new(Http::new(timeouts, proxy)));
        Self { configured, rows, lookup: Arc::new(lookup), aws_profile: None, http }
    }

    /// Uses this profile for Bedrock if no credentials are set in variables.
    #[must_use]
    pub fn with_aws_profile(mut self, profile: Arc<dyn AwsProfile>) -> Self {
        self.aws_profile = Some(profile);
        self
    }

    fn aws(&self) -> CredentialSource {
        CredentialSource { lookup: self.lookup.clone(), profile: self.aws_profile.clone() }
    }

    /// The rows, in the order in which they are tried.
    pub fn rows(&self) -> Vec<Arc<ProviderRow>> {
        self.names().filter_map(|name| self.row(name)).collect()
    }

    /// The row of `provider`, if there is such a provider.
    pub fn row(&self, provider: &str) -> Option<Arc<ProviderRow>> {
        let made = self.made_rows().iter().find(|row| row.name == provider).cloned();
        if made.is_some() {
            return made;
        }
        let row = Arc::new(self.new_row(provider)?);
        self.made_rows().push(row.clone());
        Some(row)
    }

    fn made_rows(&self) -> MutexGuard<'_, Vec<Arc<ProviderRow>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_row(&self, provider: &str) -> Option<ProviderRow> {
        let (built_in, config) = (provider_table::row(provider), self.configured.get(provider));
        let Some(mut row) = built_in else {
            return config.map(|config| config.clone().into_row(provider));
        };
        if let Some(config) = config {
            config.clone().apply(&mut row);
        }
        // The environment comes after the configuration, as for every other setting.
        let url = provider_table::base_url_variable(provider).and_then(|name| (self.lookup)(&name));
        let url = url.map(|url| url.expose_secret().trim().to_owned());
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            row.base_url = url;
            row.has_own_url = true;
        }
        // Few compatible servers have the Responses API or accept OpenAI's newer fields, so neither is used at an address
        // that is not OpenAI's, unless the configuration says otherwise.
        if provider == "openai" && !provider_table::is_own_address(provider, &row.base_url) {
            if config.is_none_or(|config| config.wire.is_none()) {
                row.wire = Wire::Chat;
            }
            row.quirks.prompt_cache_key &= config.is_some_and(|config| config.quirks.is_some());
        }
        Some(row)
    }

    /// The names of the providers, in the order in which they are tried.
    fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.configured.keys().filter(|name| !provider_table::has(name));
        provider_table::names().map(|name| -> &str { name }).chain(own.map(String::as_str))
    }

    /// Returns true if `provider` is in the table.
    pub fn has(&self, provider: &str) -> bool {
        self.names().any(|name| name == provider)
    }

    /// Returns true if `provider` has its API key or needs none.
    pub fn is_usable(&self, provider: &str) -> bool {
        self.row(provider).is_some_and(|row| self.key(&row).is_ok())
    }

    /// The reason why `provider` is usable, as the end of a sentence; `None` if it is not usable.
    pub fn why_usable(&self, provider: &str) -> Option<String> {
        let row = self.row(provider)?;
        if row.wire == Wire::Genai && !cfg!(feature = "genai") {
            return None;
        }
        let is_set = |name: &&String| ApiKey::new((self.lookup)(name)).expose().is_some();
        let base_url = provider_table::base_url_variable(&row.name).filter(|_| row.has_own_url);
        let set = row.key_vars.iter().chain(&base_url).find(is_set).map(|name| format!("{name} is set"));
        let aws = || self.aws().why_usable().filter(|_| row.wire == Wire::Bedrock).map(str::to_owned);
        match set.or_else(aws) {
            Some(why) => Some(why),
            None if row.has_own_url => Some("its address is configured".to_owned()),
            None if row.key_vars.is_empty() => Some("it needs no API key".to_owned()),
            None => None,
        }
    }

    /// Returns the values that must never be shown: the API keys, and configured headers that carry one.
    pub fn secrets(&self) -> Vec<String> {
        let built_in = provider_table::key_variables().map(|name| -> &str { name });
        let own = self.configured.values().filter_map(|config| config.api_key_env.as_ref());
        let own = own.flat_map(OneOrMore::as_slice).map(String::as_str);
        let keys = built_in.chain(own).filter_map(|name| (self.lookup)(name));
        let is_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            ["auth", "key", "token", "secret", "cookie"].iter().any(|word| name.contains(word))
        };
        let headers = self.configured.values().flat_map(|config| &config.headers).filter(|(name, _)| is_secret(name));
        // `Bearer` and the like come before the secret itself.
        let values = headers.map(|(_, value)| value.rsplit(' ').next().unwrap_or(value).to_owned());
        keys.map(|key| key.expose_secret().trim().to_owned()).chain(values).chain(self.aws().secrets()).collect()
    }

    /// Returns the model called `provider/model`.
    ///
    /// # Errors
    /// Fails if the provider is unknown, has no API key or is not configured correctly.
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, NoModelError> {
        let Some((provider, model)) = name.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            return Err(NoModelError::NoProvider(name.to_owned()));
        };
        let row = self.row(provider).ok_or_else(|| NoModelError::UnknownProvider {
            provider: provider.to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })?;
        let row = &*row;
        let key = self.key(row)?;
        let card = card(row, model, &key);
        match row.wire {
            Wire::Chat | Wire::Responses | Wire::Anthropic => {
                let row = ProviderRow { auth: self.auth(row), ..row.clone() };
                Ok(Arc::new(NativeModel::new(&row, model, key, card, self.http.clone())?))
            }
            Wire::Bedrock => self.bedrock_model(row, model, key, card),
            #[cfg(feature = "genai")]
            Wire::Genai => Ok(Arc::new(GenaiModel::new(row, model, key, card, self.http.clone())?)),
            #[cfg(not(feature = "genai"))]
            Wire::Genai => Err(NoModelError::BadRow { provider: row.name.clone(), why: RowError::NoGenai }),
        }
    }

    /// A model of Bedrock in the user's region, whose requests carry a key or a signature.
    fn bedrock_model(
        &self,
        row: &ProviderRow,
        model: &str,
        key: ApiKey,
        card: ModelCard,
    ) -> Result<Arc<dyn Model>, NoModelError> {
        let bad = |why: RowError| NoModelError::BadRow { provider: row.name.clone(), why };
        let region = aws::region_in(&row.base_url).or_else(|| self.aws().region());
        let mut row = row.clone();
        if row.base_url.trim().is_empty() {
            row.base_url = aws::base_url(region.as_deref().ok_or(RowError::NoRegion).map_err(bad)?);
        }
        let is_signed = key.expose().is_none() && self.aws().why_usable().is_some();
        let model = NativeModel::new(&row, model, key, card, self.http.clone())?;
        if !is_signed {
            return Ok(Arc::new(model));
        }
        // A server of another address checks the signature for the region that it was set up with, usually the first one.
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        Ok(Arc::new(model.signed_by(AwsSigner::new(self.aws(), region))))
    }

    /// Asks the server of `provider` which models it offers.
    ///
    /// # Errors
    /// Fails if the server cannot be reached within a few seconds or has no such list.
    pub async fn served_models(&self, provider: &str) -> Result<Vec<String>, ModelError> {
        let unusable = |reason: String| ModelError::Unusable { reason };
        let row = self.row(provider).ok_or_else(|| unusable(format!("unknown provider `{provider}`")))?;
        let key = self.key(&row).map_err(|error| unusable(error.to_string()))?;
        let row = ProviderRow { auth: self.auth(&row), ..ProviderRow::clone(&row) };
        native_model::served_models(&row, &key, &self.http).await
    }

    fn key(&self, row: &ProviderRow) -> Result<ApiKey, NoModelError> {
        let key = ApiKey::new(self.key_variable(row).and_then(|name| (self.lookup)(name)));
        let is_signed = row.wire == Wire::Bedrock && self.aws().why_usable().is_some();
        if key.expose().is_none() && !row.key_vars.is_empty() && !row.has_own_url && !is_signed {
            let other = (row.wire == Wire::Bedrock).then(|| "AWS_ACCESS_KEY_ID or AWS_PROFILE".to_owned());
            let vars: Vec<String> = row.key_vars.iter().cloned().chain(other).collect();
            return Err(NoModelError::NoKey { provider: row.name.clone(), vars: vars.join(" or ") });
        }
        Ok(key)
    }

    /// The first variable that holds a key of the provider.
    fn key_variable<'a>(&self, row: &'a ProviderRow) -> Option<&'a String> {
        row.key_vars.iter().find(|name| ApiKey::new((self.lookup)(name)).expose().is_some())
    }

    /// The header for the key: gateways in front of Anthropic's API issue tokens, which replace the key.
    fn auth(&self, row: &ProviderRow) -> Auth {
        let is_token = self.key_variable(row).is_some_and(|name| name.ends_with("_AUTH_TOKEN"));
        if is_token { Auth::Bearer } else { row.auth }
    }
}

pub(crate) fn card(row: &ProviderRow, model: &str, key: &ApiKey) -> ModelCard {
    let listed = row.listed(model);
    let given = row.prices.get(model).or_else(|| row.prices.get("*")).and_then(GivenPrice::rates);
    // A limit of zero tokens is a mistake in the configuration.
    let limit = row.max_output.get(model).or_else(|| row.max_output.get("*")).copied().filter(|tokens| *tokens > 0);
    // The limits of a model on this machine are those of its server, whatever its maker publishes.
    let entry = row.price_table.as_ref().and_then(|table| model_table::listed(table, model));
    ModelCard::free(format!("{}/{model}", row.name))
        .rate_limit_key(format!("{} {}", row.name, key.fingerprint()))
        .rates(given.or(listed.rates))
        .context_window(entry.and_then(|entry| entry.context_window).or(listed.context_window))
        .max_output(limit.or_else(|| entry?.max_output))
        .abilities(entry.map(|entry| entry.abilities))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_key_is_reported_before_anything_is_sent() {
        let providers = Providers::new(BTreeMap::new(), |_| None);
        let why = providers.model("anthropic/claude-sonnet-4-5").map(|_| ()).unwrap_err().to_string();
        assert_eq!(why, "no API key for anthropic: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN");
        assert!(providers.model("nowhere/x").is_err());
        assert!(providers.model("claude").is_err());
        assert!(providers.model("ollama/llama3").is_ok());
    }

    #[cfg(not(feature = "genai"))]
    #[test]
    fn build_without_genai_reports_the_missing_wire() {
        let lookup = |name: &str| (name == "GEMINI_API_KEY").then(|| SecretString::from("key"));
        let providers = Providers::new(BTreeMap::new(), lookup);
        let why = providers.model("gemini/gemini-3.8-flash").map(|_| ()).unwrap_err().to_string();
        assert_eq!(why, "provider `gemini`: this build has no support for the `genai` wire");
        assert_eq!(providers.why_usable("gemini"), None, "it must not become the default");
    }

    #[test]
    fn rate_limiter_name_distinguishes_keys_and_hides_them() {
        let with = |key: &'static str| {
            let lookup = move |name: &str| (name == "OPENAI_API_KEY").then(|| SecretString::from(key));
            let providers = Providers::new(BTreeMap::new(), lookup);
            providers.model("openai/gpt-4.1").unwrap().card().rate_limit_key.clone()
        };
        assert_ne!(with("sk-one-one-one"), with("sk-two-two-two"));
        assert!(!with("sk-one-one-one").contains("one-one"));
    }

    #[test]
    fn environment_moves_a_provider_that_the_configuration_moved() {
        let config = || ProviderConfig { base_url: Some("http://configured".into()), ..ProviderConfig::default() };
        let configured = || BTreeMap::from([("openai".to_owned(), config()), ("mine".to_owned(), config())]);
        let url = |providers: &Providers, name: &str| providers.row(name).unwrap().base_url.clone();
        let lookup = |name: &str| name.ends_with("_BASE_URL").then(|| SecretString::from("http://environment"));
        let both = Providers::new(configured(), lookup);
        assert_eq!(url(&both, "openai"), "http://environment");
        assert_eq!(url(&both, "mine"), "http://configured", "no variable moves a provider of the user's own");
        assert_eq!(url(&Providers::new(configured(), |_| None), "openai"), "http://configured");
    }

    #[test]
    fn configuration_extends_the_table() {
        let config: ProviderConfig = serde_json::from_value(serde_json::json!({
            "wire": "anthropic", "base_url": "http://localhost:9", "api_key_env": "MY_KEY",
            "headers": {"x-team": "a"}, "prices": {"*": {"input": 1.0, "output": 2.0}}, "max_output": {"*": 2000, "x": 0},
        }))
        .unwrap();
        let lookup = |name: &str| (name == "MY_KEY").then(|| SecretString::from("secret"));
        let providers = Providers::new(BTreeMap::from([("mine".to_owned(), config)]), lookup);
        let card = providers.model("mine/some-model").unwrap().card().clone();
        assert_eq!((card.rates.unwrap().output, card.max_output), (2_000_000, Some(2_000)));
        assert_eq!(providers.model("mine/x").unwrap().card().max_output, None, "a limit of zero is ignored");
        let lookup = |name: &str| name.ends_with("_KEY").then(|| SecretString::from("k"));
        let published = Providers::new(BTreeMap::new(), lookup);
        let card = published.model("anthropic/claude-opus-4-1-20250805").unwrap().card().clone();
        assert_eq!((card.context_window, card.max_output), (Some(200_000), Some(32_000)));
        assert!(card.abilities.unwrap().images);
    }
}
