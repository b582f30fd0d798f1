//! Structured answers that a model gives as text, judged by the requests that the provider received.

use std::process::Output;

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::{Value, json};

use crate::world::*;

const SCHEMA: &str = r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#;

/// Runs a task with a schema while the provider sends these texts in turn.
fn with_schema(texts: &'static [&'static str]) -> (World, Output) {
    let world = World::new(|count, _| FakeResponse::chat_text(texts[count.min(texts.len() - 1)]));
    world.write("schema.json", SCHEMA);
    let output = world.homing(&run(&["--json", "--schema", "schema.json", "count"]));
    (world, output)
}

fn body(seen: &ReceivedRequest) -> Value {
    serde_json::from_str(&seen.body).unwrap()
}

#[test]
fn plain_or_fenced_json_is_the_structured_answer() {
    for texts in [&[r#"{"n": 7}"#], &["I counted.\n\n```json\n{\"n\": 7}\n```\nThat is all."]] {
        let (world, output) = with_schema(texts);
        let envelope = json(&output);
        assert_eq!((&envelope["status"], &envelope["data"]), (&json!("done"), &json!({"n": 7})), "{envelope}");
        assert_eq!(envelope["output"], "{\n  \"n\": 7\n}");
        assert_eq!(world.provider.requests().len(), 1, "one request is enough");
    }
}

#[test]
fn json_that_does_not_match_names_the_problem_and_forces_the_tool() {
    let (world, output) = with_schema(&[r#"{"n": "seven"}"#, r#"{"n": 7}"#]);
    assert_eq!(json(&output)["data"], json!({"n": 7}));
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 2);
    assert!(body(&requests[0]).get("tool_choice").is_none());
    assert_eq!(body(&requests[1])["tool_choice"], json!({"type": "function", "function": {"name": "answer"}}));
    assert!(requests[1].body.contains("is not of type"), "{}", requests[1].body);
}

#[test]
fn prose_forces_the_tool_once_and_then_fails() {
    let (world, output) = with_schema(&["seven, I think"]);
    let envelope = json(&output);
    assert_eq!(envelope["error"]["kind"], "schema", "{envelope}");
    let choices: Vec<Value> = world.provider.requests().iter().map(|seen| body(seen)["tool_choice"].clone()).collect();
    assert_eq!(choices, [Value::Null, json!({"type": "function", "function": {"name": "answer"}})]);
}

#[test]
fn anthropic_forces_the_tool_in_its_own_words() {
    let world = World::new(|_, _| FakeResponse::anthropic_text("seven, I think"));
    world.write("schema.json", SCHEMA);
    let mut command =
        world.command(&["run", "--model", "anthropic/claude-sonnet-4-5", "--schema", "schema.json", "count"]);
    command.env("ANTHROPIC_BASE_URL", world.provider.url()).env("ANTHROPIC_API_KEY", "sk-ant-secret-of-the-test");
    command.output().expect("homing runs");
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(body(&requests[1])["tool_choice"], json!({"type": "tool", "name": "answer"}));
}

#[test]
fn server_that_rejects_a_forced_tool_is_asked_without() {
    let world = World::new(|count, seen| match count {
        0 => FakeResponse::chat_text("seven, I think"),
        _ if seen.body.contains("tool_choice") => {
            FakeResponse::json(400, r#"{"error": {"message": "this model does not support tool_choice"}}"#)
        }
        _ => FakeResponse::chat_calls(&[("answer", r#"{"n": 7}"#)]),
    });
    world.write("schema.json", SCHEMA);
    let output = world.homing(&run(&["--json", "--schema", "schema.json", "count"]));
    assert_eq!(json(&output)["data"], json!({"n": 7}), "{}", out(&output));
    assert_eq!(world.provider.requests().len(), 3);
}

#[test]
fn explore_and_code_review_accept_prose_and_json() {
    let prose = "The parser is in `src/parse.rs`, line 12: it reads one line at a time.";
    for agent in ["explore", "code-review"] {
        let world = World::saying(prose);
        let output = world.homing(&run(&["--json", "--agent", agent, "where is the parser?"]));
        let envelope = json(&output);
        assert_eq!((code(&output), &envelope["status"]), (0, &json!("done")), "{envelope}");
        assert_eq!((&envelope["output"], &envelope["data"]), (&json!(prose), &Value::Null));
        assert_eq!(world.provider.requests().len(), 1, "prose costs no second request");
    }
    let world = World::saying(r#"{"answer": "in src/parse.rs", "findings": []}"#);
    let output = world.homing(&run(&["--json", "--agent", "explore", "where is the parser?"]));
    assert_eq!(json(&output)["data"], json!({"answer": "in src/parse.rs", "findings": []}));
}

#[test]
fn schema_of_the_task_is_binding_for_explore_too() {
    let world = World::saying("The parser is in `src/parse.rs`.");
    world.write("schema.json", SCHEMA);
    let output = world.homing(&run(&["--json", "--agent", "explore", "--schema", "schema.json", "count"]));
    assert_eq!(json(&output)["error"]["kind"], "schema", "{}", out(&output));
}

#[test]
fn optional_schema_accepts_the_second_answer_that_does_not_match() {
    let wrong = FakeResponse::chat_calls(&[("answer", r#"{"wrong": "the retry is in client.rs"}"#)]);
    let world = World::new(move |_, _| wrong.clone());
    let output = world.homing(&run(&["--json", "--agent", "explore", "where is it retried?"]));
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["status"]), (0, &json!("done")), "{envelope}");
    assert!(envelope["output"].as_str().unwrap().contains("the retry is in client.rs"), "{envelope}");
    assert_eq!(envelope["data"], Value::Null, "it does not match the schema");
    assert_eq!(world.provider.requests().len(), 2, "the model had one attempt to correct it");

    // A schema of the user must be met.
    let wrong = FakeResponse::chat_calls(&[("answer", r#"{"n": "seven"}"#)]);
    let world = World::new(move |_, _| wrong.clone());
    world.write("schema.json", SCHEMA);
    let output = world.homing(&run(&["--json", "--schema", "schema.json", "count"]));
    assert_eq!(json(&output)["error"]["kind"], "schema");
}
