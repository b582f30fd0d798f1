//! `RestateJournal`: the journal of trees whose facts are kept by a Restate server.
//!
//! Each tree that this worker owns has a queue. One task per tree appends everything that is queued as one request, so that
//! a thousand runs of a tree share their requests to the server.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homing_core::{BoxFuture, fact::Record};
use homing_runtime::journal::{Begun, Claim, Commit, FactListener, InboxRequest, Journal, JournalError};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use uuid::Uuid;

use crate::{
    bodies,
    protocol::{Append, Appended, Claimed, Facts, Post, TREE},
    server::{Server, ServerError},
};

/// Time for which a request is repeated while the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(120);

/// Most records of one request.
const MAX_BATCH: usize = 500;

type Done = oneshot::Sender<Result<(), JournalError>>;

/// The journal of trees on a Restate server.
pub struct RestateJournal {
    server: Server,
    listener: Arc<OnceLock<FactListener>>,
    queues: Mutex<HashMap<Uuid, Queue>>,
    inbox: Mutex<Vec<InboxRequest>>,
}

struct Queue {
    epoch: u32,
    sender: mpsc::UnboundedSender<(Arc<Record>, Done)>,
}

impl RestateJournal {
    /// A journal that owns no tree yet.
    pub fn new(server: Server) -> Arc<Self> {
        Arc::new(Self { server, listener: Arc::default(), queues: Mutex::default(), inbox: Mutex::default() })
    }

    /// Takes the requests about a tree from the server. The runtime finds them in its inbox.
    pub(crate) async fn take_posts(&self, tree: Uuid) -> Result<(), ServerError> {
        let posts: Vec<Post> = self.server.call(&[TREE, &tree.to_string(), "take"], &()).await?;
        let posts = posts.into_iter().map(|post| match post {
            Post::Cancel { run, by } => InboxRequest::Cancel { tree, run, by },
            Post::Tell { run, message } => InboxRequest::Tell { tree, run, message },
            Post::Answer { run, question, answer, by } => InboxRequest::Answer { tree, run, question, answer, by },
        });
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).extend(posts);
        Ok(())
    }

    /// Leaves a request to this worker itself.
    pub(crate) fn post_here(&self, request: InboxRequest) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    /// Returns whether the end of a tree is stored.
    pub(crate) async fn is_over(&self, tree: Uuid) -> Result<bool, ServerError> {
        Ok(page(&self.server, tree, u64::MAX).await?.is_some_and(|page| page.is_over))
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Uuid, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for RestateJournal {
    fn on_durable(&self, listener: FactListener) {
        let _ = self.listener.set(listener);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        // Trees are begun by their submitter, through the object of the tree.
        let error = format!("tree {} must be submitted to the server", first.tree);
        Box::pin(std::future::ready(Err(JournalError::Unwritable(error))))
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        let tree = record.tree;
        let (done, result) = oneshot::channel();
        let sent = self.queues().get(&tree).filter(|queue| queue.epoch == record.epoch).map(|queue| {
            let _ = queue.sender.send((record, done));
        });
        if sent.is_none() {
            return Commit::Done(Err(JournalError::Fenced { tree }));
        }
        Commit::Pending(Box::pin(async move { result.await.unwrap_or(Err(JournalError::Fenced { tree })) }))
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        self.since(tree, 0)
    }

    fn since(&self, tree: Uuid, from: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        Box::pin(async move {
            let mut records: Vec<Arc<Record>> = Vec::new();
            loop {
                let from = from + records.len() as u64;
                let page = page(&self.server, tree, from).await.map_err(unwritable)?;
                let page = page.ok_or(JournalError::NoSuchTree(tree))?;
                records.extend(read(&self.server, tree, &page).await?);
                if from + page.records.len() as u64 >= page.next || page.records.is_empty() {
                    return Ok(records);
                }
            }
        })
    }

    fn claim(&self, tree: Uuid, _: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        Box::pin(async move {
            let claimed: Claimed =
                self.server.call(&[TREE, &tree.to_string(), "claim"], &()).await.map_err(unwritable)?;
            let epoch = match claimed {
                Claimed::Epoch(epoch) => epoch,
                Claimed::NoSuchTree => return Err(JournalError::NoSuchTree(tree)),
                Claimed::CrashLoop { times } => return Err(JournalError::CrashLoop { tree, times }),
            };
            let (sender, receiver) = mpsc::unbounded_channel();
            self.queues().insert(tree, Queue { epoch, sender });
            let writer = Writer { server: self.server.clone(), listener: self.listener.clone(), tree };
            tokio::spawn(writer.work(receiver));
            Ok(epoch)
        })
    }

    fn release(&self, tree: Uuid) {
        let Some(queue) = self.queues().remove(&tree) else { return };
        let server = self.server.clone();
        tokio::spawn(async move {
            // Without it, the next claim only counts one death too many.
            let _ = server.call::<()>(&[TREE, &tree.to_string(), "release"], &queue.epoch).await;
        });
    }

    fn inbox(&self) -> BoxFuture<'_, Vec<InboxRequest>> {
        let taken = std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(std::future::ready(taken))
    }
}

/// Appends the records of one tree.
struct Writer {
    server: Server,
    listener: Arc<OnceLock<FactListener>>,
    tree: Uuid,
}

impl Writer {
    async fn work(self, mut receiver: mpsc::UnboundedReceiver<(Arc<Record>, Done)>) {
        let mut batch = Vec::new();
        let mut closed: Option<JournalError> = None;
        while receiver.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let result = match &closed {
                Some(error) => Err(error.clone()),
                None => self.store(&batch).await,
            };
            // A record is missing from now on, so nothing more may follow.
            closed = result.clone().err();
            for (record, done) in batch.drain(..) {
                if let (Ok(()), Some(listener)) = (&result, self.listener.get()) {
                    listener(&record);
                }
                let _ = done.send(result.clone());
            }
        }
    }

    async fn store(&self, batch: &[(Arc<Record>, Done)]) -> Result<(), JournalError> {
        let records: Vec<&Record> = batch.iter().map(|(record, _)| &**record).collect();
        let append = bodies::append(&records).map_err(|error| JournalError::Unwritable(error.to_string()))?;
        match self.send(&append).await? {
            Appended::Stored => Ok(()),
            Appended::Fenced => Err(JournalError::Fenced { tree: self.tree }),
            Appended::Gap { next } => {
                Err(JournalError::Damaged(format!("tree {}: {next} records found, {} written", self.tree, append.from)))
            }
        }
    }

    /// Sends a request until the server has answered it. The object recognises records that it has already stored.
    async fn send(&self, append: &Append) -> Result<Appended, JournalError> {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(50));
        loop {
            match self.server.call(&[TREE, &self.tree.to_string(), "append"], append).await {
                Ok(appended) => return Ok(appended),
                Err(error) if error.is_transient() && began.elapsed() < PATIENCE => {
                    tracing::warn!(tree = %self.tree, %error, "appending again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                Err(error) => return Err(unwritable(error)),
            }
        }
    }
}

/// A page of a tree's records.
pub(crate) async fn page(server: &Server, tree: Uuid, from: u64) -> Result<Option<Facts>, ServerError> {
    server.call(&[TREE, &tree.to_string(), "facts"], &from).await
}

/// Parses the records of a page.
pub(crate) async fn read(server: &Server, tree: Uuid, page: &Facts) -> Result<Vec<Arc<Record>>, JournalError> {
    let mut texts = BTreeMap::new();
    let mut hashes: Vec<String> = page.records.iter().flat_map(|raw| bodies::references(raw)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    for hash in hashes {
        let text: Option<String> = server.call(&[TREE, &tree.to_string(), "body"], &hash).await.map_err(unwritable)?;
        texts.insert(hash, text.unwrap_or_default());
    }
    let parsed = page
        .records
        .iter()
        .map(|raw| bodies::read(raw, &texts).map(Arc::new).map_err(|error| JournalError::Unknown(error.to_string())));
    parsed.collect()
}

fn unwritable(error: ServerError) -> JournalError {
    JournalError::Unwritable(error.to_string())
}
