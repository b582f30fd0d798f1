//! Copies of trees that are driven elsewhere, such as by workers on other machines: the records are taken over as they are,
//! and this process does not become the owner.

use std::sync::Arc;

use homing_core::fact::{Fact, Record};
use rusqlite::params;

use crate::journal::{
    JournalError,
    sqlite::{SqliteJournal, owner::host_name, ownership::OwnedTree, row::Row, write_txn::WriteTxn},
};

impl SqliteJournal {
    /// Stores consecutive records of a tree that is driven elsewhere. Records that are already stored are skipped.
    ///
    /// # Errors
    /// Fails if a record is missing before the first one, or the file cannot be written.
    pub async fn copy(&self, records: Vec<Arc<Record>>) -> Result<(), JournalError> {
        let rows = records.into_iter().map(Row::new).collect::<Result<Vec<_>, _>>()?;
        self.queue.run(move |txn| txn.all_or_nothing(|txn| copy(txn, &rows))).await
    }
}

/// Names a journal among those of all machines: the machine and the file. Trees that are submitted from it carry the name.
pub fn journal_name(journal: &SqliteJournal) -> String {
    format!("{}:{}", host_name(), journal.path().display())
}

fn copy(txn: &mut WriteTxn, mut rows: &[Row]) -> Result<(), JournalError> {
    if let Some((first, rest)) = rows.split_first()
        && first.record.seq == 0
        && txn.records().stored(first.record.tree)?.is_none()
    {
        if let Fact::Spawned(spawned) = &first.record.fact {
            // The server has given the key to this tree, so it has forgotten the one that had it.
            let sql = "UPDATE trees SET key = NULL WHERE key = ?1 AND pruned";
            txn.connection.execute(sql, [&spawned.key])?;
        }
        txn.records().begin(first)?;
        txn.ownership().release(first.record.tree)?;
        rows = rest;
    }
    rows.chunk_by(|one, next| one.record.epoch == next.record.epoch).try_for_each(|rows| copy_of_owner(txn, rows))
}

/// Stores the records of one owner, on whose behalf this process has the tree meanwhile.
fn copy_of_owner(txn: &mut WriteTxn, rows: &[Row]) -> Result<(), JournalError> {
    let Some(Record { tree, epoch, .. }) = rows.first().map(|row| &*row.record) else { return Ok(()) };
    let next = txn.records().stored(*tree)?.ok_or(JournalError::NoSuchTree(*tree))?;
    let new = &rows[rows.partition_point(|row| row.record.seq < next.seq)..];
    if new.is_empty() {
        return Ok(());
    }
    txn.connection.execute(
        "UPDATE trees SET owner = ?2, epoch = ?3 WHERE id = ?1",
        params![tree.to_string(), txn.me.id, epoch],
    )?;
    let mut records = txn.records();
    let owned = OwnedTree::new(*epoch, &next, records.batch.data_version);
    records.owned.trees.insert(*tree, owned);
    records.append(&new.iter().collect::<Vec<_>>()).all()?;
    drop(records);
    txn.ownership().release(*tree)
}

#[cfg(test)]
mod tests {
    use homing_core::{
        definition::AgentDefinition,
        envelope::Status,
        fact::ON_RESTATE,
        limits::Limits,
        model::SingleModel,
        registry::Registry,
        scripted_model::{FunctionModel, say},
    };

    use super::*;
    use crate::{
        Runtime, RuntimeParts, Task,
        journal::{
            Claim, InboxRequest, Journal, MemoryJournal,
            sqlite::{Filter, Posted, SqliteOptions, take_for_workers},
        },
    };

    #[tokio::test]
    async fn copies_are_complete_and_cannot_be_claimed() {
        let model = Arc::new(SingleModel(Arc::new(FunctionModel::new("script/m", |_| Ok(say("done"))))));
        let registry = Registry::from_iter([AgentDefinition::new("worker", "works", "worker")]);
        let elsewhere = MemoryJournal::new();
        let runtime = Runtime::new(RuntimeParts::new(registry, model, elsewhere.clone()));
        let mut task = Task::new("worker", "go");
        task.tags.insert(ON_RESTATE.to_owned(), "http://server".to_owned());
        let run = runtime.spawn(task).unwrap();
        run.wait().await;
        let tree = run.tree_id();
        let mut records = elsewhere.records(tree);
        // The tree was taken over by another worker after its first record.
        for record in &mut records[1..] {
            Arc::make_mut(record).epoch = 3;
        }
        let folder = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(folder.path().join("j.db"), SqliteOptions::default()).unwrap();
        journal.copy(records[..2].to_vec()).await.unwrap();
        assert!(matches!(journal.claim(tree, Claim::Force).await, Err(JournalError::Owned { .. })));
        assert!(journal.copy(records[3..].to_vec()).await.is_err(), "a record is missing");
        let cancel = InboxRequest::Cancel { tree, run: tree, by: "a test".to_owned() };
        assert!(matches!(journal.post(cancel.clone()).await, Ok(Posted::ToOwner { .. })), "a host passes it on");
        let more = InboxRequest::Extend { tree, run: tree, more: Limits::default() };
        assert_eq!(journal.post(more).await, Ok(Posted::NoOwner), "workers raise no limits");
        assert_eq!(take_for_workers(&journal).await, Ok(vec![cancel.clone()]));
        assert_eq!(take_for_workers(&journal).await, Ok(vec![]));
        let row = journal.runs(&Filter::default()).unwrap().remove(0);
        assert_eq!((row.status, journal.envelope(tree).unwrap().status), (Status::Running, Status::Running));
        journal.copy(records.clone()).await.unwrap();
        assert_eq!(journal.load(tree).await.unwrap(), records);
        assert_eq!(journal.envelope(tree).unwrap().output, "done");
        assert_eq!(journal.post(cancel).await, Ok(Posted::NoOwner), "it has ended");
    }
}
