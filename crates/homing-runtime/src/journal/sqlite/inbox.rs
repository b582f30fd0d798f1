//! The inbox: requests of one process to the process that owns a tree.

use std::collections::BTreeMap;

use homing_core::{
    fact::ON_RESTATE,
    question::{Answer, QuestionId},
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use crate::journal::{
    InboxRequest, JournalError,
    sqlite::{
        owner::{Owner, now},
        row::int,
    },
};

/// The outcome of a request to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The request is in the inbox of the tree's owner, or of this process, which passes it on to a worker.
    ToOwner {
        /// The process ID.
        pid: u32,
        /// The machine.
        host: String,
    },
    /// The tree has no living owner: it has ended or was interrupted, and nothing was posted.
    NoOwner,
}

/// An answer to a question, as it is posted.
#[derive(Deserialize)]
struct PostedAnswer {
    question: QuestionId,
    answer: Answer,
    by: String,
}

/// The inbox within a transaction.
pub(super) struct Inbox<'a> {
    pub(super) connection: &'a Connection,
    pub(super) me: &'a Owner,
}

impl Inbox<'_> {
    /// Puts a request into the inbox of the tree's owner.
    pub(super) fn post(&self, request: &InboxRequest) -> Result<Posted, JournalError> {
        let (tree, run, kind, body) = match request {
            InboxRequest::Cancel { tree, run, by } => (tree, run, "cancel", by.clone()),
            InboxRequest::Tell { tree, run, message } => (tree, run, "tell", message.clone()),
            InboxRequest::Extend { tree, run, more } => (tree, run, "extend", json!(more).to_string()),
            InboxRequest::Answer { tree, run, question, answer, by } => {
                (tree, run, "answer", json!({"question": question, "answer": answer, "by": by}).to_string())
            }
        };
        let owner = owner_of(self.connection, *tree)?.ok_or(JournalError::NoSuchTree(*tree))?;
        let is_passed_on = || Ok::<_, JournalError>(kind != "extend" && is_on_workers(self.connection, *tree)?);
        let owner = match owner.filter(|owner| owner.is_alive(self.me)) {
            Some(owner) => owner,
            None if is_passed_on()? => self.me.clone(),
            None => return Ok(Posted::NoOwner),
        };
        let sql = "INSERT INTO inbox (tree, run, kind, body, at) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.connection.execute(sql, params![tree.to_string(), run.to_string(), kind, body, int(now())])?;
        Ok(Posted::ToOwner { pid: owner.pid, host: owner.host })
    }

    /// Takes the requests for trees that this process owns, oldest first.
    pub(super) fn take(&self) -> Result<Vec<InboxRequest>, JournalError> {
        self.take_where("owner = ?1", &self.me.id)
    }

    /// Takes the requests for trees that workers drive, oldest first.
    pub(super) fn take_for_workers(&self) -> Result<Vec<InboxRequest>, JournalError> {
        self.take_where("owner IS NULL AND EXISTS (SELECT 1 FROM json_each(tags) WHERE key = ?1)", ON_RESTATE)
    }

    fn take_where(&self, trees: &str, value: &str) -> Result<Vec<InboxRequest>, JournalError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "DELETE FROM inbox WHERE tree IN (SELECT id FROM trees WHERE {trees}) RETURNING id, tree, run, kind, body",
        ))?;
        let rows = statement.query_map([value], |row| {
            let columns: [String; 4] = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
            Ok((row.get::<_, i64>(0)?, columns))
        })?;
        let taken = rows.collect::<rusqlite::Result<BTreeMap<_, _>>>()?;
        Ok(taken.into_values().filter_map(|[tree, run, kind, body]| request(&tree, &run, &kind, body)).collect())
    }
}

fn request(tree: &str, run: &str, kind: &str, body: String) -> Option<InboxRequest> {
    let (tree, run) = (tree.parse().ok()?, run.parse().ok()?);
    match kind {
        "cancel" => Some(InboxRequest::Cancel { tree, run, by: body }),
        "tell" => Some(InboxRequest::Tell { tree, run, message: body }),
        "extend" => Some(InboxRequest::Extend { tree, run, more: serde_json::from_str(&body).ok()? }),
        "answer" => {
            let PostedAnswer { question, answer, by } = serde_json::from_str(&body).ok()?;
            Some(InboxRequest::Answer { tree, run, question, answer, by })
        }
        _ => None,
    }
}

/// Returns whether workers drive the tree, and it has not ended.
fn is_on_workers(connection: &Connection, tree: Uuid) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM trees JOIN runs ON runs.id = trees.id JOIN json_each(trees.tags)
               WHERE trees.id = ?1 AND json_each.key = ?2 AND runs.ended IS NULL)";
    connection.query_row(sql, [&tree.to_string(), ON_RESTATE], |row| row.get(0))
}

/// The tree's owner, if it has one; `None` if there is no such tree.
fn owner_of(connection: &Connection, tree: Uuid) -> rusqlite::Result<Option<Option<Owner>>> {
    let owner: Option<Option<String>> = connection
        .query_row("SELECT owner FROM trees WHERE id = ?1", [tree.to_string()], |row| row.get(0))
        .optional()?;
    match owner {
        None => Ok(None),
        Some(None) => Ok(Some(None)),
        Some(Some(id)) => Owner::find(connection, &id).map(Some),
    }
}
