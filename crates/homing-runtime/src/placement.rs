//! `Placement`: the seam through which several processes drive one tree.
//!
//! A run that is placed begins a segment: any worker drives it and the runs below it, except for those that are placed in
//! turn. Each segment has its own owner and epoch; all of them append to the one log of the tree. Limits that several
//! segments share are kept by the tree's ledger: a segment reserves its share there before a model call, so that the sum never
//! exceeds a limit, whichever of the processes dies.

use std::collections::{BTreeMap, BTreeSet};

use homing_core::{
    BoxFuture,
    fact::{CancelledBy, Fact, Record, Spawned},
    limits::{Limit, Limits},
    question::{Answer, QuestionId},
    taint::Origin,
    tree::{RunTree, Share, segment::SHARED_LIMITS},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::journal::JournalError;

/// Tag of trees that were submitted to a server: the journal from which.
pub const SUBMITTED_FROM: &str = "submitted-from";

/// Places runs on other workers, and connects the segments of a tree.
pub trait Placement: Send + Sync {
    /// Returns whether a new child begins a segment.
    fn places(&self, child: &Spawned) -> bool;

    /// Starts the segment of a run that is recorded, below the segment `parent`. Does nothing if it was started before.
    fn start(&self, tree: Uuid, segment: Uuid, parent: Uuid) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Makes this process the owner of a segment.
    fn claim(&self, tree: Uuid, segment: Uuid) -> BoxFuture<'_, Result<ClaimedSegment, JournalError>>;

    /// Gives up the ownership of a segment.
    fn release(&self, tree: Uuid, epoch: u32);

    /// Sends a request to the owner of another segment. Two requests with the same key are delivered once.
    fn send(
        &self,
        tree: Uuid,
        segment: Uuid,
        request: SegmentRequest,
        key: String,
    ) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Returns the origins of the untrusted content that runs of the tree have read, whichever worker drives them.
    fn origins(&self, tree: Uuid) -> BoxFuture<'_, Result<BTreeSet<Origin>, JournalError>>;

    /// Replaces the share of a segment in the limits that it shares with others.
    fn reserve(&self, slice: SliceRequest) -> BoxFuture<'_, Result<SliceReply, JournalError>>;
}

/// A segment that this process owns.
pub struct ClaimedSegment {
    /// The epoch of the owner, which no other segment of the tree has.
    pub epoch: u32,
    /// The segment and its ancestors.
    pub fold: RunTree,
    /// Position in the log up to which the fold is complete.
    pub position: u64,
    /// Number of workers that died at the same step, if the segment must not be driven any more: it ends as failed, because
    /// other runs wait for it.
    pub crashes: Option<u32>,
}

/// A request to the owner of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentRequest {
    /// Cancel a run.
    Cancel {
        /// The run.
        run: Uuid,
        /// Origin of the request.
        by: CancelledBy,
    },
    /// Send a run a message.
    Tell {
        /// The run.
        run: Uuid,
        /// The sending run; `None` is the host.
        from: Option<Uuid>,
        /// The message.
        message: String,
    },
    /// Answer a question of a run.
    Answer {
        /// The run.
        run: Uuid,
        /// The question.
        question: QuestionId,
        /// The answer.
        answer: Answer,
        /// The answering user or process.
        by: String,
    },
    /// Raise the limits of a run, and continue it if a limit had ended it.
    Extend {
        /// The run.
        run: Uuid,
        /// Amounts to add.
        more: Limits,
    },
}

impl SegmentRequest {
    /// Returns the run that the request is about.
    pub fn run(&self) -> Uuid {
        match self {
            Self::Cancel { run, .. } | Self::Tell { run, .. } | Self::Answer { run, .. } | Self::Extend { run, .. } => {
                *run
            }
        }
    }

    /// Returns whether a record shows that the request was carried out. A repeated cancellation or answer changes nothing, so
    /// only the others need a proof.
    pub fn is_done_by(&self, record: &Record) -> bool {
        match (self, &record.fact) {
            (Self::Tell { run, from, message }, Fact::Told { from: told_from, message: told }) => {
                *run == record.run && from == told_from && message == told
            }
            (Self::Extend { run, more }, Fact::Extended { more: added }) => *run == record.run && *more == **added,
            _ => false,
        }
    }
}

/// The share that a segment wants in the limits of its ancestors and of its runs with segments below them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceRequest {
    /// The tree.
    pub tree: Uuid,
    /// The segment.
    pub segment: Uuid,
    /// The epoch of its owner.
    pub epoch: u32,
    /// Its whole share of each limit, including what it is about to spend.
    pub shares: Vec<HolderShare>,
    /// True if nothing may change unless all of it fits.
    pub must_fit: bool,
}

/// The share of a segment in the limits of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HolderShare {
    /// The run that has the limits.
    pub holder: Uuid,
    /// Its limit on tokens.
    pub tokens: Option<u64>,
    /// Its limit on cost.
    pub cost_micros: Option<u64>,
    /// Its limit on tool calls.
    #[serde(default)]
    pub tool_calls: Option<u64>,
    /// Its limit on runs below it.
    #[serde(default)]
    pub children: Option<u64>,
    /// The share.
    pub share: Share,
}

impl HolderShare {
    /// Returns a limit that the sum of all shares exceeds, of those in which this share has grown.
    pub fn exceeded(&self, before: &Share, sum: &Share) -> Option<Limit> {
        SHARED_LIMITS.into_iter().find(|limit| {
            let has_grown = self.share.used(*limit) > before.used(*limit);
            has_grown && self.limit(*limit).is_some_and(|most| sum.used(*limit) > Some(most))
        })
    }

    /// Returns a limit of the run.
    pub fn limit(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Tokens => self.tokens,
            Limit::Cost => self.cost_micros,
            Limit::ToolCalls => self.tool_calls,
            Limit::Children => self.children,
            _ => None,
        }
    }
}

/// The answer of the ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceReply {
    /// True if the shares were replaced.
    pub is_granted: bool,
    /// Shares of all other segments in each limit.
    pub elsewhere: Vec<(Uuid, Share)>,
}

/// The share of one segment in the limits of each run, as the tree's ledger keeps it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SegmentShares {
    epoch: u32,
    shares: BTreeMap<Uuid, Share>,
}

impl SegmentShares {
    /// Decides on a request: replaces the shares, unless they must fit and do not. `sums` are the sums over all segments, in the
    /// order of the request; they are updated if it is granted. A former owner of the segment is refused.
    pub fn replace(&mut self, request: &SliceRequest, sums: &mut [Share]) -> SliceReply {
        let SliceRequest { epoch, shares, must_fit, .. } = request;
        let mut reply = SliceReply { is_granted: self.epoch <= *epoch, elsewhere: Vec::with_capacity(shares.len()) };
        for (wanted, sum) in shares.iter().zip(sums.iter()) {
            let before = self.shares.get(&wanted.holder).copied().unwrap_or_default();
            let elsewhere = sum.minus(&before);
            reply.is_granted &= !must_fit || wanted.exceeded(&before, &elsewhere.plus(&wanted.share)).is_none();
            reply.elsewhere.push((wanted.holder, elsewhere));
        }
        if reply.is_granted {
            self.epoch = *epoch;
            for ((wanted, sum), (_, elsewhere)) in shares.iter().zip(sums).zip(&reply.elsewhere) {
                *sum = elsewhere.plus(&wanted.share);
                self.shares.insert(wanted.holder, wanted.share);
            }
        }
        reply
    }
}
