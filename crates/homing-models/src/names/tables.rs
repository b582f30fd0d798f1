//! Tables of model names: aliases, retired ids and model families.

/// Short names and the models they stand for. Users can add their own, which win.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("sonnet", "anthropic/claude-sonnet-5-5"),
    ("opus", "anthropic/claude-opus-5-5"),
    ("haiku", "anthropic/claude-haiku-5-5"),
    ("fable", "anthropic/claude-fable-5-1"),
    ("claude", "anthropic/claude-sonnet-5-5"),
    ("fast", "anthropic/claude-haiku-5-5"),
    ("gpt", "openai/gpt-6.1-sol"),
    ("codex", "openai/gpt-5.3-codex"),
    ("gemini", "gemini/gemini-3.8-flash"),
    ("flash", "gemini/gemini-3.8-flash"),
    ("grok", "xai/grok-4.7"),
    ("deepseek", "deepseek/deepseek-v4-pro"),
    ("mistral", "mistral/mistral-large-4"),
];

/// Prefixes of ids that providers have switched off, and their successors.
pub(super) const RETIRED: &[(&str, &str)] = &[
    ("claude-instant", "claude-haiku-5-5"),
    ("claude-2", "claude-sonnet-5-5"),
    ("claude-3-haiku", "claude-haiku-4-5"),
    ("claude-3-sonnet", "claude-sonnet-4-5"),
    ("claude-3-opus", "claude-opus-4-5"),
    ("claude-3-5-haiku", "claude-haiku-4-5"),
    ("claude-3-5-sonnet", "claude-sonnet-4-5"),
    ("claude-3-7-sonnet", "claude-sonnet-4-5"),
    ("claude-sonnet-4", "claude-sonnet-4-5"),
    ("claude-sonnet-4-0", "claude-sonnet-4-5"),
    ("claude-4-sonnet", "claude-sonnet-4-5"),
    ("claude-opus-4", "claude-opus-4-5"),
    ("claude-opus-4-0", "claude-opus-4-5"),
    ("claude-opus-4-1", "claude-opus-4-5"),
    ("claude-4-opus", "claude-opus-4-5"),
    ("gpt-3.5-turbo", "gpt-4.1-mini"),
    ("gpt-4-turbo", "gpt-4.1"),
    ("gpt-4.5-preview", "gpt-4.1"),
    ("o1-preview", "o3"),
    ("o1-mini", "o4-mini"),
    ("gemini-1.0-pro", "gemini-2.5-pro"),
    ("gemini-1.5-pro", "gemini-2.5-pro"),
    ("gemini-1.5-flash", "gemini-2.5-flash"),
    ("gemini-2.0-flash", "gemini-2.5-flash"),
];

/// Prefixes of bare ids, and the providers of those models.
pub(super) const FAMILIES: &[(&str, &str)] = &[
    ("claude-", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex-", "openai"),
    ("gemini-", "gemini"),
    ("gemma-", "gemini"),
    ("grok-", "xai"),
    ("deepseek-", "deepseek"),
    ("mistral-", "mistral"),
    ("ministral-", "mistral"),
    ("codestral", "mistral"),
    ("devstral", "mistral"),
    ("kimi-", "moonshot"),
    ("glm-", "zai"),
    ("command-", "cohere"),
];
