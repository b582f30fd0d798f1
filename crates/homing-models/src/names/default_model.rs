//! The choice of a model if nothing names one.

use std::sync::Arc;

use crate::{
    address::{self, Place},
    provider::{ProviderRow, Providers},
};

/// The default model of the first provider, in the table's order, that has its API key or a configured address, and a
/// sentence that says why it was chosen. Providers that need no key are never chosen, because they may not be running.
pub fn default_model(providers: &Providers) -> Option<(String, String)> {
    let (row, model, cause) = default_row(providers)?;
    let name = format!("{}/{model}", row.name);
    let why = format!("using {name}, because {cause}");
    Some((name, why))
}

/// The first model that the default provider's server offers, and a sentence that says why it was chosen. Only a server on
/// this machine or in its network is asked: such a server hardly ever has the provider's own default model.
pub async fn served_model(providers: &Providers) -> Option<(String, String)> {
    let (row, _, _) = default_row(providers)?;
    if !row.has_own_url || address::place(&row.base_url) == Place::Public {
        return None;
    }
    let model = providers.served_models(&row.name).await.ok()?.into_iter().next()?;
    let name = format!("{}/{model}", row.name);
    let why = format!("using {name}, the first model that {} offers", row.base_url);
    Some((name, why))
}

/// The provider to use if nothing names a model, with its default model and why it is usable.
fn default_row(providers: &Providers) -> Option<(Arc<ProviderRow>, String, String)> {
    let mut rows = providers.rows().into_iter().filter(|row| !row.key_vars.is_empty());
    rows.find_map(|row| {
        let (model, why) = (row.default_model.clone()?, providers.why_usable(&row.name)?);
        Some((row, model, why))
    })
}

/// The situation of a run for which no provider has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineCase {
    /// The agent is built in.
    pub agent_is_built_in: bool,
    /// The agent file, the host or the configuration names a model.
    pub names_a_model: bool,
    /// A user reads the output, not a program.
    pub person_reads: bool,
}

/// Returns true if `offline` may be chosen by default. It must never silently replace a model that was asked for.
pub fn may_go_offline(case: OfflineCase) -> bool {
    case.agent_is_built_in && !case.names_a_model && case.person_reads
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn first_provider_with_a_key_is_the_default_and_says_why() {
        let with = |vars: &'static [&'static str]| {
            let lookup = move |name: &str| vars.contains(&name).then(|| secrecy::SecretString::from("key-value"));
            default_model(&Providers::new(BTreeMap::new(), lookup))
        };
        assert_eq!(with(&[]), None);
        let (name, why) = with(&["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]).unwrap();
        assert_eq!(name, "anthropic/claude-sonnet-5-5");
        assert_eq!(why, "using anthropic/claude-sonnet-5-5, because ANTHROPIC_API_KEY is set");
        assert_eq!(with(&["OPENAI_API_KEY", "GEMINI_API_KEY"]).unwrap().0, "openai/gpt-6.1-sol");
        if cfg!(feature = "genai") {
            assert_eq!(with(&["GEMINI_API_KEY", "GROQ_API_KEY"]).unwrap().0, "gemini/gemini-3.8-flash");
            let why = with(&["GOOGLE_API_KEY"]).unwrap().1;
            assert!(why.contains("because GOOGLE_API_KEY is set"), "{why}");
        } else {
            assert_eq!(with(&["GEMINI_API_KEY", "GROQ_API_KEY"]).unwrap().0, "groq/openai/gpt-oss-120b");
        }
    }

    #[test]
    fn configured_address_is_not_reported_as_a_key() {
        let lookup =
            |name: &str| (name == "OPENAI_BASE_URL").then(|| secrecy::SecretString::from("http://localhost:1"));
        let (_, why) = default_model(&Providers::new(BTreeMap::new(), lookup)).unwrap();
        assert_eq!(why, "using openai/gpt-6.1-sol, because OPENAI_BASE_URL is set");
        let moved = crate::ProviderConfig { base_url: Some("http://localhost:1".into()), ..Default::default() };
        let providers = Providers::new(BTreeMap::from([("openai".to_owned(), moved)]), |_| None);
        let (_, why) = default_model(&providers).unwrap();
        assert_eq!(why, "using openai/gpt-6.1-sol, because its address is configured");
    }

    #[test]
    fn offline_never_replaces_a_model_that_was_asked_for() {
        let case = OfflineCase { agent_is_built_in: true, names_a_model: false, person_reads: true };
        assert!(may_go_offline(case));
        assert!(!may_go_offline(OfflineCase { agent_is_built_in: false, ..case }));
        assert!(!may_go_offline(OfflineCase { names_a_model: true, ..case }));
        assert!(!may_go_offline(OfflineCase { person_reads: false, ..case }));
    }
}
