//! What tokens cost: the table that ships with the program, in whole micro-dollars, always rounded up.
//! It knows nothing of requests; an unknown price is `None`, never zero.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use homing_core::model::Rates;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longer than any request; where the price at this size equals the price of a short one, there is one price.
const LONGEST: u64 = 4_000_000;

/// Prices that a user gave, in dollars per million tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenPrice {
    /// Input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input read from the cache; the price of input where absent.
    #[serde(default)]
    pub cached: Option<f64>,
    /// Input written to the cache; the price of input where absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl GivenPrice {
    /// The rates; `None` where a number cannot be a price.
    pub fn rates(&self) -> Option<Rates> {
        let sound = |dollars: f64| (dollars.is_finite() && dollars >= 0.0).then(|| micros(dollars));
        Some(Rates {
            input: sound(self.input)?,
            cached: sound(self.cached.unwrap_or(self.input))?,
            cache_write: sound(self.cache_write.unwrap_or(self.input))?,
            output: sound(self.output)?,
            above: Vec::new(),
        })
    }
}

/// What is known of a model without asking it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownPrice {
    /// What it costs.
    pub(crate) rates: Option<Rates>,
    /// Tokens that fit into one request and its reply.
    pub(crate) context_window: Option<u64>,
}

/// What the table knows of `model` at `provider`.
pub(crate) fn known(provider: &str, model: &str) -> KnownPrice {
    // LiteLLM stands before other providers, and their names stand before the models'.
    let (provider, model) = match model.split_once('/') {
        Some(behind) if provider.eq_ignore_ascii_case("litellm") => behind,
        Some(_) | None => (provider, model),
    };
    let Some(provider) = read(provider) else { return KnownPrice::default() };
    let table = Table { provider: &provider, model };
    let Some(base) = table.rates(0) else { return KnownPrice::default() };
    let above = table.tiers(&base);
    KnownPrice { rates: Some(Rates { above, ..base }), context_window: table.context_window() }
}

/// The prices that ship with the program, a line of JSON for each provider.
static TABLE: &str = include_str!("../data/prices.jsonl");

/// A provider's part of the table.
struct Provider {
    id: String,
    prices: Calculator,
}

/// Reads a provider's part, once. All of the table would take tens of milliseconds and megabytes.
fn read(name: &str) -> Option<Arc<Provider>> {
    static READ: Mutex<BTreeMap<String, Option<Arc<Provider>>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(provider) = read.get(name) {
        return provider.clone();
    }
    let provider = Provider::read(name).map(Arc::new);
    read.insert(name.to_owned(), provider.clone());
    provider
}

impl Provider {
    fn read(name: &str) -> Option<Self> {
        let own = line_of(name).or_else(|| line_of(&id_of(name)?))?;
        let head: Head = serde_json::from_str(own).ok()?;
        let others = head.fallback_model_providers.iter().filter_map(|id| line_of(id));
        let lines: Vec<&str> = std::iter::once(own).chain(others).collect();
        let prices = Calculator::from_json(format!("[{}]", lines.join(","))).ok()?;
        Some(Self { id: head.id, prices })
    }
}

/// A line of the table without its prices.
#[derive(Deserialize)]
struct Head {
    id: String,
    #[serde(default)]
    provider_match: Value,
    /// Whose models it sells besides its own.
    #[serde(default)]
    fallback_model_providers: Vec<String>,
}

fn line_of(id: &str) -> Option<&'static str> {
    let head = format!("{{\"id\":\"{id}\",");
    TABLE.lines().find(|line| line.starts_with(&head))
}

/// The table's own name for a provider that people call otherwise, such as `bedrock`.
fn id_of(name: &str) -> Option<String> {
    let heads = TABLE.lines().map(serde_json::from_str::<Head>).map_while(Result::ok);
    let without_models =
        |head: Head| json!({"id": head.id, "name": head.id, "api_pattern": ".", "provider_match": head.provider_match});
    let heads = Value::from_iter(heads.map(without_models));
    let names = Calculator::from_json(heads.to_string()).ok()?;
    names.find_provider(Some(name), None).ok()?.map(|it| it.id().to_owned())
}

struct Table<'a> {
    provider: &'a Provider,
    model: &'a str,
}

impl Table<'_> {
    /// Rates of a request of `size` input tokens. They are probed, because the table only answers what a usage costs.
    fn rates(&self, size: u64) -> Option<Rates> {
        let size = size.max(1_000);
        let input = self.price(size, &[])?;
        let per_million = |dollars: f64| micros(dollars * 1e6 / size as f64);
        Some(Rates {
            input: per_million(input.0),
            cached: per_million(self.price(size, &[UsageKey::CACHE_READ_TOKENS])?.0),
            cache_write: per_million(self.price(size, &[UsageKey::CACHE_WRITE_TOKENS])?.0),
            output: per_million(input.1),
            above: Vec::new(),
        })
    }

    /// Dollars for `size` input tokens, all of them also counted under `kinds`, and for as many output tokens.
    fn price(&self, size: u64, kinds: &[UsageKey]) -> Option<(f64, f64)> {
        let amount = size as f64;
        let keys = [UsageKey::INPUT_TOKENS, UsageKey::OUTPUT_TOKENS].into_iter().chain(kinds.iter().cloned());
        let usage: Usage = keys.map(|key| (key, amount)).collect();
        let request = PriceRequest::new(self.model, &usage).with_provider_id(&self.provider.id);
        let price = self.provider.prices.calculate(&request).ok()?;
        Some((price.input_price, price.output_price))
    }

    /// The sizes above which other rates hold, found by halving.
    fn tiers(&self, base: &Rates) -> Vec<(u64, Rates)> {
        let mut tiers = Vec::new();
        let (mut from, mut rates) = (1_000, base.clone());
        while let Some(top) = self.rates(LONGEST).filter(|top| *top != rates) {
            let (mut low, mut high) = (from, LONGEST);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.rates(middle) {
                    Some(it) if it == rates => low = middle,
                    Some(_) | None => high = middle,
                }
            }
            rates = self.rates(high).unwrap_or(top);
            tiers.push((low, rates.clone()));
            from = high;
            if tiers.len() >= 8 {
                break;
            }
        }
        tiers
    }

    fn context_window(&self) -> Option<u64> {
        let provider = self.provider.prices.providers().find(|it| it.id() == self.provider.id)?;
        provider.models().filter(|it| self.model.starts_with(it.id())).max_by_key(|it| it.id().len())?.context_window()
    }
}

/// Dollars per million tokens as micro-dollars per million tokens, rounded up; the crumbs of binary fractions are not a
/// reason to round.
fn micros(dollars: f64) -> u64 {
    let exact = dollars * 1e6;
    let near = exact.round();
    if (exact - near).abs() < 1e-3 { near as u64 } else { exact.ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_prices_come_out_as_whole_micro_dollars() {
        let sonnet = known("anthropic", "claude-sonnet-4-5").rates.unwrap();
        assert_eq!((sonnet.input, sonnet.output), (3_000_000, 15_000_000));
        assert_eq!((sonnet.cached, sonnet.cache_write), (300_000, 3_750_000));
        assert_eq!(known("anthropic", "claude-haiku-4-5-20251001").rates.unwrap().output, 5_000_000);
        assert!(known("anthropic", "claude-haiku-4-5").context_window.is_some());
    }

    #[test]
    fn dear_prices_for_long_requests_are_found() {
        let gemini = known("google", "gemini-2.5-pro").rates.unwrap();
        assert_eq!((gemini.input, gemini.output), (1_250_000, 10_000_000));
        let (from, long) = gemini.above.first().unwrap();
        assert_eq!(*from, 200_000);
        assert_eq!((long.input, long.output), (2_500_000, 15_000_000));
    }

    #[test]
    fn each_provider_alone_costs_what_it_costs_in_the_whole_table() {
        let whole = || Calculator::from_json(format!("[{}]", TABLE.lines().collect::<Vec<_>>().join(","))).unwrap();
        let (mut models, all) = (0, whole());
        let mut whole = Provider { id: String::new(), prices: whole() };
        for provider in all.providers() {
            let alone = read(provider.id()).unwrap();
            whole.id = provider.id().to_owned();
            let foreign = ["claude-sonnet-4-5", "gpt-4.1", "deepseek-chat"];
            for model in provider.models().map(genai_prices::ModelInfo::id).step_by(7).chain(foreign) {
                let rates = |provider| Table { provider, model }.rates(0);
                assert_eq!(rates(&alone), rates(&whole), "{}/{model}", provider.id());
                models += 1;
            }
        }
        assert!(models > 300, "{models}");
        assert!(known("azure", "deepseek-v3.2").rates.is_some(), "it sells what others make");
    }

    #[test]
    fn a_provider_is_known_by_other_names() {
        let model = "anthropic.claude-sonnet-4-5-20250929-v1:0";
        assert_eq!(known("bedrock", model), known("aws", model));
        assert!(known("aws", model).rates.is_some());
        assert_eq!(known("litellm", "anthropic/claude-sonnet-4-5"), known("anthropic", "claude-sonnet-4-5"));
    }

    #[test]
    fn an_unknown_model_has_no_price() {
        assert_eq!(known("openai", "no-such-model-at-all"), KnownPrice::default());
        assert_eq!(known("no-such-provider", "gpt-4o").rates, None);
    }

    #[test]
    fn given_prices_are_rounded_up_and_checked() {
        let given = |input: f64| GivenPrice { input, output: 2.0, cached: None, cache_write: None }.rates();
        assert_eq!(given(0.1).unwrap().input, 100_000);
        assert_eq!(given(0.000_000_1).unwrap().input, 1);
        assert_eq!(given(-1.0), None);
        assert_eq!(given(f64::NAN), None);
    }
}
