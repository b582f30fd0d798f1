//! Published output limits of models. A model that is not listed has no known limit, because a guess would cut replies
//! short or make requests fail.

/// Model names without dates, and their limits in tokens.
const LIMITS: &[(&str, u64)] = &[
    ("claude-2", 4_096),
    ("claude-3-haiku", 4_096),
    ("claude-3-sonnet", 4_096),
    ("claude-3-opus", 4_096),
    ("claude-3-5-haiku", 8_192),
    ("claude-3-5-sonnet", 8_192),
    ("claude-3-7-sonnet", 64_000),
    ("claude-sonnet-4", 64_000),
    ("claude-sonnet-4-0", 64_000),
    ("claude-opus-4", 32_000),
    ("claude-opus-4-0", 32_000),
    ("claude-opus-4-1", 32_000),
    ("claude-haiku-4-5", 64_000),
    ("claude-sonnet-4-5", 64_000),
    ("claude-opus-4-5", 64_000),
    ("gpt-3.5-turbo", 4_096),
    ("gpt-4", 8_192),
    ("gpt-4-turbo", 4_096),
    ("gpt-4-turbo-preview", 4_096),
    ("gpt-4o", 16_384),
    ("gpt-4o-2024-05-13", 4_096),
    ("gpt-4o-mini", 16_384),
    ("chatgpt-4o", 16_384),
    ("gpt-4.1", 32_768),
    ("gpt-4.1-mini", 32_768),
    ("gpt-4.1-nano", 32_768),
    ("gpt-5", 128_000),
    ("gpt-5-mini", 128_000),
    ("gpt-5-nano", 128_000),
    ("gpt-5-chat", 16_384),
    ("o1", 100_000),
    ("o1-mini", 65_536),
    ("o1-preview", 32_768),
    ("o3", 100_000),
    ("o3-mini", 100_000),
    ("o4-mini", 100_000),
    ("gemini-1.5-flash", 8_192),
    ("gemini-1.5-pro", 8_192),
    ("gemini-2.0-flash", 8_192),
    ("gemini-2.0-flash-lite", 8_192),
    ("gemini-2.5-flash", 65_536),
    ("gemini-2.5-flash-lite", 65_536),
    ("gemini-2.5-pro", 65_536),
];

/// The published limit of `model`, at any provider.
pub(crate) fn published(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or_default().replace("claude-3.", "claude-3-").replace("-4.5", "-4-5");
    let named = LIMITS.iter().filter(|(known, _)| name.strip_prefix(known).is_some_and(is_edition));
    named.max_by_key(|(known, _)| known.len()).map(|(_, limit)| *limit)
}

/// Returns true if the rest of a name is only a date or edition: `-20250514`, `-2024-11-20`, `-0613`, `-002`, `-latest`,
/// `@20250514`. A single digit is another version, and a word another model.
fn is_edition(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix(['-', '@']) else { return rest.is_empty() };
    let first = rest.split('-').next().unwrap_or_default();
    rest == "latest" || (first.len() >= 3 && first.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_found_for_every_edition_of_a_name() {
        assert_eq!(published("claude-3-haiku-20240307"), Some(4_096));
        assert_eq!(published("claude-opus-4-20250514"), Some(32_000));
        assert_eq!(published("claude-opus-4-5"), Some(64_000));
        assert_eq!(published("anthropic/claude-sonnet-4.5"), Some(64_000));
        assert_eq!(published("gpt-4o-2024-11-20"), Some(16_384));
        assert_eq!(published("gpt-4o-2024-05-13"), Some(4_096));
        assert_eq!(published("gpt-4-0613"), Some(8_192));
        assert_eq!(published("gemini-2.0-flash-001"), Some(8_192));
        assert_eq!(published("chatgpt-4o-latest"), Some(16_384));
    }

    #[test]
    fn unpublished_limit_is_not_guessed_from_similar_names() {
        for model in ["claude-opus-4-6", "claude-opus-5-5", "gpt-4.5-preview", "gpt-5-codex", "gpt-5.1", "qwen3:4b", ""]
        {
            assert_eq!(published(model), None, "{model}");
        }
    }
}
