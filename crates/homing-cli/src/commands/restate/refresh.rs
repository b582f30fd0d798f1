//! Keeps the copies of trees that workers drive up to date, and passes requests of an interface on to the workers.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use homing_core::fact::{CancelledBy, ON_RESTATE};
use homing_restate::Server;
use homing_runtime::{
    journal::{
        InboxRequest,
        sqlite::{Filter, SqliteJournal, take_for_workers},
    },
    placement::SegmentRequest,
};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{RemoteTree, connect_recorded};
use crate::{exit::Trouble, terminal};

/// Longest time to wait for a server before its trees are shown as they were.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Time between two looks at the servers.
const REFRESH: Duration = Duration::from_secs(1);

/// Time between two looks for requests.
const LOOK: Duration = Duration::from_millis(250);

/// Updates the copies of all trees that have not ended. A server that cannot be reached is a warning.
pub(crate) async fn refresh_open(journal: &SqliteJournal) -> Result<(), Trouble> {
    let mut servers = Servers::default();
    for (server, reason) in servers.refresh(journal).await? {
        terminal::say(&format!("warning: the runs on {server} are shown as they were last seen: {reason}"));
    }
    Ok(())
}

/// Attends to the trees on workers for an interface: updates the copies of those that have not ended, and passes requests on.
pub(crate) async fn attend(journal: Arc<SqliteJournal>) {
    let (mut servers, mut requests, mut refreshed) = (Servers::default(), VecDeque::new(), None);
    loop {
        requests.extend(take_for_workers(&journal).await.unwrap_or_default());
        while let Some(request) = requests.pop_front() {
            if servers.pass_on(&journal, &request).await.is_err() {
                requests.push_front(request);
                break;
            }
            refreshed = None;
        }
        if refreshed.is_none_or(|at: Instant| at.elapsed() >= REFRESH) {
            // What cannot be read now is read at the next look.
            let _ = servers.refresh(&journal).await;
            refreshed = Some(Instant::now());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The request as the owner of the run gets it. Limits are not raised on workers.
fn for_owner(request: &InboxRequest) -> Option<(Uuid, SegmentRequest)> {
    match request.clone() {
        InboxRequest::Cancel { tree, run, by } => {
            Some((tree, SegmentRequest::Cancel { run, by: CancelledBy::Other(by) }))
        }
        InboxRequest::Tell { tree, run, message } => Some((tree, SegmentRequest::Tell { run, from: None, message })),
        InboxRequest::Answer { tree, run, question, answer, by } => {
            Some((tree, SegmentRequest::Answer { run, question, answer, by }))
        }
        InboxRequest::Extend { .. } => None,
    }
}

/// Returns whether there are trees on workers that have not ended.
pub(crate) fn has_open(journal: &SqliteJournal) -> Result<bool, Trouble> {
    Ok(!open(journal)?.is_empty())
}

/// The trees on workers that have not ended, each with its server.
fn open(journal: &SqliteJournal) -> Result<Vec<(Uuid, String)>, Trouble> {
    let filter = Filter { is_open: true, tag: Some((ON_RESTATE.to_owned(), None)), ..Filter::default() };
    let rows = journal.runs(&filter)?;
    Ok(rows.into_iter().filter_map(|row| Some((row.tree, row.tags.get(ON_RESTATE)?.clone()))).collect())
}

/// Connections to the servers of trees.
#[derive(Default)]
struct Servers(HashMap<String, Server>);

impl Servers {
    /// Updates the copies of open trees. Returns the servers that cannot be reached, with the reasons.
    async fn refresh(&mut self, journal: &SqliteJournal) -> Result<HashMap<String, String>, Trouble> {
        let mut lost = HashMap::new();
        for (tree, admin) in open(journal)? {
            if lost.contains_key(&admin) {
                continue;
            }
            let refreshed = match timeout(MAX_WAIT, self.refresh_tree(journal, tree, &admin)).await {
                Ok(refreshed) => refreshed.map_err(|trouble| trouble.message),
                Err(_) => Err("it does not answer".to_owned()),
            };
            if let Err(reason) = refreshed {
                self.0.remove(&admin);
                lost.insert(admin, reason);
            }
        }
        Ok(lost)
    }

    async fn refresh_tree(&mut self, journal: &SqliteJournal, tree: Uuid, admin: &str) -> Result<(), Trouble> {
        let server = self.connect(admin).await?;
        RemoteTree { server, tree }.refresh(journal).await?;
        Ok(())
    }

    /// Sends a request to the worker that drives its run.
    async fn pass_on(&mut self, journal: &SqliteJournal, request: &InboxRequest) -> Result<(), Trouble> {
        let Some((tree, request)) = for_owner(request) else { return Ok(()) };
        let Some((_, admin)) = open(journal)?.into_iter().find(|(open, _)| *open == tree) else { return Ok(()) };
        let server = self.connect(&admin).await?;
        RemoteTree { server, tree }.post(request).await?;
        Ok(())
    }

    async fn connect(&mut self, admin: &str) -> Result<Server, Trouble> {
        if let Some(server) = self.0.get(admin) {
            return Ok(server.clone());
        }
        let server = connect_recorded(admin).await?;
        self.0.insert(admin.to_owned(), server.clone());
        Ok(server)
    }
}
