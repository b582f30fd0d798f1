//! Requests and replies between submitters, workers and the services that workers serve. They are data of our own, so that
//! another engine could carry them.

use std::{collections::BTreeMap, path::PathBuf};

use homing_runtime::placement::SegmentRequest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Version of these types. Workers refuse submissions, trees and segments that need a later one.
pub(crate) const VERSION: u32 = 4;

/// The oldest version that this one understands, and that a submission without later features needs.
pub(crate) const OLDEST: u32 = 4;

pub(crate) const TREE: &str = "HomingTree";
pub(crate) const RUN: &str = "HomingRun";
pub(crate) const LEDGER: &str = "HomingLedger";
pub(crate) const ACCOUNT: &str = "HomingAccount";
pub(crate) const RATE_LIMIT: &str = "HomingRateLimit";
pub(crate) const KEY: &str = "HomingKey";
pub(crate) const DEFINITIONS: &str = "HomingDefinitions";
pub(crate) const WORKER: &str = "HomingWorker";

/// A new tree.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) tree: Uuid,
    /// Hash of the agent definitions.
    pub(crate) definitions: String,
    /// Fingerprint of agent and task, to recognise a second submission with the same key.
    pub(crate) task: String,
    pub(crate) first: Append,
    /// Version that a worker must have to read and drive the tree.
    #[serde(default)]
    pub(crate) version: u32,
    /// Hash of the submission key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

/// The result of submitting a tree with a key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Begun {
    New,
    Earlier(Uuid),
    /// The key belongs to another task.
    KeyTaken,
}

/// The work of a workflow: one segment of a tree. The workflow's key begins with the segment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) tree: Uuid,
    /// Hash of the agent definitions.
    pub(crate) definitions: String,
    /// Version that the worker must have.
    #[serde(default)]
    pub(crate) version: u32,
}

/// Records to append, of one or several segments.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Append {
    pub(crate) groups: Vec<Group>,
    /// Long texts that the records refer to, by hash.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) bodies: BTreeMap<String, String>,
}

/// Records of one segment. The object stores them as they are; their positions follow from the order in which they arrive.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) segment: Uuid,
    /// Epoch of the writer.
    pub(crate) epoch: u32,
    /// Number of records that the writer has stored in this epoch before.
    pub(crate) from: u64,
    pub(crate) records: Vec<Box<RawValue>>,
    /// Number of records that are progress.
    pub(crate) steps: u64,
    /// True if the last record ends the segment.
    pub(crate) is_over: bool,
}

/// The result of appending a group.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Appended {
    Stored,
    /// Another worker owns the segment.
    Fenced,
    /// A record is missing before the first one.
    Gap {
        next: u64,
    },
}

/// A segment to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) segment: Uuid,
    /// The segment that waits for its end.
    pub(crate) parent: Uuid,
}

/// The result of claiming a segment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Claimed {
    Epoch(u32),
    NoSuchTree,
    /// Workers died repeatedly at the same step. The epoch is for recording the end of a segment that others wait for; a whole
    /// tree is left as it is.
    CrashLoop {
        times: u32,
        epoch: Option<u32>,
    },
}

/// An owner that gives up its segment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Release {
    pub(crate) segment: Uuid,
    pub(crate) epoch: u32,
}

/// A request to the owner of a segment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Posted {
    pub(crate) segment: Uuid,
    /// Two requests with the same key are one.
    #[serde(default)]
    pub(crate) key: String,
    pub(crate) request: SegmentRequest,
}

/// A request in the inbox of a segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// Number of records of the tree when it was left.
    #[serde(default)]
    pub(crate) at: u64,
    /// Distinguishes it from all other requests.
    #[serde(default)]
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) request: SegmentRequest,
}

/// Raises a limit of a tree that has ended by it, and lets workers drive the tree again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reopen {
    /// Number of records of the tree, by which the caller decided.
    pub(crate) next: u64,
    pub(crate) request: SegmentRequest,
}

/// The result of reopening a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reopened {
    Continues,
    /// Records were added since.
    Changed,
    NoSuchTree,
}

/// The result of deleting a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deleted {
    /// Its facts are deleted.
    Deleted,
    /// It has not ended, and nothing was deleted.
    Open,
    /// The server does not have it.
    Unknown,
}

/// Reads the requests to the owner of a segment, without the first ones, which are carried out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Take {
    pub(crate) segment: Uuid,
    pub(crate) done: usize,
}

/// Some records of a tree.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) records: Vec<Box<RawValue>>,
    /// Number of records that the tree has.
    pub(crate) next: u64,
    pub(crate) is_over: bool,
    /// Reason why no worker takes the tree any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stuck: Option<String>,
    /// Address at which the worker that drives the root serves the text of replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<String>,
    pub(crate) definitions: String,
}

/// State of a tree's object, apart from its records and its segments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// The last epoch that was given to an owner. No two owners of segments of a tree have the same.
    pub(crate) epoch: u32,
    pub(crate) next: u64,
    /// Number of records that are progress.
    pub(crate) steps: u64,
    pub(crate) is_over: bool,
    /// Reason why no worker drives the tree any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stuck: Option<String>,
    /// Address at which the worker that drives the root serves the text of replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<String>,
    pub(crate) definitions: String,
    /// Version that workers must have. Others leave the tree alone, because they would lose what they do not know.
    #[serde(default)]
    pub(crate) version: u32,
    /// Hash of the submission key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Positions at which the latest groups of records begin.
    pub(crate) tail: Vec<u64>,
}

/// State of a segment in its tree's object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SegmentState {
    /// The segment that waits for its end; `None` for the root's.
    pub(crate) parent: Option<Uuid>,
    /// Epoch of its owner, or of the last one.
    pub(crate) epoch: u32,
    /// Records stored in this epoch.
    pub(crate) written: u64,
    /// True while a worker drives the segment.
    pub(crate) has_owner: bool,
    /// Deaths of workers since step `crashed_at` of the tree, weighted. Progress of other segments counts, because a worker that only
    /// waits for them is not to blame.
    pub(crate) crashes: u32,
    pub(crate) crashed_at: u64,
    /// Number of times that the owner was woken.
    pub(crate) nudges: u64,
    pub(crate) is_over: bool,
    /// Number of times that the segment was continued after its end. A workflow runs once, so each time has its own.
    #[serde(default)]
    pub(crate) reopened: u32,
}

impl SegmentState {
    /// The key of the segment's workflow.
    pub(crate) fn workflow(&self, segment: Uuid) -> String {
        match self.reopened {
            0 => segment.to_string(),
            again => format!("{segment}.{again}"),
        }
    }
}

/// The segment of a workflow.
pub(crate) fn segment_of_workflow(key: &str) -> Option<Uuid> {
    key.split('.').next()?.parse().ok()
}

/// Properties of a submission that a worker checks before anything is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Preflight {
    /// Version of the protocol that the submission needs.
    pub version: u32,
    /// Models that the worker must have.
    pub models: Vec<String>,
    /// The account that pays, which the worker must know.
    #[serde(default)]
    pub account: Option<String>,
    /// Working folder and the proof that it is shared, if the run needs one.
    pub workspace: Option<SharedFolder>,
}

/// A working folder that workers must share with the submitter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedFolder {
    /// The folder.
    pub folder: PathBuf,
    /// A file that the submitter has just written.
    pub proof: PathBuf,
    /// Its content.
    pub content: String,
}
