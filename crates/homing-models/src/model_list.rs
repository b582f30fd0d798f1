//! Limits and prices of the models of a provider, as far as they are known without asking it.

use homing_core::model::ModelCard;

use crate::{Providers, model_table, provider::card, secret::ApiKey};

impl Providers {
    /// Returns the models of a provider in the published table, sorted by name. Many providers have more.
    pub fn listed_models(&self, provider: &str) -> Vec<String> {
        let table = self.row(provider).and_then(|row| row.price_table.clone());
        table.map(|table| model_table::names(&table)).unwrap_or_default()
    }

    /// Returns the card of a model: its limits, prices and abilities, as far as they are known. Needs no API key.
    pub fn known_card(&self, provider: &str, model: &str) -> Option<ModelCard> {
        let row = self.row(provider)?;
        Some(card(&row, model, &ApiKey::new(None)))
    }
}
