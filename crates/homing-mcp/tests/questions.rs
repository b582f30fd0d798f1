//! Questions that wait, over MCP: a run parks, the client's model answers its question, and only the user approves calls.

mod fixtures;

use std::{collections::BTreeMap, sync::Arc};

use fixtures::{RecordingClient, call_tool, connect, data, text};
use homing::{Answer, OnQuestion, Permissions, Question, Replay, Rule, tool_fn};
use homing_mcp::ServerOptions;
use serde_json::{Value, json};

#[tokio::test]
async fn parked_question_is_answered_by_a_tool_but_an_approval_is_not() {
    let consult = tool_fn("consult", "Asks.", Replay::Safe, |context, _: BTreeMap<String, Value>| async move {
        match context.ask(Question::new("Which colour?", context.key)).await {
            Answer::Text(text) => Ok(text),
            other => Err(format!("{other:?}")),
        }
    });
    let permissions = Permissions::default().ask([Rule::tool("risky")]).on_question(OnQuestion::Park);
    let homing = fixtures::builder().tool(consult).permissions(permissions).build().unwrap();
    let homing = Arc::new(homing);
    let (client, _server) = connect(homing.clone(), ServerOptions::default(), RecordingClient::default()).await;
    let peer = client.peer();
    assert!(peer.list_all_tools().await.unwrap().iter().any(|tool| tool.name == "answer"));

    let parked = call_tool(peer, "delegate", json!({"agent": "echo", "task": "consult"})).await;
    let (run, question) = (data(&parked)["run"].clone(), data(&parked)["questions"][0]["id"].clone());
    assert_eq!((&data(&parked)["status"], parked.is_error), (&json!("waiting"), Some(false)));
    assert!(text(&parked).contains("Which colour?"), "{}", text(&parked));
    let answered = call_tool(peer, "answer", json!({"question": question, "answer": "green"})).await;
    assert_eq!((&data(&answered)["run"], answered.is_error), (&run, Some(false)), "{}", text(&answered));
    let done = call_tool(peer, "wait", json!({"runs": [run]})).await;
    assert_eq!(data(&done)["runs"][0]["output"], "echo: green", "{}", text(&done));

    let parked = call_tool(peer, "delegate", json!({"agent": "echo", "task": "risk"})).await;
    let question = &data(&parked)["questions"][0]["id"];
    let refused = call_tool(peer, "answer", json!({"question": question, "answer": "yes"})).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(text(&refused).contains("only the user can answer"), "{}", text(&refused));
    let open = homing.runtime().questions().remove(0);
    let tree = data(&parked)["run"].as_str().unwrap().parse().unwrap();
    homing.runtime().answer(tree, open.id, Answer::Yes, "the user").await.unwrap();
    let done = call_tool(peer, "wait", json!({"runs": [data(&parked)["run"]]})).await;
    assert_eq!(data(&done)["runs"][0]["output"], "echo: did the risky thing", "{}", text(&done));
}
