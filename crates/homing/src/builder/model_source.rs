//! The models of a builder: providers with their keys, own models, or a source that the host gives.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::model::{Model, Models};

use super::BuildError;

/// Finds keys and addresses by the names of their variables.
#[cfg(feature = "providers")]
type KeyLookup = Box<dyn Fn(&str) -> Option<secrecy::SecretString> + Send + Sync>;

#[derive(Default)]
pub(super) struct ModelSource {
    own: BTreeMap<String, Arc<dyn Model>>,
    pub(super) given: Option<Arc<dyn Models>>,
    /// The first model that was added.
    #[cfg(not(feature = "providers"))]
    default: Option<String>,
    #[cfg(feature = "providers")]
    pub(super) options: crate::ModelOptions,
    #[cfg(feature = "providers")]
    pub(super) keys: Option<KeyLookup>,
    #[cfg(feature = "providers")]
    pub(super) aws_profile: Option<Arc<dyn homing_models::AwsProfile>>,
}

impl ModelSource {
    pub(super) fn add(&mut self, model: Arc<dyn Model>) {
        let name = model.card().name.clone();
        #[cfg(feature = "providers")]
        self.options.default.get_or_insert(name.clone());
        #[cfg(not(feature = "providers"))]
        self.default.get_or_insert(name.clone());
        self.own.insert(name, model);
    }

    #[cfg(feature = "providers")]
    pub(super) fn build(self) -> Result<Arc<dyn Models>, BuildError> {
        if let Some(models) = self.given {
            return Ok(models);
        }
        if self.keys.is_none() && self.own.is_empty() && self.options.default.is_none() {
            return Err(BuildError::NoModels);
        }
        Ok(Arc::new(self.catalog()))
    }

    /// Returns the models of providers and the host's own ones.
    #[cfg(feature = "providers")]
    pub(super) fn catalog(mut self) -> crate::Catalog {
        let keys = self.keys.unwrap_or_else(|| Box::new(|_| None));
        let mut providers = homing_models::Providers::new(std::mem::take(&mut self.options.providers), keys);
        if let Some(profile) = self.aws_profile {
            providers = providers.with_aws_profile(profile);
        }
        crate::Catalog::new(providers, self.options, self.own)
    }

    #[cfg(not(feature = "providers"))]
    pub(super) fn build(self) -> Result<Arc<dyn Models>, BuildError> {
        let own = || {
            let default = self.default?;
            Some(Arc::new(super::own_models::OwnModels { own: self.own, default }) as Arc<dyn Models>)
        };
        self.given.or_else(own).ok_or(BuildError::NoModels)
    }
}
