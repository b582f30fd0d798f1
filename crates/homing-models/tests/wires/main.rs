//! Requests and replies of the native wires.
#![allow(missing_docs)]

mod anthropic_replies;
mod both_wires;
mod chat_replies;
mod documents;
mod requests;
mod responses;
#[path = "../it/support/mod.rs"]
mod support;

use homing_core::message::{Part, Reply};
use homing_testing::{FakeProvider, FakeResponse};
use support::*;

async fn chat(deltas: &[&str], reason: &str) -> AskResult {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&chat_stream(deltas, reason))]).await;
    ask(&*model(&provider.url(), "chat", patient())).await
}

async fn anthropic(events: &[&str], reason: &str) -> AskResult {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&anthropic_stream(events, reason))]).await;
    ask(&*model(&provider.url(), "anthropic", patient())).await
}

fn shape(reply: &Reply) -> Vec<String> {
    let show = |part: &Part| match part {
        Part::Text(text) => format!("text {text}"),
        Part::Thinking { text, signature, .. } => format!("thinking {text} {signature:?}"),
        Part::Call(call) => format!("call {} {} {:?}", call.id, call.name, call.args),
        Part::Opaque { wire, block } => format!("opaque {wire} {block}"),
    };
    reply.parts.iter().map(show).collect()
}
