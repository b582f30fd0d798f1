//! Checks providers for free: whether they answer, accept the key, and offer the model.

use std::{collections::BTreeMap, time::Duration};

use homing::environment;
use homing_core::{definition::ModelChoice, model::ModelError, registry::distance};
use homing_models::{
    ProviderRow, Providers, Wire,
    names::{Resolver, default_model, served_model},
};

use super::{CONNECT, Finding};
use crate::{config::Layered, progress::figures, session};

/// Maximum time for a provider to list its models.
const LIST: Duration = Duration::from_secs(10);

/// Providers whose list of models needs no key, so that it says nothing about the key.
const PUBLIC_LISTS: &[&str] = &["openrouter"];

/// The models that providers offer, by provider, as far as they were asked.
pub(super) type OfferedModels = BTreeMap<String, Vec<String>>;

/// Connects to a provider and asks for its models, which costs nothing and needs the key. Returns `None` if a local provider
/// does not run.
pub(super) async fn provider(providers: &Providers, row: &ProviderRow, offered: &mut OfferedModels) -> Option<Finding> {
    let (host, port) = address(&row.base_url)?;
    let connect = tokio::net::TcpStream::connect((host.as_str(), port));
    let reached = tokio::time::timeout(CONNECT, connect).await;
    let is_local = row.key_vars.is_empty();
    match reached {
        Ok(Ok(_)) => Some(models(providers, row, offered, format!("connected to {host}:{port}")).await),
        // Local providers need no key, so they are always tried; most users run none.
        Ok(Err(_)) | Err(_) if is_local => None,
        Ok(Err(error)) => {
            Some(Finding::Bad(format!("cannot connect to {host}:{port}: {error}. Check the network or a proxy")))
        }
        Err(_) => Some(Finding::Bad(format!("no answer from {host}:{port} within 3 s. Check the network or a proxy"))),
    }
}

async fn models(providers: &Providers, row: &ProviderRow, offered: &mut OfferedModels, connected: String) -> Finding {
    if row.wire == Wire::Genai {
        return Finding::Good(format!("{connected}; the key was not checked"));
    }
    let variable = row.key_vars.iter().find(|name| environment::key(name).is_some());
    let redact = session::redactor(providers);
    match tokio::time::timeout(LIST, providers.served_models(&row.name)).await {
        Ok(Ok(models)) => {
            let count = figures::count(models.len() as u64, "model");
            offered.insert(row.name.clone(), models);
            Finding::Good(match variable {
                Some(name) if !PUBLIC_LISTS.contains(&row.name.as_str()) => {
                    format!("{connected}; {name} is accepted; {count}")
                }
                Some(_) => format!("{connected}; {count}; the key was not checked, because the list needs none"),
                None => format!("{connected}; {count}"),
            })
        }
        Ok(Err(ModelError::Unauthorized { reason })) => {
            let key = variable.map_or("a key is needed".to_owned(), |name| format!("the key in {name} is refused"));
            Finding::Bad(format!("{connected}; {key}: {}. Set a valid key", redact(&reason)))
        }
        Ok(Err(error)) => Finding::Good(format!(
            "{connected}; the key was not checked, because it lists no models: {}",
            redact(&error.to_string())
        )),
        Err(_) => {
            Finding::Note(format!("{connected}; the key was not checked, because the list of models took too long"))
        }
    }
}

fn address(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let default = if scheme == "http" { 80 } else { 443 };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        }
        _ => Some((authority.to_owned(), default)),
    }
}

/// Names the model of runs that name none, and checks that its provider offers it. A server of the user is asked for its list,
/// as a run would; without the models that were offered, nothing is asked.
pub(super) async fn model(providers: &Providers, config: Option<&Layered>, offered: Option<&OfferedModels>) -> Finding {
    let none = OfferedModels::new();
    let served = match offered {
        Some(_) => served_model(providers).await,
        None => None,
    };
    let offered = offered.unwrap_or(&none);
    if let Some((config, name)) = config.and_then(|config| Some((config, config.user.model.clone()?))) {
        return configured(providers, config, &name, offered);
    }
    match served.or_else(|| default_model(providers)) {
        Some((name, why)) => missing(&name, offered).map_or(Finding::Good(why), Finding::Bad),
        None => {
            let vars = providers.rows().into_iter().filter_map(|row| row.key_vars.first().cloned()).take(4);
            Finding::Note(format!(
                "no provider API key is set: set {} or another, or use --model offline",
                vars.collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

fn configured(providers: &Providers, config: &Layered, name: &str, offered: &OfferedModels) -> Finding {
    let (aliases, map) = (config.user.aliases.clone(), Vec::new());
    let resolver = Resolver { providers, default: None, aliases, map, strict: false };
    match resolver.resolve(&ModelChoice::Exact(name.to_owned()), None) {
        Err(error) => Finding::Bad(format!("{name}, as configured: {error}. Change `model` in your configuration")),
        Ok(found) => {
            let resolved = found.names.first().map_or(name, String::as_str);
            missing(resolved, offered).map_or_else(|| Finding::Good(format!("{name}, as configured")), Finding::Bad)
        }
    }
}

/// Returns a message if the provider of a model listed its models, and this is none of them. A name without its date, such as
/// `claude-sonnet-4-5`, counts as listed.
fn missing(name: &str, offered: &OfferedModels) -> Option<String> {
    let (provider, model) = name.split_once('/')?;
    let models = offered.get(provider).filter(|models| !models.is_empty())?;
    let is_it = |listed: &String| {
        listed == model || listed.strip_prefix(model).is_some_and(|rest| rest.starts_with(['-', ':']))
    };
    if models.iter().any(is_it) {
        return None;
    }
    let near = models.iter().map(|listed| (distance(model, listed), listed)).min();
    let near =
        near.filter(|(edits, _)| *edits <= 3).map(|(_, listed)| format!(" (did you mean `{provider}/{listed}`?)"));
    Some(format!("{provider} does not offer `{model}`{}", near.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_urls() {
        assert_eq!(address("http://127.0.0.1:8080/v1"), Some(("127.0.0.1".into(), 8080)));
        assert_eq!(address("https://api.openai.com/v1"), Some(("api.openai.com".into(), 443)));
        assert_eq!(address("nonsense"), None);
    }

    #[test]
    fn model_that_its_provider_does_not_list_is_missing() {
        let listed = ["gpt-4.1", "claude-sonnet-4-5-20250929"].map(str::to_owned).to_vec();
        let offered = OfferedModels::from([("p".to_owned(), listed), ("empty".to_owned(), Vec::new())]);
        for known in ["p/gpt-4.1", "p/claude-sonnet-4-5", "empty/x", "unasked/x"] {
            assert_eq!(missing(known, &offered), None, "{known}");
        }
        assert_eq!(missing("p/gpt-4.2", &offered).unwrap(), "p does not offer `gpt-4.2` (did you mean `p/gpt-4.1`?)");
        assert_eq!(missing("p/claude", &offered), None, "a family of models");
        assert_eq!(missing("p/mystery", &offered).unwrap(), "p does not offer `mystery`");
    }
}
