//! Handles the MCP requests of one client.

use std::{borrow::Cow, sync::Arc, time::Duration};

use homing::{Limits, Message, QuestionKind, RunHandle, crates::core::trace_context::TraceContext};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, InitializeRequestParams,
        InitializeResult, JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    args::{self, AnswerArgs, DelegateArgs, RunArgs, RunsArgs, TellArgs, WaitArgs},
    client::{Client, Recalled, SpawnRefusal, cancelled_by},
    resources, run_report, tools,
    wait_for_runs::{WaitEnd, WaitFor, wait_for_runs},
};

/// Time for a cancelled run to record its partial result.
const GRACE: Duration = Duration::from_secs(3);

/// The newest protocol revision with a lasting session. Later ones have none, so runs could not be assigned to clients.
const NEWEST: ProtocolVersion = ProtocolVersion::V_2025_11_25;

const INSTRUCTIONS: &str = "Agents to delegate to. `delegate` gives a task to an agent and returns its answer; with \
                            `background` several agents work at once: `wait` for them. Every run has limits and returns \
                            its answer, or the reason why it stopped and its partial result. Definitions, results and \
                            transcripts are resources.";

/// Handles the requests of one client.
pub(crate) struct McpHandler {
    pub(crate) client: Arc<Client>,
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_protocol_version(NEWEST)
            .with_server_info(Implementation::new("homing", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&NEWEST))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        self.client.initialize(context.peer, request.client_info.name.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.require_initialized()?;
        let args = request.arguments;
        let answer = match &*request.name {
            "delegate" => self.delegate(args, &context).await,
            "wait" => self.wait(args, &context).await,
            "tell" => self.tell(args, &context).await,
            "cancel" => self.cancel(args).await,
            "runs" => self.runs(args),
            "resume" => self.resume(args).await,
            "answer" => self.answer(args),
            other => return Err(ErrorData::invalid_params(format!("there is no tool named `{other}`"), None)),
        };
        Ok(answer.unwrap_or_else(run_report::mistake).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(&self.client)))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.require_initialized()?;
        if let Some(run) = resources::run_of(&request.uri).filter(|run| self.client.find(*run).is_none()) {
            self.client.recall(run).await;
        }
        resources::read(&self.client, &request.uri).map(Into::into)
    }
}

/// The answer of a tool. The error is a message to the client's model.
type ToolAnswer = Result<CallToolResult, String>;

impl McpHandler {
    /// Refuses requests before `initialize`, because such a client has no session that owns runs.
    fn require_initialized(&self) -> Result<(), ErrorData> {
        let refused = || ErrorData::invalid_request("the first request must be `initialize`", None);
        self.client.peer().map(|_| ()).ok_or_else(refused)
    }

    fn tools(&self) -> Vec<Tool> {
        let homing = self.client.server.homing();
        tools::tools(homing.registry(), homing.runtime().parts().config.on_question)
    }

    async fn delegate(&self, args: Option<JsonObject>, context: &RequestContext<RoleServer>) -> ToolAnswer {
        let args: DelegateArgs = args::read(args)?;
        let spawned = self.client.spawn(&args.agent, &args.task, args.limits()?, Vec::new(), trace_of(context));
        let spawned = spawned.map_err(|SpawnRefusal(why)| why)?;
        if args.background {
            return Ok(run_report::started(&spawned, "has started"));
        }
        let run = [spawned.handle];
        match wait_for_runs(&run, WaitFor::All, None, &self.client, context).await {
            WaitEnd::RunsEnded | WaitEnd::TimeUp => (),
            WaitEnd::Cancelled => {
                run[0].cancel(cancelled_by());
                let _ = tokio::time::timeout(GRACE, run[0].wait()).await;
            }
        }
        let envelope = run[0].envelope();
        self.client.mark_reported(std::slice::from_ref(&envelope));
        Ok(run_report::one(&envelope))
    }

    async fn wait(&self, args: Option<JsonObject>, context: &RequestContext<RoleServer>) -> ToolAnswer {
        let args: WaitArgs = args::read(args)?;
        let timeout = args.timeout()?;
        let runs = match &args.runs {
            Some(ids) => futures::future::try_join_all(ids.iter().map(|id| self.own_run(*id))).await?,
            None => self.client.unreported(),
        };
        let wanted = if args.any { WaitFor::Any } else { WaitFor::All };
        wait_for_runs(&runs, wanted, timeout, &self.client, context).await;
        let mut envelopes: Vec<_> = runs.iter().map(RunHandle::envelope).collect();
        if wanted == WaitFor::Any && envelopes.iter().any(|envelope| envelope.status.is_over()) {
            envelopes.retain(|envelope| envelope.status.is_over());
        }
        self.client.mark_reported(&envelopes);
        Ok(run_report::many(&envelopes))
    }

    async fn tell(&self, args: Option<JsonObject>, context: &RequestContext<RoleServer>) -> ToolAnswer {
        let args: TellArgs = args::read(args)?;
        let run = self.own_run(args.run).await?;
        if args.message.trim().is_empty() {
            return Err("the message is empty".to_owned());
        }
        if run.tell_if_open(&args.message) {
            return Ok(run_report::result(
                "The run will read this at its next step.".into(),
                json!({"run": run.id(), "continues": null}),
                false,
            ));
        }
        let (agent, history) = agent_and_messages(&run);
        let trace = trace_of(context);
        let spawned = self.client.spawn(&agent, &args.message, Limits::default(), history, trace);
        let next = spawned.map_err(|SpawnRefusal(why)| why)?.handle.id();
        let text = format!("The run had ended. Run {next} continues it in the background: `wait` for that one.");
        Ok(run_report::result(text, json!({"run": next, "continues": run.id()}), false))
    }

    async fn cancel(&self, args: Option<JsonObject>) -> ToolAnswer {
        let args: RunArgs = args::read(args)?;
        let run = self.own_run(args.run).await?;
        let cancelled = run.cancel(cancelled_by());
        let text = if cancelled { "The run is stopping." } else { "The run had ended or was already stopping." };
        Ok(run_report::result(text.into(), json!({"run": run.id(), "cancelled": cancelled}), false))
    }

    fn runs(&self, args: Option<JsonObject>) -> ToolAnswer {
        let args: RunsArgs = args::read(args)?;
        let mut runs = self.client.runs();
        runs.retain(|run| args.status.is_none_or(|wanted| run.handle.status() == wanted));
        runs.reverse();
        let mut earlier = self.client.earlier_runs();
        earlier.retain(|row| args.status.is_none_or(|wanted| row.status == wanted));
        Ok(run_report::list(&runs, &earlier))
    }

    async fn resume(&self, args: Option<JsonObject>) -> ToolAnswer {
        let args: RunArgs = args::read(args)?;
        let resumed = self.client.resume(args.run).await.map_err(|SpawnRefusal(why)| why)?;
        Ok(run_report::started(&resumed, "continues"))
    }

    /// Answers a question of one of the client's runs. The client's model must not approve calls in the user's place.
    fn answer(&self, args: Option<JsonObject>) -> ToolAnswer {
        let args: AnswerArgs = args::read(args)?;
        let asking = self.client.runs().into_iter().find_map(|run| {
            let mut questions = run.handle.questions().into_iter();
            let open = questions.find(|open| open.id.to_string().starts_with(&args.question))?;
            Some((run.handle, open))
        });
        let Some((run, open)) = asking else { return Err(format!("none of your runs asks `{}`", args.question)) };
        if open.kind == QuestionKind::Permission {
            return Err("this is a request for approval of a call, which only the user can answer".to_owned());
        }
        let answer = open.question.read_answer(&args.answer).map_err(|error| error.to_string())?;
        run.answer(open.id, answer, "an MCP client").map_err(|error| error.to_string())?;
        let text = format!("Run {} continues: `wait` for it.", run.id());
        Ok(run_report::result(text, json!({"run": run.id()}), false))
    }

    /// Returns a run of this client. The error is the same for a run of another client and for one that does not exist.
    /// A run of an earlier process of this server that has ended is taken over.
    async fn own_run(&self, run: Uuid) -> Result<RunHandle, String> {
        let unknown = || format!("there is no run {run} of yours; `runs` lists them");
        if let Some(known) = self.client.find(run) {
            return Ok(known);
        }
        match self.client.recall(run).await {
            Recalled::Listed => self.client.find(run).ok_or_else(unknown),
            Recalled::Interrupted => {
                Err(format!("run {run} was interrupted when this server stopped: `resume` it first"))
            }
            Recalled::Unknown => Err(unknown()),
        }
    }
}

/// Returns the agent of a run and its messages.
fn agent_and_messages(run: &RunHandle) -> (String, Vec<Message>) {
    let tree = run.tree();
    let run = tree.get(run.id()).expect("a handle is made for a run that exists");
    (run.spawned.agent.name.clone(), run.messages().iter().map(|entry| entry.message.clone()).collect())
}

/// Returns the position in a distributed trace that the client sent with a request.
fn trace_of(context: &RequestContext<RoleServer>) -> Option<TraceContext> {
    TraceContext::parse(context.meta.get_traceparent()?, context.meta.get_tracestate())
}
