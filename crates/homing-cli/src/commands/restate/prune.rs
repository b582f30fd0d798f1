//! Deletes pruned trees from the servers that keep their facts.

use std::collections::{BTreeMap, BTreeSet};

use homing_core::fact::ON_RESTATE;
use homing_restate::Deleted;
use homing_runtime::{
    journal::sqlite::{Filter, SqliteJournal, journal_name},
    placement::SUBMITTED_FROM,
};
use serde::Serialize;
use uuid::Uuid;

use super::connect_recorded;
use crate::exit::Trouble;

/// Most trees of a server that are looked at.
const MAX_TREES: u64 = 1_000_000;

/// Trees that were deleted from one server, or would be.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ServerPruned {
    /// Admin address of the server.
    pub(crate) server: String,
    /// The trees.
    pub(crate) trees: Vec<Uuid>,
    /// The reason why not all were deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Selects between deleting and looking.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Delete,
    /// Only look.
    Look,
}

/// Deletes trees that were submitted from this journal and are pruned in it: those of earlier times as well, for which a server was
/// not reachable. `due` are trees that would be pruned.
pub(crate) async fn prune(journal: &SqliteJournal, due: &[Uuid], mode: Mode) -> Result<Vec<ServerPruned>, Trouble> {
    let submitted = Some((SUBMITTED_FROM.to_owned(), Some(journal_name(journal))));
    let all = journal.runs(&Filter { with_pruned: true, tag: submitted.clone(), ..Filter::default() })?;
    let kept = journal.runs(&Filter { tag: submitted, ..Filter::default() })?;
    let kept: BTreeSet<Uuid> = kept.into_iter().map(|row| row.tree).filter(|tree| !due.contains(tree)).collect();
    let mut servers = BTreeMap::<String, BTreeSet<Uuid>>::new();
    for row in all.into_iter().filter(|row| !kept.contains(&row.tree)) {
        if let Some(server) = row.tags.get(ON_RESTATE) {
            servers.entry(server.clone()).or_default().insert(row.tree);
        }
    }
    let mut pruned = Vec::new();
    for (server, trees) in servers {
        let mut of_server = ServerPruned { server, ..ServerPruned::default() };
        of_server.error = delete(&mut of_server, &trees, mode).await.err().map(|trouble| trouble.message);
        if of_server.error.is_some() || !of_server.trees.is_empty() {
            pruned.push(of_server);
        }
    }
    Ok(pruned)
}

async fn delete(pruned: &mut ServerPruned, trees: &BTreeSet<Uuid>, mode: Mode) -> Result<(), Trouble> {
    let server = connect_recorded(&pruned.server).await?;
    // Most of them were deleted before.
    let found = server.trees(MAX_TREES).await?;
    for tree in found.into_iter().filter(|tree| trees.contains(tree)) {
        match mode {
            Mode::Look => pruned.trees.push(tree),
            Mode::Delete => match server.delete(tree).await? {
                Deleted::Deleted => pruned.trees.push(tree),
                // Another machine has continued it, or deleted it at the same time.
                Deleted::Open | Deleted::Unknown => (),
            },
        }
    }
    Ok(())
}
