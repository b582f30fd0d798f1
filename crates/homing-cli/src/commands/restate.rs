//! Run trees on a Restate server, as other commands see them. The local journal keeps a copy of each tree that was submitted
//! from here; the tag `on-restate` of its root names the server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use homing::Folders;
use homing_core::{
    fact::{ON_RESTATE, Record},
    limits::Limits,
    tree::RunTree,
};
use homing_restate::{Raise, Raised, Server, ServerError};
use homing_runtime::{
    continues,
    journal::{
        JournalError,
        sqlite::{SqliteJournal, tree_tag},
    },
    placement::SegmentRequest,
};
use uuid::Uuid;

use crate::{
    cli::restate::ServerArgs,
    config::Layered,
    exit::{Trouble, TroubleKind},
    restate_config::{RestateConfig, Url},
};

pub(crate) mod follow;
pub(crate) mod list;
mod live;
pub(crate) mod prune;
pub(crate) mod refresh;

/// Attempts to raise limits of a tree that changes meanwhile.
const ATTEMPTS: usize = 5;

impl From<ServerError> for Trouble {
    fn from(error: ServerError) -> Self {
        let trouble = Self::config(error.to_string());
        match error {
            ServerError::Unreachable { .. } => {
                trouble.hint("start the server, or name another address with --restate or HOMING_RESTATE")
            }
            ServerError::NotRestate { .. } => trouble.hint("--restate is the admin address, usually port 9070"),
            ServerError::NoWorker { url } => {
                trouble.hint(format!("start one: homing worker --restate {url} --listen ADDR"))
            }
            ServerError::WorkerUnreachable { .. } => {
                trouble.hint("name an address that the server can reach with --advertise URL")
            }
            ServerError::Refused(_) => Self { kind: TroubleKind::Refused, ..trouble },
            ServerError::Version { .. } | ServerError::Failed { .. } => trouble,
        }
    }
}

/// Connects to the server that flags, the environment or the configuration name.
pub(crate) async fn connect(args: &ServerArgs, config: &RestateConfig) -> Result<Server, Trouble> {
    let url = |flag: &Option<String>, config: &Option<Url>| flag.clone().or_else(|| Some(config.as_ref()?.0.clone()));
    let Some(admin) = url(&args.restate, &config.admin) else {
        return Err(Trouble::usage("no Restate server is named")
            .hint("name its admin address with --restate URL, HOMING_RESTATE, or `admin` under [restate] in your configuration"));
    };
    // An ingress address in the configuration belongs to the server there.
    let is_same = config.admin.as_ref().is_some_and(|known| known.0 == admin);
    let ingress = if is_same { url(&args.ingress, &config.ingress) } else { args.ingress.clone() };
    Ok(Server::connect(&admin, ingress.as_deref()).await?)
}

/// Connects to the server whose admin address is recorded in a tree.
async fn connect_recorded(admin: &str) -> Result<Server, Trouble> {
    let ingress = homing::environment::variable("HOMING_RESTATE_INGRESS");
    let folder = homing::environment::current_folder().unwrap_or_default();
    let config = Layered::read(Folders::from_env().config.as_deref(), &folder)?.user.restate;
    connect(&ServerArgs { restate: Some(admin.to_owned()), ingress }, &config).await
}

/// Copies a tree that another machine submitted into the journal, if the server that the environment or the configuration names has
/// one whose ID begins like this. Returns whether there is one.
pub(crate) async fn fetch(journal: &SqliteJournal, id: &str) -> Result<bool, Trouble> {
    let variable = |name| homing::environment::variable(name).filter(|value: &String| !value.is_empty());
    let folder = homing::environment::current_folder().unwrap_or_default();
    let config = Layered::read(Folders::from_env().config.as_deref(), &folder)?.user.restate;
    let args = ServerArgs { restate: variable("HOMING_RESTATE"), ingress: variable("HOMING_RESTATE_INGRESS") };
    if args.restate.is_none() && config.admin.is_none() {
        return Ok(false);
    }
    let server = connect(&args, &config).await?;
    let trees = server.trees_beginning(id.trim()).await?;
    let [tree] = trees[..] else { return Ok(false) };
    RemoteTree { server, tree }.refresh(journal).await?;
    Ok(true)
}

/// The result of raising limits.
pub(crate) enum Raising {
    /// The worker that drives the run raises them.
    Posted,
    /// A worker continues the tree with them.
    Continues,
    /// The run has ended, and not by a limit that was raised.
    Ended,
}

/// A tree on a server.
pub(crate) struct RemoteTree {
    pub(crate) server: Server,
    pub(crate) tree: Uuid,
}

impl RemoteTree {
    /// Returns the tree if workers drive it, connected to its server; `None` if it is a local one.
    pub(crate) async fn find(journal: &SqliteJournal, tree: Uuid) -> Result<Option<Self>, Trouble> {
        // What is left of a pruned tree is in the journal.
        let Some(admin) = tree_tag(journal, tree, ON_RESTATE)? else { return Ok(None) };
        Ok(Some(Self { server: connect_recorded(&admin).await?, tree }))
    }

    /// Sends a request to the worker. Returns false if the tree has ended.
    pub(crate) async fn post(&self, request: SegmentRequest) -> Result<bool, Trouble> {
        Ok(self.server.post(self.tree, request).await?)
    }

    /// Brings the copy in the journal up to date. Returns whether the tree has ended.
    pub(crate) async fn refresh(&self, journal: &SqliteJournal) -> Result<bool, Trouble> {
        let mut next = match journal.tree(self.tree) {
            Ok(fold) => fold.next_seq(),
            // It was submitted from another machine.
            Err(JournalError::NoSuchTree(_)) => 0,
            Err(error) => return Err(error.into()),
        };
        loop {
            let page = self.server.records(self.tree, next).await?;
            let Some(page) = page else { return Ok(true) };
            let (count, is_over) = (page.records.len() as u64, page.is_over);
            copy(journal, page.records).await?;
            next += count;
            if is_over || count == 0 {
                return Ok(is_over);
            }
        }
    }

    /// Raises the limits of a run, and continues the tree if a limit had ended it.
    pub(crate) async fn raise(&self, journal: &SqliteJournal, run: Uuid, more: Limits) -> Result<Raising, Trouble> {
        for _ in 0..ATTEMPTS {
            self.refresh(journal).await?;
            let fold = journal.tree(self.tree)?;
            let (Some(root), Some(raised)) = (fold.root(), fold.get(run)) else {
                return Err(Trouble::usage("there is no such run"));
            };
            let is_over = root.ended.is_some();
            if raised.ended.is_some() && (run != self.tree || !continues(&fold, more)) {
                return Ok(Raising::Ended);
            }
            let models = root.spawned.models.first().filter(|name| !homing_teams::is_program(name));
            let raise = Raise {
                tree: self.tree,
                run,
                more,
                next: fold.next_seq(),
                is_over,
                models: models.cloned().into_iter().collect(),
                account: root.spawned.account.clone(),
            };
            match self.server.raise(raise).await? {
                Raised::Posted => return Ok(Raising::Posted),
                Raised::Continues => return Ok(Raising::Continues),
                Raised::Changed => (),
            }
        }
        Err(Trouble::usage("the run changes at this moment").hint("try again"))
    }

    /// Updates the copy until a condition holds, or for `limit`.
    pub(crate) async fn refresh_until(
        &self,
        journal: &SqliteJournal,
        limit: Duration,
        is_reached: impl Fn(&RunTree) -> bool,
    ) -> Result<(), Trouble> {
        let began = Instant::now();
        while !self.refresh(journal).await? && !is_reached(&journal.tree(self.tree)?) && began.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// Stores records of a tree that workers drive.
pub(crate) async fn copy(journal: &SqliteJournal, records: Vec<Arc<Record>>) -> Result<(), Trouble> {
    if records.is_empty() { Ok(()) } else { Ok(journal.copy(records).await?) }
}
