//! Model ids: reads lists and display names, and finds the successors of retired ids.

use super::tables::{FAMILIES, RETIRED};

/// The provider in `provider/model`.
pub(super) fn provider_of(model: &str) -> &str {
    model.split('/').next().unwrap_or_default()
}

/// Splits a list that is written as one string: `GPT-4.1 | 'gpt-5'`, `opus, sonnet`.
pub(super) fn split_list(name: &str) -> Vec<String> {
    let text = name.trim().trim_start_matches('[').trim_end_matches(']');
    text.split(['|', ',']).map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The successor of `provider/model` if that model is retired.
pub(super) fn successor(model: &str) -> Option<String> {
    let (provider, id) = model.split_once('/')?;
    if !matches!(provider, "anthropic" | "openai" | "gemini") {
        return None;
    }
    let retired = RETIRED.iter().filter(|(start, _)| is_retired(id, start));
    retired.max_by_key(|(start, _)| start.len()).map(|(_, successor)| format!("{provider}/{successor}"))
}

/// Returns true if `id` is `start`, or `start` followed by a date or `latest`.
fn is_retired(id: &str, start: &str) -> bool {
    let Some(rest) = id.strip_prefix(start) else { return false };
    let tail = rest.trim_start_matches('-');
    rest.is_empty()
        || (rest.starts_with('-') && (tail.starts_with("latest") || tail.starts_with("20") || tail.starts_with("00")))
}

/// The provider whose models have ids like `id`.
pub(crate) fn family(id: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|(start, _)| id.starts_with(start)).map(|(_, provider)| *provider)
}

/// Turns a display name into an id: `Claude Sonnet 4.5 (copilot)` becomes `claude-sonnet-4-5`.
pub(crate) fn model_id(name: &str) -> String {
    let bare = name.split('(').next().unwrap_or_default().trim().to_lowercase();
    let id: String = bare.split_whitespace().collect::<Vec<_>>().join("-");
    if id.starts_with("claude") { claude_id(&id) } else { id }
}

/// Anthropic writes dots as dashes and, since version 4, the family before the number.
fn claude_id(id: &str) -> String {
    let dashed = id.replace('.', "-");
    let parts: Vec<&str> = dashed.split('-').collect();
    match parts.as_slice() {
        ["claude", major, family @ ("sonnet" | "opus" | "haiku"), rest @ ..] if *major >= "4" && major.len() == 1 => {
            [&["claude", family, major], rest].concat().join("-")
        }
        ["claude", major, minor, family @ ("sonnet" | "opus" | "haiku"), rest @ ..]
            if *major >= "4" && major.len() == 1 =>
        {
            [&["claude", family, major, minor], rest].concat().join("-")
        }
        _ => dashed,
    }
}
