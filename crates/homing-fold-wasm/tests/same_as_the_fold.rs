//! The JSON for browsers says what the fold of `homing-core` says, at every position.

use std::sync::Arc;

use homing_core::{
    authority::{Authority, Grant, Sandbox},
    envelope::{Envelope, status},
    fact::Record,
    tree::RunTree,
};
use homing_fold_wasm::Viewer;
use serde_json::{Value, json};
use uuid::Uuid;

const ROOT: Uuid = Uuid::from_u128(1);
const CHILD: Uuid = Uuid::from_u128(2);

fn spawned(parent: Option<Uuid>, agent: &str, cost: Value) -> Value {
    let definition = json!({"name": agent, "description": "", "prompt": ""});
    let limits = json!({"cost_micros": cost});
    let none = Arc::new(Grant::new(Vec::new()).sandbox(Sandbox::ReadOnly));
    let authority = Authority { own: none.clone(), grant: none };
    let mut spawned = json!({
        "agent": definition, "system": "", "task": format!("the task of {agent}\nsecond line"), "workdir": "/project",
        "authority": authority, "limits": limits, "models": ["test/model"],
    });
    if let Some(parent) = parent {
        spawned["parent"] = json!(parent);
        spawned["parent_call"] = json!({"run": parent, "turn": 1, "index": 0});
    }
    json!({"spawned": spawned})
}

fn asked(cost: u64) -> Value {
    let hold = json!({"tokens": 100, "cost_micros": cost});
    json!({"asked": {
        "purpose": "turn", "model": "test/model", "max_output": 50, "request_hash": 7, "input_bound": 50, "hold": hold,
    }})
}

fn replied(part: Value, cost: u64) -> Value {
    let usage = json!({"input": 40, "output": 10, "cost_micros": cost});
    json!({"replied": {"reply": {"parts": [part], "stop": "end", "usage": usage}}})
}

fn call(name: &str, args: Value) -> Value {
    json!({"id": "c", "name": name, "args": {"json": args}})
}

fn called(run: Uuid, call: Value) -> Value {
    let key = json!({"run": run, "turn": 1, "index": 0});
    json!({"called": {"key": key, "call": call, "replay": "unsafe", "allowed_by": "a rule"}})
}

fn returned(run: Uuid, name: &str, refused: Value) -> Value {
    let key = json!({"run": run, "turn": 1, "index": 0});
    let result = json!({"index": 0, "call_id": "c", "name": name, "text": "result"});
    json!({"returned": {"key": key, "result": result, "refused": refused}})
}

fn question(run: Uuid) -> Value {
    let key = json!({"run": run, "turn": 1, "index": 0});
    let question = json!({"text": "run it?", "options": [], "key": key, "rule": "bash (user)"});
    json!({"questioned": {"id": "00000000000000aa", "question": question}})
}

/// A root that delegates to a child, whose command needs approval and whose process dies during it.
fn records() -> Vec<Record> {
    let delegate = call("delegate", json!({"agent": "explore", "task": "look"}));
    let bash = call("bash", json!({"command": "npm test"}));
    let ended = |outcome: Value| json!({"ended": {"outcome": outcome, "text": "the answer\nin two lines"}});
    let failed = json!({"failed": {"kind": "model", "message": "no model", "retryable": false}});
    let facts = [
        (ROOT, "1", 1, spawned(None, "general", json!({"at": 5_000_000}))),
        (ROOT, "1", 1, asked(900)),
        (ROOT, "1", 1, replied(json!({"call": delegate.clone()}), 300)),
        (ROOT, "1", 1, called(ROOT, delegate)),
        (CHILD, "1.1", 1, spawned(Some(ROOT), "explore", json!("unlimited"))),
        (CHILD, "1.1", 1, asked(800)),
        (CHILD, "1.1", 1, replied(json!({"call": bash.clone()}), 200)),
        (CHILD, "1.1", 1, question(CHILD)),
        (CHILD, "1.1", 1, json!({"answered": {"id": "00000000000000aa", "answer": "yes", "by": "user"}})),
        (CHILD, "1.1", 1, called(CHILD, bash)),
        (CHILD, "1.1", 2, returned(CHILD, "bash", json!("outcome_unknown"))),
        (CHILD, "1.1", 2, asked(800)),
        (CHILD, "1.1", 2, ended(failed)),
        (ROOT, "1", 2, returned(ROOT, "delegate", Value::Null)),
        (ROOT, "1", 2, asked(900)),
        (ROOT, "1", 2, replied(json!({"text": "the answer"}), 300)),
        (ROOT, "1", 2, ended(json!("done"))),
    ];
    let record = |(seq, (run, place, epoch, fact)): (usize, (Uuid, &str, u32, Value))| {
        let at = 1_000_000 + 100 * seq as u64;
        let record =
            json!({"tree": ROOT, "seq": seq, "at": at, "epoch": epoch, "run": run, "place": place, "fact": fact});
        serde_json::from_value(record).expect("a record")
    };
    facts.into_iter().enumerate().map(record).collect()
}

fn page(records: &[Record]) -> Vec<u8> {
    serde_json::to_vec(&json!({"records": records, "more": false})).expect("JSON")
}

fn view(viewer: &mut Viewer, position: u64) -> Value {
    serde_json::to_value(viewer.view(position)).expect("JSON")
}

#[test]
fn every_position_shows_the_state_of_the_fold() {
    let records = records();
    let mut viewer = Viewer::default();
    viewer.push(&page(&records)).expect("the records fit");
    // Backwards, so that every step has to rebuild, and then forwards.
    let positions = (1..=records.len()).rev().chain(1..=records.len());
    for position in positions {
        let mut tree = RunTree::default();
        records[..position].iter().for_each(|record| tree.apply(record).expect("the records fit"));
        let shown = view(&mut viewer, position as u64);
        assert_eq!(shown["position"], position, "{shown}");
        assert_eq!(shown["total"], records.len());
        assert_eq!(shown["questions"], json!(tree.open_questions()));
        assert_eq!(shown["rows"].as_array().map(Vec::len), Some(tree.runs().len()));
        for (run, row) in tree.runs().iter().zip(shown["rows"].as_array().into_iter().flatten()) {
            let envelope = Envelope::new(&tree, run);
            assert_eq!(row["status"], status(run).name(), "position {position}: {row}");
            for (field, usage) in [("own", &envelope.usage), ("subtree", &envelope.subtree)] {
                assert_eq!(row[field]["cost_micros"], usage.cost_micros);
                assert_eq!(row[field]["input"], usage.input);
                assert_eq!(row[field]["turns"], usage.turns);
                assert_eq!(row[field]["tool_calls"], usage.tool_calls);
            }
            assert_eq!(row["held"], json!(run.held));
            assert_eq!(row["model"], "test/model");
        }
    }
}

#[test]
fn rows_tell_trouble_activity_and_times() {
    let records = records();
    let mut viewer = Viewer::default();
    viewer.push(&page(&records)).expect("the records fit");
    let asking = view(&mut viewer, 8);
    let child = &asking["rows"][1];
    assert_eq!(child["activity"], json!({"kind": "person", "text": "run it?"}));
    assert_eq!(child["trouble"], json!([{"kind": "question", "text": "run it?"}]));
    assert_eq!(asking["rows"][0]["activity"], json!({"kind": "children", "text": ""}));
    assert_eq!(asking["rows"][0]["task"], "the task of general…");
    let working = view(&mut viewer, 10);
    let activity = json!({"kind": "tool", "text": "bash npm test", "at_risk": ["bash npm test"]});
    assert_eq!(working["rows"][1]["activity"], activity);
    let end = view(&mut viewer, 99);
    let kinds: Vec<&Value> =
        end["rows"][1]["trouble"].as_array().into_iter().flatten().map(|trouble| &trouble["kind"]).collect();
    assert_eq!(kinds, ["failed", "unknown"]);
    let segments = json!([
        ["queued", 400, 500],
        ["model", 500, 600],
        ["waiting", 600, 700],
        ["person", 700, 800],
        ["waiting", 800, 900],
        ["stopped", 900, 1000],
        ["model", 1100, 1200],
    ]);
    let tool_free = end["rows"][1]["segments"].as_array().cloned().unwrap_or_default();
    let without_empty: Vec<Value> = tool_free.into_iter().filter(|segment| segment[1] != segment[2]).collect();
    assert!(segments.as_array().into_iter().flatten().all(|one| without_empty.contains(one)), "{without_empty:?}");
    assert_eq!(end["rows"][0]["answer"], "the answer…");
}

#[test]
fn repeated_records_are_skipped_and_missing_ones_reported() {
    let records = records();
    let mut viewer = Viewer::default();
    let first = viewer.push(&page(&records[..6])).expect("the records fit");
    assert_eq!((first.next, first.added), (6, 6));
    let again = viewer.push(&page(&records[3..8])).expect("known records are skipped");
    assert_eq!((again.next, again.added), (8, 2));
    let gap = viewer.push(&serde_json::to_vec(&records[9]).expect("JSON")).expect_err("a record is missing");
    assert!(gap.contains("expected record 8"), "{gap}");
    let one = viewer.push(&serde_json::to_vec(&records[8]).expect("JSON")).expect("one record");
    assert_eq!((one.next, one.added), (9, 1));
    assert!(viewer.push(b"{}").is_err());
    assert_eq!(viewer.facts(CHILD, 99).len(), 5);
    let mark = serde_json::to_value(viewer.mark(5)).expect("JSON");
    assert_eq!((&mark["agent"], &mark["kind"]), (&json!("explore"), &json!("spawned")));
}
