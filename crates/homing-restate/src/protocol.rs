//! Requests and replies between submitters, workers and the services that workers serve. They are data of our own, so that
//! another engine could carry them.

use std::{collections::BTreeMap, path::PathBuf};

use homing_core::question::{Answer, QuestionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Version of these types. A worker refuses a submission with another one.
pub(crate) const VERSION: u32 = 1;

pub(crate) const TREE: &str = "HomingTree";
pub(crate) const RUN: &str = "HomingRun";
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

/// Records to append. The object stores them as they are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    /// Epoch of the writer.
    pub(crate) epoch: u32,
    /// Position of the first record.
    pub(crate) from: u64,
    pub(crate) records: Vec<Box<RawValue>>,
    /// Long texts that the records refer to, by hash.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) bodies: BTreeMap<String, String>,
    /// Number of records that are progress.
    pub(crate) steps: u64,
    /// True if the last record ends the tree.
    pub(crate) is_over: bool,
}

/// The result of appending.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Appended {
    Stored,
    /// Another worker owns the tree.
    Fenced,
    /// A record is missing before the first one.
    Gap {
        next: u64,
    },
}

/// The result of claiming a tree.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Claimed {
    Epoch(u32),
    NoSuchTree,
    /// Workers died repeatedly at the same step.
    CrashLoop {
        times: u32,
    },
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
    pub(crate) definitions: String,
}

/// State of a tree's object, apart from its records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) epoch: u32,
    pub(crate) next: u64,
    pub(crate) steps: u64,
    pub(crate) is_over: bool,
    /// True while a worker drives the tree.
    pub(crate) has_owner: bool,
    /// Workers that died since step `crashed_at`.
    pub(crate) crashes: u32,
    pub(crate) crashed_at: u64,
    /// Number of requests that were posted.
    pub(crate) posted: u64,
    pub(crate) definitions: String,
}

/// A request to the worker that drives a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Post {
    /// Cancel a run.
    Cancel {
        /// The run.
        run: Uuid,
        /// The requesting user or process.
        by: String,
    },
    /// Send a run a message.
    Tell {
        /// The run.
        run: Uuid,
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
}

/// Properties of a submission that a worker checks before anything is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Preflight {
    /// Version of the protocol.
    pub version: u32,
    /// Models of the root, preferred first.
    pub models: Vec<String>,
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
