//! `homing map`, against a provider on the loopback.

use std::{
    io::Write,
    process::{Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

#[test]
fn map_prints_one_line_per_item_and_pays_once() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = is_mended.clone();
    let world = World::new(move |_, seen| match task_of(seen) {
        task if task.contains("b.txt") && !mended.load(Ordering::SeqCst) => FakeResponse::json(400, "{}"),
        task => FakeResponse::chat_text(&format!("read {task}")),
    });
    for name in ["c.txt", "a.txt", "b.txt"] {
        world.write(name, "x");
    }
    let args = [
        "map",
        "--model",
        "openai/gpt-4.1",
        "--each",
        "*.txt",
        "--max-cost",
        "1",
        "--per-item",
        "max-turns=3",
        "look at {{ item }}",
    ];
    let lines = |output: &Output| -> Vec<Value> {
        out(output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let first = world.homing(&args);
    let told: Vec<(String, String)> = lines(&first)
        .iter()
        .map(|line| (line["item"].as_str().unwrap().into(), line["status"].as_str().unwrap().into()))
        .collect();
    let expected = [("a.txt", "done"), ("b.txt", "failed"), ("c.txt", "done")];
    assert_eq!(told, expected.map(|(item, status)| (item.to_owned(), status.to_owned())), "{}", err(&first));
    assert_eq!((code(&first), world.provider.requests().len()), (1, 3));
    assert!(err(&first).contains("2 of 3 items done") && err(&first).contains(" · failed · "), "{}", err(&first));
    let runs = json(&world.homing(&["runs", "--json"]));
    let map = runs.as_array().unwrap().iter().find(|run| run["agent"] == "map").unwrap();
    assert_eq!(map["status"], "failed", "the map's own status agrees: {map}");
    is_mended.store(true, Ordering::SeqCst);
    let second = world.homing(&args);
    assert_eq!(
        (code(&second), world.provider.requests().len()),
        (0, 4),
        "only what failed is tried again: {}",
        err(&second)
    );
    let all = lines(&second);
    assert_eq!(all[1]["output"], "read look at b.txt");
    assert_eq!(all[0]["output"], "read look at a.txt", "what was done before is shown again");
    let third = world.homing(&args);
    assert_eq!((code(&third), world.provider.requests().len(), lines(&third).len()), (0, 4, 3));
    let another: Vec<&str> =
        args.iter().map(|arg| if *arg == "openai/gpt-4.1" { "openai/gpt-4o" } else { arg }).collect();
    world.homing(&another);
    assert_eq!(world.provider.requests().len(), 7, "another model is another map");
    assert_eq!(code(&world.homing(&["map", "--each", "*.none", "x"])), 2);
    assert_eq!(code(&world.homing(&["map", "--each", "*.txt", "--per-item", "max-fun=3", "x"])), 2);
}

#[test]
fn map_prints_lines_in_order_as_they_finish() {
    let may_end = Arc::new(AtomicBool::new(false));
    let ends = may_end.clone();
    let world = World::new(move |_, seen| match task_of(seen) {
        task if task.contains("c.txt") && !ends.load(Ordering::SeqCst) => {
            FakeResponse::response(429, &[("retry-after", "1")], "{}")
        }
        task => FakeResponse::chat_text(&format!("read {task}")),
    });
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        world.write(name, "x");
    }
    let args = ["map", "--model", "openai/gpt-4.1", "--each", "*.txt", "look at {{ item }}"];
    let mut child = world.command(&args).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((next()["item"].clone(), next()["item"].clone()), ("a.txt".into(), "b.txt".into()));
    assert!(child.try_wait().unwrap().is_none(), "the map is not over");
    may_end.store(true, Ordering::SeqCst);
    assert_eq!((next()["item"].clone(), next()["item"].clone()), ("c.txt".into(), "d.txt".into()));
    assert!(child.wait().unwrap().success());
}

#[test]
fn map_starts_no_items_while_the_provider_is_down() {
    let world = World::saying("x");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let items: String = (0..40).map(|n| format!("item {n}\n")).collect();
    let args = ["map", "--model", "openai/gpt-4.1", "--parallel", "2", "--each", "-", "x"];
    let mut child = world.command(&args).env("OPENAI_BASE_URL", url).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(items.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), out(&output).lines().count()), (5, 40), "{}", err(&output));
    assert!(err(&output).contains("starting no more items"));
    let last = err(&output).lines().last().map(str::to_owned).unwrap_or_default();
    assert!(last.contains("items done; the provider cannot be reached; run the same command again"), "{last}");
    let failed = out(&output).lines().filter(|line| line.contains("\"status\":\"failed\"")).count();
    assert!((1..10).contains(&failed), "{failed} failed");
}
