//! The structured answer of a run, attempts to repair it, and the check by the `until` command.

use serde_json::Value;

use crate::tool::Replay;

/// The structured answer of a run and whether it has been accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerState {
    /// The first valid answer.
    pub(super) data: Option<Value>,
    /// Results of a program. Unlike an answer, they count even if the run did not finish.
    pub(super) results: Option<Value>,
    /// True if the model has been asked to repair an answer.
    pub(super) repair_asked: bool,
    /// Number of repairs and of answers that did not match the schema.
    pub(super) repairs: u32,
    pub(super) check: Check,
}

/// Progress of the `until` command since the last reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Check {
    #[default]
    NotRun,
    Running(Replay),
    Passed,
    Failed,
}

impl Check {
    /// Returns the state after a new reply: an earlier result no longer counts, but an open check stays open.
    pub(super) fn after_reply(self) -> Self {
        match self {
            Self::Running(replay) => Self::Running(replay),
            Self::NotRun | Self::Passed | Self::Failed => Self::NotRun,
        }
    }

    /// Returns how the open check may be repeated, if one is open.
    pub(super) fn begun(self) -> Option<Replay> {
        match self {
            Self::Running(replay) => Some(replay),
            Self::NotRun | Self::Passed | Self::Failed => None,
        }
    }
}
