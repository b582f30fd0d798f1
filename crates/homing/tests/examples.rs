//! The numbered examples do what they say.

#![allow(dead_code, reason = "an example's main is its own")]

#[path = "../examples/09_conversation.rs"]
mod conversation;
#[path = "../examples/02_delegate.rs"]
mod delegate;
#[path = "../examples/01_hello.rs"]
mod hello;
#[path = "../examples/06_journal.rs"]
mod journal;
#[path = "../examples/05_limits_and_events.rs"]
mod limits_and_events;
#[path = "../examples/11_orchestrator.rs"]
mod orchestrator;
#[path = "../examples/12_own_model.rs"]
mod own_model;
#[path = "../examples/08_permissions.rs"]
mod permissions;
#[path = "../examples/07_service.rs"]
mod service;
#[path = "../examples/04_structured.rs"]
mod structured;
#[path = "../examples/03_tool.rs"]
mod tool;

#[tokio::test]
async fn example_01_says_hello() {
    assert_eq!(hello::example().await.unwrap(), "You said: hello (done)");
}

#[tokio::test]
async fn example_02_delegates() {
    let said = delegate::example().await.unwrap();
    assert!(said.starts_with("Both floors were searched.\n1 lead done"), "{said}");
    assert_eq!(said.matches("scout done").count(), 2);
}

#[tokio::test]
async fn example_03_uses_a_tool() {
    assert_eq!(tool::example().await.unwrap(), "The sum is 42.");
}

#[tokio::test]
async fn example_04_answers_in_a_type() {
    assert_eq!(structured::example().await.unwrap(), "src/lib.rs:12: an unwrap");
}

#[tokio::test]
async fn example_05_lands_at_its_limit() {
    let said = limits_and_events::example().await.unwrap();
    assert_eq!(said, "exhausted after 3 calls: Three places searched, nothing found so far.");
}

#[tokio::test]
async fn example_06_pays_once() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(journal::example(folder.path()).await.unwrap(), "same run: true, same words: true");
}

#[tokio::test]
async fn example_07_serves_runs_and_their_events() {
    use homing::{
        AgentDefinition, Homing, Replay, model_fn,
        testing::{call, say},
        tool_fn,
    };
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let homing = Homing::builder()
        .agent(AgentDefinition::new("greeter", "Greets", "Greet."))
        .agent(AgentDefinition::new("sleeper", "Sleeps", "Sleep."))
        .tool(tool_fn("sleep", "Sleeps.", Replay::Safe, |_, _: Value| std::future::pending()))
        .own_model(model_fn("demo/m", |request| {
            Ok(if request.system == "Sleep." { call([("sleep", json!({}))]) } else { say("Hello!") })
        }))
        .build()
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = tokio::spawn(service::serve(homing, listener, async { drop(stopped.await) }));
    let request = |head: String, body: &'static str| async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let text = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let started = request("POST /runs".to_owned(), r#"{"agent": "greeter", "task": "hi"}"#).await;
    let run = started.split("\"run\":\"").nth(1).and_then(|rest| rest.get(..36)).expect("an id").to_owned();
    let events = request(format!("GET /runs/{run}/events"), "").await;
    assert!(events.contains("id: 0\n") && events.contains("\"kind\":\"ended\""), "{events}");
    let rest = request(format!("GET /runs/{run}/events?from=2"), "").await;
    assert!(!rest.contains("id: 1\n") && rest.contains("id: 2\n"), "{rest}");
    let unknown = request("POST /runs".to_owned(), r#"{"agent": "greeeter", "task": "hi"}"#).await;
    assert!(unknown.starts_with("HTTP/1.1 400"), "{unknown}");
    // A run that would last forever, whose events are being read, does not keep the service from stopping.
    let started = request("POST /runs".to_owned(), r#"{"agent": "sleeper", "task": "rest"}"#).await;
    let run = started.split("\"run\":\"").nth(1).and_then(|rest| rest.get(..36)).expect("an id").to_owned();
    let reader = tokio::spawn(request(format!("GET /runs/{run}/events"), ""));
    stop.send(()).unwrap();
    let served = tokio::time::timeout(std::time::Duration::from_secs(60), service).await.expect("it stops");
    assert_eq!(served.unwrap().unwrap(), 2);
    drop(reader);
}

#[tokio::test]
async fn example_08_asks_before_it_deploys() {
    let said = permissions::example().await.unwrap();
    let declined = "denied: deploy: the user declined: only staging is open";
    assert_eq!(said, format!("{declined}; denied: releaser deploy \"production\""));
}

#[tokio::test]
async fn example_09_remembers_three_turns() {
    let said = conversation::example().await.unwrap();
    assert_eq!(said, "1: My name is Ada.\n2: I like engines.\n3: What do you know about me?");
}

#[tokio::test]
async fn example_12_has_its_own_model_and_price() {
    assert_eq!(own_model::example().await.unwrap(), "three two one for $0.006");
}

#[tokio::test]
async fn example_11_delegates_to_its_workers() {
    let said = orchestrator::example().await.unwrap();
    assert!(said.starts_with("The report is finished.\n1 newsroom done"), "{said}");
    assert!(said.contains("researcher done") && said.contains("writer done"), "{said}");
    assert!(said.ends_with("2 of 2 done"), "{said}");
}
