//! Cassettes: the records of a tree as a file, without secrets, that can be shared and replayed.

use std::sync::Arc;

use homing_core::{fact::Record, tree::RunTree};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::journal::{JournalError, sqlite::SqliteJournal};

/// Grows with each change that an older program could not read.
const VERSION: u32 = 1;

/// The records of one tree, complete and in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Cassette {
    records: Vec<Arc<Record>>,
}

/// Error of a cassette that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The text is not a cassette, or a part of it is unknown.
    #[error("not a valid cassette: {0}")]
    Unreadable(String),
    /// It was written by a newer version.
    #[error("the cassette has version {0}, this program supports version {VERSION}: use a newer version of homing")]
    Newer(u32),
    /// The records do not form a tree.
    #[error("the records of the cassette do not form a tree: {0}")]
    Broken(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CassetteFile {
    homing_cassette: u32,
    tree: Uuid,
    records: Vec<Value>,
}

impl Cassette {
    /// Makes a cassette of the records of one tree, complete and from its beginning.
    ///
    /// # Errors
    ///
    /// Fails if there are no records, or if they do not form one whole tree.
    pub fn from_records(records: Vec<Arc<Record>>) -> Result<Self, CassetteError> {
        let broken = |what: String| CassetteError::Broken(what);
        let tree = records.first().ok_or_else(|| broken("there are no records".to_owned()))?.tree;
        let mut fold = RunTree::default();
        for record in &records {
            if record.tree != tree {
                return Err(broken(format!("record {} belongs to another tree", record.seq)));
            }
            fold.apply(record).map_err(|misfit| broken(misfit.to_string()))?;
        }
        Ok(Self { records })
    }

    /// ID of the tree.
    pub fn tree(&self) -> Uuid {
        self.records[0].tree
    }

    /// The records, in order.
    pub fn records(&self) -> &[Arc<Record>] {
        &self.records
    }

    /// The cassette as JSON, one record per line. Every string, including object keys, is passed through `redact`.
    ///
    /// # Errors
    ///
    /// Fails if a record cannot be written as JSON.
    pub fn write(&self, redact: &dyn Fn(&str) -> String) -> Result<String, CassetteError> {
        let mut lines = Vec::with_capacity(self.records.len());
        for record in &self.records {
            let unreadable = |error: serde_json::Error| CassetteError::Unreadable(error.to_string());
            let value = redacted(serde_json::to_value(record).map_err(unreadable)?, redact);
            // The result must be readable again: this fails if `redact` changes a word of the format itself.
            serde_json::from_value::<Record>(value.clone()).map_err(unreadable)?;
            lines.push(value.to_string());
        }
        let tree = self.tree();
        Ok(format!("{{\"homing_cassette\":{VERSION},\"tree\":\"{tree}\",\"records\":[\n{}\n]}}\n", lines.join(",\n")))
    }

    /// Reads a cassette. Unknown fields and facts are errors.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a cassette, or one of a newer version.
    pub fn read(text: &str) -> Result<Self, CassetteError> {
        let unreadable = |error: serde_json::Error| CassetteError::Unreadable(error.to_string());
        #[derive(Deserialize)]
        struct Version {
            homing_cassette: u32,
        }
        let Version { homing_cassette: version } = serde_json::from_str(text).map_err(unreadable)?;
        if version != VERSION {
            return Err(CassetteError::Newer(version));
        }
        let file: CassetteFile = serde_json::from_str(text).map_err(unreadable)?;
        let records = file.records.into_iter().enumerate().map(|(n, value)| parse_strictly(n, value));
        let cassette = Self::from_records(records.collect::<Result<_, _>>()?)?;
        if cassette.tree() != file.tree {
            return Err(CassetteError::Broken(format!("they belong to tree {}, not {}", cassette.tree(), file.tree)));
        }
        Ok(cassette)
    }
}

impl SqliteJournal {
    /// The records of a tree as a cassette.
    ///
    /// # Errors
    ///
    /// Fails if the tree is unknown or pruned, or if the journal cannot be read.
    pub fn cassette(&self, tree: Uuid) -> Result<Cassette, JournalError> {
        Cassette::from_records(self.follow(tree, 0)?).map_err(|error| JournalError::Damaged(error.to_string()))
    }
}

/// Parses one record, and fails if parsing loses any part of it.
fn parse_strictly(n: usize, value: Value) -> Result<Arc<Record>, CassetteError> {
    let unreadable = |what: String| CassetteError::Unreadable(format!("record {n}: {what}"));
    let record: Record = serde_json::from_value(value.clone()).map_err(|error| unreadable(error.to_string()))?;
    let written_again = serde_json::to_value(&record).map_err(|error| unreadable(error.to_string()))?;
    if let Some(lost) = lost(&value, &written_again, String::new()) {
        return Err(unreadable(format!("`{lost}` is unknown")));
    }
    Ok(Arc::new(record))
}

/// The path of a value that is in `before` but not in `after`.
fn lost(before: &Value, after: &Value, path: String) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(key, value)| {
            let path = format!("{path}/{key}");
            match after.get(key) {
                Some(after) => lost(value, after, path),
                None => Some(path),
            }
        }),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => before
            .iter()
            .zip(after)
            .enumerate()
            .find_map(|(n, (before, after))| lost(before, after, format!("{path}/{n}"))),
        (Value::Array(_), _) | (Value::Object(_), _) => Some(path),
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => None,
    }
}

fn redacted(value: Value, redact: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(redact(&text)),
        Value::Array(values) => values.into_iter().map(|value| redacted(value, redact)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (redact(&key), redacted(value, redact))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
