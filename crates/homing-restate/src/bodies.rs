//! Records as JSON. Texts above 64 KB are stored once per tree, by their hash.

use std::collections::BTreeMap;

use homing_core::fact::{Fact, Record};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use sha2::{Digest, Sha256};

use uuid::Uuid;

use crate::protocol::{Append, Group};

/// Texts above this many bytes are stored by their hash.
const LONG: usize = 64 * 1024;

/// The longest text, or record without its long texts, that a request can carry.
const MAX_TEXT: usize = 24 * 1024 * 1024;

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
        let whole = to_raw_value(record)?;
        if whole.get().len() <= LONG {
            raw.push(whole);
            continue;
        }
        let mut value = serde_json::from_str(whole.get())?;
        detach(&mut value, bodies);
        raw.push(to_raw_value(&value)?);
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

/// A text or a record that no request can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a text of {} MB is too long for the server, which accepts {} MB", .0 / 1_000_000, MAX_TEXT / 1_000_000)]
pub(crate) struct TooLong(usize);

impl Append {
    /// Splits a request into several of about `most` bytes: texts first, because records refer to them. Each comes with the number
    /// of groups that are complete before it.
    pub(crate) fn split(self, most: usize) -> Result<Vec<(usize, Self)>, TooLong> {
        if self.bytes() <= most {
            return Ok(vec![(0, self)]);
        }
        let mut requests = vec![(0, Self::default())];
        let mut bytes = 0;
        let mut next = |requests: &mut Vec<(usize, Self)>, complete: usize, more: usize| {
            if more > MAX_TEXT {
                return Err(TooLong(more));
            }
            let is_full = bytes > 0 && bytes + more > most;
            bytes = if is_full { more } else { bytes + more };
            if is_full {
                requests.push((complete, Self::default()));
            }
            Ok(is_full)
        };
        for (hash, text) in self.bodies {
            next(&mut requests, 0, text.len())?;
            requests.last_mut().map(|(_, request)| request.bodies.insert(hash, text));
        }
        for (at, group) in self.groups.into_iter().enumerate() {
            let Group { segment, epoch, from, records, steps, is_over } = group;
            let count = records.len();
            let mut is_new = true;
            for (index, record) in records.into_iter().enumerate() {
                is_new |= next(&mut requests, at, record.get().len())?;
                let Some((_, request)) = requests.last_mut() else { continue };
                if is_new {
                    let from = from + index as u64;
                    request.groups.push(Group { segment, epoch, from, records: Vec::new(), steps: 0, is_over: false });
                    is_new = false;
                }
                let Some(piece) = request.groups.last_mut() else { continue };
                piece.records.push(record);
                if index + 1 == count {
                    (piece.steps, piece.is_over) = (steps, is_over);
                }
            }
        }
        Ok(requests)
    }

    /// Fails if one request cannot carry all of it.
    pub(crate) fn check_size(&self) -> Result<(), TooLong> {
        let size = self.bytes();
        if size > MAX_TEXT { Err(TooLong(size)) } else { Ok(()) }
    }

    fn bytes(&self) -> usize {
        let texts: usize = self.bodies.values().map(String::len).sum();
        texts + self.groups.iter().map(Group::bytes).sum::<usize>()
    }
}

impl Group {
    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.get().len()).sum()
    }
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

    #[test]
    fn a_large_request_is_split_in_order_and_loses_nothing() {
        let raw = |size: usize| RawValue::from_string(format!("\"{}\"", "x".repeat(size - 2))).unwrap();
        let group = |segment, from, sizes: &[usize]| Group {
            segment: Uuid::from_u128(segment),
            epoch: 1,
            from,
            records: sizes.iter().map(|size| raw(*size)).collect(),
            steps: sizes.len() as u64,
            is_over: true,
        };
        let bodies = BTreeMap::from([("a".to_owned(), "a".repeat(60)), ("b".to_owned(), "b".repeat(60))]);
        let append = Append { groups: vec![group(1, 5, &[30, 30, 30, 30]), group(2, 0, &[50, 90])], bodies };
        let requests = append.split(100).unwrap();
        let shape = |request: &Append| -> Vec<(u64, usize, u64, bool)> {
            request.groups.iter().map(|group| (group.from, group.records.len(), group.steps, group.is_over)).collect()
        };
        let shapes: Vec<_> = requests.iter().map(|(at, request)| (*at, request.bodies.len(), shape(request))).collect();
        let expected = vec![
            (0, 1, vec![]),
            (0, 1, vec![(5, 1, 0, false)]),
            (0, 0, vec![(6, 3, 4, true)]),
            (1, 0, vec![(0, 1, 0, false)]),
            (1, 0, vec![(1, 1, 2, true)]),
        ];
        assert_eq!(shapes, expected);
        let small = Append { groups: vec![group(1, 0, &[30])], bodies: BTreeMap::new() };
        assert_eq!(small.split(100).unwrap().len(), 1);
        let huge = Append { groups: vec![group(1, 0, &[MAX_TEXT + 1])], bodies: BTreeMap::new() };
        let error = huge.split(100).unwrap_err().to_string();
        assert_eq!(error, "a text of 25 MB is too long for the server, which accepts 25 MB");
    }
}
