//! What was approved: for each server its command and its tools, word for word. A server that says something else later
//! has to be approved again.

use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::mcp::{
    config::ServerConfig,
    definitions::{Offer, OfferedTool},
};

/// Approvals by server name. Projects use the same names for servers of their own, so that one name has many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeMap<String, Approvals>);

/// Approvals under one name, by how the server is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
struct Approvals(Vec<Pin>);

/// As files have them: a list, or the one approval that a name could have once.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Many(Vec<Pin>),
    One(Pin),
}

impl From<Written> for Approvals {
    fn from(written: Written) -> Self {
        match written {
            Written::Many(pins) => Self(pins),
            Written::One(pin) => Self(vec![pin]),
        }
    }
}

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
        let Some(approvals) = self.0.get(&config.name) else { return PinState::Unknown };
        let hash = config.hash();
        match approvals.0.iter().find(|pin| pin.config == hash) {
            None => PinState::Changed,
            Some(pin) => PinState::Approved(&pin.tools),
        }
    }

    /// Approves what a server offers. Whoever calls this speaks for the user.
    pub fn approve(&mut self, offer: &Offer) {
        let pin = Pin { config: offer.config.clone(), tools: offer.tools.clone() };
        let approvals = self.0.entry(offer.server.clone()).or_default();
        approvals.0.retain(|it| it.config != pin.config);
        approvals.0.push(pin);
    }

    /// Takes all approvals under this name back.
    pub fn forget(&mut self, server: &str) {
        self.0.remove(server);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_of_two_projects_under_one_name_are_approved_apart_and_old_files_are_read() {
        let config = |arg: &str| ServerConfig::parse("db", &json!({"command": "x", "args": [arg]})).unwrap();
        let offer = |config: &ServerConfig| Offer::of(config, Vec::new());
        let mut pins = Pins::default();
        pins.approve(&offer(&config("a")));
        assert_eq!(pins.state(&config("b")), PinState::Changed);
        pins.approve(&offer(&config("b")));
        pins.approve(&offer(&config("b")));
        assert_eq!(pins.state(&config("a")), PinState::Approved(&[]));
        assert_eq!(pins.state(&config("b")), PinState::Approved(&[]));
        assert_eq!(pins.0["db"].0.len(), 2);
        let old = json!({"db": {"config": config("a").hash(), "tools": []}});
        let old: Pins = serde_json::from_value(old).unwrap();
        assert_eq!(old.state(&config("a")), PinState::Approved(&[]));
        let again: Pins = serde_json::from_value(serde_json::to_value(&pins).unwrap()).unwrap();
        assert_eq!(again, pins);
    }
}
