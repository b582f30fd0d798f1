//! Models by name, from the providers that can be had and from programs that the host brought.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use homing_core::{
    definition::ModelChoice,
    model::{Model, ModelError, Models, ResolvedModel},
};
use homing_models::{
    NoModelError, ProviderConfig, Providers,
    names::{Availability, Resolver, Unresolved},
};

/// How model names are understood.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelOptions {
    /// What runs speak with where nothing is said; `None` takes the first provider that can be had.
    pub default: Option<String>,
    /// More aliases.
    pub aliases: BTreeMap<String, String>,
    /// Names in files that mean others: `sonnet=openai/…`, `*=…`.
    pub map: Vec<(String, String)>,
    /// Any fallback is an error.
    pub strict: bool,
    /// Changes and additions to the providers.
    pub providers: BTreeMap<String, ProviderConfig>,
}

/// Models by name. Each is made once and shared.
pub struct Catalog {
    providers: Providers,
    options: ModelOptions,
    own: BTreeMap<String, Arc<dyn Model>>,
    made: Mutex<HashMap<String, Arc<dyn Model>>>,
    last_resort: OnceLock<String>,
}

impl Catalog {
    /// A catalog over `providers`, with models of the host's own.
    pub fn new(providers: Providers, options: ModelOptions, own: BTreeMap<String, Arc<dyn Model>>) -> Self {
        Self { providers, options, own, made: Mutex::default(), last_resort: OnceLock::new() }
    }

    /// The providers.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// The model that runs speak with where nothing is said, and why it is this one.
    pub fn default_model(&self) -> Option<(String, String)> {
        match &self.options.default {
            Some(name) => Some((name.clone(), "as configured".to_owned())),
            None => homing_models::names::default_model(&self.providers)
                .or_else(|| Some((self.last_resort.get()?.clone(), "as nothing else can be had".to_owned()))),
        }
    }

    /// What runs speak with where nothing is said and no provider can be had. Only the first word counts.
    pub fn fall_back_to(&self, name: impl Into<String>) {
        let _ = self.last_resort.set(name.into());
    }

    fn resolver(&self) -> Resolver<'_> {
        // `--model sonnet` is a name like any other: it is understood before it becomes the default.
        let mut resolver = Resolver {
            providers: self,
            default: None,
            aliases: self.options.aliases.clone(),
            map: self.options.map.clone(),
            strict: self.options.strict,
        };
        let default = self.default_model().map(|(name, _)| name);
        resolver.default = default.map(|name| match self.own.contains_key(&name) {
            true => name,
            false => resolver
                .resolve(&ModelChoice::Named(vec![name.clone()]), None)
                .ok()
                .and_then(|resolved| resolved.names.into_iter().next())
                .unwrap_or(name),
        });
        resolver
    }
}

impl Availability for Catalog {
    fn has(&self, provider: &str) -> bool {
        self.providers.has(provider)
    }

    fn is_usable(&self, provider: &str) -> bool {
        self.providers.is_usable(provider)
    }

    fn owns(&self, model: &str) -> bool {
        self.own.contains_key(model)
    }
}

impl Models for Catalog {
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        if let ModelChoice::Named(names) = choice
            && let Some(own) = names.iter().find(|name| self.own.contains_key(*name))
        {
            return Ok(ResolvedModel { names: vec![own.clone()], warnings: Vec::new() });
        }
        match self.resolver().resolve(choice, parent) {
            Ok(found) => Ok(ResolvedModel { names: found.names, warnings: found.warnings }),
            Err(error @ (Unresolved::NoDefault | Unresolved::NoKey(_))) => {
                Err(ModelError::Unauthorized { reason: error.to_string() })
            }
            Err(error @ Unresolved::Strict(_)) => Err(ModelError::Unusable { reason: error.to_string() }),
        }
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(own) = self.own.get(name) {
            return Ok(own.clone());
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = made.get(name) {
            return Ok(model.clone());
        }
        if name == "offline" {
            let model: Arc<dyn Model> = Arc::new(homing_offline::OfflineModel::new());
            made.insert(name.to_owned(), model.clone());
            return Ok(model);
        }
        let model = self.providers.model(name).map_err(|error| match error {
            NoModelError::NoKey { .. } => ModelError::Unauthorized { reason: error.to_string() },
            NoModelError::UnknownProvider { .. } | NoModelError::NoProvider(_) | NoModelError::BadRow { .. } => {
                ModelError::Unusable { reason: error.to_string() }
            }
        })?;
        made.insert(name.to_owned(), model.clone());
        Ok(model)
    }
}
