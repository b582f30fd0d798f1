//! The built-in provider table. Its order is the order in which providers are tried if nothing names a model.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    address::{self, Place},
    provider::{Auth, ProviderRow},
    sampling::SamplingConfig,
    wire::{
        Delivery, Wire,
        chat::Quirks,
        reasoning::{KeepThinking, ReasoningReturn},
    },
};

/// Time for a local server to load a model from disk and to read a long prompt.
pub(crate) const LOCAL_PATIENCE: Duration = Duration::from_secs(600);

/// Name, wire, base URL, variables that may hold the key, name in the price table, default model.
type BuiltInProvider =
    (&'static str, Wire, &'static str, &'static [&'static str], Option<&'static str>, Option<&'static str>);

/// The providers in the order in which they are tried. Those that are called through `genai` have the names it uses.
const TABLE: &[BuiltInProvider] = &[
    (
        "anthropic",
        Wire::Anthropic,
        "https://api.anthropic.com",
        &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        Some("anthropic"),
        Some("claude-sonnet-5-5"),
    ),
    ("openai", Wire::Responses, "https://api.openai.com/v1", &["OPENAI_API_KEY"], Some("openai"), Some("gpt-6.1-sol")),
    ("gemini", Wire::Genai, "", &["GEMINI_API_KEY", "GOOGLE_API_KEY"], Some("google"), Some("gemini-3.8-flash")),
    (
        "openrouter",
        Wire::Chat,
        "https://openrouter.ai/api/v1",
        &["OPENROUTER_API_KEY"],
        Some("openrouter"),
        Some("anthropic/claude-sonnet-5.5"),
    ),
    (
        "groq",
        Wire::Chat,
        "https://api.groq.com/openai/v1",
        &["GROQ_API_KEY"],
        Some("groq"),
        Some("openai/gpt-oss-120b"),
    ),
    (
        "deepseek",
        Wire::Chat,
        "https://api.deepseek.com/v1",
        &["DEEPSEEK_API_KEY"],
        Some("deepseek"),
        Some("deepseek-v4-pro"),
    ),
    ("xai", Wire::Chat, "https://api.x.ai/v1", &["XAI_API_KEY"], Some("x-ai"), Some("grok-4.7")),
    (
        "mistral",
        Wire::Chat,
        "https://api.mistral.ai/v1",
        &["MISTRAL_API_KEY"],
        Some("mistral"),
        Some("mistral-large-4"),
    ),
    ("together", Wire::Chat, "https://api.together.xyz/v1", &["TOGETHER_API_KEY"], Some("together"), None),
    ("fireworks", Wire::Chat, "https://api.fireworks.ai/inference/v1", &["FIREWORKS_API_KEY"], Some("fireworks"), None),
    ("cerebras", Wire::Chat, "https://api.cerebras.ai/v1", &["CEREBRAS_API_KEY"], Some("cerebras"), None),
    ("moonshot", Wire::Chat, "https://api.moonshot.ai/v1", &["MOONSHOT_API_KEY"], Some("moonshotai"), None),
    ("zai", Wire::Chat, "https://api.z.ai/api/paas/v4", &["ZAI_API_KEY"], Some("zai"), None),
    ("cohere", Wire::Chat, "https://api.cohere.ai/compatibility/v1", &["COHERE_API_KEY"], Some("cohere"), None),
    ("perplexity", Wire::Chat, "https://api.perplexity.ai", &["PERPLEXITY_API_KEY"], Some("perplexity"), None),
    ("nvidia", Wire::Chat, "https://integrate.api.nvidia.com/v1", &["NVIDIA_API_KEY"], Some("nvidia"), None),
    ("sambanova", Wire::Chat, "https://api.sambanova.ai/v1", &["SAMBANOVA_API_KEY"], Some("sambanova"), None),
    ("deepinfra", Wire::Chat, "https://api.deepinfra.com/v1/openai", &["DEEPINFRA_API_KEY"], Some("deepinfra"), None),
    ("novita", Wire::Chat, "https://api.novita.ai/openai/v1", &["NOVITA_API_KEY"], Some("novita"), None),
    ("huggingface", Wire::Chat, "https://router.huggingface.co/v1", &["HF_TOKEN"], Some("huggingface"), None),
    ("github", Wire::Chat, "https://models.github.ai/inference", &["GITHUB_MODELS_TOKEN"], Some("github"), None),
    ("azure", Wire::Chat, "", &["AZURE_OPENAI_API_KEY"], Some("azure"), None),
    ("openai-responses", Wire::Responses, "https://api.openai.com/v1", &["OPENAI_API_KEY"], Some("openai"), None),
    ("ollama", Wire::Chat, "http://localhost:11434/v1", &[], None, None),
    ("lmstudio", Wire::Chat, "http://localhost:1234/v1", &[], None, None),
    ("llamacpp", Wire::Chat, "http://localhost:8080/v1", &[], None, None),
    ("vllm", Wire::Chat, "http://localhost:8000/v1", &[], None, None),
    // Its address depends on the region.
    ("bedrock", Wire::Bedrock, "", &["AWS_BEARER_TOKEN_BEDROCK", "BEDROCK_API_KEY"], Some("aws"), None),
    ("minimax", Wire::Genai, "", &["MINIMAX_API_KEY"], Some("minimax"), None),
    ("vertex", Wire::Genai, "", &["VERTEX_API_KEY"], Some("google"), None),
    ("gemini-interactions", Wire::Genai, "", &["GEMINI_API_KEY", "GOOGLE_API_KEY"], Some("google"), None),
];

/// The names of the providers, in the order in which they are tried.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|line| line.0)
}

/// Returns true if the provider is in the table.
pub(crate) fn has(provider: &str) -> bool {
    find(provider).is_some()
}

/// The row of a provider, if it is in the table.
pub(crate) fn row(provider: &str) -> Option<ProviderRow> {
    find(provider).map(new_row)
}

/// The variables that may hold the key of any provider.
pub(crate) fn key_variables() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|line| line.3).copied()
}

fn find(provider: &str) -> Option<&'static BuiltInProvider> {
    TABLE.iter().find(|line| line.0 == provider)
}

/// The environment variable that moves a built-in provider to another address.
pub(crate) fn base_url_variable(provider: &str) -> Option<String> {
    let letter = |letter: char| if letter == '-' { '_' } else { letter.to_ascii_uppercase() };
    find(provider).map(|_| provider.chars().map(letter).chain("_BASE_URL".chars()).collect())
}

/// Returns true if `url` is an address of the provider itself, not of a proxy or another server in its place.
pub(crate) fn is_own_address(provider: &str, url: &str) -> bool {
    let own = match provider {
        "gemini" | "gemini-interactions" | "vertex" => "https://googleapis.com",
        "bedrock" => "https://amazonaws.com",
        "minimax" => "https://minimax.io",
        // Every customer has an address of their own.
        "azure" => return address::place(url) == Place::Public,
        _ => find(provider).map_or("", |line| line.2),
    };
    address::is_same_domain(url, own)
}

fn new_row(line: &BuiltInProvider) -> ProviderRow {
    let (name, wire, base_url, key_vars, price_table, default_model) = *line;
    ProviderRow {
        name: name.to_owned(),
        wire,
        base_url: base_url.to_owned(),
        key_vars: key_vars.iter().map(|name| (*name).to_owned()).collect(),
        headers: BTreeMap::new(),
        auth: match name {
            "anthropic" => Auth::XApiKey,
            "azure" => Auth::ApiKey,
            _ => Auth::Bearer,
        },
        quirks: quirks(name),
        price_table: price_table.map(str::to_owned),
        prices: BTreeMap::new(),
        max_output: BTreeMap::new(),
        default_model: default_model.map(str::to_owned),
        has_own_url: false,
        patience: key_vars.is_empty().then_some(LOCAL_PATIENCE),
        delivery: Delivery::Streamed,
        sampling: SamplingConfig::default(),
    }
}

fn quirks(name: &str) -> Quirks {
    let plain = Quirks { reasoning: reasoning(name), ..Quirks::default() };
    match name {
        "openai" => Quirks { max_completion_tokens: true, prompt_cache_key: true, ..plain },
        "azure" => Quirks { max_completion_tokens: true, ..plain },
        "openrouter" => Quirks { effort_object: true, cache_marks: true, ..plain },
        "mistral" => Quirks { nine_letter_ids: true, no_stream_options: true, no_effort: true, ..plain },
        "moonshot" => Quirks { no_effort: true, keep_thinking: KeepThinking::Keep, ..plain },
        "zai" => Quirks { no_effort: true, keep_thinking: KeepThinking::ClearThinking, ..plain },
        "deepseek" | "xai" => Quirks { no_effort: true, ..plain },
        _ => plain,
    }
}

/// The way to return reasoning to a provider, from its documentation or the observed behaviour of its servers.
fn reasoning(name: &str) -> ReasoningReturn {
    match name {
        // With thinking on, which is the default, both respond with 400 if a reply that called tools lacks its reasoning.
        "deepseek" | "moonshot" => ReasoningReturn::Required,
        // GLM reasons between calls and needs that reasoning together with their results.
        "zai" => ReasoningReturn::ReasoningContent,
        // Both refuse `reasoning_content`, and Groq refuses `reasoning` for models that do not reason.
        "groq" => ReasoningReturn::GptOss,
        "cerebras" => ReasoningReturn::Reasoning,
        "openrouter" => ReasoningReturn::Details,
        "mistral" => ReasoningReturn::Content,
        // The field's name varies by model or server version; these servers ignore unknown fields.
        "together" | "fireworks" | "novita" | "deepinfra" | "nvidia" | "ollama" | "lmstudio" | "llamacpp" | "vllm" => {
            ReasoningReturn::SameField
        }
        // OpenAI's servers refuse unknown fields, xAI's chat completions ignore reasoning, and a router passes it on to
        // servers that may refuse it.
        _ => ReasoningReturn::Never,
    }
}
