//! What was approved: for each server its command and its tools, word for word. A server that says something else later
//! has to be approved again.

use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    config::ServerConfig,
    definitions::{Offer, OfferedTool},
};

/// Approvals by server name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeMap<String, Pin>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    config: String,
    tools: Vec<OfferedTool>,
}

/// What is known of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinState<'a> {
    /// Nobody has approved it.
    Unknown,
    /// It was approved with another command, or other arguments or variables.
    Changed,
    /// It was approved with these tools.
    Approved(&'a [OfferedTool]),
}

impl Pins {
    /// The pins in a file; none where there is no file.
    pub fn load(path: &Path) -> io::Result<Self> {
        match std::fs::read(path) {
            Ok(json) => Ok(serde_json::from_slice(&json)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes them down, for the user alone.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        crate::trust::save_private(path, &serde_json::to_vec_pretty(self)?)
    }

    /// What is known of a server as it is configured now.
    pub fn state(&self, config: &ServerConfig) -> PinState<'_> {
        match self.0.get(&config.name) {
            None => PinState::Unknown,
            Some(pin) if pin.config != config.hash() => PinState::Changed,
            Some(pin) => PinState::Approved(&pin.tools),
        }
    }

    /// Approves what a server offers. Whoever calls this speaks for the user.
    pub fn approve(&mut self, offer: &Offer) {
        let pin = Pin { config: offer.config.clone(), tools: offer.tools.clone() };
        self.0.insert(offer.server.clone(), pin);
    }

    /// Takes an approval back.
    pub fn forget(&mut self, server: &str) {
        self.0.remove(server);
    }
}
