//! A record as a row: its body as JSON, long prompts taken out, and the checksum over all of it. Nothing here touches the
//! database.

use std::sync::Arc;

use homing_core::fact::{Fact, Record};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::journal::JournalError;

/// Prompts above this many bytes are stored once, by their hash.
const LARGE: usize = 1024;

/// Where prompts stand in the body of `spawned`. These are strings; an object in their place names a stored body.
const PROMPTS: [&str; 2] = ["/spawned/system", "/spawned/agent/prompt"];

/// A record, ready to be inserted. Made by whoever appends, so that the writer only inserts.
pub(super) struct Row {
    pub(super) record: Arc<Record>,
    pub(super) tree: String,
    pub(super) run: String,
    pub(super) place: String,
    pub(super) body: String,
    pub(super) crc: u32,
    pub(super) large: Vec<Large>,
}

/// A text that is stored once.
pub(super) struct Large {
    pub(super) hash: String,
    pub(super) text: String,
}

impl Row {
    pub(super) fn new(record: Arc<Record>) -> Result<Self, JournalError> {
        let (body, large) = write(&record.fact).map_err(|error| {
            JournalError::Unwritable(format!("a {} of {} is no JSON: {error}", record.fact.kind(), record.tree))
        })?;
        let (tree, run, place) = (record.tree.to_string(), record.run.to_string(), record.place.to_string());
        let mut row = Self { record, tree, run, place, body, crc: 0, large };
        row.crc = row.cells().crc();
        Ok(row)
    }

    pub(super) fn cells(&self) -> Cells<'_> {
        Cells {
            tree: &self.tree,
            seq: int(self.record.seq),
            at: int(self.record.at),
            epoch: i64::from(self.record.epoch),
            run: &self.run,
            place: &self.place,
            kind: self.record.fact.kind(),
            body: &self.body,
        }
    }
}

fn write(fact: &Fact) -> serde_json::Result<(String, Vec<Large>)> {
    let Fact::Spawned(spawned) = fact else { return Ok((serde_json::to_string(fact)?, Vec::new())) };
    if spawned.system.len() <= LARGE && spawned.agent.prompt.len() <= LARGE {
        return Ok((serde_json::to_string(fact)?, Vec::new()));
    }
    let mut value = serde_json::to_value(fact)?;
    let large = PROMPTS.iter().filter_map(|at| take_out(value.pointer_mut(at)?)).collect();
    Ok((serde_json::to_string(&value)?, large))
}

fn take_out(value: &mut Value) -> Option<Large> {
    let Value::String(text) = value else { return None };
    if text.len() <= LARGE {
        return None;
    }
    let text = std::mem::take(text);
    let hash = sha256(&text);
    *value = json!({ "body": hash });
    Some(Large { hash, text })
}

/// SHA-256 in hexadecimal.
pub(super) fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A row as it was found. Numbers and ids are as the database has them, whatever that may be.
pub(super) struct Cells<'a> {
    pub(super) tree: &'a str,
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) epoch: i64,
    pub(super) run: &'a str,
    pub(super) place: &'a str,
    pub(super) kind: &'a str,
    pub(super) body: &'a str,
}

impl Cells<'_> {
    /// The checksum over every column, with a mark between those of varying length.
    pub(super) fn crc(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for text in [self.tree, self.run, self.place, self.kind] {
            crc.update(text.as_bytes());
            crc.update(&[0]);
        }
        for number in [self.seq, self.at, self.epoch] {
            crc.update(&number.to_le_bytes());
        }
        crc.update(self.body.as_bytes());
        crc.finalize()
    }
}

impl Cells<'_> {
    /// The record, if the row can be believed and this version knows what it says.
    pub(super) fn read(&self, crc: i64, bodies: &mut dyn Bodies) -> Result<Record, JournalError> {
        let whose = || format!("tree {}, record {}", self.tree, self.seq);
        if i64::from(self.crc()) != crc {
            return Err(JournalError::Damaged(format!("{}: its checksum does not fit", whose())));
        }
        let fact = self.fact(bodies)?;
        if fact.kind() != self.kind {
            return Err(JournalError::Damaged(format!(
                "{}: it says `{}` and is `{}`",
                whose(),
                self.kind,
                fact.kind()
            )));
        }
        let unreadable = |what: &str| JournalError::Damaged(format!("{}: {what} cannot be read", whose()));
        Ok(Record {
            tree: self.tree.parse::<Uuid>().map_err(|_| unreadable("the tree"))?,
            seq: u64::try_from(self.seq).map_err(|_| unreadable("its position"))?,
            at: u64::try_from(self.at).map_err(|_| unreadable("its time"))?,
            epoch: u32::try_from(self.epoch).map_err(|_| unreadable("its epoch"))?,
            run: self.run.parse::<Uuid>().map_err(|_| unreadable("the run"))?,
            place: self.place.parse().map_err(|_| unreadable("the place"))?,
            fact,
        })
    }

    /// What the body says. The checksum fits, so a body that cannot be read is not damaged: it is newer than this program.
    fn fact(&self, bodies: &mut dyn Bodies) -> Result<Fact, JournalError> {
        let unknown = |error: serde_json::Error| {
            JournalError::Unknown(format!("tree {}, record {}, `{}`: {error}", self.tree, self.seq, self.kind))
        };
        if self.kind != "spawned" {
            return serde_json::from_str(self.body).map_err(unknown);
        }
        let mut value: Value = serde_json::from_str(self.body).map_err(unknown)?;
        for at in PROMPTS {
            if let Some(slot) = value.pointer_mut(at)
                && let Some(hash) = slot.get("body").and_then(Value::as_str)
            {
                *slot = Value::String(bodies.find(hash)?);
            }
        }
        serde_json::from_value(value).map_err(unknown)
    }
}

/// Where stored bodies are found.
pub(super) trait Bodies {
    /// The text of this hash, checked.
    fn find(&mut self, hash: &str) -> Result<String, JournalError>;
}

/// A number as SQLite keeps it; what does not fit is as large as can be.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as we count; less than nothing is nothing.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
