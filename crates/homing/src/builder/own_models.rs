//! The host's own models by name, for builds without providers.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    definition::ModelChoice,
    model::{Model, ModelError, Models, ResolvedModel},
};

pub(super) struct OwnModels {
    pub(super) own: BTreeMap<String, Arc<dyn Model>>,
    /// The model of runs that name none.
    pub(super) default: String,
}

impl OwnModels {
    fn unknown(&self, name: &str) -> ModelError {
        let known: Vec<&str> = self.own.keys().map(String::as_str).collect();
        let known = known.join(", ");
        let reason = format!(
            "there is no model `{name}`; known: {known}. Models of providers need the feature `providers` of the crate `homing`"
        );
        ModelError::Unusable { reason }
    }
}

impl Models for OwnModels {
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let names = choice.names();
        let found = names.iter().find(|name| self.own.contains_key(*name)).cloned();
        let resolved = |name: String, warnings| Ok(ResolvedModel { names: vec![name], warnings });
        match (found, choice) {
            (Some(name), _) => resolved(name, Vec::new()),
            (None, ModelChoice::Exact(name)) => Err(self.unknown(name)),
            (None, _) => {
                let name = parent.filter(|name| self.own.contains_key(*name)).unwrap_or(&self.default);
                let warning = |asked: &String| format!("there is no model `{asked}`: {name} is used");
                resolved(name.to_owned(), names.first().map(warning).into_iter().collect())
            }
        }
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.own.get(name).cloned().ok_or_else(|| self.unknown(name))
    }
}
