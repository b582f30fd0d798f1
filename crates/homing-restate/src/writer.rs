//! Appends the records of one tree, of all segments that this worker owns.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use homing_core::fact::Record;
use homing_runtime::journal::{FactListener, JournalError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    bodies,
    journal::unwritable,
    protocol::{Append, Appended, TREE},
    server::Server,
};

/// Size from which on records go into several requests. A server accepts 32 MB.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Most records of one request.
const MAX_BATCH: usize = 500;

type Done = oneshot::Sender<Result<(), JournalError>>;

/// Something for the writer of a tree to do.
pub(crate) enum Queued {
    /// Append a record of a segment.
    Record { segment: Uuid, record: Arc<Record>, done: Done },
    /// Tell when everything before is stored.
    Flush(oneshot::Sender<()>),
}

/// Appends the records of one tree.
pub(crate) struct Writer {
    pub(crate) server: Server,
    pub(crate) listener: Arc<OnceLock<FactListener>>,
    pub(crate) tree: Uuid,
}

/// Records of one owner, in order.
struct Batch {
    segment: Uuid,
    epoch: u32,
    records: Vec<(Arc<Record>, Done)>,
}

/// Progress of an owner: the number of records that it has stored, or the reason why it cannot store more.
#[derive(Default)]
struct Progress {
    written: u64,
    closed: Option<JournalError>,
}

impl Writer {
    pub(crate) async fn work(self, mut receiver: mpsc::UnboundedReceiver<Queued>) {
        let mut owners: HashMap<u32, Progress> = HashMap::new();
        let mut queued = Vec::new();
        while receiver.recv_many(&mut queued, MAX_BATCH).await > 0 {
            let (mut batches, mut flushes) = (Vec::<Batch>::new(), Vec::new());
            for item in queued.drain(..) {
                match item {
                    Queued::Flush(done) => flushes.push(done),
                    Queued::Record { segment, record, done } => {
                        let epoch = record.epoch;
                        match batches.iter_mut().find(|batch| batch.epoch == epoch) {
                            Some(batch) => batch.records.push((record, done)),
                            None => batches.push(Batch { segment, epoch, records: vec![(record, done)] }),
                        }
                    }
                }
            }
            if !batches.is_empty() {
                self.store(batches, &mut owners).await;
            }
            for done in flushes {
                let _ = done.send(());
            }
        }
    }

    async fn store(&self, batches: Vec<Batch>, owners: &mut HashMap<u32, Progress>) {
        let (mut open, mut failed) = (Vec::new(), Vec::new());
        for batch in batches {
            match owners.entry(batch.epoch).or_default().closed.clone() {
                Some(error) => failed.push((batch, error)),
                None => open.push(batch),
            }
        }
        let results = self.append(&open, owners).await;
        for (batch, result) in open.into_iter().zip(results) {
            let progress = owners.entry(batch.epoch).or_default();
            match result {
                Ok(()) => {
                    progress.written += batch.records.len() as u64;
                    for (record, done) in batch.records {
                        if let Some(listener) = self.listener.get() {
                            listener(&record);
                        }
                        let _ = done.send(Ok(()));
                    }
                }
                Err(error) => {
                    // A record is missing from now on, so nothing more may follow.
                    progress.closed = Some(error.clone());
                    failed.push((batch, error));
                }
            }
        }
        for (batch, error) in failed {
            for (_, done) in batch.records {
                let _ = done.send(Err(error.clone()));
            }
        }
    }

    /// Stores batches with one request, and returns the result of each.
    async fn append(&self, batches: &[Batch], owners: &HashMap<u32, Progress>) -> Vec<Result<(), JournalError>> {
        let all = |error: JournalError| batches.iter().map(|_| Err(error.clone())).collect::<Vec<_>>();
        let mut append = Append { groups: Vec::new(), bodies: Default::default() };
        for batch in batches {
            let records: Vec<&Record> = batch.records.iter().map(|(record, _)| &**record).collect();
            let from = owners.get(&batch.epoch).map_or(0, |progress| progress.written);
            match bodies::group(batch.segment, from, &records, &mut append.bodies) {
                Ok(group) => append.groups.push(group),
                Err(error) => return all(JournalError::Unwritable(error.to_string())),
            }
        }
        if batches.is_empty() {
            return Vec::new();
        }
        let requests = match append.split(MAX_BYTES) {
            Ok(requests) => requests,
            Err(error) => return all(JournalError::Unwritable(error.to_string())),
        };
        // The object recognises records that it has already stored.
        let path = [TREE, &self.tree.to_string(), "append"];
        let mut appended: Vec<Appended> = batches.iter().map(|_| Appended::Stored).collect();
        for (at, request) in requests {
            let stored: Vec<Appended> = match self.server.call_until_answered(&path, &request).await {
                Ok(stored) => stored,
                Err(error) => return all(unwritable(error)),
            };
            for (appended, stored) in appended.iter_mut().skip(at).zip(stored) {
                // What follows a record that was refused is refused as well.
                if *appended == Appended::Stored {
                    *appended = stored;
                }
            }
        }
        let result = |(appended, batch): (Appended, &Batch)| match appended {
            Appended::Stored => Ok(()),
            Appended::Fenced => Err(JournalError::Fenced { tree: self.tree }),
            Appended::Gap { next } => {
                Err(JournalError::Damaged(format!("run {}: {next} records found, more were written", batch.segment)))
            }
        };
        appended.into_iter().zip(batches).map(result).collect()
    }
}
