//! A record as a row: its body as JSON without long prompts, and the checksum over all columns. This module does not access
//! the database.

use std::sync::{Arc, Mutex, PoisonError};

use homing_core::fact::{Fact, Record};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::journal::JournalError;

/// Prompts above this many bytes are stored once, by their hash.
const LONG: usize = 1024;

/// Long texts whose hashes are remembered.
const KNOWN_HASHES: usize = 8;

/// The prompts in the body of `spawned`. They are strings; an object instead of a string names a stored text.
const PROMPTS: [&str; 2] = ["/spawned/system", "/spawned/agent/prompt"];

/// A record that is ready to be inserted. It is built on the thread that appends, so that the writer only inserts.
pub(super) struct Row {
    pub(super) record: Arc<Record>,
    pub(super) tree: String,
    pub(super) run: String,
    pub(super) place: String,
    pub(super) body: String,
    pub(super) crc: u32,
    pub(super) long_texts: Vec<LongText>,
}

/// A text that is stored once, under its hash.
pub(super) struct LongText {
    pub(super) hash: String,
    pub(super) text: String,
}

impl Row {
    pub(super) fn new(record: Arc<Record>) -> Result<Self, JournalError> {
        let (body, long_texts) = write(&record.fact).map_err(|error| {
            JournalError::Unwritable(format!(
                "cannot write a `{}` of {} as JSON: {error}",
                record.fact.kind(),
                record.tree
            ))
        })?;
        let (tree, run, place) = (record.tree.to_string(), record.run.to_string(), record.place.to_string());
        let mut row = Self { record, tree, run, place, body, crc: 0, long_texts };
        row.crc = row.columns().crc();
        Ok(row)
    }

    pub(super) fn columns(&self) -> Columns<'_> {
        Columns {
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

fn write(fact: &Fact) -> serde_json::Result<(String, Vec<LongText>)> {
    let Fact::Spawned(spawned) = fact else { return Ok((serde_json::to_string(fact)?, Vec::new())) };
    if spawned.system.len() <= LONG && spawned.agent.prompt.len() <= LONG {
        return Ok((serde_json::to_string(fact)?, Vec::new()));
    }
    let mut value = serde_json::to_value(fact)?;
    let long_texts = PROMPTS.iter().filter_map(|at| take_out(value.pointer_mut(at)?)).collect();
    Ok((serde_json::to_string(&value)?, long_texts))
}

fn take_out(value: &mut Value) -> Option<LongText> {
    let Value::String(text) = value else { return None };
    if text.len() <= LONG {
        return None;
    }
    let text = std::mem::take(text);
    let hash = known_hash(&text);
    *value = json!({ "body": hash });
    Some(LongText { hash, text })
}

/// SHA-256 of a long text. The runs of a fan-out have the same prompt, and comparing it with the last ones takes far less time.
fn known_hash(text: &str) -> String {
    static LAST: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, hash)) = last.iter().find(|(known, _)| known == text) {
        return hash.clone();
    }
    let hash = sha256(text);
    if last.len() >= KNOWN_HASHES {
        last.remove(0);
    }
    last.push((text.to_owned(), hash.clone()));
    hash
}

/// SHA-256 in hexadecimal.
pub(super) fn sha256(text: &str) -> String {
    let digit = |number: u8| char::from(b"0123456789abcdef"[usize::from(number)]);
    Sha256::digest(text.as_bytes()).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The columns of a row as they were read, before anything is parsed.
pub(super) struct Columns<'a> {
    pub(super) tree: &'a str,
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) epoch: i64,
    pub(super) run: &'a str,
    pub(super) place: &'a str,
    pub(super) kind: &'a str,
    pub(super) body: &'a str,
}

impl Columns<'_> {
    /// The checksum over every column, with a separator between those of varying length.
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

    /// The record, if the checksum matches and this version knows the fact.
    pub(super) fn read(&self, crc: i64, bodies: &mut dyn TextStore) -> Result<Record, JournalError> {
        let name = || format!("tree {}, record {}", self.tree, self.seq);
        if i64::from(self.crc()) != crc {
            return Err(JournalError::Damaged(format!("{}: the checksum does not match", name())));
        }
        let fact = self.fact(bodies)?;
        if fact.kind() != self.kind {
            return Err(JournalError::Damaged(format!(
                "{}: the column says `{}`, the body says `{}`",
                name(),
                self.kind,
                fact.kind()
            )));
        }
        let unreadable = |what: &str| JournalError::Damaged(format!("{}: cannot read {what}", name()));
        Ok(Record {
            tree: self.tree.parse::<Uuid>().map_err(|_| unreadable("the tree"))?,
            seq: u64::try_from(self.seq).map_err(|_| unreadable("the position"))?,
            at: u64::try_from(self.at).map_err(|_| unreadable("the time"))?,
            epoch: u32::try_from(self.epoch).map_err(|_| unreadable("the epoch"))?,
            run: self.run.parse::<Uuid>().map_err(|_| unreadable("the run"))?,
            place: self.place.parse().map_err(|_| unreadable("the place"))?,
            fact,
        })
    }

    /// The fact in the body. The checksum matches, so a body that cannot be parsed was written by a newer version.
    fn fact(&self, bodies: &mut dyn TextStore) -> Result<Fact, JournalError> {
        let unknown = |error: serde_json::Error| {
            JournalError::Unknown(format!("tree {}, record {}, `{}`: {error}", self.tree, self.seq, self.kind))
        };
        // In JSON, a quote within a string is escaped, so this can only be an object instead of a prompt.
        if self.kind != "spawned" || !self.body.contains(r#":{"body":""#) {
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

/// A source of stored texts.
pub(super) trait TextStore {
    /// The text with this hash, checked.
    fn find(&mut self, hash: &str) -> Result<String, JournalError>;
}

/// A number as SQLite stores it; larger numbers become the maximum.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A stored number as a count; negative numbers become 0.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
