//! PDF documents: each wire sends them in its own form, and models that cannot read them get a note.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::Model,
};
use homing_models::{ProviderConfig, Providers};
use homing_testing::{FakeProvider, FakeResponse, ResponsesTurn};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::*;

const DATA: &str = "JVBERi0=";

/// A conversation with a document from the user and one from a tool.
fn messages() -> [Arc<TranscriptEntry>; 3] {
    let document = || vec![Image::new(Image::PDF, DATA).pages(2)];
    let call = ToolCall { id: "call_x".into(), name: "read".into(), args: Args::Json(json!({})) };
    let reply = Reply::new(vec![Part::from(call)]).stop(StopReason::Calls);
    let result = ToolResult {
        index: 0,
        call_id: "call_x".into(),
        name: "read".into(),
        text: "b.pdf".into(),
        images: document(),
        data: None,
        is_error: false,
    };
    let task = Message::User { text: "Compare.".into(), images: document() };
    [task, Message::Assistant(reply.into()), Message::Tool(result.into())].map(TranscriptEntry::new)
}

/// The body that a model of the built-in provider sends.
async fn sent(provider: &str, name: &str, config: Value) -> Value {
    let server = match provider {
        "anthropic" => FakeProvider::answers(vec![FakeResponse::anthropic_text("ok")]).await,
        "openai-responses" => {
            FakeProvider::responses(vec![ResponsesTurn::items(vec![ResponsesTurn::message("ok")])]).await
        }
        _ => FakeProvider::answers(vec![FakeResponse::chat_text("ok")]).await,
    };
    let mut config: ProviderConfig = serde_json::from_value(config).unwrap();
    config.base_url = Some(server.url());
    let lookup = |name: &str| name.ends_with("_KEY").then(|| SecretString::from(KEY));
    let providers = Providers::new(BTreeMap::from([(provider.to_owned(), config)]), lookup);
    let model: Arc<dyn Model> = providers.model(&format!("{provider}/{name}")).unwrap();
    let (messages, tools) = (messages(), tools());
    ask_with(&*model, request(&messages, &tools)).await.reply();
    serde_json::from_str(&server.requests()[0].body).unwrap()
}

#[tokio::test]
async fn anthropic_gets_documents_in_messages_and_results() {
    let body = sent("anthropic", "claude-sonnet-4-5", json!({})).await;
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": DATA});
    let content = &body["messages"][0]["content"];
    assert_eq!((&content[1]["type"], &content[1]["source"]), (&json!("document"), &source));
    let result = &body["messages"][2]["content"][0]["content"];
    assert_eq!((&result[0]["text"], &result[1]["source"]), (&json!("b.pdf"), &source));
}

#[tokio::test]
async fn responses_get_documents_as_files() {
    let body = sent("openai-responses", "gpt-5", json!({})).await;
    let file = json!({"type": "input_file", "filename": "document.pdf", "file_data": format!("data:application/pdf;base64,{DATA}")});
    assert_eq!(body["input"][0]["content"][1], file);
    assert_eq!(body["input"][2]["output"], json!([{"type": "input_text", "text": "b.pdf"}, file]));
}

#[tokio::test]
async fn chat_completions_get_documents_as_files_after_the_result() {
    let body = sent("openai", "gpt-4.1", json!({})).await;
    let data = format!("data:application/pdf;base64,{DATA}");
    let file = json!({"type": "file", "file": {"filename": "document.pdf", "file_data": data}});
    assert_eq!(body["messages"][1]["content"][1], file);
    assert_eq!((&body["messages"][3]["content"], &body["messages"][4]["content"][1]), (&json!("b.pdf"), &file));
}

#[tokio::test]
async fn models_that_read_no_documents_get_a_note() {
    for (provider, name) in [("ollama", "my-own-model"), ("deepseek", "deepseek-chat")] {
        let body = sent(provider, name, json!({})).await;
        assert!(!body.to_string().contains(DATA), "{provider}: {body:#}");
        for (at, text) in [(1, "Compare."), (3, "b.pdf")] {
            let content = body["messages"][at]["content"].as_str().unwrap();
            assert!(content.starts_with(text) && content.contains("does not read PDF files"), "{provider}: {content}");
        }
    }
}
