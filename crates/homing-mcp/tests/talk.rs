//! A client in conversation with our server, over a pipe.

mod stage;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homing::{AgentDefinition, CancelledBy, Status};
use homing_mcp::{ClientBudget, ElicitationHandler, ServerOptions};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ReadResourceRequestParams, ResourceContents};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};
use stage::*;

async fn plain() -> Talk {
    talk(homing().await, ServerOptions::default(), Probe::default()).await.0
}

async fn resource(talk: &Talk, uri: &str) -> Option<Value> {
    let read = talk.read_resource(ReadResourceRequestParams::new(uri)).await.ok()?;
    match &read.contents[0] {
        ResourceContents::TextResourceContents { text, .. } => serde_json::from_str(text).ok(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_tools_name_the_agents_and_describe_them_inertly() {
    let talk = plain().await;
    let tools = talk.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|it| it.name.as_ref()).collect();
    assert_eq!(names, ["delegate", "wait", "tell", "cancel", "runs"]);
    assert_eq!(tools[0].input_schema["properties"]["agent"]["enum"], json!(["echo", "helper"]));
    let description = tools[0].description.as_deref().unwrap();
    assert!(description.contains("- echo: Says what it hears.\n- helper: Helps.\u{fffd}\u{fffd}"), "{description}");
    assert!(tools.iter().all(|it| it.output_schema.is_some()));
}

#[tokio::test]
async fn delegate_returns_the_answer_in_words_and_as_the_envelope() {
    let talk = plain().await;
    let result = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "hello"})).await;
    assert_ne!(result.is_error, Some(true));
    let (words, data) = (text(&result), data(&result));
    assert!(words.starts_with("[echo · run ") && words.ends_with("\necho: hello"), "{words}");
    assert_eq!((&data["v"], &data["status"], &data["output"]), (&json!(1), &json!("done"), &json!("echo: hello")));
    serde_json::from_value::<homing::Envelope>(data.clone()).expect("it is an envelope");
}

#[tokio::test]
async fn what_comes_back_fits_the_schemas_that_were_promised() {
    let talk = plain().await;
    let tools = talk.list_all_tools().await.unwrap();
    let run = start(&talk, "hang").await;
    for (name, args) in [
        ("delegate", json!({"agent": "echo", "task": "send"})),
        ("delegate", json!({"agent": "echo", "task": "fail"})),
        ("delegate", json!({"agent": "echo", "task": "hang", "limits": {"timeout": 0.2}})),
        ("wait", json!({"timeout": 0.05})),
        ("tell", json!({"run": run, "message": "more"})),
        ("runs", json!({})),
        ("cancel", json!({"run": run})),
    ] {
        let tool = tools.iter().find(|it| it.name == name).unwrap();
        let input = Value::Object((*tool.input_schema).clone());
        let output = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
        assert!(jsonschema::validator_for(&input).unwrap().is_valid(&args), "{name} {args}");
        let result = call_tool(&talk, name, args).await;
        let validator = jsonschema::validator_for(&output).unwrap();
        let errors: Vec<_> = validator.iter_errors(data(&result)).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[tokio::test]
async fn a_client_that_wants_progress_gets_it_while_a_run_works() {
    let probe = Probe::default();
    let homing = homing().await;
    let (talk, _) = talk(homing.clone(), ServerOptions::default(), probe.clone()).await;
    // The client of this library asks for progress with every request.
    let delegates = tokio::spawn({
        let peer = talk.peer().clone();
        async move { call_tool(&peer, "delegate", json!({"agent": "echo", "task": "hang"})).await }
    });
    until("progress", || probe.says("echo 1 calls hang · step 1 · 15 tokens")).await;
    homing.runtime().cancel_all(&CancelledBy::Host);
    assert_eq!(data(&delegates.await.unwrap())["status"], "cancelled");
    let heard = probe.heard.lock().unwrap();
    assert!(heard.progress.windows(2).all(|it| it[0].progress < it[1].progress), "it only grows");
}

#[tokio::test]
async fn background_runs_are_waited_for_together_or_for_the_first() {
    let talk = plain().await;
    let (hangs, quick) = (start(&talk, "hang").await, start(&talk, "quick").await);
    let first = call_tool(&talk, "wait", json!({"runs": [hangs, quick], "any": true})).await;
    assert_eq!(data(&first)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(data(&first)["runs"][0]["output"], "echo: quick");
    let waited = call_tool(&talk, "wait", json!({"timeout": 0.05})).await;
    assert_eq!(data(&waited)["runs"][0]["run"], hangs, "without ids: those under way");
    assert_eq!(data(&waited)["runs"][0]["partial"], true, "it is not over");
    let cancelled = call_tool(&talk, "cancel", json!({"run": hangs})).await;
    assert_eq!(data(&cancelled)["cancelled"], true);
    let ended = call_tool(&talk, "wait", json!({"runs": [hangs]})).await;
    assert_eq!(data(&ended)["runs"][0]["status"], "cancelled");
    let listed = call_tool(&talk, "runs", json!({"status": "cancelled"})).await;
    assert_eq!(data(&listed)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(data(&listed)["runs"][0]["task"], "hang");
}

#[tokio::test]
async fn a_request_that_is_given_up_cancels_its_run() {
    let homing = homing().await;
    let (talk, _) = talk(homing.clone(), ServerOptions::default(), Probe::default()).await;
    let args = json!({"agent": "echo", "task": "hang"}).as_object().cloned().unwrap();
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(
        CallToolRequestParams::new("delegate").with_arguments(args),
    ));
    let handle = talk.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    until("the run begins", || !homing.runtime().list(Status::Running).is_empty()).await;
    handle.cancel(Some("changed my mind".into())).await.unwrap();
    until("the run is cancelled", || !homing.runtime().list(Status::Cancelled).is_empty()).await;
}

#[tokio::test]
async fn what_a_client_started_ends_when_it_goes() {
    let homing = homing().await;
    let (talk, served) = talk(homing.clone(), ServerOptions::default(), Probe::default()).await;
    start(&talk, "hang").await;
    talk.cancel().await.unwrap();
    served.await.unwrap();
    assert_eq!(homing.runtime().list(Status::Cancelled).len(), 1);
}

#[tokio::test]
async fn telling_an_ended_run_continues_it_with_what_was_said() {
    let talk = plain().await;
    let run = start(&talk, "first").await;
    call_tool(&talk, "wait", json!({"runs": [run]})).await;
    let told = call_tool(&talk, "tell", json!({"run": run, "message": "history"})).await;
    assert_eq!(data(&told)["continues"], run);
    let ended = call_tool(&talk, "wait", json!({"runs": [data(&told)["run"]]})).await;
    assert_eq!(data(&ended)["runs"][0]["output"], "3 messages");
}

#[tokio::test]
async fn m14_another_clients_run_is_as_if_it_did_not_exist() {
    let homing = homing().await;
    let (one, _) = talk(homing.clone(), ServerOptions::default(), Probe::default()).await;
    let (other, _) = talk(homing.clone(), ServerOptions::default(), Probe::default()).await;
    let run = start(&one, "hang").await;
    let nobody = json!("019a0000-0000-7000-8000-000000000000");
    for (name, more) in [("tell", json!({"message": "x"})), ("cancel", json!({})), ("wait", json!({}))] {
        let ask = |run: &Value| {
            let mut args = more.clone();
            match name {
                "wait" => args["runs"] = json!([run]),
                _ => args["run"] = run.clone(),
            }
            args
        };
        let foreign = call_tool(&other, name, ask(&run)).await;
        let unknown = call_tool(&other, name, ask(&nobody)).await;
        assert_eq!(foreign.is_error, Some(true), "{name}");
        let plain = |words: String, id: &Value| words.replace(id.as_str().unwrap(), "ID");
        assert_eq!(plain(text(&foreign), &run), plain(text(&unknown), &nobody), "{name}");
    }
    assert_eq!(data(&call_tool(&other, "runs", json!({})).await)["runs"], json!([]));
    let uri = format!("homing://runs/{}", run.as_str().unwrap());
    assert!(resource(&other, &uri).await.is_none() && resource(&one, &uri).await.is_some());
    assert!(!other.list_all_resources().await.unwrap().iter().any(|it| it.uri.starts_with("homing://runs/")));
    assert_eq!(data(&call_tool(&one, "cancel", json!({"run": run})).await)["cancelled"], true, "nobody had stopped it");
}

#[tokio::test]
async fn m14_a_client_cannot_spawn_beyond_its_budget() {
    let mut options = ServerOptions::default();
    options.budget.cost_micros = Some(1_000_000);
    let (talk, _) = talk(homing().await, options, Probe::default()).await;
    start(&talk, "hang").await;
    let refused = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "more"})).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(text(&refused).contains("the budget of this client is $1.00, and $1.00 of it"), "{}", text(&refused));
}

#[tokio::test]
async fn m14_a_client_cannot_ask_for_more_than_an_agents_file_allows() {
    let mut agent = AgentDefinition::new("brief", "d", "p");
    agent.limits = agent.limits.wall(Duration::from_millis(200));
    let homing = Arc::new(builder().agent(agent).build().await.unwrap());
    let (talk, _) = talk(homing, ServerOptions::default(), Probe::default()).await;
    let args = json!({"agent": "brief", "task": "hang", "limits": {"timeout": 600}});
    let late = call_tool(&talk, "delegate", args).await;
    assert_eq!((&data(&late)["status"], &data(&late)["limit"]["limit"]), (&json!("timed_out"), &json!(200)));
}

#[tokio::test]
async fn a_budget_gets_back_what_a_run_did_not_use() {
    let mut options = ServerOptions::default();
    options.budget.cost_micros = Some(1_000_000);
    let (talk, _) = talk(homing().await, options, Probe::default()).await;
    for _ in 0..3 {
        let done = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "hello"})).await;
        assert_eq!(data(&done)["status"], "done", "{}", text(&done));
        assert_eq!(data(&done)["subtree"]["cost_micros"], 15);
    }
}

#[tokio::test]
async fn m14_only_so_many_runs_are_under_way_at_once() {
    let mut options = ServerOptions::default();
    options.budget = ClientBudget::default();
    options.budget.open = 2;
    let (talk, _) = talk(homing().await, options, Probe::default()).await;
    start(&talk, "hang").await;
    start(&talk, "hang").await;
    let refused = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "third"})).await;
    assert!(refused.is_error == Some(true) && text(&refused).starts_with("2 runs are under way"), "{}", text(&refused));
}

#[tokio::test]
async fn mistakes_of_a_model_are_messages_to_it() {
    let talk = plain().await;
    for (name, args, says) in [
        ("delegate", json!({"agent": "ecko", "task": "x"}), "did you mean `echo`?"),
        ("delegate", json!({"agent": "echo", "task": " "}), "the task is empty"),
        ("delegate", json!({"agent": "echo"}), "missing field `task`"),
        ("delegate", json!({"agent": "echo", "task": "x", "limits": {"max_cots": 1}}), "unknown field `max_cots`"),
        ("wait", json!({"runs": ["not an id"]}), "the arguments do not fit"),
        ("tell", json!({"run": "019a0000-0000-7000-8000-000000000000", "message": ""}), "there is no run"),
    ] {
        let result = call_tool(&talk, name, args).await;
        assert!(result.is_error == Some(true) && text(&result).contains(says), "{name}: {}", text(&result));
    }
    assert!(
        try_call(&talk, "nonsense", json!({})).await.is_err(),
        "a tool that does not exist is the client's mistake"
    );
}

#[tokio::test]
async fn a_failed_run_is_an_error_with_its_envelope_and_a_limit_is_an_outcome() {
    let talk = plain().await;
    let failed = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "fail"})).await;
    assert_eq!((failed.is_error, &data(&failed)["error"]["kind"]), (Some(true), &json!("model")));
    let args = json!({"agent": "echo", "task": "hang", "limits": {"timeout": 0.2}});
    let late = call_tool(&talk, "delegate", args).await;
    assert_ne!(late.is_error, Some(true));
    assert_eq!((&data(&late)["status"], &data(&late)["limit"]["limit"]), (&json!("timed_out"), &json!(200)));
}

#[tokio::test]
async fn a_very_long_answer_is_cut_in_the_result_and_whole_in_its_resource() {
    let talk = plain().await;
    let long = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "long"})).await;
    assert!(text(&long).len() < 25_000 && text(&long).contains("76000 more bytes: read the resource homing://runs/"));
    assert!(data(&long).to_string().len() < 26_000, "some clients show their model this instead of the words");
    let uri = format!("homing://runs/{}", data(&long)["run"].as_str().unwrap());
    assert_eq!(resource(&talk, &uri).await.unwrap()["output"].as_str().unwrap().len(), 100_000);
}

#[tokio::test]
async fn definitions_results_and_transcripts_are_resources() {
    let talk = plain().await;
    let run = data(&call_tool(&talk, "delegate", json!({"agent": "echo", "task": "hello"})).await)["run"].clone();
    let run = run.as_str().unwrap();
    let listed: Vec<_> = talk.list_all_resources().await.unwrap().iter().map(|it| it.uri.clone()).collect();
    let ours = [format!("homing://runs/{run}"), format!("homing://runs/{run}/transcript")];
    assert_eq!(
        listed,
        ["homing://agents/echo".into(), "homing://agents/helper".into(), ours[0].clone(), ours[1].clone()]
    );
    assert_eq!(resource(&talk, "homing://agents/echo").await.unwrap()["prompt"], "You echo.");
    assert_eq!(resource(&talk, &ours[0]).await.unwrap()["output"], "echo: hello");
    let transcript = resource(&talk, &ours[1]).await.unwrap();
    assert_eq!((&transcript[0]["role"], &transcript[1]["role"]), (&json!("user"), &json!("assistant")));
    assert_eq!(talk.list_all_resource_templates().await.unwrap().len(), 3);
    for nothing in ["homing://agents/nobody", "homing://runs/x", "homing://agents/..%2f", "file:///etc/passwd", ""] {
        assert!(resource(&talk, nothing).await.is_none(), "{nothing}");
    }
}

#[tokio::test]
async fn secrets_of_servers_and_hooks_are_no_part_of_a_definition() {
    let mut agent = AgentDefinition::new("keeper", "d", "p");
    agent.mcp_servers.insert("db".into(), json!({"env": {"PASSWORD": "hunter2"}}));
    agent.hooks = json!({"Stop": "curl -H hunter2"});
    agent.unknown.insert("x".into(), json!("hunter2"));
    let homing = Arc::new(builder().agent(agent).build().await.unwrap());
    let (talk, _) = talk(homing, ServerOptions::default(), Probe::default()).await;
    let shown = resource(&talk, "homing://agents/keeper").await.unwrap().to_string();
    assert!(shown.contains("\"db\"") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn clients_are_told_when_agents_change() {
    let changed = Arc::new(AtomicBool::new(false));
    let mut options = ServerOptions::default();
    options.reload_every = Duration::from_millis(20);
    let flag = changed.clone();
    options.reload = Some(Arc::new(move || {
        let flag = flag.clone();
        Box::pin(async move {
            let agent = AgentDefinition::new("newcomer", "New.", "p");
            let build = async || Arc::new(builder().agent(agent).build().await.unwrap());
            if flag.swap(false, Ordering::SeqCst) { Some(build().await) } else { None }
        })
    }));
    let probe = Probe::default();
    let (talk, _) = talk(homing().await, options, probe.clone()).await;
    let before = start(&talk, "hang").await;
    changed.store(true, Ordering::SeqCst);
    until("the client is told", || probe.heard.lock().unwrap().tools_changed == 1).await;
    let tools = talk.list_all_tools().await.unwrap();
    assert_eq!(tools[0].input_schema["properties"]["agent"]["enum"], json!(["echo", "helper", "newcomer"]));
    let result = call_tool(&talk, "delegate", json!({"agent": "newcomer", "task": "hi"})).await;
    assert_eq!(data(&result)["status"], "done");
    assert_eq!(data(&call_tool(&talk, "cancel", json!({"run": before})).await)["cancelled"], true, "older runs go on");
}

async fn risk(answer: Option<Value>) -> (Value, usize) {
    let asker = Arc::new(ElicitationHandler::new());
    let homing = Arc::new(builder().on_ask(asker.clone()).build().await.unwrap());
    let mut options = ServerOptions::default();
    options.asker = Some(asker);
    let probe = Probe { answer, ..Probe::default() };
    let (talk, _) = talk(homing, options, probe.clone()).await;
    let result = call_tool(&talk, "delegate", json!({"agent": "echo", "task": "risk"})).await;
    let asked = probe.heard.lock().unwrap().questions.len();
    (data(&result).clone(), asked)
}

#[tokio::test]
async fn permission_is_asked_of_the_client_that_offers_to_ask_and_only_a_plain_yes_is_one() {
    let (done, asked) = risk(Some(json!(true))).await;
    assert_eq!((asked, &done["output"]), (1, &json!("echo: did the risky thing")));
    for no in [json!(false), json!("true"), Value::Null] {
        let (done, asked) = risk(Some(no.clone())).await;
        assert_eq!(asked, 1);
        assert!(!done["denied"].as_array().unwrap().is_empty(), "{no}: {done}");
    }
    let (done, asked) = risk(None).await;
    assert_eq!((asked, done["denied"].as_array().unwrap().len()), (0, 1), "nobody to ask: denied");
}
