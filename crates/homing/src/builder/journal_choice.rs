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
    pub(super) fn open(self) -> Result<OpenJournal, JournalError> {
        let journal: Arc<dyn Journal> = match self {
            Self::Off => Arc::new(NullJournal::default()),
            Self::Own(journal) => journal,
            #[cfg(feature = "sqlite")]
            Self::File(path, options) => {
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
