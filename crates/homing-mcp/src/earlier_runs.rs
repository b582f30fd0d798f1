//! Runs that a client started through an earlier process of the server. They are found in the journal by their tags.

use std::collections::BTreeMap;

use homing::{
    Homing, Task,
    crates::{
        core::tree::RunTree,
        runtime::journal::sqlite::{Filter, RunRow},
    },
};
use uuid::Uuid;

/// Tag with the name of the client and its folder.
const CLIENT: &str = "mcp_client";

/// Tag with the process of the server that started a run.
const SERVER: &str = "mcp_server";

/// Maximum number of earlier runs to list.
const MAX_LISTED: u64 = 100;

/// Maximum length of a client's name.
const MAX_NAME: usize = 100;

/// The tags by which a client finds its runs again.
#[derive(Clone, Debug)]
pub(crate) struct ClientTags {
    client: String,
    server: String,
}

impl ClientTags {
    /// Makes the tags of a client of this name. Its folder is part of the tag, because a journal has the runs of all folders.
    pub(crate) fn new(name: &str, homing: &Homing, server: Uuid) -> Self {
        let name = &name[..name.floor_char_boundary(MAX_NAME)];
        let folder = homing.runtime().parts().workdir.display();
        Self { client: format!("{name} {folder}"), server: server.to_string() }
    }

    /// Adds the tags to a task.
    pub(crate) fn add_to(&self, task: Task) -> Task {
        task.tag("via", "mcp").tag(CLIENT, self.client.clone()).tag(SERVER, self.server.clone())
    }

    /// Returns true for runs of the same client that another process of the server started. Runs of this process belong to the
    /// connection that started them.
    fn are_of(&self, tags: &BTreeMap<String, String>) -> bool {
        tags.get(CLIENT) == Some(&self.client) && tags.get(SERVER).is_some_and(|server| *server != self.server)
    }
}

/// Lists the client's earlier runs, newest first; none without a journal.
pub(crate) fn list(homing: &Homing, tags: &ClientTags) -> Vec<RunRow> {
    let tag = Some((CLIENT.to_owned(), Some(tags.client.clone())));
    let filter = Filter { tag, limit: Some(MAX_LISTED), ..Filter::default() };
    let rows = homing.journal().and_then(|journal| journal.runs(&filter).ok()).unwrap_or_default();
    rows.into_iter().filter(|row| tags.are_of(&row.tags)).collect()
}

/// Finds the tree of an earlier run of the client.
pub(crate) fn find(homing: &Homing, tags: &ClientTags, run: Uuid) -> Option<(Uuid, RunTree)> {
    let journal = homing.journal()?;
    let id = journal.find(&run.to_string(), None).ok()?.tree;
    let tree = journal.tree(id).ok()?;
    let is_own = tree.root().is_some_and(|root| tags.are_of(&root.spawned.tags));
    is_own.then_some((id, tree))
}
