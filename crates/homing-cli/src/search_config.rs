//! `[websearch]` of the configuration: the search engine behind the tool `websearch`. Without it there is no such tool.

use homing::environment;
use homing_tools::web::websearch::SearchProvider;
use serde::Deserialize;

use crate::exit::Trouble;

/// The search engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchConfig {
    engine: Engine,
    /// The address: of the instance for `searxng`; with `{query}` for `json`.
    url: Option<String>,
    /// The variable with the API key.
    api_key_env: Option<String>,
    /// The header for the API key of a `json` engine.
    key_header: Option<String>,
    /// The JSON pointer to the results of a `json` engine.
    results: Option<String>,
    /// The fields of a result of a `json` engine: title, address, excerpt.
    fields: Option<[String; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Brave,
    Json,
    Searxng,
}

impl SearchConfig {
    /// Returns the engine, ready to be used.
    pub(crate) fn provider(&self) -> Result<SearchProvider, Trouble> {
        let missing = |what: &str| Trouble::config(format!("[websearch]: `{what}` is missing"));
        let key = |default: &str| {
            let name = self.api_key_env.as_deref().unwrap_or(default);
            environment::key(name).ok_or_else(|| Trouble::config(format!("[websearch]: no API key: set {name}")))
        };
        match self.engine {
            Engine::Brave => Ok(SearchProvider::brave(key("BRAVE_API_KEY")?)),
            Engine::Searxng => Ok(SearchProvider::searxng(self.url.as_deref().ok_or_else(|| missing("url"))?)),
            Engine::Json => {
                let url = self.url.as_deref().filter(|url| url.contains("{query}"));
                let url = url.ok_or_else(|| missing("url` with `{query}"))?;
                let fields = self.fields.as_ref().map(|fields| fields.each_ref().map(String::as_str));
                let results = self.results.as_deref().unwrap_or("/results");
                let mut provider = SearchProvider::new(url, results, fields.unwrap_or(["title", "url", "content"]));
                if self.api_key_env.is_some() {
                    let header = self.key_header.clone().unwrap_or_else(|| "Authorization".to_owned());
                    provider.key = Some((header, key("")?));
                }
                Ok(provider)
            }
        }
    }
}
