//! Model calls that break off are charged by what had arrived, judged by what the provider sent; and runs that wait for budget
//! are shown to other processes.

use std::{process::Stdio, time::Duration};

use homing_core::{fact::Fact, message::Usage};
use homing_runtime::journal::sqlite::{SqliteJournal, SqliteOptions};
use homing_testing::{FakeResponse, ResponseStep};
use serde_json::Value;

use crate::world::*;

/// Content of one event.
const WORDS: &str = "twenty bytes of text";

/// An endless stream of events, each of which carries [`WORDS`] in a delta of this form.
fn endless(first: &str, delta: &str) -> (FakeResponse, u64) {
    let event = |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    let each = event(&delta.replace("WORDS", WORDS));
    let repeat = ResponseStep::Repeat {
        bytes: each.clone().into_bytes(),
        pause: Duration::from_millis(10),
        limit: Duration::from_secs(600),
    };
    let steps = vec![ResponseStep::Bytes(event(first).into_bytes()), repeat];
    (FakeResponse::open_stream(steps), each.len() as u64)
}

/// The output that the first call permitted, and what the calls that failed were charged.
fn charges(world: &World, run: &Value) -> (u64, Vec<Usage>) {
    let facts = facts(world, run);
    let asked = facts.iter().find_map(|fact| match fact {
        Fact::Asked(asked) => Some(asked.max_output),
        _ => None,
    });
    let charge = |fact: &Fact| match fact {
        Fact::AskFailed { charge, .. } => Some(*charge),
        _ => None,
    };
    (asked.unwrap(), facts.iter().filter_map(charge).collect())
}

fn facts(world: &World, run: &Value) -> Vec<Fact> {
    let path = world.home.path().join(".local/share/homing/journal.db");
    let journal = SqliteJournal::open(path, SqliteOptions::default()).unwrap();
    let records = journal.follow(run.as_str().unwrap().parse().unwrap(), 0).unwrap();
    records.iter().map(|record| record.fact.clone()).collect()
}

#[test]
fn killed_stream_is_charged_by_what_the_provider_sent() {
    let text = ("{\"content\":\"\"}", "{\"content\":\"WORDS\"}");
    let call = "{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"write\",\"arguments\":\"{\"}}]}";
    let arguments = (call, "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"WORDS\"}}]}");
    for (first, delta) in [text, arguments] {
        let (stream, size) = endless(first, delta);
        let world =
            World::new(move |count, _| if count == 0 { stream.clone() } else { FakeResponse::chat_text("done") });
        let mut child = world.command(&run(&["go"])).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Some seconds of the stream, so that its progress was stored.
        wait_until("the stream", || world.provider.bytes_sent() > 300 * size);
        signal(&child, "KILL");
        child.wait().unwrap();
        let sent = world.provider.bytes_sent() / size * WORDS.len() as u64;
        let listed = json(&world.homing(&["runs", "--json"]));
        let output = world.homing(&["resume", listed[0]["run"].as_str().unwrap(), "--json"]);
        assert_eq!(code(&output), 0, "{} {}", out(&output), err(&output));
        let (permitted, charged) = charges(&world, &listed[0]["run"]);
        let [charge] = charged[..] else { panic!("{charged:?}") };
        // A token has about four bytes.
        assert!(charge.estimated && charge.output >= sent / 4, "{charge:?} for {sent} bytes");
        assert!(charge.output < sent * 2 && charge.output < permitted, "{charge:?} for {sent} bytes of {permitted}");
        let usage = &json(&output)["usage"];
        assert_eq!(usage["at_most_micros"], charge.cost_micros, "{usage}");
    }
}

#[test]
fn call_that_is_stopped_without_any_content_is_charged_by_its_time() {
    let world = World::new(|_, _| FakeResponse::open_stream(vec![ResponseStep::Stall]));
    let child = world.command(&run(&["--json", "go"])).spawn().unwrap();
    wait_until("the request", || world.provider.requests().len() == 1);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let envelope = json(&output);
    assert_eq!(envelope["status"], "cancelled", "{envelope}");
    let (permitted, charged) = charges(&world, &envelope["run"]);
    let [charge] = charged[..] else { panic!("{charged:?}") };
    // 500 tokens for each second; even a slow machine stops within ten.
    assert!(charge.estimated && charge.output >= 500 && charge.output <= 5_000, "{charge:?}");
    assert!(charge.output < permitted, "{charge:?} of {permitted}");
}

#[test]
fn run_that_waits_for_budget_is_shown_to_other_processes() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::chat_text("done"),
        _ => FakeResponse::chat_text("late").after(Duration::from_secs(600)),
    });
    // The account pays for one call at a time.
    let first = json(&world.homing(&run(&["--json", "go"])));
    let hold = hold(&world, &first["run"]);
    world.configure(&format!("[accounts.ci]\nper_day = {:.6}\n", (hold + 500) as f64 / 1e6));
    let start = || {
        let mut command = world.command(&run(&["--account", "ci", "go"]));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut pays = start();
    wait_until("the first call", || world.provider.requests().len() == 2);
    let mut waits = start();
    let waiting = || {
        let rows = json(&world.homing(&["runs", "--json"]));
        let row = rows.as_array().unwrap().iter().find(|row| row["waiting_for_budget"] == 1).cloned();
        row.map(|row| row["run"].as_str().unwrap().to_owned())
    };
    wait_until("the wait", || waiting().is_some());
    let id = waiting().unwrap();
    let listed = out(&world.homing(&["runs"]));
    assert!(listed.contains("(1 waiting for budget) go"), "{listed}");
    for args in [&["show", &id][..], &["show", &id, "--tree"]] {
        let shown = out(&world.homing(args));
        assert!(shown.contains("waiting for budget"), "{shown}");
    }
    for child in [&mut pays, &mut waits] {
        signal(child, "KILL");
        child.wait().unwrap();
    }
    assert!(waiting().is_none(), "a dead process waits for nothing");
}

/// The reservation of the first call of a run, in millionths of a dollar.
fn hold(world: &World, run: &Value) -> u64 {
    let holds = facts(world, run).into_iter().filter_map(|fact| match fact {
        Fact::Asked(asked) => Some(asked.hold.cost_micros),
        _ => None,
    });
    holds.into_iter().next().unwrap()
}
