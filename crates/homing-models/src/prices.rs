//! Token prices from the built-in table, in whole micro-dollars, rounded up. An unknown price is `None`, never zero.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use homing_core::model::Rates;
use serde::Deserialize;
use serde_json::{Value, json};

/// More input tokens than any request has. If the price at this size equals that of a short request, there are no tiers.
const LONGEST: u64 = 4_000_000;

/// Prices from the configuration, in dollars per million tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenPrice {
    /// Price of input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
    /// Price of input read from the cache; defaults to the price of input.
    #[serde(default)]
    pub cached: Option<f64>,
    /// Price of input written to the cache; defaults to the price of input.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl GivenPrice {
    /// The rates; `None` if a number is not a valid price.
    pub fn rates(&self) -> Option<Rates> {
        let valid = |dollars: f64| (dollars.is_finite() && dollars >= 0.0).then(|| micros(dollars));
        Some(
            Rates::default()
                .input(valid(self.input)?)
                .cached(valid(self.cached.unwrap_or(self.input))?)
                .cache_write(valid(self.cache_write.unwrap_or(self.input))?)
                .output(valid(self.output)?),
        )
    }
}

/// A model's entry in the price table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriceTableEntry {
    /// Prices of its tokens.
    pub(crate) rates: Option<Rates>,
    /// Maximum number of tokens of a request and its reply.
    pub(crate) context_window: Option<u64>,
}

/// Looks up `model` of `provider` in the price table.
pub(crate) fn listed(provider: &str, model: &str) -> PriceTableEntry {
    // LiteLLM is a proxy for other providers, whose names precede the models'.
    let (provider, model) = match model.split_once('/') {
        Some(proxied) if provider.eq_ignore_ascii_case("litellm") => proxied,
        Some(_) | None => (provider, model),
    };
    let Some(provider) = read(provider) else { return PriceTableEntry::default() };
    let prices = ModelPrices { provider: &provider, model };
    let Some(base) = prices.rates(0) else { return PriceTableEntry::default() };
    let above = prices.tiers(&base);
    PriceTableEntry { rates: Some(base.above(above)), context_window: prices.context_window() }
}

/// The built-in price table, with a line of JSON for each provider.
static TABLE: &str = include_str!("../data/prices.jsonl");

/// A provider's part of the price table.
struct ProviderPrices {
    id: String,
    prices: Calculator,
}

/// Reads a provider's part of the table, once. Reading the whole table takes tens of milliseconds and megabytes.
fn read(name: &str) -> Option<Arc<ProviderPrices>> {
    static READ: Mutex<BTreeMap<String, Option<Arc<ProviderPrices>>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(provider) = read.get(name) {
        return provider.clone();
    }
    let provider = ProviderPrices::read(name).map(Arc::new);
    read.insert(name.to_owned(), provider.clone());
    provider
}

impl ProviderPrices {
    fn read(name: &str) -> Option<Self> {
        let own = line_of(name).or_else(|| line_of(&id_of(name)?))?;
        let head: ProviderHeader = serde_json::from_str(own).ok()?;
        let others = head.fallback_model_providers.iter().filter_map(|id| line_of(id));
        let lines: Vec<&str> = std::iter::once(own).chain(others).collect();
        let prices = Calculator::from_json(format!("[{}]", lines.join(","))).ok()?;
        Some(Self { id: head.id, prices })
    }
}

/// A line of the price table without its prices.
#[derive(Deserialize)]
struct ProviderHeader {
    id: String,
    #[serde(default)]
    provider_match: Value,
    /// Other providers whose models it also sells.
    #[serde(default)]
    fallback_model_providers: Vec<String>,
}

fn line_of(id: &str) -> Option<&'static str> {
    let head = format!("{{\"id\":\"{id}\",");
    TABLE.lines().find(|line| line.starts_with(&head))
}

/// The table's id of a provider that is also known by another name, such as `bedrock`.
fn id_of(name: &str) -> Option<String> {
    let heads = TABLE.lines().map(serde_json::from_str::<ProviderHeader>).map_while(Result::ok);
    let without_models = |head: ProviderHeader| json!({"id": head.id, "name": head.id, "api_pattern": ".", "provider_match": head.provider_match});
    let heads = Value::from_iter(heads.map(without_models));
    let names = Calculator::from_json(heads.to_string()).ok()?;
    names.find_provider(Some(name), None).ok()?.map(|provider| provider.id().to_owned())
}

/// The prices of one model.
struct ModelPrices<'a> {
    provider: &'a ProviderPrices,
    model: &'a str,
}

impl ModelPrices<'_> {
    /// Rates of a request of `size` input tokens, derived from sample usages, because the library only computes totals.
    fn rates(&self, size: u64) -> Option<Rates> {
        let size = size.max(1_000);
        let input = self.price(size, &[])?;
        let per_million = |dollars: f64| micros(dollars * 1e6 / size as f64);
        Some(
            Rates::default()
                .input(per_million(input.0))
                .cached(per_million(self.price(size, &[UsageKey::CACHE_READ_TOKENS])?.0))
                .cache_write(per_million(self.price(size, &[UsageKey::CACHE_WRITE_TOKENS])?.0))
                .output(per_million(input.1)),
        )
    }

    /// Dollars for `size` input tokens, all of which also count as `kinds`, and for as many output tokens.
    fn price(&self, size: u64, kinds: &[UsageKey]) -> Option<(f64, f64)> {
        let amount = size as f64;
        let keys = [UsageKey::INPUT_TOKENS, UsageKey::OUTPUT_TOKENS].into_iter().chain(kinds.iter().cloned());
        let usage: Usage = keys.map(|key| (key, amount)).collect();
        let request = PriceRequest::new(self.model, &usage).with_provider_id(&self.provider.id);
        let price = self.provider.prices.calculate(&request).ok()?;
        Some((price.input_price, price.output_price))
    }

    /// The sizes above which other rates apply, found by binary search.
    fn tiers(&self, base: &Rates) -> Vec<(u64, Rates)> {
        let mut tiers = Vec::new();
        let (mut from, mut rates) = (1_000, base.clone());
        while let Some(top) = self.rates(LONGEST).filter(|top| *top != rates) {
            let (mut low, mut high) = (from, LONGEST);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.rates(middle) {
                    Some(found) if found == rates => low = middle,
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
        let provider = self.provider.prices.providers().find(|provider| provider.id() == self.provider.id)?;
        let models = provider.models().filter(|model| self.model.starts_with(model.id()));
        models.max_by_key(|model| model.id().len())?.context_window()
    }
}

/// Converts dollars to micro-dollars, rounded up unless the difference is a floating-point error.
fn micros(dollars: f64) -> u64 {
    let exact = dollars * 1e6;
    let near = exact.round();
    if (exact - near).abs() < 1e-3 { near as u64 } else { exact.ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_prices_are_whole_micro_dollars() {
        let sonnet = listed("anthropic", "claude-sonnet-4-5").rates.unwrap();
        assert_eq!((sonnet.input, sonnet.output), (3_000_000, 15_000_000));
        assert_eq!((sonnet.cached, sonnet.cache_write), (300_000, 3_750_000));
        assert_eq!(listed("anthropic", "claude-haiku-4-5-20251001").rates.unwrap().output, 5_000_000);
        assert!(listed("anthropic", "claude-haiku-4-5").context_window.is_some());
    }

    #[test]
    fn higher_prices_for_long_requests_are_found() {
        let gemini = listed("google", "gemini-2.5-pro").rates.unwrap();
        assert_eq!((gemini.input, gemini.output), (1_250_000, 10_000_000));
        let (from, long) = gemini.above.first().unwrap();
        assert_eq!(*from, 200_000);
        assert_eq!((long.input, long.output), (2_500_000, 15_000_000));
    }

    #[test]
    fn prices_of_one_provider_match_the_whole_table() {
        let whole = || Calculator::from_json(format!("[{}]", TABLE.lines().collect::<Vec<_>>().join(","))).unwrap();
        let (mut models, all) = (0, whole());
        let mut whole = ProviderPrices { id: String::new(), prices: whole() };
        for provider in all.providers() {
            let alone = read(provider.id()).unwrap();
            whole.id = provider.id().to_owned();
            let others = ["claude-sonnet-4-5", "gpt-4.1", "deepseek-chat"];
            for model in provider.models().map(genai_prices::ModelInfo::id).step_by(7).chain(others) {
                let rates = |provider| ModelPrices { provider, model }.rates(0);
                assert_eq!(rates(&alone), rates(&whole), "{}/{model}", provider.id());
                models += 1;
            }
        }
        assert!(models > 300, "{models}");
        assert!(listed("azure", "deepseek-v3.2").rates.is_some(), "it also sells models of others");
    }

    #[test]
    fn provider_is_found_under_other_names() {
        let model = "anthropic.claude-sonnet-4-5-20250929-v1:0";
        assert_eq!(listed("bedrock", model), listed("aws", model));
        assert!(listed("aws", model).rates.is_some());
        assert_eq!(listed("litellm", "anthropic/claude-sonnet-4-5"), listed("anthropic", "claude-sonnet-4-5"));
    }

    #[test]
    fn unknown_model_has_no_price() {
        assert_eq!(listed("openai", "no-such-model-at-all"), PriceTableEntry::default());
        assert_eq!(listed("no-such-provider", "gpt-4o").rates, None);
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
