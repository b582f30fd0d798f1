//! Agents as models, tools and AG-UI agents of `homing serve`, as raw HTTP.

use homing_testing::FakeResponse;
use serde_json::{Value, json};

use crate::{
    serve_client::{Response, Serve},
    world::{MODEL, World, has_results, task_of},
};

fn post(server: &Serve, path: &str, body: &Value) -> Response {
    server.request("POST", path).json(body).send()
}

/// Returns the JSON of the frames of a streamed response.
fn frames(response: &Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.body);
    let data = response.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect(data)).collect()
}

fn said(text: &str) -> Value {
    json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "before"},
           {"role": "assistant", "content": "indeed"}, {"role": "user", "content": [{"type": "text", "text": text}]}])
}

#[test]
fn agents_answer_as_models() {
    let world = World::saying("the answer");
    let server = Serve::start(&world, &MODEL);
    let models = server.get_json("/v1/models");
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "explore"), "{models}");
    assert_eq!(server.get_json("/v1/models/explore")["object"], "model");
    let chat = post(&server, "/v1/chat/completions", &json!({"model": "explore", "messages": said("what?")}));
    assert_eq!(chat.status, 200, "{}", chat.body);
    let whole = chat.json();
    assert_eq!(whole["choices"][0]["message"]["content"], "the answer");
    assert!(
        whole["choices"][0]["finish_reason"] == "stop" && whole["usage"]["total_tokens"].as_u64() > Some(0),
        "{whole}"
    );
    let seen = &world.provider.requests()[0];
    let sent = seen.body.to_string();
    assert!(sent.contains(r"Be brief.\n\nwhat?"), "the task follows the instructions: {sent}");
    assert!(sent.contains("before") && sent.contains("indeed"), "the history is sent: {sent}");
    let options = json!({"include_usage": true});
    let body = json!({"model": "explore", "messages": said("what?"), "stream": true, "stream_options": options});
    let response = post(&server, "/v1/chat/completions", &body);
    assert!(response.body.contains("data: [DONE]\n\n"), "{}", response.body);
    let chunks = frames(&response);
    let content = |chunk: &Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    assert_eq!(chunks.iter().filter_map(content).collect::<String>(), "the answer");
    let last = chunks.last().unwrap();
    assert!(last["choices"] == json!([]) && last["usage"]["completion_tokens"].as_u64() > Some(0), "{last}");
}

#[test]
fn responses_are_whole_streamed_and_continued() {
    let world = World::saying("the answer");
    let server = Serve::start(&world, &MODEL);
    let first =
        post(&server, "/v1/responses", &json!({"model": "explore", "input": "what?", "instructions": "Be brief."}));
    assert_eq!(first.status, 200, "{}", first.body);
    let whole = first.json();
    assert!(whole["status"] == "completed" && whole["output"][0]["content"][0]["text"] == "the answer", "{whole}");
    let again = json!({"model": "explore", "input": [{"role": "user", "content": "and?"}], "stream": true,
                       "previous_response_id": whole["id"]});
    let events = frames(&post(&server, "/v1/responses", &again));
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let delta = events.iter().find(|event| event["type"] == "response.output_text.delta").expect("a delta");
    assert_eq!(delta["delta"], "the answer");
    let last = events.last().unwrap();
    assert!(
        last["type"] == "response.completed" && last["response"]["usage"]["total_tokens"].as_u64() > Some(0),
        "{last}"
    );
    let history = world.provider.requests()[1].body.to_string();
    assert!(history.contains("what?") && history.contains("and?"), "the conversation continues: {history}");
}

#[test]
fn callers_get_clear_errors() {
    let world = World::saying("x");
    let server = Serve::start(&world, &MODEL);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (status, path, body) in [
        (400, "/v1/chat/completions", json!({"model": "explore", "messages": said("x"), "tools": tools})),
        (400, "/v1/responses", json!({"model": "explore", "input": "x", "tools": tools})),
        (400, "/v1/chat/completions", json!({"model": "explore", "messages": []})),
        (400, "/v1/chat/completions", json!({"model": "explore", "messages": [{"role": "tool", "content": "x"}]})),
        (404, "/v1/chat/completions", json!({"model": "gpt-99", "messages": said("x")})),
        (404, "/v1/responses", json!({"model": "explore", "input": "x", "previous_response_id": "resp_none"})),
        (404, "/v1/embeddings", json!({})),
    ] {
        let response = post(&server, path, &body);
        let error = response.json();
        assert!(
            response.status == status && error["error"]["message"].is_string(),
            "{body}: {} {error}",
            response.status
        );
    }
    assert_eq!(world.provider.requests().len(), 0, "nothing was spent");
    let failing = World::new(|_, _| FakeResponse::json(401, r#"{"error": {"message": "bad key"}}"#));
    let server = Serve::start(&failing, &MODEL);
    let failed = post(&server, "/v1/chat/completions", &json!({"model": "explore", "messages": said("x")}));
    assert!(failed.status == 502 && failed.json()["error"]["type"] == "server_error", "{}", failed.body);
}

#[test]
fn agui_clients_see_messages_calls_and_subagents() {
    let world = World::new(|_, seen| {
        if has_results(seen) || task_of(seen) == "part" {
            return FakeResponse::chat_text("finished");
        }
        FakeResponse::chat_calls(&[("delegate", r#"{"agent": "explore", "task": "part"}"#)])
    });
    let server = Serve::start(&world, &MODEL);
    let input = json!({"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "lead"}],
                       "tools": [], "context": [], "state": {}, "forwardedProps": {}});
    let events = frames(&post(&server, "/agui/general", &input));
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("RUN_STARTED", "RUN_FINISHED"), "{kinds:?}");
    for kind in ["TOOL_CALL_START", "TOOL_CALL_RESULT", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "TEXT_MESSAGE_CONTENT"]
    {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    assert_eq!(events.last().unwrap()["result"]["output"], "finished");
    let mut with_tools = input.clone();
    with_tools["tools"] = json!([{"name": "x"}]);
    assert_eq!(post(&server, "/agui", &with_tools).status, 400);
}

#[test]
fn mcp_clients_use_the_same_token() {
    let world = World::saying("x");
    let server = Serve::start(&world, &MODEL);
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let accept = "application/json, text/event-stream";
    let request = || server.request("POST", "/mcp").header("Accept", accept).json(&hello);
    let answer = request().send();
    assert!(answer.status == 200 && answer.body.contains("serverInfo"), "{} {}", answer.head, answer.body);
    assert_eq!(request().without("Authorization").send().status, 401);
}

#[test]
fn trace_of_the_program_is_recorded_with_its_run() {
    let world = World::saying("fine");
    let server = Serve::start(&world, &MODEL);
    let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let chat = json!({"model": "explore", "messages": [{"role": "user", "content": "in a chat"}]});
    let agui = json!({"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "over AG-UI"}],
        "tools": [], "context": [], "state": {}, "forwardedProps": {"agent": "explore"}});
    let start = json!({"agent": "explore", "task": "over the API"});
    for (path, body) in [("/v1/chat/completions", chat), ("/agui", agui), ("/api/runs", start)] {
        let response = server.request("POST", path).header("traceparent", sent).json(&body).send();
        assert!(response.status < 300, "{path}: {}", response.body);
    }
    let forged =
        server.request("POST", "/api/runs").header("traceparent", "00-x").json(&json!({"task": "forged"})).send();
    assert_eq!(forged.status, 201, "{}", forged.body);
    let trees = server.get_json("/api/trees");
    let tags = trees["trees"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tree| (tree["task"].clone(), tree["tags"]["traceparent"].clone()));
    let tags: std::collections::HashMap<String, Value> =
        tags.map(|(task, tag)| (task.as_str().unwrap().to_owned(), tag)).collect();
    for task in ["in a chat", "over AG-UI", "over the API"] {
        assert_eq!(tags[task], sent, "{task}");
    }
    assert_eq!(tags["forged"], Value::Null, "what is not a trace is not recorded");
}
