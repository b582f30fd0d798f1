//! The tool calls of a run's last reply, and the guard against repeating the same call.

use std::{collections::BTreeSet, sync::Arc};

use super::questions::AskedQuestion;
use crate::{
    fact::{CallRefusal, Called},
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
    /// Effects of all calls of the run, if there are any.
    effects: Option<Box<Effects>>,
}

/// Effects of all calls of a run.
#[derive(Clone, Debug, Default)]
struct Effects {
    /// Messages of the calls that were denied.
    denied: Vec<String>,
    /// Rules that would allow calls which were denied because no approver was available.
    needs_approval: Vec<String>,
    /// Untrusted content that the calls read.
    origins: BTreeSet<Origin>,
    receipts: ReceiptLog,
}

/// The effects of a run whose calls had none.
static NO_EFFECTS: Effects =
    Effects { denied: Vec::new(), needs_approval: Vec::new(), origins: BTreeSet::new(), receipts: ReceiptLog::EMPTY };

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

    /// Takes in the effects of a call that begins.
    pub(super) fn note_called(&mut self, called: &Called) {
        if let Some(origin) = called.origin {
            self.effects.get_or_insert_default().origins.insert(origin);
        }
        if ReceiptLog::takes(&called.call.name) {
            self.effects.get_or_insert_default().receipts.called(called);
        }
    }

    /// Takes in the effects of a call that has returned.
    pub(super) fn note_returned(&mut self, key: CallKey, result: &ToolResult, refused: Option<&CallRefusal>) {
        let allow: &[String] = match refused {
            Some(CallRefusal::NoApprover { allow }) => allow,
            Some(_) | None => &[],
        };
        if matches!(refused, Some(CallRefusal::Denied | CallRefusal::NoApprover { .. })) {
            let effects = self.effects.get_or_insert_default();
            effects.denied.push(result.text.clone());
            for rule in allow {
                if !effects.needs_approval.contains(rule) {
                    effects.needs_approval.push(rule.clone());
                }
            }
        }
        if ReceiptLog::takes(&result.name) {
            self.effects.get_or_insert_default().receipts.returned(key, result);
        }
    }

    /// Returns the effects of all calls of the run.
    pub(super) fn effects(&self) -> CallEffects<'_> {
        let Effects { denied, needs_approval, origins, receipts } = self.effects.as_deref().unwrap_or(&NO_EFFECTS);
        CallEffects { denied, needs_approval, origins, receipts: &receipts.receipts }
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
