//! The journal that a command uses: the file that a flag, the configuration or the user's folders name, or none.

use std::path::PathBuf;

use homing::{Folders, JournalChoice};
use homing_runtime::journal::sqlite::SqliteOptions;

use crate::{
    cli::run::{JournalArgs, WithArgs},
    config::Layered,
    exit::Trouble,
    session::SessionRequest,
    terminal,
};

/// Returns the path of the journal, or `None` if it is off.
pub(crate) fn journal_path(args: &JournalArgs, config: &Layered, folders: &Folders) -> Option<PathBuf> {
    match args.journal.as_deref().or(config.user.journal.as_deref()) {
        Some("off") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => folders.journal(),
    }
}

/// Chooses the journal of a session.
pub(super) fn journal(
    with: &WithArgs,
    config: &Layered,
    folders: &Folders,
    request: &SessionRequest<'_>,
) -> Result<JournalChoice, Trouble> {
    if request.is_inspection {
        return Ok(JournalChoice::Off);
    }
    match journal_path(&with.journal, config, folders) {
        Some(path) => {
            let mut options = SqliteOptions::default();
            options.accounts = config.user.accounts().map_err(Trouble::config)?;
            options.closes_after_trees = request.closes_after_run;
            Ok(JournalChoice::File(path, Box::new(options)))
        }
        None if request.needs_journal => Err(no_journal()),
        None => {
            if config.user.journal.as_deref() != Some("off") && folders.journal().is_none() {
                terminal::inform("warning: HOME is not set, so this run is not recorded; name a file with --journal");
            }
            Ok(JournalChoice::Off)
        }
    }
}

pub(crate) fn no_journal() -> Trouble {
    Trouble::config("there is no journal: it is turned off, or HOME is not set").hint("name a file with --journal PATH")
}
