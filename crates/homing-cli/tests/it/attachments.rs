//! Files attached to a task, judged by the requests that the provider received.

use std::{fs, process::Output};

use homing_testing::{FakeResponse, ResponsesTurn};
use serde_json::{Value, json};

use crate::world::*;

/// The first bytes of a PNG file, and its base64.
const PNG: (&[u8], &str) = (b"\x89PNG\r\n\x1a\n", "iVBORw0KGgo=");
const PDF: (&[u8], &str) = (b"%PDF-1.4\n1 0 obj\n<</Type /Page>>\n", "JVBERi0xLjQKMSAwIG9iago8PC9UeXBlIC9QYWdlPj4K");

fn with_files(world: &World) {
    fs::write(world.project.path().join("screen.png"), PNG.0).unwrap();
    fs::write(world.project.path().join("paper.pdf"), PDF.0).unwrap();
    world.write("src/page.css", "body { color: red }\n");
}

fn attach_all(world: &World, model: &str) -> Output {
    let args = ["run", "--json", "--model", model, "--attach", "screen.png", "--attach", "paper.pdf"];
    let mut command = world.command(&args);
    command.arg("why? see @src/page.css and ask @someone");
    command.env("OPENAI_RESPONSES_BASE_URL", world.provider.url());
    command.env("ANTHROPIC_BASE_URL", world.provider.url()).env("ANTHROPIC_API_KEY", "sk-ant-test");
    let output = command.output().expect("homing runs");
    assert_eq!(code(&output), 0, "{} {}", out(&output), err(&output));
    output
}

fn first_body(world: &World) -> Value {
    serde_json::from_str(&world.provider.requests()[0].body).unwrap()
}

fn check_text(text: &Value) {
    let text = text.as_str().unwrap();
    assert!(text.starts_with("why? see @src/page.css and ask @someone\n\n"), "{text}");
    assert!(text.contains("<file path=\"src/page.css\">\nbody { color: red }\n</file>"), "{text}");
    assert!(text.contains("[attached: screen.png (image/png)]"), "{text}");
    assert!(!text.contains("path=\"someone\""), "{text}");
}

#[test]
fn attachments_reach_the_provider_over_chat_completions() {
    let world = World::saying("red");
    with_files(&world);
    attach_all(&world, "openai/gpt-4.1");
    let body = first_body(&world);
    let user = body["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "user").unwrap();
    check_text(&user["content"][0]["text"]);
    assert_eq!(user["content"][1]["image_url"]["url"], format!("data:image/png;base64,{}", PNG.1));
    assert_eq!(user["content"][2]["file"]["file_data"], format!("data:application/pdf;base64,{}", PDF.1));
}

#[test]
fn attachments_reach_the_provider_over_anthropic_messages() {
    let world = World::new(|_, _| FakeResponse::anthropic_text("red"));
    with_files(&world);
    attach_all(&world, "anthropic/claude-sonnet-4-5");
    let content = &first_body(&world)["messages"][0]["content"];
    check_text(&content[0]["text"]);
    let source = |media_type: &str, data: &str| json!({"type": "base64", "media_type": media_type, "data": data});
    assert_eq!((&content[1]["type"], &content[1]["source"]), (&json!("image"), &source("image/png", PNG.1)));
    assert_eq!((&content[2]["type"], &content[2]["source"]), (&json!("document"), &source("application/pdf", PDF.1)));
}

#[test]
fn attachments_reach_the_provider_over_responses() {
    let world = World::new(ResponsesTurn::script(vec![ResponsesTurn::items(vec![ResponsesTurn::message("red")])]));
    with_files(&world);
    attach_all(&world, "openai-responses/gpt-5");
    let content = &first_body(&world)["input"][0]["content"];
    check_text(&content[0]["text"]);
    assert_eq!(content[1]["image_url"], format!("data:image/png;base64,{}", PNG.1));
    assert_eq!(content[2]["file_data"], format!("data:application/pdf;base64,{}", PDF.1));
}

#[test]
fn attachments_survive_resume() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::chat_calls(&[("ls", "{}")]),
        _ => FakeResponse::chat_text("red"),
    });
    with_files(&world);
    let output = world.homing(&run(&["--json", "--max-turns", "1", "--attach", "screen.png", "why?"]));
    let id = json(&output)["run"].as_str().unwrap().to_owned();
    fs::remove_file(world.project.path().join("screen.png")).unwrap();
    let before = world.provider.requests().len();
    let resumed = world.homing(&["resume", &id, "--json", "--max-turns", "+2"]);
    assert_eq!(code(&resumed), 0, "{} {}", out(&resumed), err(&resumed));
    let requests = world.provider.requests();
    assert!(requests.len() > before);
    assert!(requests[before].body.contains(PNG.1), "{}", requests[before].body);
}

#[test]
fn unfit_attachments_are_refused_before_anything_is_spent() {
    let world = World::saying("red");
    with_files(&world);
    world.write(".env", "KEY=1");
    world.write("secret/plan.md", "plan");
    fs::write(world.project.path().join("tool.bin"), b"\x7fELF\0\0\0").unwrap();
    let refused = |args: &[&str], exit: i32, message: &str| {
        let args: Vec<&str> = ["run"].iter().chain(args).copied().collect();
        let output = world.homing(&args);
        let error = err(&output);
        assert_eq!((code(&output), error.contains(message)), (exit, true), "{error}");
    };
    let model = MODEL;
    let with = |more: &[&'static str]| [&model[..], more].concat();
    refused(&with(&["--attach", "no.png", "why?"]), 2, "cannot read no.png");
    refused(&with(&["--attach", "tool.bin", "why?"]), 2, "tool.bin is neither UTF-8 text nor a PNG");
    refused(&with(&["see @.env"]), 4, ".env is not attached, because files of this name usually hold keys");
    let denied = "secret/plan.md may not be read: `read(secret/**)` is denied by";
    refused(&with(&["--deny", "read(secret/**)", "see @secret/plan.md"]), 4, denied);
    let text_only = ["--model", "openai/gpt-3.5-turbo", "--max-cost", "none", "--attach", "screen.png", "why?"];
    refused(&text_only, 2, "openai/gpt-3.5-turbo does not read screen.png (image/png)");
    refused(&["--model", "offline", "--attach", "screen.png", "why?"], 2, "offline does not read screen.png");
    assert_eq!(world.provider.requests().len(), 0, "nothing was spent");
}
