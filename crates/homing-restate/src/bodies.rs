//! Records as JSON. Texts above 64 KB are stored once per tree, by their hash.

use std::collections::BTreeMap;

use homing_core::fact::{Fact, Record};
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use uuid::Uuid;

use crate::protocol::Group;

/// Texts above this many bytes are stored by their hash.
const LONG: usize = 64 * 1024;

/// The key of an object that stands for a long text. No fact has it.
const REFERENCE: &str = "$homing_body";

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a group of consecutive records of one segment, written in one epoch. Long texts are put into `bodies`.
pub(crate) fn group(
    segment: Uuid,
    from: u64,
    records: &[&Record],
    bodies: &mut BTreeMap<String, String>,
) -> serde_json::Result<Group> {
    let mut raw = Vec::with_capacity(records.len());
    for record in records {
        let text = serde_json::to_string(record)?;
        if text.len() <= LONG {
            raw.push(RawValue::from_string(text)?);
            continue;
        }
        let mut value = serde_json::from_str(&text)?;
        detach(&mut value, bodies);
        raw.push(RawValue::from_string(serde_json::to_string(&value)?)?);
    }
    Ok(Group {
        segment,
        epoch: records.first().map_or(0, |record| record.epoch),
        from,
        records: raw,
        steps: records.iter().filter(|record| is_step(&record.fact)).count() as u64,
        is_over: records.iter().any(|record| record.run == segment && matches!(record.fact, Fact::Ended(_))),
    })
}

/// Returns whether a fact is progress. Intents are not, since a resumed run writes them again at each attempt.
fn is_step(fact: &Fact) -> bool {
    matches!(fact, Fact::Replied { .. } | Fact::Returned { .. } | Fact::Spawned(_) | Fact::Ended(_))
}

fn detach(value: &mut Value, bodies: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) if text.len() > LONG => {
            let text = std::mem::take(text);
            let hash = sha256(&text);
            *value = json!({ REFERENCE: hash });
            bodies.insert(hash, text);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| detach(item, bodies)),
        Value::Object(fields) => fields.values_mut().for_each(|field| detach(field, bodies)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

/// The hashes of the long texts that a record refers to.
pub(crate) fn references(raw: &RawValue) -> Vec<String> {
    let text = raw.get();
    let mark = format!("{{\"{REFERENCE}\":\"");
    text.match_indices(&mark)
        .filter_map(|(at, _)| text.get(at + mark.len()..at + mark.len() + 64))
        .map(str::to_owned)
        .collect()
}

/// Parses the record at a position of its tree, with its long texts put back.
pub(crate) fn read(raw: &RawValue, seq: u64, bodies: &BTreeMap<String, String>) -> serde_json::Result<Record> {
    let record = if bodies.is_empty() {
        serde_json::from_str(raw.get())?
    } else {
        let mut value = serde_json::from_str(raw.get())?;
        attach(&mut value, bodies);
        serde_json::from_value(value)?
    };
    // Its writer counted the records that it knew of.
    Ok(Record { seq, ..record })
}

fn attach(value: &mut Value, bodies: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            let hash = (fields.len() == 1).then(|| fields.get(REFERENCE)?.as_str()).flatten();
            match hash.and_then(|hash| bodies.get(hash)) {
                Some(text) => *value = Value::String(text.clone()),
                None => fields.values_mut().for_each(|field| attach(field, bodies)),
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| attach(item, bodies)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

#[cfg(test)]
mod tests {
    use homing_core::place::Place;

    use super::*;

    #[test]
    fn long_texts_are_stored_once_and_put_back() {
        let long = "word ".repeat(20_000);
        let record = |seq, message: &str| Record {
            tree: Uuid::nil(),
            seq,
            at: 1,
            epoch: 1,
            run: Uuid::nil(),
            place: Place::root(),
            fact: Fact::Told { from: None, message: message.to_owned() },
        };
        let records = [record(3, &long), record(4, "short"), record(5, &long)];
        let mut bodies = BTreeMap::new();
        let group = group(Uuid::nil(), 3, &records.iter().collect::<Vec<_>>(), &mut bodies).unwrap();
        assert_eq!((group.from, group.records.len(), bodies.len()), (3, 3, 1));
        assert!(group.records.iter().all(|raw| raw.get().len() < 1_000));
        assert_eq!(references(&group.records[0]), bodies.keys().cloned().collect::<Vec<_>>());
        let positions = group.records.iter().zip(3..);
        let back: Vec<Record> = positions.map(|(raw, seq)| read(raw, seq, &bodies).unwrap()).collect();
        assert_eq!(back, records);
    }
}
