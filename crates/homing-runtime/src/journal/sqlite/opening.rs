//! Opens a journal on the thread of its writer, while the caller prepares something else.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread::JoinHandle,
};

use crate::journal::{
    JournalError,
    sqlite::{
        Retention, SqliteJournal, SqliteOptions,
        failpoint::FailpointCounter,
        file,
        owner::Owner,
        prune,
        queue::{WriteQueue, WriteRequest, writer_gone},
        rate_pauses::SharedPauses,
        schema,
        write_txn::WriteTxn,
        writer::{self, DurableListener},
    },
};

/// A journal that is being opened. Dropping it waits until the file is closed again.
pub struct OpeningJournal {
    path: PathBuf,
    options: SqliteOptions,
    queue: WriteQueue,
    listener: DurableListener,
    opened: Receiver<Result<OpenFile, JournalError>>,
    writer: Option<JoinHandle<()>>,
}

/// The content of the file that a journal begins with, read by its writer.
struct OpenFile {
    me: Owner,
    pauses: SharedPauses,
    prunes: Option<Retention>,
}

impl OpeningJournal {
    /// Begins to open the journal at `path`, as [`SqliteJournal::open`] does.
    ///
    /// # Errors
    /// Fails if the writer's thread cannot be started.
    pub fn begin(path: impl Into<PathBuf>, options: SqliteOptions) -> Result<Self, JournalError> {
        let path = path.into();
        let (queue, listener) = (WriteQueue::default(), DurableListener::default());
        if options.begins_trees {
            queue.note(|txn| Ok(txn.me.beat(&txn.connection)?));
        }
        let (sender, opened) = channel();
        let writer = std::thread::Builder::new()
            .name("homing-journal".to_owned())
            .spawn({
                let (path, queue, listener) = (path.clone(), queue.clone(), listener.clone());
                let (retention, closes, points) = (options.retention, options.closes_after_trees, points(&options));
                move || match open_file(&path, retention, points) {
                    Ok((txn, file)) => {
                        let _ = sender.send(Ok(file));
                        writer::work(txn.closes_after_trees(closes), &queue, &listener);
                    }
                    Err(error) => _ = sender.send(Err(error)),
                }
            })
            .map_err(|error| JournalError::Unwritable(format!("cannot start the writer thread: {error}")))?;
        // The kernel often starts a thread on the core of the thread that made it, even if another core is idle. Then the writer begins
        // only when the caller waits for it. If it begins now, the caller works while the writer waits for the disk.
        std::thread::yield_now();
        Ok(Self { path, options, queue, listener, opened, writer: Some(writer) })
    }

    /// Waits until the journal is open.
    ///
    /// # Errors
    /// Fails for the reasons of [`SqliteJournal::open`].
    pub fn wait(mut self) -> Result<Arc<SqliteJournal>, JournalError> {
        let OpenFile { me, pauses, prunes } = self.opened.recv().unwrap_or_else(|_| Err(writer_gone()))?;
        let journal = SqliteJournal {
            path: std::mem::take(&mut self.path),
            options: std::mem::take(&mut self.options),
            queue: self.queue.clone(),
            writer: self.writer.take(),
            listener: self.listener.clone(),
            me,
            idle_readers: Mutex::default(),
            pauses: Mutex::new(pauses),
        };
        if let Some(keep) = prunes {
            journal.prune_in_background(keep);
        }
        Ok(Arc::new(journal))
    }
}

impl fmt::Debug for OpeningJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpeningJournal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for OpeningJournal {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.queue.send(WriteRequest::Stop);
            let _ = writer.join();
        }
    }
}

fn open_file(
    path: &Path,
    retention: Option<Retention>,
    points: FailpointCounter,
) -> Result<(WriteTxn, OpenFile), JournalError> {
    file::prepare(path)?;
    let connection = schema::open_writer(path)?;
    // A reader would cost more than what is read here: SQLite parses all table definitions for each connection.
    let mut pauses = SharedPauses::default();
    pauses.refresh(&connection);
    let (me, prunes) = (Owner::this(), retention.filter(|_| prune::is_due(&connection)));
    let txn = WriteTxn::new(connection, path.to_owned(), me.clone(), points);
    Ok((txn, OpenFile { me, pauses, prunes }))
}

#[cfg(any(test, feature = "failpoints"))]
fn points(options: &SqliteOptions) -> FailpointCounter {
    FailpointCounter::new(options.failpoint)
}

#[cfg(not(any(test, feature = "failpoints")))]
fn points(_: &SqliteOptions) -> FailpointCounter {
    FailpointCounter::default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn journal_that_is_not_waited_for_is_closed_and_leaves_no_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let options = SqliteOptions { begins_trees: true, ..SqliteOptions::default() };
        drop(OpeningJournal::begin(&path, options).unwrap());
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["journal.db"], "the log was emptied");
        assert_eq!(Owner::all(&schema::open_reader(&path).unwrap()).unwrap(), []);
    }

    #[test]
    fn wait_returns_why_the_file_cannot_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        fs::write(&path, "not a database, but long enough to be taken for one".repeat(50)).unwrap();
        let opening = OpeningJournal::begin(&path, SqliteOptions::default()).unwrap();
        assert!(matches!(opening.wait(), Err(JournalError::Damaged(_))));
    }
}
