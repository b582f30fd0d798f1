//! The Responses wire: round trips with a provider that checks each request, and odd streams.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolResult, TranscriptEntry},
    model::{Charge, Effort, Model, ModelError, ModelRequest, ToolChoice, Toolbox},
};
use homing_models::{ProviderConfig, Providers, Wire};
use homing_testing::{FakeProvider, FakeResponse, ReceivedRequest, ResponsesEnd, ResponsesTurn};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::{shape, support::*};

fn responses(provider: &FakeProvider) -> Arc<dyn Model> {
    model_named(&provider.url(), "responses", "fake", "gpt-5", patient())
}

/// A stream of these events.
async fn streamed(events: &[Value]) -> AskResult {
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let provider = FakeProvider::answers(vec![FakeResponse::events(&events)]).await;
    ask(&*responses(&provider)).await
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": ResponsesTurn::default().whole()})
}

fn body(request: &ReceivedRequest) -> Value {
    serde_json::from_str(&request.body).unwrap()
}

fn results(reply: &Reply) -> Vec<Arc<TranscriptEntry>> {
    let result = |(index, call): (usize, &homing_core::message::ToolCall)| ToolResult {
        index: index as u32,
        call_id: call.id.clone(),
        name: call.name.clone(),
        text: format!("result {index}"),
        images: vec![],
        data: None,
        is_error: false,
    };
    reply.calls().enumerate().map(result).map(|result| TranscriptEntry::new(Message::Tool(result.into()))).collect()
}

/// Asks with `messages`, and adds the reply, as the journal would return it, with results for its calls.
async fn turn(model: &dyn Model, messages: &mut Vec<Arc<TranscriptEntry>>, tools: &Toolbox) -> AskResult {
    let outcome = ask_with(model, request(messages, tools)).await;
    if let Ok(reply) = &outcome.result {
        let reply: Reply = serde_json::from_str(&serde_json::to_string(reply).unwrap()).unwrap();
        let results = results(&reply);
        messages.push(TranscriptEntry::new(Message::Assistant(reply.into())));
        messages.extend(results);
    }
    outcome
}

#[tokio::test]
async fn reasoning_and_calls_return_verbatim_in_the_next_turn() {
    let first = vec![
        ResponsesTurn::reasoning("rs_1", "I should look twice."),
        ResponsesTurn::call("call_a", "read", r#"{"path":"a"}"#),
        ResponsesTurn::reasoning("rs_2", ""),
        ResponsesTurn::call("call_b", "grep", r#"{"path":"b"}"#),
    ];
    let last = vec![ResponsesTurn::reasoning("rs_3", "Done."), ResponsesTurn::message("It is “done”.\n")];
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(first.clone()), ResponsesTurn::items(last)]).await;
    let (model, tools) = (responses(&provider), tools());
    let mut messages = vec![TranscriptEntry::new(Message::user("Look."))];
    let outcome = turn(&*model, &mut messages, &tools).await;
    assert_eq!(outcome.deltas, "<I should l><ook twice.>[read][grep]");
    let reply = outcome.reply();
    assert_eq!((reply.calls().count(), &reply.stop, reply.model.as_deref()), (2, &StopReason::Calls, Some("gpt-fake")));
    assert_eq!((reply.usage.input, reply.usage.cached, reply.usage.output, reply.usage.reasoning), (100, 60, 20, 12));
    assert_eq!(reply.usage.cost_micros, 100 + 200, "at the configured prices");
    let reply = turn(&*model, &mut messages, &tools).await.reply();
    assert_eq!((reply.text().as_str(), &reply.stop), ("It is “done”.\n", &StopReason::End));
    messages.push(TranscriptEntry::new(Message::user("And now?")));
    turn(&*model, &mut messages, &tools).await.reply();

    let requests: Vec<Value> = provider.requests().iter().map(body).collect();
    let types = |body: &Value| -> Vec<String> {
        body["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect()
    };
    let second = &requests[1]["input"];
    let (call, output) = ("function_call", "function_call_output");
    assert_eq!(types(&requests[1]), ["message", "reasoning", call, "reasoning", call, output, output]);
    for (sent, issued) in [(&second[1], &first[0]), (&second[3], &first[2])] {
        let mut issued = issued.clone();
        issued.as_object_mut().unwrap().remove("status");
        assert_eq!(*sent, issued);
    }
    assert_eq!(second[2], json!({"type": call, "call_id": "call_a", "name": "read", "arguments": r#"{"path":"a"}"#}));
    assert_eq!(second[6], json!({"type": output, "call_id": "call_b", "output": "result 1"}));
    assert_eq!(types(&requests[2])[7..], ["reasoning", "message", "message"]);
    let key = requests[0]["prompt_cache_key"].as_str().unwrap();
    assert!(requests.iter().all(|body| body["prompt_cache_key"] == key), "{key}");
    for body in &requests {
        assert_eq!((&body["store"], &body["include"]), (&json!(false), &json!(["reasoning.encrypted_content"])));
        assert_eq!((&body["instructions"], &body["max_output_tokens"]), (&json!("You are a test."), &json!(1_000)));
        assert_eq!((&body["tools"][0]["name"], &body["tools"][0]["strict"]), (&json!("read"), &json!(false)));
    }
}

#[tokio::test]
async fn whole_response_is_the_same_reply() {
    let items = vec![
        ResponsesTurn::reasoning("rs_1", "Hm."),
        ResponsesTurn::message("Look."),
        ResponsesTurn::call("c", "read", "{}"),
    ];
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(items.clone())]).await;
    let streamed = ask(&*responses(&provider)).await.reply();
    let unstreamed = unstreamed_model(&provider.url(), "responses", "fake", "gpt-5");
    let outcome = ask(&*unstreamed).await;
    assert_eq!(outcome.deltas, "<Hm.>Look.[read]");
    assert_eq!(outcome.reply(), streamed);
    assert_eq!(body(&provider.requests()[1])["stream"], json!(false));
    // A server that ignores the request to stream.
    let whole = ResponsesTurn::items(items).whole().to_string();
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, &whole)]).await;
    assert_eq!(ask(&*responses(&provider)).await.reply(), streamed);
}

#[tokio::test]
async fn reply_that_was_cut_while_reasoning_can_be_continued() {
    let cut = ResponsesTurn::cut(vec![ResponsesTurn::reasoning("rs_1", "Hm")]);
    let half =
        ResponsesTurn::cut(vec![ResponsesTurn::reasoning("rs_2", "Ha"), ResponsesTurn::message("The answer is")]);
    let end = ResponsesTurn::items(vec![ResponsesTurn::message(" 42.")]);
    let provider = FakeProvider::responses(vec![cut, half, end]).await;
    let (model, tools) = (responses(&provider), tools());
    let mut messages = vec![TranscriptEntry::new(Message::user("Think."))];
    for (text, stop) in [("", StopReason::Length), ("The answer is", StopReason::Length), (" 42.", StopReason::End)] {
        let reply = turn(&*model, &mut messages, &tools).await.reply();
        assert_eq!((reply.text().as_str(), &reply.stop), (text, &stop));
        messages.push(TranscriptEntry::new(Message::user("Continue.")));
    }
    let last = body(&provider.requests()[2]);
    assert_eq!(
        last["input"][1]["content"][0]["text"], "(nothing)",
        "the provider refuses reasoning that nothing follows"
    );
    assert_eq!(last["input"][3]["id"], "rs_2");
}

#[tokio::test]
async fn reasoning_goes_only_to_the_provider_that_issued_it() {
    let items = vec![ResponsesTurn::reasoning("rs_1", "Hm."), ResponsesTurn::message("Hi")];
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(items)]).await;
    let (tools, mut messages) = (tools(), vec![TranscriptEntry::new(Message::user("x"))]);
    turn(&*responses(&provider), &mut messages, &tools).await.reply();
    let other = model_named(&provider.url(), "responses", "other", "gpt-5", patient());
    for (model, is_sent) in [(responses(&provider), true), (other, false), (responses(&provider), true)] {
        ask_with(&*model, request(&messages, &tools)).await.reply();
        let sent = provider.requests().pop().unwrap().body;
        assert_eq!(sent.contains("rs_1"), is_sent, "{sent}");
    }
    for (wire, answer) in [("chat", FakeResponse::chat_text("ok")), ("anthropic", FakeResponse::anthropic_text("ok"))] {
        let server = FakeProvider::answers(vec![answer]).await;
        ask_with(&*model_named(&server.url(), wire, "fake", "m", patient()), request(&messages, &tools)).await.reply();
        assert!(!server.requests()[0].body.contains("gAAAA"), "{wire}");
    }
}

#[tokio::test]
async fn reasoning_that_the_provider_cannot_decrypt_is_left_out_of_the_next_attempt() {
    let items = || vec![ResponsesTurn::reasoning("rs_1", "Hm."), ResponsesTurn::message("Hi")];
    let first = FakeProvider::responses(vec![ResponsesTurn::items(items())]).await;
    let (tools, mut messages) = (tools(), vec![TranscriptEntry::new(Message::user("x"))]);
    turn(&*responses(&first), &mut messages, &tools).await.reply();
    // The same provider with the key of another organization.
    let second = FakeProvider::responses(vec![ResponsesTurn::items(items())]).await;
    let model = responses(&second);
    let failure = ask_with(&*model, request(&messages, &tools)).await.failure();
    assert!(failure.error.is_retryable() && failure.to_string().contains("could not be verified"), "{failure:?}");
    assert_eq!(failure.charge, Charge::Nothing);
    ask_with(&*model, request(&messages, &tools)).await.reply();
    assert!(!second.requests()[1].body.contains("rs_1"));
    // Other conversations keep theirs.
    let mut others = vec![TranscriptEntry::new(Message::user("y"))];
    turn(&*model, &mut others, &tools).await.reply();
    turn(&*model, &mut others, &tools).await.reply();
    assert!(second.requests()[3].body.contains("rs_1"));
}

#[tokio::test]
async fn settings_of_the_user_are_sent_as_the_wire_knows_them() {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&ResponsesTurn::items(vec![]).events())]).await;
    let config =
        json!({"wire": "responses", "base_url": provider.url(), "sampling": {"seed": 7, "service_tier": "flex"}});
    let config: ProviderConfig = serde_json::from_value(config).unwrap();
    let providers = Providers::new(BTreeMap::from([("mine".to_owned(), config)]), |_| None);
    ask(&*providers.model("mine/gpt-5").unwrap()).await.reply();
    let body = body(&provider.requests()[0]);
    assert_eq!((&body["service_tier"], body.get("seed")), (&json!("flex"), None));
}

#[tokio::test]
async fn phase_of_a_message_is_returned() {
    let mut comment = ResponsesTurn::message("I look.");
    comment["phase"] = "commentary".into();
    let items = vec![comment, ResponsesTurn::call("c", "read", "{}")];
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(items)]).await;
    let (model, tools, mut messages) = (responses(&provider), tools(), vec![TranscriptEntry::new(Message::user("x"))]);
    let reply = turn(&*model, &mut messages, &tools).await.reply();
    assert_eq!(reply.text(), "I look.");
    turn(&*model, &mut messages, &tools).await.reply();
    assert_eq!(body(&provider.requests()[1])["input"][1]["phase"], "commentary");
}

async fn sent(name: &str, messages: &[Arc<TranscriptEntry>], change: impl Fn(&mut ModelRequest<'_>)) -> Value {
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(vec![ResponsesTurn::message("ok")])]).await;
    let (tools, model) = (tools(), model_named(&provider.url(), "responses", "fake", name, patient()));
    let mut request = request(messages, &tools);
    change(&mut request);
    ask_with(&*model, request).await.reply();
    let seen = provider.requests().remove(0);
    assert_eq!((seen.path.as_str(), seen.header("idempotency-key")), ("/v1/responses", Some("run:1")));
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    body(&seen)
}

#[tokio::test]
async fn options_are_sent_as_each_model_accepts_them() {
    let messages = [TranscriptEntry::new(Message::user("x"))];
    let all = |request: &mut ModelRequest<'_>| {
        (request.effort, request.temperature_milli, request.max_output) = (Some(Effort::Max), Some(250), 1);
        request.choice = ToolChoice::Required;
    };
    let plain = sent("gpt-4.1", &messages, all).await;
    assert_eq!(
        (&plain["temperature"], &plain["tool_choice"], plain.get("reasoning")),
        (&json!(0.25), &json!("required"), None)
    );
    assert_eq!(plain["max_output_tokens"], 16, "the provider accepts no fewer");
    let thinks = sent("gpt-5.3-codex", &messages, all).await;
    assert_eq!((&thinks["reasoning"], thinks.get("temperature")), (&json!({"effort": "xhigh"}), None));
    let unset = sent("o3-pro", &messages, |request| request.choice = ToolChoice::Off).await;
    assert_eq!((unset.get("reasoning"), &unset["tool_choice"]), (None, &json!("none")));
}

#[tokio::test]
async fn summaries_are_requested_if_configured() {
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(vec![ResponsesTurn::message("ok")])]).await;
    let config = json!({"wire": "responses", "base_url": provider.url(), "quirks": {"reasoning_summary": true}});
    let config: ProviderConfig = serde_json::from_value(config).unwrap();
    let providers = Providers::new(BTreeMap::from([("mine".to_owned(), config)]), |_| None);
    for name in ["mine/gpt-5", "mine/gpt-4.1"] {
        ask(&*providers.model(name).unwrap()).await.reply();
    }
    assert_eq!(body(&provider.requests()[0])["reasoning"], json!({"summary": "auto"}));
    assert_eq!(body(&provider.requests()[1]).get("reasoning"), None);
}

#[tokio::test]
async fn images_of_users_and_tools_are_sent_in_place() {
    let image = |data: &str| vec![Image::new("image/png", data)];
    let call = homing_core::message::ToolCall { id: "c".into(), name: "read".into(), args: Args::Json(json!({})) };
    let reply = Reply::new(vec![Part::from(call)]).stop(StopReason::Calls);
    let result = ToolResult {
        index: 0,
        call_id: "c".into(),
        name: "read".into(),
        text: "a picture".into(),
        images: image("BBBB"),
        data: None,
        is_error: false,
    };
    let user = Message::User { text: "Look.".into(), images: image("AAAA") };
    let messages = [user, Message::Assistant(reply.into()), Message::Tool(result.into())].map(TranscriptEntry::new);
    let body = sent("gpt-5", &messages, |_| ()).await;
    let expected = |text: &str, data: &str| {
        json!([{"type": "input_text", "text": text},
            {"type": "input_image", "image_url": format!("data:image/png;base64,{data}")}])
    };
    assert_eq!(body["input"][0]["content"], expected("Look.", "AAAA"));
    assert_eq!(body["input"][2]["output"], expected("a picture", "BBBB"));
}

#[tokio::test]
async fn failures_keep_their_kind_message_and_charge() {
    let failed = |code, message| ResponsesTurn { items: vec![], end: ResponsesEnd::Failed(code, message) };
    for (turn, is_right) in [
        (
            failed("rate_limit_exceeded", "Slow down."),
            (|error| matches!(error, ModelError::Busy { .. })) as fn(&_) -> _,
        ),
        (failed("server_error", "Oops."), |error| matches!(error, ModelError::Broken { .. })),
        (failed("context_length_exceeded", "Too long."), |error| matches!(error, ModelError::ContextFull { .. })),
        (failed("insufficient_quota", "No money."), |error| matches!(error, ModelError::Unauthorized { .. })),
    ] {
        let provider = FakeProvider::responses(vec![turn.clone()]).await;
        for model in [responses(&provider), unstreamed_model(&provider.url(), "responses", "fake", "gpt-5")] {
            let failure = ask(&*model).await.failure();
            assert!(is_right(&failure.error), "{failure:?}");
            let ResponsesEnd::Failed(_, message) = turn.end else { panic!() };
            assert!(failure.error.to_string().contains(message), "{failure:?}");
            assert!(matches!(failure.charge, Charge::Used(usage) if usage.input == 100), "{failure:?}");
        }
    }
    let event = json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow.", "param": null});
    assert!(matches!(streamed(&[event]).await.failure().error, ModelError::Busy { .. }));
    let event = json!({"type": "error", "error": {"type": "server_error", "message": "Oops."}});
    assert!(matches!(streamed(&[event]).await.failure().error, ModelError::Broken { .. }));
    let provider =
        FakeProvider::answers(vec![FakeResponse::json(200, r#"{"object":"response","status":"completed"}"#)]).await;
    assert!(matches!(ask(&*responses(&provider)).await.failure().error, ModelError::Unusable { .. }));
}

#[tokio::test]
async fn refusals_and_filters_are_told_apart() {
    let refusal = json!({"id": "m", "type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]});
    let provider = FakeProvider::responses(vec![ResponsesTurn::items(vec![refusal])]).await;
    for model in [responses(&provider), unstreamed_model(&provider.url(), "responses", "fake", "gpt-5")] {
        let reply = ask(&*model).await.reply();
        assert_eq!((reply.text().as_str(), &reply.stop), ("I cannot.", &StopReason::Refusal));
    }
    let items = vec![ResponsesTurn::message("The")];
    let filtered = ResponsesTurn { items, end: ResponsesEnd::Incomplete("content_filter") };
    let provider = FakeProvider::responses(vec![filtered]).await;
    let failure = ask(&*responses(&provider)).await.failure();
    assert!(matches!(failure.error, ModelError::Refused { .. }), "{failure:?}");
    assert_eq!(failure.partial, "The");
    assert!(matches!(failure.charge, Charge::Used(_)), "{failure:?}");
    let other = ResponsesTurn { items: vec![], end: ResponsesEnd::Incomplete("brand_new") };
    let provider = FakeProvider::responses(vec![other]).await;
    assert_eq!(ask(&*responses(&provider)).await.reply().stop, StopReason::Other("brand_new".into()));
}

#[tokio::test]
async fn unknown_and_stray_events_are_ignored() {
    let added =
        |index: u64, item: Value| json!({"type": "response.output_item.added", "output_index": index, "item": item});
    let done =
        |index: u64, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let text =
        |index: u64, text: &str| json!({"type": "response.output_text.delta", "output_index": index, "delta": text});
    let message = || json!({"type": "message", "content": []});
    let reply = streamed(&[
        json!({"type": "response.hologram.delta", "delta": {"x": 1}}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 7, "delta": "stray"}),
        added(0, message()),
        text(0, "Hi"),
        done(0, message()),
        text(0, " late"),
        done(0, json!({"type": "message", "content": [{"type": "output_text", "text": "again"}]})),
        done(1, json!({"type": "hologram", "x": 1})),
        json!({"no": "type"}),
        completed(),
        text(0, " after the end"),
    ])
    .await
    .reply();
    assert_eq!(shape(&reply), ["text Hi", r#"opaque responses/fake {"type":"hologram","x":1}"#]);
    let twice =
        streamed(&[json!({"type": "response.created"}), json!({"type": "response.created"}), completed()]).await;
    assert!(twice.failure().error.is_retryable());
    let odd = streamed(&[json!({"type": "response.output_text.delta", "delta": "Hi"}), completed()]).await.reply();
    assert_eq!(odd.text(), "Hi", "neither an item nor an index");
}

#[tokio::test]
async fn repeated_indexes_and_ids_yield_no_half_call() {
    let call = |name: &str, arguments: &str| json!({"type": "function_call", "id": "f", "call_id": "c", "name": name, "arguments": arguments});
    let event = |kind: &str, item: Value| json!({"type": kind, "output_index": 0, "item": item});
    let (added, done) = ("response.output_item.added", "response.output_item.done");
    let delta = json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"path\":"});
    let reply = streamed(&[
        event(added, call("read", "")),
        delta.clone(),
        event(added, call("grep", "")),
        event(done, call("grep", r#"{"path":"b"}"#)),
        event(added, call("read", "")),
        event(done, call("read", "{}")),
        completed(),
    ])
    .await
    .reply();
    let names: Vec<&str> = reply.calls().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["grep", "read"], "the first call was never completed");
    let open = streamed(&[event(added, call("read", "")), delta, completed()]).await.reply();
    assert_eq!((open.calls().count(), open.cut_call, open.stop), (0, None, StopReason::End));
    let by_id = streamed(&[
        json!({"type": added, "item": call("read", "")}),
        json!({"type": done, "item": {"type": "function_call", "id": "new", "name": "read", "arguments": {"path": "a"}}}),
        completed(),
    ])
    .await
    .reply();
    assert_eq!(by_id.calls().map(|call| &call.args).collect::<Vec<_>>(), [&Args::Json(json!({"path": "a"}))]);
}

#[tokio::test]
async fn reply_that_only_the_final_event_contains_is_read() {
    let items = vec![
        ResponsesTurn::reasoning("rs_1", "Hm."),
        ResponsesTurn::message("Hi"),
        ResponsesTurn::call("c", "read", "{}"),
    ];
    let end = json!({"type": "response.completed", "response": ResponsesTurn::items(items).whole()});
    let outcome = streamed(&[end]).await;
    assert_eq!(outcome.deltas, "<Hm.>Hi[read]");
    assert_eq!(outcome.reply().parts.len(), 4);
}

#[test]
fn openai_uses_responses_at_its_own_address_only() {
    let wire = |name: &str, config: Value, base_url: Option<&'static str>| {
        let config: ProviderConfig = serde_json::from_value(config).unwrap();
        let lookup = move |name: &str| base_url.filter(|_| name == "OPENAI_BASE_URL").map(SecretString::from);
        let providers = Providers::new(BTreeMap::from([(name.to_owned(), config)]), lookup);
        providers.row(name).unwrap().wire
    };
    assert_eq!(wire("openai", json!({}), None), Wire::Responses);
    assert_eq!(wire("openai", json!({"wire": "chat"}), None), Wire::Chat);
    assert_eq!(wire("openai", json!({"base_url": "https://eu.api.openai.com/v1"}), None), Wire::Responses);
    assert_eq!(wire("openai", json!({"base_url": "http://localhost:8000/v1"}), None), Wire::Chat);
    assert_eq!(
        wire("openai", json!({"base_url": "http://localhost:8000/v1", "wire": "responses"}), None),
        Wire::Responses
    );
    assert_eq!(wire("openai", json!({}), Some("https://api.openai.com.example.org/v1")), Wire::Chat);
    assert_eq!(wire("openai", json!({}), Some("https://api.openai.com/v1/")), Wire::Responses);
    assert_eq!(wire("openai", json!({"wire": "responses"}), Some("http://localhost:1/v1")), Wire::Responses);
    assert_eq!(wire("openai-responses", json!({"base_url": "http://localhost:1"}), None), Wire::Responses);
    assert_eq!(wire("azure", json!({}), None), Wire::Chat);
}
