//! Submits run trees to a server, follows them, and sends them requests.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use homing_core::{
    fact::{Fact, Record, Spawned},
    place::Place,
    registry::Registry,
    tool::{Effect, ToolSpec},
};
use homing_runtime::{journal::JournalError, placement::SegmentRequest};
use uuid::Uuid;

use crate::{
    bodies, definitions, journal,
    protocol::{Append, Begin, Begun, KEY, OLDEST, Posted, Preflight, SharedFolder, TREE, WORKER},
    server::{Server, ServerError},
};

/// A run tree to submit.
pub struct Submission<'a> {
    /// Everything that the root is created with.
    pub spawned: Spawned,
    /// ID of the root.
    pub id: Uuid,
    /// Milliseconds since 1970.
    pub at: u64,
    /// The definitions that the tree may delegate to.
    pub registry: &'a Registry,
    /// Models that a worker must have.
    pub models: Vec<String>,
    /// True if the workers must share the working folder.
    pub needs_workspace: bool,
}

/// The result of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The tree is new.
    New,
    /// An earlier tree has the same key and task.
    Earlier(Uuid),
    /// The key belongs to another task.
    KeyTaken,
}

/// Some records of a tree, and its state.
pub struct Page {
    /// The records.
    pub records: Vec<Arc<Record>>,
    /// True if the server had more records than fit the page.
    pub has_more: bool,
    /// True if the tree has ended and there are no more records.
    pub is_over: bool,
    /// Reason why no worker drives the tree any more.
    pub stuck: Option<String>,
    /// Address at which a worker serves the text of replies while they arrive.
    pub live: Option<String>,
}

/// Returns whether a tool needs the files of the working folder.
pub fn needs_workspace(tool: &ToolSpec) -> bool {
    match tool.effect {
        Effect::Reads | Effect::Changes | Effect::Commands => true,
        Effect::Network | Effect::Delegates => false,
    }
}

impl Server {
    /// Submits a tree. Nothing is recorded before a worker has agreed to its model and its folder.
    ///
    /// # Errors
    /// Fails if the server has no worker, or the worker cannot run the tree.
    pub async fn submit(&self, submission: Submission<'_>) -> Result<Submitted, ServerError> {
        let Submission { spawned, id, at, registry, models, needs_workspace } = submission;
        let proof = needs_workspace.then(|| Proof::write(&spawned.workdir, id)).transpose()?;
        let preflight = Preflight {
            version: OLDEST,
            models,
            account: spawned.account.clone(),
            workspace: proof.as_ref().map(|proof| proof.0.clone()),
        };
        let refused: Option<String> = self.call(&[WORKER, "preflight"], &preflight).await?;
        drop(proof);
        if let Some(reason) = refused {
            return Err(ServerError::Refused(reason));
        }
        let definitions = definitions::store(self, registry).await?;
        let attached: String = spawned.attachments.iter().map(|image| image.base64.as_str()).collect();
        let task = bodies::sha256(&format!("{}\n{}\n{attached}", spawned.agent.name, spawned.task));
        // A key may contain anything; its hash fits a path.
        let key = spawned.key.as_deref().map(bodies::sha256);
        let fact = Fact::Spawned(Arc::new(spawned));
        let first = Record { tree: id, seq: 0, at, epoch: 1, run: id, place: Place::root(), fact };
        let mut texts = BTreeMap::new();
        let group =
            bodies::group(id, 0, &[&first], &mut texts).map_err(|error| ServerError::Refused(error.to_string()))?;
        let first = Append { groups: vec![group], bodies: texts };
        first.check_size().map_err(|error| ServerError::Refused(error.to_string()))?;
        let begin = Begin { tree: id, definitions, task, first, version: OLDEST, key: key.clone() };
        let Some(key) = key else {
            self.call::<()>(&[TREE, &id.to_string(), "begin"], &begin).await?;
            return Ok(Submitted::New);
        };
        Ok(match self.call(&[KEY, &key, "submit"], &begin).await? {
            Begun::New => Submitted::New,
            Begun::Earlier(tree) => Submitted::Earlier(tree),
            Begun::KeyTaken => Submitted::KeyTaken,
        })
    }

    /// Reads the records of a tree from a position on; `None` if there is no such tree.
    ///
    /// # Errors
    /// Fails if the server or its workers cannot be reached, or a record cannot be read by this version.
    pub async fn records(&self, tree: Uuid, from: u64) -> Result<Option<Page>, ServerError> {
        let Some(page) = journal::page(self, tree, from).await? else { return Ok(None) };
        let records = journal::read(self, tree, from, &page).await.map_err(|error: JournalError| {
            ServerError::Failed { url: self.ingress().to_owned(), reason: error.to_string() }
        })?;
        let has_more = from.saturating_add(records.len() as u64) < page.next;
        let is_over = page.is_over && !has_more;
        Ok(Some(Page { records, has_more, is_over, stuck: page.stuck, live: page.live }))
    }

    /// Sends a request to the worker that drives a tree. Returns false if the tree has ended.
    ///
    /// # Errors
    /// Fails if the server or its workers cannot be reached.
    pub async fn post(&self, tree: Uuid, request: SegmentRequest) -> Result<bool, ServerError> {
        let posted = Posted { segment: tree, key: Uuid::now_v7().to_string(), request };
        self.post_once(tree, &posted).await
    }

    /// Leaves a request for the owner of a segment, however often it must be sent.
    pub(crate) async fn post_once(&self, tree: Uuid, posted: &Posted) -> Result<bool, ServerError> {
        self.call_once(&[TREE, &tree.to_string(), "post"], posted, &posted.key).await
    }
}

/// A file in the working folder that shows a worker whether it shares the folder. Dropping it removes the file.
struct Proof(SharedFolder);

impl Proof {
    fn write(folder: &Path, id: Uuid) -> Result<Self, ServerError> {
        let proof = folder.join(format!(".homing-shared-{id}"));
        let content = Uuid::now_v7().to_string();
        std::fs::write(&proof, &content).map_err(|error| {
            ServerError::Refused(format!("cannot write into the folder {}: {error}", folder.display()))
        })?;
        Ok(Self(SharedFolder { folder: folder.to_owned(), proof, content }))
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0.proof);
    }
}
