//! The stored form of records: the records of one tree that are committed together are one row, a JSON array without long
//! prompts, with a checksum over all columns. This module does not access the database.

use std::sync::{Arc, Mutex, PoisonError};

use homing_core::{
    fact::{Asked, Fact, Record},
    place::Place,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::journal::JournalError;

/// Prompts above this many bytes are stored once, by their hash.
const LONG: usize = 1024;

/// Long texts whose hashes are remembered.
const KNOWN_HASHES: usize = 8;

/// The prompts of a fact `spawned`. They are strings; an object instead of a string names a stored text.
const PROMPTS: [&str; 2] = ["/spawned/system", "/spawned/agent/prompt"];

/// The beginning of such an object. In JSON, a quote within a string is escaped, so no string contains this.
const STORED_PROMPT: &str = r#":{"body":""#;

/// A record that is ready to be inserted. It is built on the thread that appends, so that the writer only inserts.
pub(super) struct Row {
    pub(super) record: Arc<Record>,
    /// The record as an element of the JSON array.
    pub(super) json: String,
    pub(super) long_texts: Vec<LongText>,
}

/// A text that is stored once, under its hash.
pub(super) struct LongText {
    pub(super) hash: String,
    pub(super) text: String,
}

/// A record as an element of the JSON array. The other fields of a record are columns, or follow from its index.
#[derive(Serialize, Deserialize)]
struct Element<F> {
    at: u64,
    run: Uuid,
    place: Place,
    fact: F,
}

impl Row {
    pub(super) fn new(record: Arc<Record>) -> Result<Self, JournalError> {
        let (json, long_texts) = write(&record).map_err(|error| {
            JournalError::Unwritable(format!(
                "cannot write a `{}` of {} as JSON: {error}",
                record.fact.kind(),
                record.tree
            ))
        })?;
        Ok(Self { record, json, long_texts })
    }
}

fn write(record: &Record) -> serde_json::Result<(String, Vec<LongText>)> {
    let Fact::Spawned(spawned) = &record.fact else { return Ok((element(record, &record.fact)?, Vec::new())) };
    if spawned.system.len() <= LONG && spawned.agent.prompt.len() <= LONG {
        return Ok((element(record, &record.fact)?, Vec::new()));
    }
    let mut fact = serde_json::to_value(&record.fact)?;
    let long_texts = PROMPTS.iter().filter_map(|at| take_out(fact.pointer_mut(at)?)).collect();
    Ok((element(record, fact)?, long_texts))
}

fn element(record: &Record, fact: impl Serialize) -> serde_json::Result<String> {
    let mut json = Vec::with_capacity(512);
    serde_json::to_writer(&mut json, &Element { at: record.at, run: record.run, place: record.place.clone(), fact })?;
    // Thousands of rows can wait for the writer, and a text that has grown has room for up to twice as much.
    json.shrink_to_fit();
    String::from_utf8(json).map_err(serde::ser::Error::custom)
}

/// A record as an element of the JSON array, from its parts; `None` if the fact is not valid JSON.
pub(super) fn element_of(at: u64, run: Uuid, place: Place, fact: &str) -> Option<String> {
    let fact: &RawValue = serde_json::from_str(fact).ok()?;
    serde_json::to_string(&Element { at, run, place, fact }).ok()
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

/// Records of one tree that were committed together, as they are stored.
pub(super) struct StoredRecords<'a> {
    pub(super) tree: Uuid,
    /// Position of the first one.
    pub(super) seq: i64,
    pub(super) epoch: i64,
    /// The records as a JSON array.
    pub(super) json: &'a str,
}

impl StoredRecords<'_> {
    /// The checksum over every column. It has the ID of the tree instead of its number, so that a record of another tree is noticed.
    pub(super) fn crc(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(self.tree.as_bytes());
        crc.update(&self.seq.to_le_bytes());
        crc.update(&self.epoch.to_le_bytes());
        crc.update(self.json.as_bytes());
        crc.finalize()
    }

    /// Calls `take` with each record, if the checksum matches and this version knows the facts.
    pub(super) fn each(
        &self,
        crc: i64,
        bodies: &mut dyn TextStore,
        mut take: impl FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.check(crc)?;
        if !self.json.contains(STORED_PROMPT)
            && let Ok(all) = serde_json::from_str::<Vec<Element<Fact>>>(self.json)
        {
            return all.into_iter().zip(0..).try_for_each(|(element, at)| take(self.record(at, element)?));
        }
        self.elements()?.into_iter().zip(0..).try_for_each(|(raw, at)| take(self.decode(at, raw, bodies)?))
    }

    /// Like [`StoredRecords::each`], but decodes only the records that `choose` wants by their place and the JSON of their fact. Of
    /// the others, `take` gets the position and the time.
    pub(super) fn some(
        &self,
        crc: i64,
        bodies: &mut dyn TextStore,
        choose: impl Fn(&Place, &str) -> bool,
        mut take: impl FnMut(Selected) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.check(crc)?;
        self.elements()?.into_iter().zip(0..).try_for_each(|(raw, at)| {
            if choose(&raw.place, raw.fact.get()) {
                return take(Selected::Record(Box::new(self.decode(at, raw, bodies)?)));
            }
            let epoch = self.epoch()?;
            take(Selected::Skipped { seq: self.seq_of(at)?, epoch, at: raw.at })
        })
    }

    fn check(&self, crc: i64) -> Result<(), JournalError> {
        if i64::from(self.crc()) == crc {
            return Ok(());
        }
        let what = format!("tree {}, record {}: the checksum does not match", self.tree, self.seq);
        Err(JournalError::Damaged(what))
    }

    /// The records with their facts as JSON. If the checksum matches, an array that cannot be parsed was written by a newer version.
    fn elements(&self) -> Result<Vec<Element<&RawValue>>, JournalError> {
        serde_json::from_str(self.json).map_err(|error| self.unknown(0, &error))
    }

    fn decode(&self, at: i64, raw: Element<&RawValue>, bodies: &mut dyn TextStore) -> Result<Record, JournalError> {
        let fact = self.fact(at, raw.fact.get(), bodies)?;
        self.record(at, Element { at: raw.at, run: raw.run, place: raw.place, fact })
    }

    fn record(&self, at: i64, element: Element<Fact>) -> Result<Record, JournalError> {
        let Element { at: time, run, place, fact } = element;
        Ok(Record { tree: self.tree, seq: self.seq_of(at)?, at: time, epoch: self.epoch()?, run, place, fact })
    }

    fn epoch(&self) -> Result<u32, JournalError> {
        let what = || format!("tree {}, record {}: cannot read the epoch", self.tree, self.seq);
        u32::try_from(self.epoch).map_err(|_| JournalError::Damaged(what()))
    }

    fn seq_of(&self, at: i64) -> Result<u64, JournalError> {
        let seq = self.seq.saturating_add(at);
        u64::try_from(seq).map_err(|_| JournalError::Damaged(format!("tree {}: {seq} is not a position", self.tree)))
    }

    /// The fact of the record at an index.
    fn fact(&self, at: i64, json: &str, bodies: &mut dyn TextStore) -> Result<Fact, JournalError> {
        if !json.starts_with(r#"{"spawned":"#) || !json.contains(STORED_PROMPT) {
            return serde_json::from_str(json).map_err(|error| self.unknown(at, &error));
        }
        let mut value: Value = serde_json::from_str(json).map_err(|error| self.unknown(at, &error))?;
        for prompt in PROMPTS {
            if let Some(slot) = value.pointer_mut(prompt)
                && let Some(hash) = slot.get("body").and_then(Value::as_str)
            {
                *slot = Value::String(bodies.find(hash)?);
            }
        }
        serde_json::from_value(value).map_err(|error| self.unknown(at, &error))
    }

    fn unknown(&self, at: i64, error: &serde_json::Error) -> JournalError {
        JournalError::Unknown(format!("tree {}, record {}: {error}", self.tree, self.seq.saturating_add(at)))
    }
}

/// A record that was read, or the position and the time of one that was not.
pub(super) enum Selected {
    Record(Box<Record>),
    Skipped { seq: u64, epoch: u32, at: u64 },
}

/// The last model call of a run among stored records.
pub(super) fn last_asked(json: &str, run: Uuid) -> Option<Arc<Asked>> {
    const ASKED: &str = r#"{"asked":"#;
    if !json.contains(ASKED) || !json.contains(&run.to_string()) {
        return None;
    }
    let elements: Vec<Element<&RawValue>> = serde_json::from_str(json).ok()?;
    let is_asked = |element: &&Element<&RawValue>| element.run == run && element.fact.get().starts_with(ASKED);
    match serde_json::from_str(elements.iter().rev().find(is_asked)?.fact.get()) {
        Ok(Fact::Asked(asked)) => Some(asked),
        Ok(_) | Err(_) => None,
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
