//! Warnings and errors of model resolution. They name no command-line flags: a host adds its hints by matching on the
//! variants.

use std::fmt;

/// A guess or a replacement that the user should see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveWarning {
    /// No alias, provider or model family matches the name.
    #[error("unknown model `{name}`")]
    UnknownModel {
        /// The name as written.
        name: String,
    },
    /// The model's provider has no API key.
    #[error("`{name}` is not available: no API key for {}", .key.provider)]
    NoKey {
        /// The name as written.
        name: String,
        /// The key that is missing.
        key: MissingKey,
    },
    /// The provider has switched the model off.
    #[error("`{name}` is retired; using {successor}")]
    Retired {
        /// The name as written.
        name: String,
        /// The model that replaces it, as `provider/model`.
        successor: String,
    },
}

/// An API key that is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKey {
    /// The provider that needs the key.
    pub provider: String,
    /// The environment variables that may hold it; empty if they are not known.
    pub variables: Vec<String>,
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no API key for {}", self.provider)?;
        if self.variables.is_empty() { Ok(()) } else { write!(f, ": set {}", self.variables.join(" or ")) }
    }
}

/// The reason why a model choice could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The choice names no model and there is no default.
    #[error("no model available: no model is named and no provider API key is set")]
    NoDefault,
    /// The provider of the chosen model has no API key, and there is no other model to use.
    #[error("{0}")]
    NoKey(MissingKey),
    /// No alias, provider or model family matches the name that the user or the host gave.
    #[error("unknown model `{0}`")]
    UnknownModel(String),
    /// The choice can only be resolved with a guess, which strict resolution does not allow.
    #[error("{0} (strict mode allows no substitutes)")]
    Strict(ResolveWarning),
}
