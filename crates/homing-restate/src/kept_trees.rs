//! Trees that a server keeps: raises their limits, deletes them, and finds those that other machines submitted.

use homing_core::{limits::Limits, short_id::SHORT_ID_LEN};
use homing_runtime::placement::SegmentRequest;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use crate::{
    protocol::{Deleted, OLDEST, Preflight, Reopen, Reopened, TREE, WORKER},
    server::{Server, ServerError},
};

/// Higher limits for a run.
pub struct Raise {
    /// Its tree.
    pub tree: Uuid,
    /// The run.
    pub run: Uuid,
    /// Amounts to add.
    pub more: Limits,
    /// Number of records of the tree, by which the caller decided.
    pub next: u64,
    /// True if a limit had ended the tree, so that it must be continued.
    pub is_over: bool,
    /// Models that a worker must have.
    pub models: Vec<String>,
    /// The account that pays, which a worker must know.
    pub account: Option<String>,
}

/// The result of raising limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// The worker that drives the run raises them.
    Posted,
    /// A worker continues the tree with them.
    Continues,
    /// The tree has changed since, and nothing was raised.
    Changed,
}

#[derive(Deserialize)]
struct Rows {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    service_key: String,
}

impl Server {
    /// Raises the limits of a run, and continues its tree if a limit had ended it.
    ///
    /// # Errors
    /// Fails if the server or its workers cannot be reached, or a worker cannot drive the tree.
    pub async fn raise(&self, raise: Raise) -> Result<Raised, ServerError> {
        let Raise { tree, run, more, next, is_over, models, account } = raise;
        let preflight = Preflight { version: OLDEST, models, account, workspace: None };
        let refused: Option<String> = self.call(&[WORKER, "preflight"], &preflight).await?;
        if let Some(reason) = refused {
            return Err(ServerError::Refused(reason));
        }
        let request = SegmentRequest::Extend { run, more };
        if !is_over {
            return Ok(if self.post(tree, request).await? { Raised::Posted } else { Raised::Changed });
        }
        let (path, key) = ([TREE, &tree.to_string(), "reopen"], Uuid::now_v7().to_string());
        Ok(match self.call_once(&path, &Reopen { next, request }, &key).await? {
            Reopened::Continues => Raised::Continues,
            Reopened::Changed => Raised::Changed,
            Reopened::NoSuchTree => {
                return Err(ServerError::Refused("the server does not have it any more".to_owned()));
            }
        })
    }

    /// Deletes a tree that has ended: its records, its long texts, its ledger and its submission key.
    ///
    /// # Errors
    /// Fails if the server or its workers cannot be reached.
    pub async fn delete(&self, tree: Uuid) -> Result<Deleted, ServerError> {
        self.call_until_answered(&[TREE, &tree.to_string(), "delete"], &()).await
    }

    /// The trees that the server keeps, the newest first.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn trees(&self, limit: u64) -> Result<Vec<Uuid>, ServerError> {
        self.select_trees("", limit).await
    }

    /// The trees whose IDs, or short IDs, begin with this text, the newest first.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn trees_beginning(&self, id: &str) -> Result<Vec<Uuid>, ServerError> {
        // Anything else could not be part of an ID, and must not become part of the query.
        if id.is_empty() || !id.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-') {
            return Ok(Vec::new());
        }
        let id = id.to_ascii_lowercase();
        let before = "_".repeat(Uuid::nil().to_string().len() - SHORT_ID_LEN);
        let filter = format!("AND (service_key LIKE '{id}%' OR service_key LIKE '{before}{id}%')");
        self.select_trees(&filter, 100).await
    }

    async fn select_trees(&self, filter: &str, limit: u64) -> Result<Vec<Uuid>, ServerError> {
        // IDs begin with their time.
        let query = format!(
            "SELECT service_key FROM state WHERE service_name = '{TREE}' AND key = 'meta' {filter} \
             ORDER BY service_key DESC LIMIT {limit}"
        );
        let Rows { rows } = self.query(&json!({ "query": query })).await?;
        Ok(rows.iter().filter_map(|row| row.service_key.parse().ok()).collect())
    }
}
