//! `homing runs --on restate`: the trees that a server keeps, whichever machine submitted them.

use std::sync::Arc;

use homing_runtime::journal::sqlite::{SqliteJournal, SqliteOptions};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{RemoteTree, connect};
use crate::{cli::journal::RunsArgs, config::Layered, exit::Trouble};

/// Trees that are copied at once.
const AT_ONCE: usize = 16;

/// Copies of the newest trees of a server, in a journal of their own: those of other machines do not belong into the journal of this one.
pub(crate) struct Copies {
    pub(crate) journal: Arc<SqliteJournal>,
    _folder: TempDir,
}

impl Copies {
    /// Copies as many trees as are to be listed.
    pub(crate) async fn new(args: &RunsArgs) -> Result<Self, Trouble> {
        let folder = homing::environment::current_folder().unwrap_or_default();
        let config = Layered::read(homing::Folders::from_env().config.as_deref(), &folder)?.user.restate;
        let server = connect(&args.server, &config).await?;
        let no_folder = |error: std::io::Error| Trouble::config(format!("cannot make a temporary folder: {error}"));
        let folder = TempDir::new().map_err(no_folder)?;
        let journal = SqliteJournal::open(folder.path().join("journal.db"), SqliteOptions::default())?;
        for trees in server.trees(args.limit).await?.chunks(AT_ONCE) {
            let mut copying = JoinSet::new();
            for tree in trees {
                let (remote, journal) = (RemoteTree { server: server.clone(), tree: *tree }, journal.clone());
                copying.spawn(async move { remote.refresh(&journal).await });
            }
            while let Some(copied) = copying.join_next().await {
                copied.map_err(|error| Trouble::config(error.to_string()))??;
            }
        }
        Ok(Self { journal, _folder: folder })
    }
}
