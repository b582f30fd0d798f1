//! The tool calls of a run's last reply, and the guard against repeating the same call.

use std::{collections::BTreeSet, sync::Arc};

use super::questions::AskedQuestion;
use crate::{
    fact::CallRefusal,
    message::{Args, FNV_START, ToolCall, ToolResult, fnv, json_hash},
    receipts::{ReceiptLog, Receipts},
    taint::Origin,
    tool::{CallKey, Replay},
    tool_names,
};

/// One call of the last reply with its progress.
#[derive(Clone, Debug, PartialEq)]
pub struct CallState {
    /// The call.
    pub call: Arc<ToolCall>,
    /// Identity of the call.
    pub key: CallKey,
    /// Set when the call has begun.
    pub begun: Option<Replay>,
    pub(super) result: Option<Arc<ToolResult>>,
    pub(super) refusal: Option<CallRefusal>,
}

impl CallState {
    /// Creates a call without a result.
    pub fn new(key: CallKey, call: Arc<ToolCall>, begun: Option<Replay>) -> Self {
        Self { call, key, begun, result: None, refusal: None }
    }
}

/// Effects of the calls of a whole run.
#[derive(Clone, Copy, Debug)]
pub struct CallEffects<'a> {
    /// Messages of the calls that were denied.
    pub denied: &'a [String],
    /// Rules that would allow the calls which were denied because no approver was available.
    pub needs_approval: &'a [String],
    /// Origins of untrusted content that they read.
    pub origins: &'a BTreeSet<Origin>,
    /// Files, commands and hosts.
    pub receipts: &'a Receipts,
}

/// The calls of the last reply, until all have returned.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) states: Vec<CallState>,
    pub(super) repeats: Repeats,
    /// Questions of these calls.
    pub(super) questions: Vec<AskedQuestion>,
    /// Messages of the calls that were denied, over the whole run.
    pub(super) denied: Vec<String>,
    /// Rules that would allow calls which were denied because no approver was available.
    pub(super) needs_approval: Vec<String>,
    /// Untrusted content that the calls read, over the whole run.
    pub(super) origins: BTreeSet<Origin>,
    /// Receipts of the calls, over the whole run.
    pub(super) receipts: ReceiptLog,
}

impl Calls {
    /// Returns the calls that have no result yet.
    pub(super) fn open(&self) -> impl Iterator<Item = &CallState> {
        self.states.iter().filter(|state| state.result.is_none())
    }

    /// Returns how the call has begun, if it has.
    pub(super) fn begun(&self, key: CallKey) -> Option<Replay> {
        self.states.iter().find(|state| state.key == key)?.begun
    }

    pub(super) fn begin(&mut self, key: CallKey, replay: Replay) {
        if let Some(state) = self.states.iter_mut().find(|state| state.key == key) {
            state.begun = Some(replay);
        }
    }

    /// Records a result. Returns `false` if no such call is open.
    pub(super) fn finish(&mut self, key: CallKey, result: &Arc<ToolResult>, refusal: Option<&CallRefusal>) -> bool {
        let open = self.states.iter_mut().find(|state| state.key == key && state.result.is_none());
        let Some(state) = open else { return false };
        (state.result, state.refusal) = (Some(result.clone()), refusal.cloned());
        true
    }

    /// Returns the results of the last reply's calls that have returned.
    pub(super) fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.states.iter().filter_map(|state| state.result.as_deref())
    }
}

/// Returns whether a call that has begun waits for other runs instead of working: delegation, and a skill that runs on its own.
pub(super) fn waits_for_runs(tool: &str, begun: Option<Replay>) -> bool {
    let tool = tool_names::canonical(tool).unwrap_or(tool);
    tool_names::is_delegation(tool) || (tool == tool_names::SKILL && begun == Some(Replay::Keyed))
}

/// Counts identical calls with identical results in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeats {
    fingerprint: u64,
    count: u32,
}

impl Repeats {
    /// Takes in a call and its result, and returns how often they have occurred in a row.
    pub(super) fn count(&mut self, call: &ToolCall, result: &ToolResult) -> u32 {
        let fingerprint = fingerprint(call, result);
        let count = if self.fingerprint == fingerprint { self.count + 1 } else { 1 };
        *self = Self { fingerprint, count };
        count
    }
}

/// Identifies a call and its result. It need not be stable across versions: only calls of one process are compared.
fn fingerprint(call: &ToolCall, result: &ToolResult) -> u64 {
    let args = match &call.args {
        Args::Json(value) => json_hash(value),
        Args::Malformed(text) => fnv(FNV_START, text.as_bytes()),
    };
    [call.name.as_str(), &result.text].iter().fold(args, |hash, text| fnv(hash, text.as_bytes()))
}
