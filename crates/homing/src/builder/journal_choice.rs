//! The choice of a journal: none, a file, or an implementation of the host.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "sqlite")]
use homing_runtime::journal::sqlite::{SqliteJournal, SqliteOptions};
use homing_runtime::journal::{Journal, JournalError, NullJournal};

/// The place where facts are recorded.
///
/// # Examples
///
/// ```
/// use homing::JournalChoice;
///
/// let file = JournalChoice::from("journal.db");
/// let off = JournalChoice::Off;
/// ```
#[non_exhaustive]
pub enum JournalChoice {
    /// Nowhere: a crash loses all runs.
    Off,
    /// In an SQLite file, with options for accounts and retention.
    #[cfg(feature = "sqlite")]
    File(PathBuf, Box<SqliteOptions>),
    /// In a journal of the host.
    Own(Arc<dyn Journal>),
}

impl std::fmt::Debug for JournalChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("Off"),
            #[cfg(feature = "sqlite")]
            Self::File(path, _) => f.debug_tuple("File").field(path).finish(),
            Self::Own(_) => f.write_str("Own(..)"),
        }
    }
}

#[cfg(feature = "sqlite")]
impl<P: Into<PathBuf>> From<P> for JournalChoice {
    fn from(path: P) -> Self {
        Self::File(path.into(), Box::default())
    }
}

/// An open journal.
pub(super) struct OpenJournal {
    pub(super) journal: Arc<dyn Journal>,
    #[cfg(feature = "sqlite")]
    pub(super) file: Option<Arc<SqliteJournal>>,
}

impl JournalChoice {
    /// Opens the journal while `work` is done: SQLite reads the file and parses its tables, which takes about as long as finding
    /// a project's agents.
    #[cfg(feature = "tools")]
    pub(super) fn open_beside<T>(self, work: impl FnOnce() -> T) -> (Result<OpenJournal, JournalError>, T) {
        if matches!(self, Self::Off | Self::Own(_)) {
            return (self.open(), work());
        }
        std::thread::scope(|scope| {
            let opening = std::thread::Builder::new().spawn_scoped(scope, || self.open());
            let made = work();
            let opened = match opening {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => Err(JournalError::Unwritable(format!("cannot start a thread: {error}"))),
            };
            (opened, made)
        })
    }

    pub(super) fn open(self) -> Result<OpenJournal, JournalError> {
        let journal: Arc<dyn Journal> = match self {
            Self::Off => Arc::new(NullJournal::default()),
            Self::Own(journal) => journal,
            #[cfg(feature = "sqlite")]
            Self::File(path, mut options) => {
                options.begins_trees = true;
                let file = SqliteJournal::open(path, *options)?;
                return Ok(OpenJournal { journal: file.clone(), file: Some(file) });
            }
        };
        Ok(OpenJournal {
            journal,
            #[cfg(feature = "sqlite")]
            file: None,
        })
    }
}
