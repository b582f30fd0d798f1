//! API keys and characters that deceive a reader reach neither the screen nor the journal.

use std::fs;

use homing_core::sanitize;
use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

/// The key that the test's environment contains.
const KEY: &str = "sk-secret-of-the-test";

/// Returns a streamed answer of several pieces.
fn pieces(texts: &[&str]) -> FakeResponse {
    let event = |text: &&str| {
        let text = Value::from(*text);
        format!("data: {{\"model\":\"fake\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}}}}]}}\n\n")
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
               data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}\n\n\
               data: [DONE]\n\n";
    FakeResponse::events(&(texts.iter().map(event).collect::<String>() + end))
}

/// Returns the contents of all files of the journal.
fn journal_bytes(world: &World) -> Vec<u8> {
    let folder = world.home.path().join(".local/share/homing");
    let files = fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_file());
    files.flat_map(|entry| fs::read(entry.path()).unwrap()).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn key_in_replies_and_results_is_neither_shown_nor_recorded() {
    let world = World::new(|number, _| match number {
        0 => FakeResponse::chat_calls(&[
            ("read", r#"{"path": "notes.txt"}"#),
            ("read", &format!(r#"{{"path": "{KEY}"}}"#)),
        ]),
        _ => pieces(&["your key is sk-secret-", "of-the-", "test, and sk-sec is not"]),
    });
    world.write("notes.txt", &format!("the key is {KEY}\n"));
    let output = world.homing(&run(&["--events", "tell me"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let shown = out(&output) + &err(&output);
    assert!(!shown.contains(KEY), "{shown}");
    let events = out(&output);
    let deltas = events.lines().filter_map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["kind"] == "text").then(|| event["text"].as_str().unwrap().to_owned())
    });
    assert_eq!(deltas.collect::<String>(), "your key is [redacted], and sk-sec is not");
    let requests = world.provider.requests();
    assert!(!requests[1].body.contains(KEY), "{}", requests[1].body);
    assert!(requests[1].body.contains("the key is [redacted]"), "{}", requests[1].body);
    assert!(!contains(&journal_bytes(&world), KEY));
    let shown = out(&world.homing(&["show"]));
    assert!(shown.contains("your key is [redacted]"), "{shown}");
}

#[test]
fn key_in_an_error_is_neither_shown_nor_recorded() {
    let world = World::new(|_, _| FakeResponse::json(400, &format!(r#"{{"error": {{"message": "bad:{KEY}!"}}}}"#)));
    let output = world.homing(&run(&["--json", "x"]));
    let shown = out(&output) + &err(&output);
    assert!(shown.contains("bad:") && !shown.contains(KEY), "{shown}");
    assert!(!contains(&journal_bytes(&world), KEY));
}

#[test]
fn json_for_programs_contains_no_deceptive_characters() {
    const TEXT: &str = "a\u{9b}31m b\u{202e}gnp.exe c\u{200b}\u{200d} d\u{e0041} e\u{1b}[2J f\u{7f} ümlaut";
    let world = World::saying(TEXT);
    let envelope = json(&world.homing(&run(&["--json", "x"])));
    let id = envelope["run"].as_str().unwrap();
    let map = ["map", MODEL[0], MODEL[1], "--each", "*.txt", "x"];
    world.write("one.txt", "one\n");
    let (events, json) = (run(&["--events", "x"]), run(&["--json", "x"]));
    for args in [&events[..], &map, &["export", id], &json] {
        let output = world.homing(args);
        assert_eq!(code(&output), 0, "{args:?}: {}", err(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let found = text.chars().find(|c| sanitize::is_active(*c) || sanitize::is_invisible(*c));
        assert_eq!(found, None, "{args:?}: {text}");
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let parsed: String = values.map(|value| format!("{:?}", value.unwrap())).collect();
        assert!(parsed.contains(&format!("{TEXT:?}")[1..30]), "{args:?}: {parsed}");
    }
    for format in ["md", "html"] {
        let text = out(&world.homing(&["export", id, "--format", format]));
        assert!(text.contains("gnp.exe") && !text.chars().any(sanitize::is_active), "{format}: {text}");
    }
}
