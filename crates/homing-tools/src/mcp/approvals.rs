//! Approvals of MCP servers: for each server its command and its tools, exactly as they were approved. A server that
//! differs later must be approved again.

use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::mcp::{
    config::ServerConfig,
    definitions::{ListedTool, ToolListing},
};

/// Approvals by server name. Projects may use the same name for different servers, so a name can have several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct McpApprovals(BTreeMap<String, ServerApprovals>);

/// The approvals under one name, one per server configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredApprovals")]
struct ServerApprovals(Vec<Approval>);

/// The approvals in a file: a list, or a single one as older versions wrote it.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredApprovals {
    Many(Vec<Approval>),
    One(Approval),
}

impl From<StoredApprovals> for ServerApprovals {
    fn from(stored: StoredApprovals) -> Self {
        match stored {
            StoredApprovals::Many(approvals) => Self(approvals),
            StoredApprovals::One(approval) => Self(vec![approval]),
        }
    }
}

/// One approved server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Approval {
    /// The hash of the server's configuration.
    config: String,
    tools: Vec<ListedTool>,
}

/// The approval of a server as it is configured now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalState<'a> {
    /// The server was never approved.
    Unknown,
    /// The server was approved with another command, other arguments or other variables.
    Changed,
    /// The server was approved with these tools.
    Approved(&'a [ListedTool]),
}

impl McpApprovals {
    /// Loads the approvals from a file; a missing file means none.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is damaged.
    pub fn load(path: &Path) -> io::Result<Self> {
        match std::fs::read(path) {
            Ok(json) => Ok(serde_json::from_slice(&json)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Saves the approvals to a file that only the user can read.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        crate::trust::save_private(path, &serde_json::to_vec_pretty(self)?)
    }

    /// Returns the approval of a server as it is configured now.
    pub fn state(&self, config: &ServerConfig) -> ApprovalState<'_> {
        let Some(approvals) = self.0.get(&config.name) else { return ApprovalState::Unknown };
        let hash = config.hash();
        match approvals.0.iter().find(|approval| approval.config == hash) {
            None => ApprovalState::Changed,
            Some(approval) => ApprovalState::Approved(&approval.tools),
        }
    }

    /// Approves the listed tools of a server. Call this only after the user has agreed.
    pub fn approve(&mut self, listing: &ToolListing) {
        let approval = Approval { config: listing.config.clone(), tools: listing.tools.clone() };
        let approvals = self.0.entry(listing.server.clone()).or_default();
        approvals.0.retain(|other| other.config != approval.config);
        approvals.0.push(approval);
    }

    /// Removes all approvals under this name.
    pub fn forget(&mut self, server: &str) {
        self.0.remove(server);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_with_one_name_are_approved_separately_and_old_files_load() {
        let config = |arg: &str| ServerConfig::parse("db", &json!({"command": "x", "args": [arg]})).unwrap();
        let listing = |config: &ServerConfig| ToolListing::new(config, Vec::new());
        let mut approvals = McpApprovals::default();
        approvals.approve(&listing(&config("a")));
        assert_eq!(approvals.state(&config("b")), ApprovalState::Changed);
        approvals.approve(&listing(&config("b")));
        approvals.approve(&listing(&config("b")));
        assert_eq!(approvals.state(&config("a")), ApprovalState::Approved(&[]));
        assert_eq!(approvals.state(&config("b")), ApprovalState::Approved(&[]));
        assert_eq!(approvals.0["db"].0.len(), 2);
        let old = json!({"db": {"config": config("a").hash(), "tools": []}});
        let old: McpApprovals = serde_json::from_value(old).unwrap();
        assert_eq!(old.state(&config("a")), ApprovalState::Approved(&[]));
        let again: McpApprovals = serde_json::from_value(serde_json::to_value(&approvals).unwrap()).unwrap();
        assert_eq!(again, approvals);
    }
}
