//! Token prices from the built-in table, in whole micro-dollars, rounded up. An unknown price is `None`, never zero.

use homing_core::model::Rates;
use serde::Deserialize;

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

/// Looks up `model` of `provider` in the price table, which `data/prepare_prices.py` describes. It is searched as it is: nothing is
/// decoded but the line that matches.
pub(crate) fn listed(provider: &str, model: &str) -> PriceTableEntry {
    // LiteLLM is a proxy for other providers, whose names precede the models'.
    let (provider, model) = match model.split_once('/') {
        Some(proxied) if provider.eq_ignore_ascii_case("litellm") => proxied,
        Some(_) | None => (provider, model),
    };
    listed_at(provider, model, jiff::Timestamp::now)
}

fn listed_at(provider: &str, model: &str, now: impl FnOnce() -> jiff::Timestamp) -> PriceTableEntry {
    let Some(provider) = ProviderPrices::find(provider) else { return PriceTableEntry::default() };
    let name = model.to_lowercase();
    let Some(row) = provider.row(&name).or_else(|| provider.row(&with_hyphens_in_dates(&name)?)) else {
        return PriceTableEntry::default();
    };
    let own_ids = provider.rows().filter(|row| model.starts_with(row.id));
    let context_window = own_ids.max_by_key(|row| row.id.len()).and_then(|row| row.context_window.parse().ok());
    PriceTableEntry { rates: Some(row.rates(now)), context_window }
}

static TABLE: &str = include_str!("../data/prices.tsv");

/// A provider's part of the price table.
#[derive(Clone, Copy)]
struct ProviderPrices {
    /// Other providers whose models it also sells.
    resold: &'static str,
    rows: &'static str,
}

impl ProviderPrices {
    /// Finds a provider by its ID, or by another name such as `bedrock`.
    fn find(name: &str) -> Option<Self> {
        let name = name.trim().to_lowercase();
        Self::by_id(&name).or_else(|| {
            let lines = memchr::memmem::find_iter(TABLE.as_bytes(), "\n[").map(|at| &TABLE[at + 1..]);
            let mut lines = std::iter::once(TABLE).chain(lines);
            lines.find(|text| text.split(['\t', '\n']).nth(1).is_some_and(|names| matches(names, &name))).map(Self::at)
        })
    }

    fn by_id(id: &str) -> Option<Self> {
        let head = format!("\n[{id}]\t");
        if TABLE.starts_with(&head[1..]) {
            return Some(Self::at(TABLE));
        }
        memchr::memmem::find(TABLE.as_bytes(), head.as_bytes()).map(|at| Self::at(&TABLE[at + 1..]))
    }

    /// The provider whose line begins `text`.
    fn at(text: &'static str) -> Self {
        let end = memchr::memmem::find(text.as_bytes(), b"\n[").unwrap_or(text.len());
        let (line, rows) = text[..end].split_once('\n').unwrap_or((&text[..end], ""));
        Self { resold: line.rsplit('\t').next().unwrap_or_default(), rows }
    }

    fn rows(self) -> impl Iterator<Item = Row> {
        self.rows.lines().filter_map(Row::read)
    }

    /// Finds the row of a model, in lower case: the provider's own, or that of another whose models it sells.
    fn row(self, model: &str) -> Option<Row> {
        let find = |provider: Self| provider.rows().find(|row| matches(row.names, model));
        find(self).or_else(|| self.resold.split_whitespace().filter_map(Self::by_id).find_map(find))
    }
}

/// A model in the price table.
struct Row {
    names: &'static str,
    id: &'static str,
    context_window: &'static str,
    prices: &'static str,
}

impl Row {
    fn read(line: &'static str) -> Option<Self> {
        let mut columns = line.split('\t');
        let mut next = || columns.next();
        Some(Self { names: next()?, id: next()?, context_window: next()?, prices: next()? })
    }

    /// The rates in force: of those whose condition holds, the last.
    fn rates(&self, now: impl FnOnce() -> jiff::Timestamp) -> Rates {
        let Some((always, conditional)) = self.prices.split_once(';') else { return rates(self.prices) };
        let now = now().to_string();
        let (date, time) = (now.get(..10).unwrap_or_default(), now.get(11..19).unwrap_or_default());
        let holds = |condition: &str| match condition.split_once('-') {
            Some((from, to)) if condition.contains(':') && from <= to => from <= time && time < to,
            Some((from, to)) if condition.contains(':') => from <= time || time < to,
            Some(_) | None => condition <= date,
        };
        let mut conditional = conditional.rsplit(';').filter_map(|part| part.split_once('='));
        rates(conditional.find(|(condition, _)| holds(condition)).map_or(always, |(_, prices)| prices))
    }
}

/// Reads the prices of a row. The library that publishes the table charges for cached input and cache writes without a price of their
/// own as for input, and nothing for input or output without a price.
fn rates(prices: &str) -> Rates {
    let mut columns = prices.split(',');
    let mut next = || columns.next().filter(|column| !column.is_empty());
    let input = next().unwrap_or("0");
    let (cached, cache_write, output) = (next().unwrap_or(input), next().unwrap_or(input), next().unwrap_or("0"));
    let at = |size: u64| {
        let price = |column: &str| price(column, size);
        Rates::default().input(price(input)).cached(price(cached)).cache_write(price(cache_write)).output(price(output))
    };
    let mut sizes: Vec<u64> = [input, cached, cache_write, output].into_iter().flat_map(sizes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let base = at(0);
    base.above(sizes.into_iter().map(|size| (size, at(size + 1))).collect())
}

/// The price in a column for requests with `size` input tokens: `BASE>SIZE:PRICE…`.
fn price(column: &str, size: u64) -> u64 {
    let (base, tiers) = column.split_once('>').unwrap_or((column, ""));
    let mut tiers = tiers.rsplit('>').filter_map(|tier| tier.split_once(':'));
    let tier = tiers.find(|(from, _)| from.parse().is_ok_and(|from: u64| size > from));
    tier.map_or(base, |(_, price)| price).parse().unwrap_or(u64::MAX)
}

/// The sizes in a column above which other prices apply.
fn sizes(column: &str) -> impl Iterator<Item = u64> {
    column.split('>').skip(1).filter_map(|tier| tier.split_once(':')?.0.parse().ok())
}

/// Returns whether one of the patterns of the table matches `name`.
fn matches(patterns: &str, name: &str) -> bool {
    patterns.split(' ').any(|pattern| !pattern.is_empty() && pattern.split('&').all(|term| term_matches(term, name)))
}

fn term_matches(term: &str, name: &str) -> bool {
    let (term, name) = (term.as_bytes(), name.as_bytes());
    let (kind, text) = (term[0], &term[1..]);
    let is_same = |part: &[u8]| {
        part.len() == text.len()
            && part.iter().zip(text).all(|(byte, like)| byte == like || *like == b'#' && byte.is_ascii_digit())
    };
    match kind {
        b'=' => is_same(name),
        b'^' => name.get(..text.len()).is_some_and(is_same),
        b'$' => name.len().checked_sub(text.len()).is_some_and(|at| is_same(&name[at..])),
        b'*' => memchr::memmem::find(name, text).is_some(),
        _ => memchr::memmem::find_iter(name, text).all(|at| !matches!(name.get(at + text.len()), None | Some(b'-'))),
    }
}

/// Writes dates without hyphens (`-20251211`) with them (`-2025-12-11`), as the table does; `None` if there are none.
fn with_hyphens_in_dates(name: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = name;
    while let Some(at) = rest.find("-20") {
        let (before, from) = rest.split_at(at + 1);
        text += before;
        rest = from;
        let ends = matches!(from.as_bytes().get(8), None | Some(b'-' | b':'));
        if let Some(digits) = from.get(..8).filter(|digits| ends && digits.bytes().all(|byte| byte.is_ascii_digit()))
            && let Ok(date) = jiff::civil::Date::strptime("%Y%m%d", digits)
        {
            text += &date.to_string();
            rest = &from[8..];
        }
    }
    text += rest;
    (text != name).then_some(text)
}

/// Converts dollars to micro-dollars, rounded up unless the difference is a floating-point error.
fn micros(dollars: f64) -> u64 {
    let exact = dollars * 1e6;
    let near = exact.round();
    if (exact - near).abs() < 1e-3 { near as u64 } else { exact.ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};

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

    /// The library that publishes the table computes totals only: its rates are derived from sample usages.
    fn published(all: &Calculator, provider: &str, model: &str, size: u64, now: jiff::Timestamp) -> Option<Rates> {
        let price = |kind: Option<UsageKey>| {
            let keys = [UsageKey::INPUT_TOKENS, UsageKey::OUTPUT_TOKENS].into_iter().chain(kind);
            let usage: Usage = keys.map(|key| (key, size as f64)).collect();
            let request = PriceRequest::new(model, &usage).with_provider_id(provider).with_timestamp(now);
            let price = all.calculate(&request).ok()?;
            Some((micros(price.input_price * 1e6 / size as f64), micros(price.output_price * 1e6 / size as f64)))
        };
        let ((input, output), cached, write) =
            (price(None)?, price(Some(UsageKey::CACHE_READ_TOKENS))?, price(Some(UsageKey::CACHE_WRITE_TOKENS))?);
        Some(Rates::default().input(input).cached(cached.0).cache_write(write.0).output(output))
    }

    #[test]
    fn prepared_table_agrees_with_the_published_one() {
        let times = ["2026-02-01T00:10:00Z", "2026-10-19T02:00:00Z", "2027-02-01T16:30:00Z"];
        let times = times.map(|time| time.parse::<jiff::Timestamp>().unwrap());
        let names: Vec<(&str, String)> = Calculator::bundled()
            .providers()
            .flat_map(|provider| {
                let names = provider.models().flat_map(|model| {
                    let id = model.id().to_owned();
                    [format!("{id}-20260213"), format!("{id}@20260213"), format!("{id}-tts"), id.to_uppercase(), id]
                });
                let others = ["gpt-4.1", "deepseek-chat", "gpt-5.4-2026-01-02", "no-such-model-at-all"];
                names.chain(others.map(str::to_owned)).map(move |name| (provider.id(), name))
            })
            .collect();
        assert!(names.len() > 11_000, "{}", names.len());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for part in names.chunks(names.len().div_ceil(threads)) {
                scope.spawn(move || {
                    for (at, (provider, name)) in part.iter().enumerate() {
                        agrees_with_the_published_price(provider, name, times[at % times.len()]);
                    }
                });
            }
        });
        assert!(listed("azure", "deepseek-v3.2").rates.is_some(), "it also sells models of others");
    }

    fn agrees_with_the_published_price(provider: &str, name: &str, now: jiff::Timestamp) {
        let entry = listed_at(provider, name, || now);
        for size in [1_000, 300_000] {
            let ours = entry.rates.clone().map(|rates| {
                let tier = rates.above.iter().rfind(|(from, _)| size > *from).map(|(_, rates)| rates.clone());
                tier.unwrap_or_else(|| rates.above(Vec::new()))
            });
            let theirs = published(Calculator::bundled(), provider, name, size, now);
            assert_eq!(ours, theirs, "{provider}/{name}, {size} tokens");
        }
    }

    #[test]
    fn providers_are_found_as_in_the_published_table() {
        for name in
            ["OpenAI", "bedrock", " google ", "vertex_ai", "xai", "huggingface/novita", "together-ai", "meta", "none"]
        {
            let theirs = Calculator::bundled().find_provider(Some(name), None).unwrap();
            let theirs = theirs.and_then(|provider| ProviderPrices::by_id(provider.id()));
            let rows = |provider: ProviderPrices| provider.rows;
            assert_eq!(ProviderPrices::find(name).map(rows), theirs.map(rows), "{name}");
        }
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
