//! From the names that agent files use to names that providers know. Pure: it is told which providers can be had.
//!
//! Files say `sonnet`, `Claude Sonnet 4.5 (copilot)`, `claude-sonnet-4-20250514`, `openai:gpt-4.1`, lists of these, or
//! nothing. Every guess is a warning, and strict resolution makes the warning an error.

use std::collections::BTreeMap;

use homing_core::definition::ModelChoice;

use crate::{
    known_names::{ALIASES, FAMILIES, RETIRED},
    provider::Providers,
};

/// What the resolver must know of providers.
pub trait Availability {
    /// Whether there is such a provider at all.
    fn has(&self, provider: &str) -> bool;
    /// Whether it can be asked: its key is there, or it needs none.
    fn is_usable(&self, provider: &str) -> bool;
    /// Whether the host brought this model itself, whatever its name says.
    fn owns(&self, _model: &str) -> bool {
        false
    }
}

impl Availability for Providers {
    fn has(&self, provider: &str) -> bool {
        Self::has(self, provider)
    }

    fn is_usable(&self, provider: &str) -> bool {
        Self::is_usable(self, provider)
    }
}

/// How names are read in one host.
pub struct Resolver<'a> {
    /// Which providers there are.
    pub providers: &'a dyn Availability,
    /// The model where nothing else is said: `--model`, the configuration, or [`default_model`].
    pub default: Option<String>,
    /// The user's own short names; they win over the built-in ones.
    pub aliases: BTreeMap<String, String>,
    /// `--model-map`: what files ask for, and what they get instead; `*` is everything else.
    pub map: Vec<(String, String)>,
    /// Whether a guess is an error.
    pub strict: bool,
}

/// What a choice came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// `provider/model`, in the order in which they are to be tried. Never empty.
    pub names: Vec<String>,
    /// What was guessed or replaced, for the user to see.
    pub warnings: Vec<String>,
}

/// Why a choice came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// Nothing names a model and there is no default.
    #[error("no model: pass --model provider/model, or set a provider's key such as ANTHROPIC_API_KEY")]
    NoDefault,
    /// What is meant cannot be asked, and there is nothing else.
    #[error("{0}")]
    NoKey(String),
    /// Strict resolution does not guess.
    #[error("{0} (--strict)")]
    Strict(String),
}

/// What one written name stands for.
enum Reading {
    Model(String),
    /// A model, reached by a guess that the user should see.
    Guess(String, String),
    Parent,
    Default,
    Unknown,
}

impl Resolver<'_> {
    /// The models that `choice` means, for an agent whose parent speaks with `parent`.
    pub fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<Resolved, Unresolved> {
        match choice {
            ModelChoice::Inherit => self.settle([parent, self.default.as_deref()], Vec::new()),
            ModelChoice::Default => self.settle([self.default.as_deref(), None], Vec::new()),
            ModelChoice::Named(names) => self.resolve_names(names, parent),
        }
    }

    fn resolve_names(&self, names: &[String], parent: Option<&str>) -> Result<Resolved, Unresolved> {
        let mut resolved = Resolved::default();
        let written: Vec<String> = names.iter().flat_map(|name| split(name)).collect();
        for name in &written {
            let found = match self.read(name) {
                Reading::Parent => {
                    let meant = parent.or(self.default.as_deref());
                    meant.and_then(|model| self.in_use(name, model, &mut resolved.warnings))
                }
                Reading::Default => {
                    self.default.as_deref().and_then(|model| self.in_use(name, model, &mut resolved.warnings))
                }
                Reading::Model(model) => self.available(name, model, &mut resolved.warnings),
                Reading::Guess(model, warning) => {
                    resolved.warnings.push(warning);
                    self.available(name, model, &mut resolved.warnings)
                }
                Reading::Unknown => {
                    resolved.warnings.push(format!("unknown model `{name}`"));
                    None
                }
            };
            resolved.names.extend(found.filter(|it| !resolved.names.contains(it)));
        }
        if resolved.names.is_empty() {
            // What was asked for cannot be had: the user's default is meant before the parent's choice.
            return self.settle([self.default.as_deref(), parent], resolved.warnings);
        }
        self.checked(resolved)
    }

    /// The first of these that can be had and no other, with a word about it where something else was asked for.
    fn settle(&self, models: [Option<&str>; 2], mut warnings: Vec<String>) -> Result<Resolved, Unresolved> {
        for model in models.into_iter().flatten() {
            if let Some(model) = self.in_use(model, model, &mut warnings) {
                if let Some(last) = warnings.last_mut() {
                    last.push_str(&format!("; using {model}"));
                }
                return self.checked(Resolved { names: vec![model], warnings });
            }
        }
        let has_choice = models.iter().any(Option::is_some);
        Err(match warnings.into_iter().next() {
            Some(why) if self.strict => Unresolved::Strict(why),
            Some(why) if has_choice => Unresolved::NoKey(why),
            Some(_) | None => Unresolved::NoDefault,
        })
    }

    fn checked(&self, resolved: Resolved) -> Result<Resolved, Unresolved> {
        match resolved.warnings.first() {
            Some(warning) if self.strict => Err(Unresolved::Strict(warning.clone())),
            Some(_) | None => Ok(resolved),
        }
    }

    /// What the parent or the host speaks with. A provider that is not in the table is the host's own affair.
    fn in_use(&self, written: &str, model: &str, warnings: &mut Vec<String>) -> Option<String> {
        match self.providers.owns(model) || !self.providers.has(provider_of(model)) {
            true => Some(model.to_owned()),
            false => self.available(written, model.to_owned(), warnings),
        }
    }

    /// `model`, if its provider can be asked; else a word about why not.
    fn available(&self, written: &str, model: String, warnings: &mut Vec<String>) -> Option<String> {
        if model == "offline" || self.providers.is_usable(provider_of(&model)) {
            return Some(model);
        }
        warnings.push(format!("`{written}` cannot be had: no key for {}", provider_of(&model)));
        None
    }

    fn read(&self, written: &str) -> Reading {
        let name = written.trim().trim_matches(['\'', '"', '`']).trim();
        match name.to_lowercase().as_str() {
            "" | "default" | "auto" => return Reading::Default,
            "inherit" | "parent" => return Reading::Parent,
            "offline" => return Reading::Model("offline".to_owned()),
            _ => (),
        }
        match self.mapped(name) {
            Some(to) => self.read_plain(&to),
            None => self.read_plain(name),
        }
    }

    fn mapped(&self, name: &str) -> Option<String> {
        let exact = self.map.iter().find(|(from, _)| from.eq_ignore_ascii_case(name));
        exact.or_else(|| self.map.iter().find(|(from, _)| from == "*")).map(|(_, to)| to.clone())
    }

    fn read_plain(&self, name: &str) -> Reading {
        if let Some(model) = self.alias(name) {
            return Reading::Model(model);
        }
        if let Some(model) = self.with_provider(name) {
            return replaced(name, model);
        }
        let id = as_id(name);
        if let Some(model) = self.alias(&id) {
            return Reading::Model(model);
        }
        let family = FAMILIES.iter().find(|(start, provider)| id.starts_with(start) && self.providers.has(provider));
        match family {
            Some((_, provider)) => replaced(name, format!("{provider}/{id}")),
            None => Reading::Unknown,
        }
    }

    fn alias(&self, name: &str) -> Option<String> {
        let key = name.to_lowercase();
        let own = self.aliases.iter().find(|(alias, _)| alias.to_lowercase() == key).map(|(_, to)| to.clone());
        own.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == key).map(|(_, to)| (*to).to_owned()))
    }

    /// `provider/model` or `provider:model`, if there is such a provider. `:` also stands inside of models' names.
    fn with_provider(&self, name: &str) -> Option<String> {
        let at = name.find(['/', ':'])?;
        let (provider, model) = (name[..at].to_lowercase(), &name[at + 1..]);
        let known = match provider.as_str() {
            "google" => "gemini",
            "x-ai" => "xai",
            "claude" => "anthropic",
            other => other,
        };
        (self.providers.has(known) && !model.trim().is_empty()).then(|| format!("{known}/{}", model.trim()))
    }
}

fn provider_of(model: &str) -> &str {
    model.split('/').next().unwrap_or_default()
}

/// A name with its retired id replaced, and a word about it.
fn replaced(written: &str, model: String) -> Reading {
    let (provider, id) = model.split_once('/').unwrap_or(("", &model));
    let is_first_party = matches!(provider, "anthropic" | "openai" | "gemini");
    let retired = RETIRED.iter().filter(|(start, _)| is_first_party && is_retired(id, start));
    match retired.max_by_key(|(start, _)| start.len()) {
        Some((_, successor)) => {
            let now = format!("{provider}/{successor}");
            Reading::Guess(now.clone(), format!("`{written}` is retired; using {now}"))
        }
        None => Reading::Model(model),
    }
}

/// Whether `id` is `start`, or `start` with a date or `latest` behind it.
fn is_retired(id: &str, start: &str) -> bool {
    let Some(rest) = id.strip_prefix(start) else { return false };
    let tail = rest.trim_start_matches('-');
    rest.is_empty()
        || (rest.starts_with('-') && (tail.starts_with("latest") || tail.starts_with("20") || tail.starts_with("00")))
}

/// Lists written as one string: `GPT-4.1 | 'gpt-5'`, `opus, sonnet`.
fn split(name: &str) -> Vec<String> {
    let text = name.trim().trim_start_matches('[').trim_end_matches(']');
    text.split(['|', ',']).map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// A display name as the id that it stands for: `Claude Sonnet 4.5 (copilot)` is `claude-sonnet-4-5`.
fn as_id(name: &str) -> String {
    let bare = name.split('(').next().unwrap_or_default().trim().to_lowercase();
    let id: String = bare.split_whitespace().collect::<Vec<_>>().join("-");
    if id.starts_with("claude") {
        return claude_id(&id);
    }
    id
}

/// Anthropic writes dots as dashes, and since version 4 the family before the number.
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

/// Reads `--model-map A=B,*=C`.
pub fn parse_map(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    let pair = |pair: &str| match pair.split_once('=') {
        Some((from, to)) if !from.trim().is_empty() && !to.trim().is_empty() => {
            Ok((from.trim().to_owned(), to.trim().to_owned()))
        }
        Some(_) | None => Err(format!("`{pair}` is no mapping: write ASKED=GIVEN, such as sonnet=openai/gpt-4.1")),
    };
    pairs.map(pair).collect()
}

/// The model where nothing names one: that of the first provider, in the table's order, whose key or own address is there. Providers
/// that need no key are never chosen, because nobody knows whether they run. With it, a sentence that says why.
pub fn default_model(providers: &Providers) -> Option<(String, String)> {
    let mut rows = providers.rows().iter().filter(|row| !row.key_vars.is_empty());
    rows.find_map(|row| {
        let (model, cause) = (row.default_model.as_ref()?, providers.why_usable(&row.name)?);
        let name = format!("{}/{model}", row.name);
        let why = format!("using {name}, because {cause} (choose with --model)");
        Some((name, why))
    })
}

/// What is known when a run names no model and no provider has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineCase {
    /// The agent ships with the program.
    pub agent_is_built_in: bool,
    /// Something named a model: the file, a flag, the configuration.
    pub names_a_model: bool,
    /// A person reads the output: a terminal, and neither `--json` nor `--events`.
    pub person_reads: bool,
}

/// Whether `offline` may be chosen unasked: it must never stand in silently for a model that somebody relies on.
pub fn may_go_offline(case: OfflineCase) -> bool {
    case.agent_is_built_in && !case.names_a_model && case.person_reads
}

#[cfg(test)]
mod tests {
    use super::*;

    struct KnownName(&'static [&'static str]);

    impl Availability for KnownName {
        fn has(&self, provider: &str) -> bool {
            ["anthropic", "openai", "gemini", "openrouter", "ollama", "xai"].contains(&provider)
        }

        fn is_usable(&self, provider: &str) -> bool {
            self.0.contains(&provider)
        }
    }

    const ALL: KnownName = KnownName(&["anthropic", "openai", "gemini", "openrouter", "ollama"]);

    fn resolver(providers: &dyn Availability) -> Resolver<'_> {
        let default = Some("openai/gpt-4.1".to_owned());
        Resolver { providers, default, aliases: BTreeMap::new(), map: Vec::new(), strict: false }
    }

    fn named(names: &[&str]) -> ModelChoice {
        ModelChoice::Named(names.iter().map(|it| (*it).to_owned()).collect())
    }

    fn one(name: &str) -> (String, bool) {
        let resolved = resolver(&ALL).resolve(&named(&[name]), Some("anthropic/parent")).unwrap();
        assert_eq!(resolved.names.len(), 1, "{name}: {resolved:?}");
        (resolved.names[0].clone(), resolved.warnings.is_empty())
    }

    #[test]
    fn r19_names_of_real_files_are_understood() {
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
    fn r19_a_list_means_the_first_that_can_be_had() {
        let providers = KnownName(&["openai"]);
        let resolved = resolver(&providers).resolve(&named(&["sonnet", "GPT-4.1 | 'gpt-5'"]), None).unwrap();
        assert_eq!(resolved.names, ["openai/gpt-4.1", "openai/gpt-5"]);
        assert_eq!(resolved.warnings, ["`sonnet` cannot be had: no key for anthropic"]);
    }

    #[test]
    fn r19_inherit_reaches_the_parent_and_the_root_the_default() {
        let resolver = resolver(&ALL);
        assert_eq!(resolver.resolve(&ModelChoice::Inherit, Some("a/b")).unwrap().names, ["a/b"]);
        assert_eq!(resolver.resolve(&ModelChoice::Inherit, None).unwrap().names, ["openai/gpt-4.1"]);
        assert_eq!(resolver.resolve(&ModelChoice::Default, Some("a/b")).unwrap().names, ["openai/gpt-4.1"]);
    }

    #[test]
    fn r19_what_is_inherited_or_the_default_must_be_one_that_can_be_asked() {
        let providers = KnownName(&["openai"]);
        let with = |default: Option<&str>| Resolver { default: default.map(str::to_owned), ..resolver(&providers) };
        let inherited = with(Some("openai/gpt-4.1")).resolve(&ModelChoice::Inherit, Some("anthropic/x")).unwrap();
        assert_eq!(inherited.names, ["openai/gpt-4.1"]);
        assert_eq!(inherited.warnings, ["`anthropic/x` cannot be had: no key for anthropic; using openai/gpt-4.1"]);
        let no_key = |choice: &ModelChoice| {
            let written = if let ModelChoice::Named(names) = choice { names[0].as_str() } else { "anthropic/x" };
            Unresolved::NoKey(format!("`{written}` cannot be had: no key for anthropic"))
        };
        for choice in [ModelChoice::Default, ModelChoice::Inherit, named(&["default"]), named(&["inherit"])] {
            assert_eq!(with(Some("anthropic/x")).resolve(&choice, None), Err(no_key(&choice)), "{choice:?}");
        }
        let own = with(Some("team/plan")).resolve(&ModelChoice::Default, None).unwrap();
        assert_eq!(own.names, ["team/plan"], "models of the host's own need no key");
        assert_eq!(with(None).resolve(&ModelChoice::Inherit, None), Err(Unresolved::NoDefault));
    }

    #[test]
    fn r19_an_unknown_model_falls_back_with_a_visible_warning() {
        let resolved = resolver(&ALL).resolve(&named(&["mystery"]), None).unwrap();
        assert_eq!(resolved.names, ["openai/gpt-4.1"]);
        assert_eq!(resolved.warnings, ["unknown model `mystery`; using openai/gpt-4.1"]);
    }

    #[test]
    fn strict_makes_every_guess_an_error() {
        let resolver = Resolver { strict: true, ..resolver(&ALL) };
        for name in ["mystery", "claude-sonnet-4-20250514", "grok-4"] {
            assert!(matches!(resolver.resolve(&named(&[name]), None), Err(Unresolved::Strict(_))), "{name}");
        }
        assert!(resolver.resolve(&named(&["sonnet"]), None).is_ok());
    }

    #[test]
    fn a_map_rewrites_what_files_ask_for_and_leaves_inheritance_alone() {
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
    fn users_aliases_win() {
        let aliases = BTreeMap::from([("sonnet".to_owned(), "ollama/qwen3".to_owned())]);
        let resolver = Resolver { aliases, ..resolver(&ALL) };
        assert_eq!(resolver.resolve(&named(&["SONNET"]), None).unwrap().names, ["ollama/qwen3"]);
    }

    #[test]
    fn providers_are_tried_in_one_order_and_the_choice_is_explained() {
        let with = |vars: &'static [&'static str]| {
            let lookup = move |name: &str| vars.contains(&name).then(|| secrecy::SecretString::from("key-value"));
            default_model(&Providers::new(BTreeMap::new(), lookup))
        };
        assert_eq!(with(&[]), None);
        let (name, why) = with(&["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]).unwrap();
        assert_eq!(name, "anthropic/claude-sonnet-5-5");
        assert_eq!(why, "using anthropic/claude-sonnet-5-5, because ANTHROPIC_API_KEY is set (choose with --model)");
        assert_eq!(with(&["GEMINI_API_KEY", "GROQ_API_KEY"]).unwrap().0, "gemini/gemini-3.8-flash");
        assert_eq!(with(&["OPENAI_API_KEY", "GEMINI_API_KEY"]).unwrap().0, "openai/gpt-6.1-sol");
        let why = with(&["GOOGLE_API_KEY"]).unwrap().1;
        assert!(why.contains("because GOOGLE_API_KEY is set"), "{why}");
    }

    #[test]
    fn a_moved_provider_is_not_said_to_have_a_key() {
        let lookup =
            |name: &str| (name == "OPENAI_BASE_URL").then(|| secrecy::SecretString::from("http://localhost:1"));
        let (_, why) = default_model(&Providers::new(BTreeMap::new(), lookup)).unwrap();
        assert_eq!(why, "using openai/gpt-6.1-sol, because OPENAI_BASE_URL is set (choose with --model)");
        let moved = crate::ProviderConfig { base_url: Some("http://localhost:1".into()), ..Default::default() };
        let providers = Providers::new(BTreeMap::from([("openai".to_owned(), moved)]), |_| None);
        let (_, why) = default_model(&providers).unwrap();
        assert_eq!(why, "using openai/gpt-6.1-sol, because its address is configured (choose with --model)");
    }

    #[test]
    fn offline_never_stands_in_for_a_model_that_somebody_relies_on() {
        let case = OfflineCase { agent_is_built_in: true, names_a_model: false, person_reads: true };
        assert!(may_go_offline(case));
        assert!(!may_go_offline(OfflineCase { agent_is_built_in: false, ..case }));
        assert!(!may_go_offline(OfflineCase { names_a_model: true, ..case }));
        assert!(!may_go_offline(OfflineCase { person_reads: false, ..case }));
    }
}
