//! The models of a session: providers, names and the one that the user chose.

use std::{collections::BTreeMap, sync::Arc};

use homing::{Catalog, ModelOptions, environment};
use homing_core::definition::ModelChoice;
use homing_models::{
    Providers,
    names::{Availability, Resolver, Unresolved},
};

use crate::{
    cli::run::WithArgs,
    config::Layered,
    exit::{Trouble, TroubleKind},
};

pub(super) fn catalog(with: &WithArgs, config: &Layered) -> Arc<Catalog> {
    let providers =
        Providers::new(config.user.providers.clone(), environment::key).with_aws_profile(environment::aws_profile());
    let mut options = ModelOptions::default();
    options.default = with.model.clone().or_else(|| config.user.model.clone());
    options.aliases.clone_from(&config.user.aliases);
    options.map = model_map(with, config);
    options.strict = with.strict;
    Arc::new(Catalog::new(providers, options, BTreeMap::new()))
}

/// Flags come first, because the first match wins.
fn model_map(with: &WithArgs, config: &Layered) -> Vec<(String, String)> {
    let flags = with.model_map.iter().flat_map(|map| map.iter().cloned());
    flags.chain(config.user.model_map.iter().map(|(from, to)| (from.clone(), to.clone()))).collect()
}

/// Resolves the model that the user named. It is never replaced by another one.
pub(super) fn checked_model(
    catalog: &Catalog,
    config: &Layered,
    with: &WithArgs,
    name: &str,
) -> Result<String, Trouble> {
    let resolver = |providers: &dyn Availability, strict: bool| {
        let (aliases, map) = (config.user.aliases.clone(), model_map(with, config));
        let choice = ModelChoice::Exact(name.to_owned());
        Resolver { providers, default: None, aliases, map, strict }.resolve(&choice, None)
    };
    let providers = catalog.providers();
    let error = match resolver(providers, with.strict) {
        Ok(found) => return Ok(found.names.into_iter().next().unwrap_or_else(|| name.to_owned())),
        Err(error) => resolver(providers, true).err().unwrap_or(error),
    };
    // A name that resolves once every provider is usable lacks nothing but a key.
    let meant = resolver(&AsIfUsable(providers), false).ok().and_then(|found| found.names.into_iter().next());
    let provider = meant.as_deref().and_then(|model| model.split_once('/')).map(|(provider, _)| provider);
    let row = provider.and_then(|provider| providers.row(provider));
    if let Some((row, variable)) = row.as_ref().and_then(|row| Some((row, row.key_vars.first()?)))
        && !providers.is_usable(&row.name)
    {
        let message = format!("no API key for {}: set {variable}", row.name);
        return Err(Trouble::new(TroubleKind::Auth, message).hint("`homing doctor` lists the providers"));
    }
    let message = match error {
        Unresolved::Strict(warning) => warning.to_string(),
        other @ (Unresolved::NoDefault | Unresolved::NoKey(_) | Unresolved::UnknownModel(_)) => other.to_string(),
    };
    Err(Trouble::usage(message)
        .hint("write provider/model, such as anthropic/claude-sonnet-5-5; `homing doctor` lists the providers"))
}

/// The providers as if each had a key.
pub(crate) struct AsIfUsable<'a>(pub(crate) &'a Providers);

impl Availability for AsIfUsable<'_> {
    fn has(&self, provider: &str) -> bool {
        self.0.has(provider)
    }

    fn is_usable(&self, provider: &str) -> bool {
        self.0.has(provider)
    }
}
