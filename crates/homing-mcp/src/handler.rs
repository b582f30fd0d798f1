//! The conversation with one client: what it may ask, and which part of this room answers.

use std::{borrow::Cow, sync::Arc, time::Duration};

use homing::{Limits, Message, RunHandle};
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
    args::{self, Cancel, Delegate, Runs, Tell, Wait},
    client::{Client, NotSent, by},
    resources, run_report, tools,
    wait_for_runs::{Attended, WaitFor, attend},
};

/// How long a run that was given up may take to say what it has.
const GRACE: Duration = Duration::from_secs(3);

/// The newest revision in which a client introduces itself once. Later ones have no lasting conversation, and without one
/// there is no telling whose runs are whose.
const NEWEST: ProtocolVersion = ProtocolVersion::V_2025_11_25;

const INSTRUCTIONS: &str = "Agents to delegate to. `delegate` gives a task to one and returns its answer; with \
                            `background` several work at once: `wait` for them. Every run has limits, and comes back with \
                            its answer or with the reason why not and whatever it had by then. Definitions, results and \
                            transcripts are resources.";

/// The conversation with one client.
pub(crate) struct Handler {
    pub(crate) client: Arc<Client>,
}

impl ServerHandler for Handler {
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
        self.client.greet(context.peer);
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
        self.tools().into_iter().find(|it| it.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.greeted()?;
        let args = request.arguments;
        let done = match &*request.name {
            "delegate" => self.delegate(args, &context).await,
            "wait" => self.wait(args, &context).await,
            "tell" => self.tell(args),
            "cancel" => self.cancel(args),
            "runs" => self.runs(args),
            other => return Err(ErrorData::invalid_params(format!("there is no tool named `{other}`"), None)),
        };
        Ok(done.unwrap_or_else(run_report::mistake).into())
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
        self.greeted()?;
        resources::read(&self.client, &request.uri).map(Into::into)
    }
}

/// What a tool answers; a mistake of the client's model is a message to it.
type Done = Result<CallToolResult, String>;

impl Handler {
    /// Who has not introduced itself has no runs and can start none.
    fn greeted(&self) -> Result<(), ErrorData> {
        let stranger = || ErrorData::invalid_request("the conversation begins with `initialize`", None);
        self.client.peer().map(|_| ()).ok_or_else(stranger)
    }

    fn tools(&self) -> Vec<Tool> {
        tools::tools(self.client.served.homing().registry())
    }

    async fn delegate(&self, args: Option<JsonObject>, context: &RequestContext<RoleServer>) -> Done {
        let args: Delegate = args::read(args)?;
        let sent = self.client.send_out(&args.agent, &args.task, args.limits()?, Vec::new());
        let sent = sent.map_err(|NotSent(why)| why)?;
        if args.background {
            return Ok(run_report::started(&sent));
        }
        let run = [sent.handle];
        match attend(&run, WaitFor::All, None, &self.client, context).await {
            Attended::Over | Attended::TimeUp => (),
            Attended::GivenUp => {
                run[0].cancel(by());
                let _ = tokio::time::timeout(GRACE, run[0].wait()).await;
            }
        }
        Ok(run_report::one(&run[0].envelope()))
    }

    async fn wait(&self, args: Option<JsonObject>, context: &RequestContext<RoleServer>) -> Done {
        let args: Wait = args::read(args)?;
        let timeout = args.timeout()?;
        let runs = match &args.runs {
            Some(ids) => ids.iter().map(|id| self.own(*id)).collect::<Result<Vec<_>, _>>()?,
            None => self.open(),
        };
        let wanted = if args.any { WaitFor::Any } else { WaitFor::All };
        attend(&runs, wanted, timeout, &self.client, context).await;
        let mut envelopes: Vec<_> = runs.iter().map(RunHandle::envelope).collect();
        if wanted == WaitFor::Any && envelopes.iter().any(|it| it.status.is_over()) {
            envelopes.retain(|it| it.status.is_over());
        }
        Ok(run_report::many(&envelopes))
    }

    fn tell(&self, args: Option<JsonObject>) -> Done {
        let args: Tell = args::read(args)?;
        let run = self.own(args.run)?;
        if args.message.trim().is_empty() {
            return Err("the message is empty".to_owned());
        }
        if run.tell(&args.message) {
            return Ok(run_report::result(
                "It reads this at its next step.".into(),
                json!({"run": run.id(), "continues": null}),
                false,
            ));
        }
        let (agent, history) = said(&run);
        let sent = self.client.send_out(&agent, &args.message, Limits::default(), history);
        let next = sent.map_err(|NotSent(why)| why)?.handle.id();
        let text = format!("It had ended. Run {next} continues it in the background: `wait` for that.");
        Ok(run_report::result(text, json!({"run": next, "continues": run.id()}), false))
    }

    fn cancel(&self, args: Option<JsonObject>) -> Done {
        let args: Cancel = args::read(args)?;
        let run = self.own(args.run)?;
        let cancelled = run.cancel(by());
        let text = if cancelled { "It is stopping." } else { "It had ended, or was stopping." };
        Ok(run_report::result(text.into(), json!({"run": run.id(), "cancelled": cancelled}), false))
    }

    fn runs(&self, args: Option<JsonObject>) -> Done {
        let args: Runs = args::read(args)?;
        let mut runs = self.client.runs();
        runs.retain(|it| args.status.is_none_or(|wanted| it.handle.status() == wanted));
        runs.reverse();
        Ok(run_report::list(&runs))
    }

    /// A run of this client's. Another client's and one that never was are the same.
    fn own(&self, run: Uuid) -> Result<RunHandle, String> {
        self.client.find(run).ok_or_else(|| format!("there is no run {run} of yours; `runs` lists them"))
    }

    fn open(&self) -> Vec<RunHandle> {
        self.client.runs().into_iter().map(|it| it.handle).filter(|it| !it.status().is_over()).collect()
    }
}

/// Whom a run was given to, and what was said in it.
fn said(run: &RunHandle) -> (String, Vec<Message>) {
    let tree = run.tree();
    let run = tree.get(run.id()).expect("a handle is made for a run that exists");
    (run.spawned.agent.name.clone(), run.messages().iter().map(|it| it.message.clone()).collect())
}
