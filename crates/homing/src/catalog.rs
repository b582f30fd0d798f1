//! Models by name: those of available providers and those of the host.

use std::{
    collections::BTreeMap,
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

/// Options for resolving model names.
///
/// # Examples
///
/// ```
/// let mut options = homing::ModelOptions::default();
/// options.default = Some("openai/gpt-4.1".to_owned());
/// options.aliases.insert("fast".to_owned(), "openai/gpt-4.1-mini".to_owned());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelOptions {
    /// The model of runs that name none. `None` takes the first available provider's.
    pub default: Option<String>,
    /// Further aliases.
    pub aliases: BTreeMap<String, String>,
    /// Names in agent files that are replaced by others: `sonnet=openai/…`, `*=…`.
    pub map: Vec<(String, String)>,
    /// Treats any fallback as an error.
    pub strict: bool,
    /// Changes and additions to the providers.
    pub providers: BTreeMap<String, ProviderConfig>,
}

/// Models by name. Each is created once and shared.
///
/// # Examples
///
/// ```
/// use homing::{Catalog, ModelChoice, ModelOptions, Models, model_fn, models::Providers, testing::say};
///
/// let own = model_fn("acme/large", |_| Ok(say("Hello!")));
/// let providers = Providers::new(Default::default(), |_| None); // no API keys
/// let mut options = ModelOptions::default();
/// options.default = Some("acme/large".to_owned());
/// let catalog = Catalog::new(providers, options, [("acme/large".to_owned(), own)].into());
/// assert_eq!(catalog.resolve(&ModelChoice::Inherit, None)?.names, ["acme/large"]);
/// # Ok::<(), homing::models::ModelError>(())
/// ```
pub struct Catalog {
    providers: Providers,
    options: ModelOptions,
    own: BTreeMap<String, Arc<dyn Model>>,
    /// Few models, which every call looks up: comparing their names takes less time than a hash.
    created: Mutex<BTreeMap<String, Arc<dyn Model>>>,
    /// The name of the default and the model that it means, once that is known.
    meaning_of_default: Mutex<Option<(String, String)>>,
    fallback: OnceLock<String>,
    /// The first model that the default provider's own server offers, and why it was chosen.
    served: OnceLock<(String, String)>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Creates a catalog of the models of `providers` and of the host's own models.
    pub fn new(providers: Providers, options: ModelOptions, own: BTreeMap<String, Arc<dyn Model>>) -> Self {
        let (created, meaning_of_default) = (Mutex::default(), Mutex::default());
        let (fallback, served) = (OnceLock::new(), OnceLock::new());
        Self { providers, options, own, created, meaning_of_default, fallback, served }
    }

    /// The providers.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// Returns the model of runs that name none, and why it was chosen.
    pub fn default_model(&self) -> Option<(String, String)> {
        match &self.options.default {
            Some(name) => Some((name.clone(), "as configured".to_owned())),
            None => (self.served.get().cloned())
                .or_else(|| homing_models::names::default_model(&self.providers))
                .or_else(|| Some((self.fallback.get()?.clone(), "no other model is available".to_owned()))),
        }
    }

    /// Asks the server of the default provider for its models, if it is on this machine or in its network, and takes the
    /// first as the model of runs that name none. Does nothing if a model is configured.
    pub async fn ask_served_default(&self) {
        if self.options.default.is_some() {
            return;
        }
        if let Some(served) = homing_models::names::served_model(&self.providers).await {
            let _ = self.served.set(served);
        }
    }

    /// Sets the model of runs that name none if no provider is available. Only the first call has an effect.
    pub fn fall_back_to(&self, name: impl Into<String>) {
        let _ = self.fallback.set(name.into());
    }

    fn resolver_without_default(&self) -> Resolver<'_> {
        Resolver {
            providers: self,
            default: None,
            aliases: self.options.aliases.clone(),
            map: self.options.map.clone(),
            strict: self.options.strict,
        }
    }

    fn resolver(&self) -> Resolver<'_> {
        // The default may be an alias, so it is resolved itself before it becomes the resolver's default.
        let mut resolver = self.resolver_without_default();
        let default = self.default_model().map(|(name, _)| name);
        resolver.default = default.map(|name| {
            if self.own.contains_key(&name) {
                return name;
            }
            let mut known = self.meaning_of_default.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, model)) = known.as_ref().filter(|(known, _)| *known == name) {
                return model.clone();
            }
            let resolved = resolver.resolve(&ModelChoice::Exact(name.clone()), None).ok();
            match resolved.and_then(|resolved| resolved.names.into_iter().next()) {
                Some(model) => known.insert((name, model)).1.clone(),
                None => name,
            }
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

    fn is_moved(&self, provider: &str) -> bool {
        Availability::is_moved(&self.providers, provider)
    }

    fn key_variables(&self, provider: &str) -> Vec<String> {
        Availability::key_variables(&self.providers, provider)
    }
}

impl Models for Catalog {
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        if let Some(own) = choice.names().iter().find(|name| self.own.contains_key(*name)) {
            return Ok(ResolvedModel { names: vec![own.clone()], warnings: Vec::new() });
        }
        // Most children use their parent's model. For them the default, which must be resolved first, does not matter.
        let inherited = parent.filter(|_| *choice == ModelChoice::Inherit);
        let inherited = inherited.and_then(|_| self.resolver_without_default().resolve(choice, parent).ok());
        match inherited.map_or_else(|| self.resolver().resolve(choice, parent), Ok) {
            Ok(found) => Ok(ResolvedModel { names: found.names, warnings: found.warnings }),
            Err(error @ (Unresolved::NoDefault | Unresolved::NoKey(_))) => {
                Err(ModelError::Unauthorized { reason: error.to_string() })
            }
            Err(error @ (Unresolved::Strict(_) | Unresolved::UnknownModel(_))) => {
                Err(ModelError::Unusable { reason: error.to_string() })
            }
        }
    }

    fn secrets(&self) -> Vec<String> {
        self.providers.secrets()
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(own) = self.own.get(name) {
            return Ok(own.clone());
        }
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = created.get(name) {
            return Ok(model.clone());
        }
        if name == "offline" {
            let model: Arc<dyn Model> = Arc::new(homing_offline::OfflineModel::new());
            created.insert(name.to_owned(), model.clone());
            return Ok(model);
        }
        let model = self.providers.model(name).map_err(|error| match error {
            NoModelError::NoKey { .. } => ModelError::Unauthorized { reason: error.to_string() },
            NoModelError::UnknownProvider { .. } | NoModelError::NoProvider(_) | NoModelError::BadRow { .. } => {
                ModelError::Unusable { reason: error.to_string() }
            }
        })?;
        created.insert(name.to_owned(), model.clone());
        Ok(model)
    }
}
