//! `run --cached`: the same question is not paid for twice.

use std::sync::Arc;

use homing_core::{
    envelope::{Envelope, Status},
    fact::Spawned,
    message::{FNV_START, fnv},
};
use homing_runtime::sqlite::SqliteJournal;
use serde_json::json;

use crate::{cli::run::RunArgs, exit::Trouble, session::Session};

/// Where an answer may be found; nowhere, unless it was asked for.
pub(super) struct Cache(Option<(Arc<SqliteJournal>, String)>);

impl Cache {
    /// What makes two questions the same: the agent as it is, the task, the models, the context, the schema, the folder.
    pub(super) fn new(args: &RunArgs, session: &Session, spawned: &Spawned) -> Self {
        let journal = session.homing.journal().filter(|_| args.cached);
        let agent = session.homing.registry().get(&args.agent).ok();
        let same = json!([
            agent.map(|it| &**it),
            spawned.task,
            spawned.models,
            spawned.context,
            spawned.schema,
            spawned.workdir
        ]);
        let key = format!("{:016x}", fnv(FNV_START, same.to_string().as_bytes()));
        Self(journal.map(|it| (it.clone(), key)))
    }

    pub(super) async fn find(&self) -> Result<Option<Envelope>, Trouble> {
        match &self.0 {
            Some((journal, key)) => Ok(journal.cached(key).await?.filter(|it| it.status == Status::Done)),
            None => Ok(None),
        }
    }

    /// Only whole answers are worth keeping.
    pub(super) async fn keep(&self, envelope: &Envelope) -> Result<(), Trouble> {
        match &self.0 {
            Some((journal, key)) if envelope.status == Status::Done => {
                Ok(journal.set_cache_key(envelope.run, key).await?)
            }
            Some(_) | None => Ok(()),
        }
    }
}
