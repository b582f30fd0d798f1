//! Model resolution: maps the model names in agent files to `provider/model`.
//!
//! Files say `sonnet`, `Claude Sonnet 4.5 (copilot)`, `claude-sonnet-4-20250514`, `openai:gpt-4.1`, lists of these, or
//! nothing. Every guess is a warning, and strict resolution makes the warning an error. Nothing here does IO.

mod default_model;
mod error;
mod model_ids;
mod tables;

use std::collections::BTreeMap;

use homing_core::definition::ModelChoice;

use crate::provider::Providers;
use model_ids::{provider_of, split_list, successor};
use tables::{ALIASES, FAMILIES};

pub use default_model::{OfflineCase, default_model, may_go_offline, served_model};
pub use error::{MissingKey, ResolveWarning, Unresolved};
pub(crate) use model_ids::{family, model_id};

/// The providers as the resolver sees them.
pub trait Availability {
    /// Returns true if `provider` is in the table.
    fn has(&self, provider: &str) -> bool;
    /// Returns true if `provider` has its API key or needs none.
    fn is_usable(&self, provider: &str) -> bool;
    /// Returns true if the host supplies `model` itself, regardless of the provider in its name.
    fn owns(&self, _model: &str) -> bool {
        false
    }
    /// Returns true if the user has moved `provider` to an address that is not its own. Such a server may offer any model.
    fn is_moved(&self, _provider: &str) -> bool {
        false
    }
    /// The environment variables that may hold the API key of `provider`, for error messages.
    fn key_variables(&self, _provider: &str) -> Vec<String> {
        Vec::new()
    }
}

impl Availability for Providers {
    fn has(&self, provider: &str) -> bool {
        Self::has(self, provider)
    }

    fn is_usable(&self, provider: &str) -> bool {
        Self::is_usable(self, provider)
    }

    fn is_moved(&self, provider: &str) -> bool {
        self.row(provider).is_some_and(|row| row.is_foreign())
    }

    fn key_variables(&self, provider: &str) -> Vec<String> {
        self.row(provider).map(|row| row.key_vars.clone()).unwrap_or_default()
    }
}

/// Resolves model names with one host's providers, aliases and defaults.
pub struct Resolver<'a> {
    /// The providers.
    pub providers: &'a dyn Availability,
    /// The model to use if nothing names one, such as [`default_model`].
    pub default: Option<String>,
    /// The user's own short names; they win over the built-in ones.
    pub aliases: BTreeMap<String, String>,
    /// Replacements for the names in agent files, as pairs of name and model; `*` matches every other name.
    pub map: Vec<(String, String)>,
    /// Makes every guess an error.
    pub strict: bool,
}

/// The result of resolving a model choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedNames {
    /// Models as `provider/model`, in the order in which to try them. Never empty.
    pub names: Vec<String>,
    /// Guesses and replacements, for the user to see.
    pub warnings: Vec<String>,
}

/// The author of a name.
#[derive(Clone, Copy)]
enum NameOrigin {
    /// An agent file, perhaps of another program: names that mean nothing here are mapped, replaced or skipped.
    File,
    /// The user or the host: the name may be an alias, but it is never replaced by another model.
    User,
}

/// The meaning of one written name.
enum NameMeaning {
    Model(String),
    /// A retired model and its successor.
    Retired {
        model: String,
        successor: String,
    },
    Parent,
    Default,
    Unknown,
}

impl Resolver<'_> {
    /// Resolves `choice` for an agent whose parent uses the model `parent`.
    ///
    /// # Errors
    /// Fails if no model is available, or if strict resolution would have to guess.
    pub fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedNames, Unresolved> {
        match choice {
            ModelChoice::Inherit => self.first_available([parent, self.default.as_deref()], Vec::new()),
            ModelChoice::Named(names) => self.resolve_names(names, NameOrigin::File, parent),
            ModelChoice::Exact(name) => self.resolve_names(std::slice::from_ref(name), NameOrigin::User, parent),
            _ => self.first_available([self.default.as_deref(), None], Vec::new()),
        }
    }

    fn resolve_names(
        &self,
        names: &[String],
        origin: NameOrigin,
        parent: Option<&str>,
    ) -> Result<ResolvedNames, Unresolved> {
        let (mut models, mut warnings) = (Vec::new(), Vec::new());
        for name in names.iter().flat_map(|name| split_list(name)) {
            let model = match (self.meaning(&name, origin), origin) {
                (NameMeaning::Parent, _) => {
                    parent.or(self.default.as_deref()).and_then(|model| self.in_use(&name, model, &mut warnings))
                }
                (NameMeaning::Default, _) => {
                    self.default.as_deref().and_then(|model| self.in_use(&name, model, &mut warnings))
                }
                (NameMeaning::Model(model), _) | (NameMeaning::Retired { model, .. }, NameOrigin::User) => {
                    self.available(&name, model, &mut warnings)
                }
                (NameMeaning::Retired { successor, .. }, NameOrigin::File) => {
                    warnings.push(ResolveWarning::Retired { name: name.clone(), successor: successor.clone() });
                    self.available(&name, successor, &mut warnings)
                }
                (NameMeaning::Unknown, NameOrigin::User) => return Err(Unresolved::UnknownModel(name)),
                (NameMeaning::Unknown, NameOrigin::File) => {
                    warnings.push(ResolveWarning::UnknownModel { name });
                    None
                }
            };
            models.extend(model.filter(|model| !models.contains(model)));
        }
        if models.is_empty() {
            return match origin {
                // None of the named models is available: the user's default wins over the parent's model.
                NameOrigin::File => self.first_available([self.default.as_deref(), parent], warnings),
                NameOrigin::User => self.first_available([None, None], warnings),
            };
        }
        self.check_strict(&warnings)?;
        Ok(ResolvedNames { names: models, warnings: warnings.iter().map(ToString::to_string).collect() })
    }

    /// The first available of `models`, as a substitute if there are `warnings` about what was asked for.
    fn first_available(
        &self,
        models: [Option<&str>; 2],
        mut warnings: Vec<ResolveWarning>,
    ) -> Result<ResolvedNames, Unresolved> {
        for model in models.into_iter().flatten() {
            if let Some(model) = self.in_use(model, model, &mut warnings) {
                self.check_strict(&warnings)?;
                let mut warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
                if let Some(last) = warnings.last_mut() {
                    last.push_str(&format!("; using {model}"));
                }
                return Ok(ResolvedNames { names: vec![model], warnings });
            }
        }
        self.check_strict(&warnings)?;
        let missing = warnings.into_iter().find_map(|warning| match warning {
            ResolveWarning::NoKey { key, .. } => Some(key),
            ResolveWarning::UnknownModel { .. } | ResolveWarning::Retired { .. } => None,
        });
        Err(missing.map_or(Unresolved::NoDefault, Unresolved::NoKey))
    }

    fn check_strict(&self, warnings: &[ResolveWarning]) -> Result<(), Unresolved> {
        match warnings.first() {
            Some(warning) if self.strict => Err(Unresolved::Strict(warning.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// The model of the parent or the host. If its provider is not in the table, the host supplies it.
    fn in_use(&self, name: &str, model: &str, warnings: &mut Vec<ResolveWarning>) -> Option<String> {
        if self.providers.owns(model) || !self.providers.has(provider_of(model)) {
            return Some(model.to_owned());
        }
        self.available(name, model.to_owned(), warnings)
    }

    /// `model` if its provider is usable; otherwise adds a warning.
    fn available(&self, name: &str, model: String, warnings: &mut Vec<ResolveWarning>) -> Option<String> {
        let provider = provider_of(&model);
        if model == "offline" || self.providers.is_usable(provider) {
            return Some(model);
        }
        let variables = self.providers.key_variables(provider);
        let key = MissingKey { provider: provider.to_owned(), variables };
        warnings.push(ResolveWarning::NoKey { name: name.to_owned(), key });
        None
    }

    fn meaning(&self, written: &str, origin: NameOrigin) -> NameMeaning {
        let name = written.trim().trim_matches(['\'', '"', '`']).trim();
        match name.to_lowercase().as_str() {
            "" | "default" | "auto" => return NameMeaning::Default,
            "inherit" | "parent" => return NameMeaning::Parent,
            "offline" => return NameMeaning::Model("offline".to_owned()),
            _ => (),
        }
        match (origin, self.mapped(name)) {
            (NameOrigin::File, Some(model)) => self.meaning_unmapped(&model),
            (NameOrigin::File, None) | (NameOrigin::User, _) => self.meaning_unmapped(name),
        }
    }

    fn mapped(&self, name: &str) -> Option<String> {
        let exact = self.map.iter().find(|(from, _)| from.eq_ignore_ascii_case(name));
        exact.or_else(|| self.map.iter().find(|(from, _)| from == "*")).map(|(_, to)| to.clone())
    }

    fn meaning_unmapped(&self, name: &str) -> NameMeaning {
        if let Some(model) = self.alias(name) {
            return NameMeaning::Model(model);
        }
        if let Some(model) = self.with_provider(name) {
            return self.current(model);
        }
        let id = model_id(name);
        if let Some(model) = self.alias(&id) {
            return NameMeaning::Model(model);
        }
        let family = FAMILIES.iter().find(|(start, provider)| id.starts_with(start) && self.providers.has(provider));
        match family {
            Some((_, provider)) => self.current(format!("{provider}/{id}")),
            None => NameMeaning::Unknown,
        }
    }

    /// `model`, with its successor if its provider has switched it off.
    fn current(&self, model: String) -> NameMeaning {
        match successor(&model).filter(|_| !self.providers.is_moved(provider_of(&model))) {
            Some(successor) => NameMeaning::Retired { model, successor },
            None => NameMeaning::Model(model),
        }
    }

    fn alias(&self, name: &str) -> Option<String> {
        let key = name.to_lowercase();
        let own = self.aliases.iter().find(|(alias, _)| alias.to_lowercase() == key).map(|(_, to)| to.clone());
        own.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == key).map(|(_, to)| (*to).to_owned()))
    }

    /// `provider/model` or `provider:model`, if the provider exists. Model names may contain `:` as well.
    fn with_provider(&self, name: &str) -> Option<String> {
        let at = name.find(['/', ':'])?;
        let (provider, model) = (name[..at].to_lowercase(), &name[at + 1..]);
        let provider = match provider.as_str() {
            "google" => "gemini",
            "x-ai" => "xai",
            "claude" => "anthropic",
            other => other,
        };
        (self.providers.has(provider) && !model.trim().is_empty()).then(|| format!("{provider}/{}", model.trim()))
    }
}

/// The built-in short names of models.
pub fn alias_names() -> impl Iterator<Item = &'static str> {
    ALIASES.iter().map(|(alias, _)| *alias)
}

/// Parses a comma-separated list of replacements such as `sonnet=openai/gpt-4.1,*=ollama/qwen3`.
///
/// # Errors
/// Fails if an item is not of the form `NAME=MODEL`.
pub fn parse_map(text: &str) -> Result<Vec<(String, String)>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pair = |item: &str| match item.split_once('=') {
        Some((name, model)) if !name.trim().is_empty() && !model.trim().is_empty() => {
            Ok((name.trim().to_owned(), model.trim().to_owned()))
        }
        Some(_) | None => Err(format!("`{item}` is not of the form NAME=MODEL, such as sonnet=openai/gpt-4.1")),
    };
    items.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct UsableProviders(&'static [&'static str]);

    impl Availability for UsableProviders {
        fn has(&self, provider: &str) -> bool {
            ["anthropic", "openai", "gemini", "openrouter", "ollama", "xai"].contains(&provider)
        }

        fn is_usable(&self, provider: &str) -> bool {
            self.0.contains(&provider)
        }

        fn key_variables(&self, provider: &str) -> Vec<String> {
            vec![format!("{}_API_KEY", provider.to_uppercase())]
        }
    }

    const ALL: UsableProviders = UsableProviders(&["anthropic", "openai", "gemini", "openrouter", "ollama"]);

    fn resolver(providers: &dyn Availability) -> Resolver<'_> {
        let default = Some("openai/gpt-4.1".to_owned());
        Resolver { providers, default, aliases: BTreeMap::new(), map: Vec::new(), strict: false }
    }

    fn named(names: &[&str]) -> ModelChoice {
        ModelChoice::Named(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn one(name: &str) -> (String, bool) {
        let resolved = resolver(&ALL).resolve(&named(&[name]), Some("anthropic/parent")).unwrap();
        assert_eq!(resolved.names.len(), 1, "{name}: {resolved:?}");
        (resolved.names[0].clone(), resolved.warnings.is_empty())
    }

    #[test]
    fn r19_names_in_real_agent_files_resolve() {
        for (written, model, is_quiet) in [
            ("sonnet", "anthropic/claude-sonnet-5-5", true),
            ("Opus", "anthropic/claude-opus-5-5", true),
            ("haiku", "anthropic/claude-haiku-5-5", true),
            ("fable", "anthropic/claude-fable-5-1", true),
            ("anthropic/claude-haiku-4-5", "anthropic/claude-haiku-4-5", true),
            ("openai:gpt-4.1", "openai/gpt-4.1", true),
            ("openrouter/anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5", true),
            ("openrouter/deepseek/deepseek-r1:free", "openrouter/deepseek/deepseek-r1:free", true),
            ("ollama/qwen3:4b", "ollama/qwen3:4b", true),
            ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro", true),
            ("claude-sonnet-4-20250514", "anthropic/claude-sonnet-4-5", false),
            ("claude-3-5-sonnet-latest", "anthropic/claude-sonnet-4-5", false),
            ("anthropic/claude-3-opus-20240229", "anthropic/claude-opus-4-5", false),
            ("Claude Sonnet 4.5", "anthropic/claude-sonnet-4-5", true),
            ("Claude Sonnet 4.5 (copilot)", "anthropic/claude-sonnet-4-5", true),
            ("Claude Sonnet 4", "anthropic/claude-sonnet-4-5", false),
            ("Claude 4.5 Sonnet", "anthropic/claude-sonnet-4-5", true),
            ("GPT-4.1", "openai/gpt-4.1", true),
            ("GPT-5 (copilot)", "openai/gpt-5", true),
            ("GPT-5 mini", "openai/gpt-5-mini", true),
            ("Gemini 2.5 Pro", "gemini/gemini-2.5-pro", true),
            ("gpt-4o", "openai/gpt-4o", true),
            ("inherit", "anthropic/parent", true),
            ("default", "openai/gpt-4.1", true),
            ("offline", "offline", true),
            ("'gpt-5'", "openai/gpt-5", true),
            ("my-own-model", "openai/gpt-4.1", false),
        ] {
            assert_eq!(one(written), (model.to_owned(), is_quiet), "{written}");
        }
    }

    #[test]
    fn r19_list_resolves_to_the_available_models_in_order() {
        let providers = UsableProviders(&["openai"]);
        let resolved = resolver(&providers).resolve(&named(&["sonnet", "GPT-4.1 | 'gpt-5'"]), None).unwrap();
        assert_eq!(resolved.names, ["openai/gpt-4.1", "openai/gpt-5"]);
        assert_eq!(resolved.warnings, ["`sonnet` is not available: no API key for anthropic"]);
    }

    #[test]
    fn r19_inherit_uses_the_parent_model_or_the_default() {
        let resolver = resolver(&ALL);
        assert_eq!(resolver.resolve(&ModelChoice::Inherit, Some("a/b")).unwrap().names, ["a/b"]);
        assert_eq!(resolver.resolve(&ModelChoice::Inherit, None).unwrap().names, ["openai/gpt-4.1"]);
        assert_eq!(resolver.resolve(&ModelChoice::Default, Some("a/b")).unwrap().names, ["openai/gpt-4.1"]);
    }

    #[test]
    fn r19_inherited_and_default_models_must_be_usable() {
        let providers = UsableProviders(&["openai"]);
        let with = |default: Option<&str>| Resolver { default: default.map(str::to_owned), ..resolver(&providers) };
        let inherited = with(Some("openai/gpt-4.1")).resolve(&ModelChoice::Inherit, Some("anthropic/x")).unwrap();
        assert_eq!(inherited.names, ["openai/gpt-4.1"]);
        assert_eq!(
            inherited.warnings,
            ["`anthropic/x` is not available: no API key for anthropic; using openai/gpt-4.1"]
        );
        for choice in [ModelChoice::Default, ModelChoice::Inherit, named(&["default"]), named(&["inherit"])] {
            let error = with(Some("anthropic/x")).resolve(&choice, None).unwrap_err();
            assert!(matches!(&error, Unresolved::NoKey(_)), "{choice:?}: {error:?}");
            assert_eq!(error.to_string(), "no API key for anthropic: set ANTHROPIC_API_KEY");
        }
        let own = with(Some("team/plan")).resolve(&ModelChoice::Default, None).unwrap();
        assert_eq!(own.names, ["team/plan"], "models that the host supplies need no key");
        assert_eq!(with(None).resolve(&ModelChoice::Inherit, None), Err(Unresolved::NoDefault));
    }

    #[test]
    fn r19_unknown_model_falls_back_with_a_warning() {
        let resolved = resolver(&ALL).resolve(&named(&["mystery"]), None).unwrap();
        assert_eq!(resolved.names, ["openai/gpt-4.1"]);
        assert_eq!(resolved.warnings, ["unknown model `mystery`; using openai/gpt-4.1"]);
    }

    #[test]
    fn strict_resolution_makes_every_guess_an_error() {
        let resolver = Resolver { strict: true, ..resolver(&ALL) };
        for name in ["mystery", "claude-sonnet-4-20250514", "grok-4"] {
            assert!(matches!(resolver.resolve(&named(&[name]), None), Err(Unresolved::Strict(_))), "{name}");
        }
        assert!(resolver.resolve(&named(&["sonnet"]), None).is_ok());
    }

    #[test]
    fn map_replaces_names_but_not_inheritance() {
        let map = parse_map("sonnet=openai/gpt-5, *=ollama/qwen3").unwrap();
        let resolver = Resolver { map, ..resolver(&ALL) };
        let resolve = |name: &str| resolver.resolve(&named(&[name]), Some("a/b")).unwrap().names;
        assert_eq!(resolve("Sonnet"), ["openai/gpt-5"]);
        assert_eq!(resolve("claude-opus-4-1"), ["ollama/qwen3"]);
        assert_eq!(resolve("inherit"), ["a/b"]);
        assert!(parse_map("sonnet").is_err());
        assert!(parse_map("=x").is_err());
    }

    #[test]
    fn name_that_the_user_gives_is_never_replaced() {
        let map = parse_map("gpt-4-turbo=openai/gpt-5, *=ollama/qwen3").unwrap();
        let resolver = Resolver { map, ..resolver(&ALL) };
        let exact = |name: &str| resolver.resolve(&ModelChoice::Exact(name.to_owned()), Some("a/b"));
        for (written, model) in [
            ("gpt-4-turbo", "openai/gpt-4-turbo"),
            ("openai/gpt-4-turbo", "openai/gpt-4-turbo"),
            ("anthropic/claude-3-opus-20240229", "anthropic/claude-3-opus-20240229"),
            ("sonnet", "anthropic/claude-sonnet-5-5"),
            ("inherit", "a/b"),
        ] {
            let found = exact(written).unwrap();
            assert_eq!((found.names, found.warnings), (vec![model.to_owned()], Vec::new()), "{written}");
        }
        assert_eq!(exact("mystery"), Err(Unresolved::UnknownModel("mystery".to_owned())));
        let error = exact("grok-4").unwrap_err();
        assert_eq!(error.to_string(), "no API key for xai: set XAI_API_KEY", "the default does not replace it");
    }

    #[test]
    fn retired_name_is_kept_for_a_server_at_another_address() {
        struct Moved;
        impl Availability for Moved {
            fn has(&self, provider: &str) -> bool {
                ALL.has(provider)
            }
            fn is_usable(&self, _: &str) -> bool {
                true
            }
            fn is_moved(&self, provider: &str) -> bool {
                provider == "openai"
            }
        }
        let resolve = |name: &str| resolver(&Moved).resolve(&named(&[name]), None).unwrap().names;
        assert_eq!(resolve("gpt-4-turbo"), ["openai/gpt-4-turbo"]);
        assert_eq!(resolve("claude-3-opus-20240229"), ["anthropic/claude-opus-4-5"]);
    }

    #[test]
    fn user_aliases_win() {
        let aliases = BTreeMap::from([("sonnet".to_owned(), "ollama/qwen3".to_owned())]);
        let resolver = Resolver { aliases, ..resolver(&ALL) };
        assert_eq!(resolver.resolve(&named(&["SONNET"]), None).unwrap().names, ["ollama/qwen3"]);
    }
}
