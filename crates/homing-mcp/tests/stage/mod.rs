//! A stage for tests: agents whose model is a program, and a client that remembers what it is told.
#![allow(dead_code, reason = "each test file uses its part of the stage")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use homing::{
    AgentDefinition, Homing, HomingBuilder, Replay, Rule,
    crates::core::{
        model::{AskFailure, ModelCard, ModelError, ModelRequest, Rates},
        scripted_model::{FunctionModel, call, last_words, say},
    },
    tool_fn,
};
use homing_mcp::ServerOptions;
use rmcp::{
    ClientHandler, ErrorData, RoleClient, ServiceError, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
        ElicitationAction, Implementation, ProgressNotificationParam,
    },
    service::{NotificationContext, Peer, RequestContext, RunningService},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

fn decide(request: ModelRequest<'_>) -> Result<homing::Reply, AskFailure> {
    let words = last_words(&request);
    Ok(match words.as_str() {
        "hang" => call([("hang", json!({}))]),
        "risk" => call([("risky", json!({}))]),
        "send" => call([("delegate", json!({"agent": "helper", "task": "help"}))]),
        "long" => say("x".repeat(100_000)),
        "fail" => return Err(AskFailure::free(ModelError::Unusable { reason: "broken on purpose".into() })),
        "history" => say(format!("{} messages", request.messages.len())),
        other => say(format!("echo: {other}")),
    })
}

/// A builder with two agents and two tools: one that hangs until it is stopped, one that needs permission.
pub(crate) fn builder() -> HomingBuilder {
    let hang = tool_fn("hang", "Hangs.", Replay::Safe, |context, _: BTreeMap<String, Value>| async move {
        context.cancelled().await;
        Err("stopped".to_owned())
    });
    let risky = tool_fn("risky", "Risky.", Replay::Safe, |_, _: BTreeMap<String, Value>| async {
        Ok("did the risky thing".to_owned())
    });
    let rates = Rates { input: 1_000_000, output: 1_000_000, ..Rates::default() };
    let card = ModelCard { rates: Some(rates), ..ModelCard::free("script/program") };
    Homing::builder()
        .agent(AgentDefinition::new("echo", "Says what it hears.", "You echo."))
        .agent(AgentDefinition::new("helper", "Helps.\u{202e}\u{e0041}", "You help."))
        .tool(hang)
        .tool(risky)
        .ask([Rule::tool("risky")])
        .own_model(Arc::new(FunctionModel::with_card(card, decide)))
}

pub(crate) async fn homing() -> Arc<Homing> {
    Arc::new(builder().build().await.expect("it builds"))
}

/// What a client was told.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) progress: Vec<ProgressNotificationParam>,
    pub(crate) tools_changed: usize,
    pub(crate) questions: Vec<String>,
}

/// A client that remembers; it asks its person only where it was given an answer.
#[derive(Clone, Default)]
pub(crate) struct Probe {
    pub(crate) heard: Arc<Mutex<Heard>>,
    pub(crate) answer: Option<Value>,
}

impl Probe {
    /// Whether some progress said so.
    pub(crate) fn says(&self, words: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.progress.iter().any(|it| it.message.as_ref().is_some_and(|it| it.contains(words)))
    }
}

impl ClientHandler for Probe {
    fn get_info(&self) -> ClientConfig {
        let capabilities = match self.answer {
            Some(_) => ClientCapabilities::builder().enable_elicitation().build(),
            None => ClientCapabilities::default(),
        };
        ClientConfig::new(capabilities, Implementation::new("probe", "1"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.heard.lock().unwrap().progress.push(params);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.heard.lock().unwrap().tools_changed += 1;
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::FormElicitationParams { message, .. } = request {
            self.heard.lock().unwrap().questions.push(message);
        }
        let mut result = ElicitResult::new(ElicitationAction::Accept);
        result.content = self.answer.as_ref().map(|it| json!({"answer": it}));
        Ok(result)
    }
}

pub(crate) type Talk = RunningService<RoleClient, Probe>;

/// A client in conversation with a server of its own, and the server's end.
pub(crate) async fn talk(homing: Arc<Homing>, options: ServerOptions, probe: Probe) -> (Talk, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let served = tokio::spawn(async move {
        let _ = homing_mcp::serve_on(homing, options, tokio::io::split(theirs), std::future::pending()).await;
    });
    (probe.serve(ours).await.expect("the conversation begins"), served)
}

/// Calls a tool.
pub(crate) async fn call_tool(peer: &Peer<RoleClient>, name: &'static str, args: Value) -> CallToolResult {
    try_call(peer, name, args).await.expect("the call is understood")
}

pub(crate) async fn try_call(
    peer: &Peer<RoleClient>,
    name: &'static str,
    args: Value,
) -> Result<CallToolResult, ServiceError> {
    let args = args.as_object().cloned().expect("arguments are an object");
    peer.call_tool(CallToolRequestParams::new(name).with_arguments(args)).await
}

/// The words of a result.
pub(crate) fn text(result: &CallToolResult) -> String {
    result.content.iter().filter_map(|it| it.as_text()).map(|it| it.text.clone()).collect()
}

/// The structured part of a result.
pub(crate) fn data(result: &CallToolResult) -> &Value {
    result.structured_content.as_ref().expect("structured content")
}

/// Starts a run in the background and gives its id.
pub(crate) async fn start(peer: &Peer<RoleClient>, task: &str) -> Value {
    let args = json!({"agent": "echo", "task": task, "background": true});
    data(&call_tool(peer, "delegate", args).await)["run"].clone()
}

/// Waits for something to become true.
pub(crate) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("in vain: {what}");
}
