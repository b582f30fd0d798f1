//! Receipts: what a run really did, taken from its facts and not from what its model says. They list files that file tools
//! wrote, commands with the files of the working folder that they changed, and hosts that web tools reached. Other files, and
//! hosts that a command uses, are not seen.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    fact::Called,
    json_text::JsonText,
    message::{Args, ToolResult},
    tool::CallKey,
    tool_names,
};

/// Longest command in a receipt, in bytes; the journal has the whole command.
const MAX_COMMAND: usize = 500;

/// Everything that a run really did, as far as its tools saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipts {
    /// Files that were written, in the order of their first change, with their latest contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileReceipt>,
    /// Commands that were started, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandReceipt>,
    /// Hosts that web tools reached, in the order of the first request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// A file that was written. The file tools report it as the data of their results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReceipt {
    /// The path, relative to the working folder if inside it.
    pub path: String,
    /// The SHA-256 hash of its contents after the write, in hexadecimal digits; empty if the file was deleted.
    pub sha256: String,
    /// True if the run created it.
    pub created: bool,
    /// The hash of its contents before the write, if the file existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// True if the run deleted it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// The permission bits of a file that was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// A command that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReceipt {
    /// The command line; a long one is cut.
    pub command: String,
    /// The exit code. Null if the command did not exit by itself, or if its outcome is not known.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i64>,
    /// True if it was ended by its timeout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

/// Hosts that were reached. The web tools report it as the data of their results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedHosts {
    /// The host names, in order.
    pub hosts: Vec<String>,
}

impl Receipts {
    /// Returns whether the run did nothing that leaves a receipt.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.commands.is_empty() && self.hosts.is_empty()
    }
}

/// Collects receipts from facts.
///
/// Only the tools of this project count, by name: the data of other tools comes from models and servers, which could claim
/// anything in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiptLog {
    pub(crate) receipts: Receipts,
    /// Commands that have not returned, with their positions.
    open: Vec<(CallKey, usize)>,
}

impl ReceiptLog {
    pub(crate) const EMPTY: Self =
        Self { receipts: Receipts { files: Vec::new(), commands: Vec::new(), hosts: Vec::new() }, open: Vec::new() };

    /// Returns whether calls of this tool leave receipts.
    pub(crate) fn takes(tool: &str) -> bool {
        matches!(
            tool,
            tool_names::BASH
                | tool_names::WRITE
                | tool_names::EDIT
                | tool_names::RESTORE
                | tool_names::FETCH
                | tool_names::WEBSEARCH
        )
    }

    /// Takes in a call that begins.
    pub(crate) fn called(&mut self, called: &Called) {
        let Args::Json(args) = &called.call.args else { return };
        if called.call.name != tool_names::BASH || self.open.iter().any(|(key, _)| *key == called.key) {
            return;
        }
        let command = args.get("command").and_then(Value::as_str).unwrap_or_default();
        let shown = &command[..command.floor_char_boundary(MAX_COMMAND)];
        let ellipsis = if shown.len() < command.len() { "…" } else { "" };
        self.open.push((called.key, self.receipts.commands.len()));
        self.receipts.commands.push(CommandReceipt { command: format!("{shown}{ellipsis}"), ..Default::default() });
    }

    /// Takes in the result of a call.
    pub(crate) fn returned(&mut self, key: CallKey, result: &ToolResult) {
        let data = || result.data.as_ref().map(JsonText::value).unwrap_or_default();
        match result.name.as_str() {
            tool_names::BASH => {
                let Some(at) = self.open.iter().position(|(open, _)| *open == key) else { return };
                let (_, position) = self.open.swap_remove(at);
                let (data, receipt) = (data(), &mut self.receipts.commands[position]);
                receipt.exit_code = data.get("exit_code").and_then(Value::as_i64);
                receipt.signal = data.get("signal").and_then(Value::as_i64);
                receipt.timed_out = data.get("timed_out").and_then(Value::as_bool).unwrap_or(false);
                let files = data.get("files").cloned().and_then(|files| serde_json::from_value(files).ok());
                let files: Vec<FileReceipt> = files.unwrap_or_default();
                files.into_iter().for_each(|file| self.wrote(file));
            }
            tool_names::WRITE | tool_names::EDIT | tool_names::RESTORE => {
                if let Ok(file) = serde_json::from_value::<FileReceipt>(data()) {
                    self.wrote(file);
                }
            }
            tool_names::FETCH | tool_names::WEBSEARCH => {
                let reached = serde_json::from_value::<ReachedHosts>(data()).unwrap_or_default();
                for host in reached.hosts {
                    if !self.receipts.hosts.contains(&host) {
                        self.receipts.hosts.push(host);
                    }
                }
            }
            _ => (),
        }
    }

    fn wrote(&mut self, file: FileReceipt) {
        match self.receipts.files.iter_mut().find(|known| known.path == file.path) {
            Some(known) => (known.sha256, known.deleted, known.mode) = (file.sha256, file.deleted, file.mode),
            None => self.receipts.files.push(file),
        }
    }
}
