//! Replies that the provider cut at its output limit.

use std::process::Output;

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::Value;

use crate::world::*;

const HALF: &str = r#"{"path": "notes.txt", "content": "first half of a long"#;
const ANTHROPIC: &str = "anthropic/claude-sonnet-4-5";

/// Runs with Anthropic's wire instead of chat completions.
fn with_anthropic(world: &World, more: &[&str]) -> Output {
    let args: Vec<&str> = ["run", "--model", ANTHROPIC].iter().chain(more).copied().collect();
    let mut command = world.command(&args);
    command.env("ANTHROPIC_BASE_URL", world.provider.url()).env("ANTHROPIC_API_KEY", "sk-ant-secret-of-the-test");
    command.output().expect("homing runs")
}

fn messages(seen: &ReceivedRequest) -> Vec<Value> {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    body["messages"].as_array().cloned().unwrap_or_default()
}

/// Returns the last user message of a request and the reply before it.
fn told_after(seen: &ReceivedRequest) -> (String, Value) {
    let mut messages = messages(seen);
    let told = messages.pop().unwrap_or_default();
    assert_eq!(told["role"], "user", "{}", seen.body);
    (told["content"].to_string(), messages.pop().unwrap_or_default())
}

fn is_exhausted_by_output(world: &World, output: &Output) {
    assert_eq!(code(output), 3, "{} {}", out(output), err(output));
    let envelope = json(output);
    assert_eq!((&envelope["status"], &envelope["partial"]), (&"exhausted".into(), &true.into()));
    assert_eq!((&envelope["limit"]["name"], &envelope["limit"]["spent"]), (&"output".into(), &5.into()));
    assert_eq!((&envelope["usage"]["tool_calls"], &envelope["resumable"]), (&0.into(), &true.into()));
    assert!(!world.project.path().join("notes.txt").exists(), "half a file was written");
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 3);
    for seen in &requests[1..] {
        let (told, reply) = told_after(seen);
        assert!(told.contains("cut off at 5 output tokens"), "{told}");
        assert!(told.contains("`write` was incomplete and was not executed"), "{told}");
        assert!(!seen.body.contains("first half"), "{}", seen.body);
        assert_eq!(reply["role"], "assistant");
        assert!(!matches!(reply["content"].as_str(), Some("") | None) || reply["content"].is_array(), "{reply}");
        assert!(reply.get("tool_calls").is_none(), "a call without a result: {reply}");
    }
}

#[test]
fn chat_write_that_is_cut_three_times_writes_nothing_and_exits_3() {
    let world = World::new(|_, _| FakeResponse::chat_cut_calls(&[("write", HALF)]));
    let output = world.homing(&run(&["--yes", "--json", "write the notes"]));
    is_exhausted_by_output(&world, &output);
}

#[test]
fn anthropic_write_that_is_cut_three_times_writes_nothing_and_exits_3() {
    let world = World::new(|_, _| FakeResponse::anthropic_cut_call("write", HALF));
    let output = with_anthropic(&world, &["--yes", "--json", "write the notes"]);
    is_exhausted_by_output(&world, &output);
}

#[test]
fn people_read_why_a_run_with_cut_replies_stopped() {
    let world = World::new(|count, _| FakeResponse::chat_cut_text(["one ", "two ", "three"][count.min(2)]));
    let output = world.homing(&run(&["count"]));
    assert_eq!((code(&output), out(&output).as_str()), (3, "one two three\n"), "{}", err(&output));
    let why = "stopped because its replies were cut off repeatedly, the last at 5 of ";
    assert!(err(&output).contains(why), "{}", err(&output));
}

#[test]
fn cut_write_is_made_again_beside_calls_that_arrived_whole() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::chat_cut_calls(&[("write", r#"{"path": "a.txt", "content": "whole"}"#), ("write", HALF)]),
        1 => FakeResponse::chat_calls(&[("write", r#"{"path": "notes.txt", "content": "short"}"#)]),
        _ => FakeResponse::chat_text("Both are written."),
    });
    let output = world.homing(&run(&["--yes", "--json", "write them"]));
    assert_eq!((code(&output), &json(&output)["output"]), (0, &"Both are written.".into()), "{}", err(&output));
    let read = |name: &str| std::fs::read_to_string(world.project.path().join(name)).unwrap();
    assert_eq!((read("a.txt").as_str(), read("notes.txt").as_str()), ("whole", "short"));
    let requests = world.provider.requests();
    let roles: Vec<String> =
        messages(&requests[1]).iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect();
    assert_eq!(roles[roles.len() - 3..], ["assistant", "tool", "user"]);
}

#[test]
fn cut_text_is_joined_on_both_wires() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::chat_cut_text("The answer is for"),
        _ => FakeResponse::chat_text("ty-two."),
    });
    let output = world.homing(&run(&["ask"]));
    assert_eq!((code(&output), out(&output).as_str()), (0, "The answer is forty-two.\n"), "{}", err(&output));
    let world = World::new(|count, _| match count {
        0 => FakeResponse::anthropic_cut_text("The answer is for"),
        _ => FakeResponse::anthropic_text("ty-two."),
    });
    let output = with_anthropic(&world, &["ask"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "The answer is forty-two.\n"), "{}", err(&output));
    let (told, reply) = told_after(&world.provider.requests()[1]);
    assert!(told.contains("cut off at 5 output tokens. Continue exactly where it stopped"), "{told}");
    assert_eq!(reply["content"][0]["text"], "The answer is for");
}
