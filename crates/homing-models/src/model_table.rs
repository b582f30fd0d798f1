//! Limits and abilities of models, from the published table in `data/models.tsv`. The table is sorted and searched as it
//! is: nothing is decoded but the line that matches. A model that is not listed has no known limit, because a guess would
//! cut replies short or make requests fail.

use homing_core::model::Abilities;

use crate::names;

/// A model on each line: `provider/model`, input tokens, output tokens, abilities. `data/refresh_models.py` writes it.
static TABLE: &str = include_str!("../data/models.tsv");

/// A model's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelEntry {
    /// Maximum number of input tokens.
    pub(crate) context_window: Option<u64>,
    /// Maximum number of output tokens.
    pub(crate) max_output: Option<u64>,
    /// Abilities.
    pub(crate) abilities: Abilities,
}

/// Looks up `model` of the provider that the price table calls `provider`. A model that the provider resells, such as
/// `anthropic/claude-opus-5-5` at OpenRouter, is found under its maker.
pub(crate) fn listed(provider: &str, model: &str) -> Option<ModelEntry> {
    let model = model.to_lowercase();
    // An inference profile of Bedrock may be named by its whole address.
    let id = if model.starts_with("arn:") { model.rsplit('/').next().unwrap_or_default() } else { &model };
    of_provider(provider, id).or_else(|| of_maker(id))
}

/// Returns the models in the table of the provider that the price table calls `provider`.
pub(crate) fn names(provider: &str) -> Vec<String> {
    let names = TABLE.lines().filter_map(|line| line.split('\t').next()?.strip_prefix(provider)?.strip_prefix('/'));
    names.map(str::to_owned).collect()
}

fn of_provider(provider: &str, id: &str) -> Option<ModelEntry> {
    let (mut name, mut region) = (id, without_region(id));
    loop {
        if let Some(entry) = find(&format!("{provider}/{name}")) {
            return Some(entry);
        }
        name = region.take().or_else(|| without_edition(name))?;
    }
}

fn of_maker(id: &str) -> Option<ModelEntry> {
    let name = id.rsplit('/').next().unwrap_or_default();
    let name = without_region(name).unwrap_or(name);
    // Bedrock puts the maker before a dot, OpenRouter a variant such as `free` after a colon.
    let name = match name.split_once('.') {
        Some((maker, model)) if maker.bytes().all(|byte| byte.is_ascii_lowercase()) => model,
        Some(_) | None => name,
    };
    let name = match name.split_once(':') {
        Some((plain, variant)) if !variant.bytes().all(|byte| byte.is_ascii_digit()) => plain,
        Some(_) | None => name,
    };
    let name = names::model_id(name);
    let maker = match names::family(&name)? {
        "gemini" => "google",
        "moonshot" => "moonshotai",
        "xai" => "x-ai",
        other => other,
    };
    of_provider(maker, &name)
}

/// Cuts the region off a Bedrock id: `us.anthropic.claude-opus-5-5` becomes `anthropic.claude-opus-5-5`.
fn without_region(id: &str) -> Option<&str> {
    const REGIONS: &[&str] = &["us", "eu", "apac", "jp", "au", "ca", "sa", "me", "af", "in", "global", "us-gov"];
    id.split_once('.').filter(|(region, _)| REGIONS.contains(region)).map(|(_, rest)| rest)
}

/// Cuts an edition off a name: `-20250514`, `-2024-11-20`, `-03-2025`, `-0613`, `@20250514`, `-latest`, `-v1:0`. A shorter
/// number is another version, and a word another model.
fn without_edition(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((head, revision)) = name.rsplit_once(':')
        && let Some((plain, version)) = head.rsplit_once("-v")
        && is_number(revision)
        && is_number(version)
    {
        return Some(plain);
    }
    let is_edition = |text: &str| match text.split('-').collect::<Vec<_>>().as_slice() {
        ["latest"] => true,
        [month, year] if is_number(month) && month.len() == 2 => is_number(year) && year.len() == 4,
        [first, rest @ ..] => is_number(first) && first.len() >= 3 && rest.iter().all(|part| is_number(part)),
        [] => false,
    };
    let mut ends = name.match_indices(['-', '@']).map(|(at, _)| at);
    ends.find(|at| is_edition(&name[at + 1..])).map(|at| &name[..at])
}

/// Finds the line of `provider/model` by binary search over the bytes of the table.
fn find(key: &str) -> Option<ModelEntry> {
    let table = TABLE.as_bytes();
    let (mut low, mut high) = (0, table.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = memchr::memrchr(b'\n', &table[..middle]).map_or(0, |at| at + 1);
        let end = memchr::memchr(b'\n', &table[middle..]).map_or(table.len(), |at| middle + at);
        let mut columns = TABLE[start..end].split('\t');
        match columns.next().unwrap_or_default().cmp(key) {
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = start,
            std::cmp::Ordering::Equal => return Some(read(columns)),
        }
    }
    None
}

fn read<'a>(mut columns: impl Iterator<Item = &'a str>) -> ModelEntry {
    let mut tokens = || columns.next().and_then(|column| column.parse().ok());
    let (context_window, max_output) = (tokens(), tokens());
    let letters = columns.next().unwrap_or_default();
    let abilities = Abilities {
        reasoning: letters.contains('r'),
        images: letters.contains('i'),
        pdf: letters.contains('p'),
        tools: letters.contains('t'),
    };
    ModelEntry { context_window, max_output, abilities }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(provider: &str, model: &str) -> (Option<u64>, Option<u64>) {
        listed(provider, model).map_or((None, None), |entry| (entry.context_window, entry.max_output))
    }

    #[test]
    fn every_line_of_the_table_is_found() {
        assert!(TABLE.is_ascii());
        let mut lines = 0;
        for line in TABLE.lines().skip(1) {
            let key = line.split('\t').next().unwrap();
            let entry = find(key).unwrap_or_else(|| panic!("{key}"));
            assert!(entry.context_window.is_some() || entry.max_output.is_some(), "{key}");
            lines += 1;
        }
        assert!(lines > 1_000, "{lines}");
        assert_eq!(find("openai/no-such-model"), None);
        assert_eq!(find(""), None);
        assert_eq!(find("~"), None);
    }

    #[test]
    fn model_is_found_under_every_form_of_its_name() {
        let sonnet = (Some(200_000), Some(64_000));
        for (provider, model) in [
            ("anthropic", "claude-sonnet-4-5"),
            ("anthropic", "claude-sonnet-4-5-20250929"),
            ("openrouter", "anthropic/claude-sonnet-4.5"),
            ("openrouter", "anthropic/claude-4.5-sonnet"),
            ("openrouter", "anthropic/claude-sonnet-4.5:beta"),
            ("google", "claude-sonnet-4-5@20250929"),
            ("aws", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("aws", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("aws", "global.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("aws", "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("mine", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("mine", "Claude-Sonnet-4-5"),
        ] {
            assert_eq!(limits(provider, model), sonnet, "{provider} {model}");
        }
        assert_eq!(limits("openai", "gpt-4o-2024-11-20").1, Some(16_384));
        assert_eq!(limits("openai", "gpt-4o-2024-05-13").1, Some(4_096), "this edition differs");
        assert_eq!(limits("openai", "gpt-4.1"), (Some(1_047_576), Some(32_768)));
        assert_eq!(limits("openrouter", "deepseek/deepseek-chat:free"), limits("deepseek", "deepseek-chat"));
        assert_eq!(limits("groq", "openai/gpt-oss-120b").1, Some(65_536));
        assert_eq!(limits("cohere", "command-a"), limits("cohere", "command-a-03-2025"));
        assert_ne!(limits("cohere", "command-a"), (None, None));
    }

    #[test]
    fn default_models_of_providers_are_listed() {
        for row in crate::provider_table::names().filter_map(crate::provider_table::row) {
            if let (Some(table), Some(model)) = (&row.price_table, &row.default_model) {
                assert!(limits(table, model).0.is_some(), "{}/{model}", row.name);
            }
        }
    }

    #[test]
    fn unpublished_limit_is_not_guessed_from_similar_names() {
        for model in ["claude-opus-9-6", "gpt-4.5", "gpt-5-mega", "deepseek-v99", "qwen3:4b", "mymodel", ""] {
            assert_eq!(limits("mine", model), (None, None), "{model}");
        }
    }
}
