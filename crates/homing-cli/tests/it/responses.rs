//! Runs over OpenAI's Responses API, against a provider that checks each request as OpenAI does.

use std::process::Output;

use homing_testing::{ResponsesEnd, ResponsesTurn};
use serde_json::Value;

use crate::world::*;

fn with_responses(world: &World, more: &[&str]) -> Output {
    let args: Vec<&str> = ["run", "--model", "openai-responses/gpt-5"].iter().chain(more).copied().collect();
    world.command(&args).env("OPENAI_RESPONSES_BASE_URL", world.provider.url()).output().expect("homing runs")
}

fn inputs(world: &World) -> Vec<Value> {
    let body = |body: &str| serde_json::from_str::<Value>(body).unwrap()["input"].clone();
    world.provider.requests().iter().map(|seen| body(&seen.body)).collect()
}

#[test]
fn run_returns_encrypted_reasoning_and_continues_cut_text() {
    let call = ResponsesTurn::call("call_a", "read", r#"{"path": "notes.txt"}"#);
    let world = World::new(ResponsesTurn::script(vec![
        ResponsesTurn::items(vec![ResponsesTurn::reasoning("rs_1", "I read it."), call]),
        ResponsesTurn::cut(vec![ResponsesTurn::reasoning("rs_2", ""), ResponsesTurn::message("The notes say ")]),
        ResponsesTurn::items(vec![ResponsesTurn::message("hello.")]),
    ]));
    world.write("notes.txt", "hello\n");
    let output = with_responses(&world, &["--json", "--yes", "what do the notes say?"]);
    assert_eq!(code(&output), 0, "{} {}", out(&output), err(&output));
    let envelope = json(&output);
    assert_eq!(envelope["output"], "The notes say hello.", "{envelope:#}");
    let usage = &envelope["usage"];
    assert_eq!((&usage["input"], &usage["cached"]), (&300.into(), &180.into()), "{envelope:#}");
    let inputs = inputs(&world);
    assert_eq!(inputs.len(), 3);
    assert_eq!((&inputs[1][1]["id"], &inputs[1][1]["encrypted_content"]), (&"rs_1".into(), &"gAAAA-rs_1==".into()));
    assert!(inputs[1][3]["output"].to_string().contains("hello"), "{:#}", inputs[1]);
    assert_eq!(inputs[2][4]["id"], "rs_2");
    assert_eq!(inputs[2][5]["content"][0]["text"], "The notes say ");
}

#[test]
fn cut_write_is_not_executed_and_filtered_reply_fails() {
    let mut half = ResponsesTurn::call("call_a", "write", r#"{"path": "notes.txt", "content": "first half"#);
    half["status"] = "incomplete".into();
    let filtered = ResponsesTurn { items: vec![], end: ResponsesEnd::Incomplete("content_filter") };
    let world = World::new(ResponsesTurn::script(vec![ResponsesTurn::cut(vec![half]), filtered]));
    let output = with_responses(&world, &["--json", "--yes", "write the notes"]);
    assert_eq!(json(&output)["error"]["kind"], "refused", "{} {}", out(&output), err(&output));
    assert!(!world.project.path().join("notes.txt").exists(), "half a file was written");
    let told = inputs(&world)[1][2]["content"].to_string();
    assert!(told.contains("`write` was incomplete and was not executed"), "{told}");
    assert!(out(&output).contains("content filter"), "{}", out(&output));
}
