//! Two steps with a model: it must call a tool, then it answers from the result.
//!
//! `cargo run -p homing-models --example 01_tool_loop -- chat http://localhost:8080/v1 my-model`
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use homing_core::{
    message::{Message, ToolResult, TranscriptEntry},
    model::{Delta, ModelRequest, ToolChoice, Toolbox},
    tool::{Replay, ToolSpec},
};
use homing_models::{ProviderConfig, Providers};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [wire, url, name] = args.as_slice() else { return Err("usage: 01_tool_loop chat|anthropic URL MODEL".into()) };
    let row: ProviderConfig = serde_json::from_value(json!({ "wire": wire, "base_url": url }))?;
    let providers = Providers::new(BTreeMap::from([("here".to_owned(), row)]), |_| None);
    let model = providers.model(&format!("here/{name}"))?;
    let weather = ToolSpec::new(
        "weather",
        "Returns the weather in a city.",
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
    )
    .replay(Replay::Safe)
    .effect(homing_core::tool::Effect::Network);
    let tools = Toolbox::new(vec![weather]);
    let mut messages = vec![TranscriptEntry::new(Message::user("How is the weather in Paris?"))];

    let reply = model.reply(request(&messages, &tools, ToolChoice::Required), &|_| ()).await?;
    let call = reply.calls().next().ok_or("the model called no tool")?.clone();
    println!("called {} with {:?}; usage {:?}", call.name, call.args, reply.usage);
    messages.push(TranscriptEntry::new(Message::Assistant(reply.into())));
    messages.push(TranscriptEntry::new(Message::Tool(
        ToolResult {
            index: 0,
            call_id: call.id,
            name: call.name,
            text: "Sunny, 21 degrees.".into(),
            images: vec![],
            data: None,
            is_error: false,
        }
        .into(),
    )));

    let show = |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            print!("{text}");
        }
    };
    // Some servers do not support switching tools off, so the last step offers none.
    let none = Toolbox::default();
    let reply = model.reply(request(&messages, &none, ToolChoice::Off), &show).await?;
    println!("\nstopped: {:?}; usage {:?}", reply.stop, reply.usage);
    if reply.text().trim().is_empty() { Err("the model returned no text".into()) } else { Ok(()) }
}

fn request<'a>(
    messages: &'a [std::sync::Arc<TranscriptEntry>],
    tools: &'a Toolbox,
    choice: ToolChoice,
) -> ModelRequest<'a> {
    ModelRequest::new("You are a helpful assistant.", messages, tools, "")
        .choice(choice)
        .max_output(64)
        .temperature_milli(0)
        .sampling(&homing_core::model::Sampling::NONE)
}
