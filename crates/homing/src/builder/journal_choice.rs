//! The choice of a journal: none, a file, or an implementation of the host.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "sqlite")]
use homing_runtime::journal::sqlite::{OpeningJournal, SqliteJournal, SqliteOptions};
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
        #[cfg(feature = "sqlite")]
        if let Self::File(path, options) = self {
            let opening = begin_open(path, *options);
            let made = work();
            return (opening.and_then(|opening| Ok(OpenJournal::in_file(opening.wait()?))), made);
        }
        (self.open(), work())
    }

    pub(super) fn open(self) -> Result<OpenJournal, JournalError> {
        let journal: Arc<dyn Journal> = match self {
            Self::Off => Arc::new(NullJournal::default()),
            Self::Own(journal) => journal,
            #[cfg(feature = "sqlite")]
            Self::File(path, options) => return Ok(OpenJournal::in_file(begin_open(path, *options)?.wait()?)),
        };
        Ok(OpenJournal {
            journal,
            #[cfg(feature = "sqlite")]
            file: None,
        })
    }
}

#[cfg(feature = "sqlite")]
impl OpenJournal {
    fn in_file(file: Arc<SqliteJournal>) -> Self {
        Self { journal: file.clone(), file: Some(file) }
    }
}

/// Begins to open a file for a runtime, which will begin trees.
#[cfg(feature = "sqlite")]
fn begin_open(path: PathBuf, mut options: SqliteOptions) -> Result<OpeningJournal, JournalError> {
    options.begins_trees = true;
    OpeningJournal::begin(path, options)
}
