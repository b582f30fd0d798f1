//! One server and our conversation with it: started on first use, checked against what was approved, started again a few
//! times when it dies, gone with its scope.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc, Mutex as Lock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homing_core::tool::Tool;
use rmcp::{
    ClientHandler, RoleClient, ServiceExt,
    model::{CallToolRequestParams, CallToolResult},
    service::{NotificationContext, Peer, RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Map, Value};
use tokio::{io::AsyncReadExt, sync::Mutex};

use super::{
    config::{ServerConfig, ServerPlace, expand, resolve},
    definitions::{Described, Offer, OfferedTool, visible},
    tool::McpTool,
};
use crate::{
    mcp::approvals::{PinState, Pins},
    shell::commands::Commands,
};
use homing_sandbox::process::{CommandSpec, Input, Jail, Streams};

/// A line of a server that is longer is dropped.
const MAX_LINE: usize = 8 << 20;

/// How often a server is started in one scope.
const MAX_STARTS: u32 = 3;

/// How long a server may take to list its tools.
const LISTING: Duration = Duration::from_secs(10);

/// Servers of one scope, such as one tree of runs. Each runs once in it, and all end with it.
pub struct McpScope {
    commands: Arc<Commands>,
    /// The workspace: servers work in it, and no server's program comes from it.
    roots: Vec<PathBuf>,
    connections: Lock<HashMap<String, Arc<Connection>>>,
}

/// Why a server's tools cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// Nobody has approved it.
    #[error("MCP server `{0}` is not approved")]
    NotApproved(String),
    /// It is not what was approved.
    #[error("MCP server `{server}`: {what} has changed since it was approved; look at it and approve it again")]
    Changed {
        /// The server.
        server: String,
        /// What.
        what: String,
    },
    /// It does not run, or does not answer.
    #[error("MCP server `{server}`: {why}")]
    Failed {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
}

/// One server of one scope.
pub(super) struct Connection {
    config: ServerConfig,
    commands: Arc<Commands>,
    roots: Vec<PathBuf>,
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    session: Option<McpSession>,
    starts: u32,
}

/// A server that runs.
struct McpSession {
    service: RunningService<RoleClient, ListenTask>,
    /// Hashes of what it says about its tools.
    hashes: BTreeMap<String, String>,
    offer: Offer,
    changed: Arc<AtomicBool>,
    _lifeline: Option<Lifeline>,
}

impl McpSession {
    fn is_over(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }
}

/// Ends a server's processes when it goes, also where no task gets to run any more.
struct Lifeline(std::os::unix::net::UnixStream);

impl Drop for Lifeline {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// Our side of the protocol: we answer nothing that a server might ask of us, and listen for one thing.
struct ListenTask {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for ListenTask {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

impl McpScope {
    /// A scope for runs in these folders; the first is where servers work.
    pub fn new(commands: Arc<Commands>, roots: Vec<PathBuf>) -> Self {
        Self { commands, roots, connections: Lock::default() }
    }

    /// Asks a server what it offers, for somebody to approve.
    pub async fn discover(&self, config: &ServerConfig) -> Result<Offer, McpError> {
        let connection = self.connection(config);
        let mut live = connection.live.lock().await;
        Ok(connection.session(&mut live).await?.offer.clone())
    }

    /// The tools of a server as they were approved. The server is started when one of them is called.
    pub fn tools(&self, config: &ServerConfig, pins: &Pins) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        match pins.state(config) {
            PinState::Unknown => Err(McpError::NotApproved(config.name.clone())),
            PinState::Changed => {
                Err(McpError::Changed { server: config.name.clone(), what: "how it is started".to_owned() })
            }
            PinState::Approved(tools) => {
                let connection = self.connection(config);
                let ours =
                    |tool: &OfferedTool| Arc::new(McpTool::new(tool.clone(), connection.clone())) as Arc<dyn Tool>;
                Ok(tools.iter().map(ours).collect())
            }
        }
    }

    fn connection(&self, config: &ServerConfig) -> Arc<Connection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let (commands, roots) = (self.commands.clone(), self.roots.clone());
            Arc::new(Connection { config: config.clone(), commands, roots, live: Mutex::default() })
        };
        // Two configurations under one name are two servers.
        connections.entry(format!("{}:{}", config.name, config.hash())).or_insert_with(make).clone()
    }
}

impl Connection {
    /// Calls a tool, if it still is what was approved.
    pub(super) async fn call(&self, tool: &OfferedTool, args: Map<String, Value>) -> Result<CallToolResult, McpError> {
        let peer = self.peer(tool).await?;
        let params = CallToolRequestParams::new(tool.original.clone()).with_arguments(args);
        match tokio::time::timeout(self.config.call, peer.call_tool(params)).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(self.failed(words(&error))),
            Err(_) => Err(self.failed(format!("no answer within {} s", self.config.call.as_secs_f64()))),
        }
    }

    async fn peer(&self, tool: &OfferedTool) -> Result<Peer<RoleClient>, McpError> {
        let mut live = self.live.lock().await;
        let session = self.session(&mut live).await?;
        if session.changed.swap(false, Ordering::Relaxed) {
            session.offer = self.list(&session.service).await?;
            session.hashes = hashes(&session.offer);
        }
        if session.hashes.get(&tool.original) != Some(&tool.hash) {
            return Err(McpError::Changed { server: self.config.name.clone(), what: format!("`{}`", tool.name) });
        }
        Ok(session.service.peer().clone())
    }

    /// The running server, started if it does not run.
    async fn session<'a>(&self, live: &'a mut Live) -> Result<&'a mut McpSession, McpError> {
        if live.session.as_ref().is_some_and(|session| session.is_over()) {
            live.session = None;
        }
        if live.session.is_none() {
            if live.starts >= MAX_STARTS {
                return Err(self.failed(format!("it has ended {MAX_STARTS} times and is not started again")));
            }
            live.starts += 1;
            live.session = Some(self.start().await?);
        }
        live.session.as_mut().ok_or_else(|| self.failed("it does not run".to_owned()))
    }

    async fn start(&self) -> Result<McpSession, McpError> {
        let changed = Arc::new(AtomicBool::new(false));
        let listener = ListenTask { changed: changed.clone() };
        let started = match &self.config.place {
            ServerPlace::Program { command, args, env } => self.start_program(listener, command, args, env).await,
            ServerPlace::Url { url, headers } => self.connect(listener, url, headers).await.map(|it| (it, None)),
        };
        let (service, _lifeline) = started.map_err(|why| self.failed(why))?;
        let offer = self.list(&service).await?;
        Ok(McpSession { service, hashes: hashes(&offer), offer, changed, _lifeline })
    }

    async fn start_program(
        &self,
        listener: ListenTask,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
    ) -> Result<(RunningService<RoleClient, ListenTask>, Option<Lifeline>), String> {
        let job = self.job(command, args, env)?;
        let server = self.commands.launcher.serve(job).await.map_err(|error| error.to_string())?;
        let lifeline = server.input.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        let lifeline = Lifeline(lifeline.into());
        let complaints = Complaints::listen(server.complaints);
        let transport = AsyncRwTransport::new(server.output, server.input).with_max_line_length(MAX_LINE);
        let failed = |why: String| match complaints.last() {
            said if said.is_empty() => why,
            said => format!("{why}; it said: {said}"),
        };
        match tokio::time::timeout(self.config.startup, listener.serve(transport)).await {
            Ok(Ok(service)) => Ok((service, Some(lifeline))),
            Ok(Err(error)) => Err(failed(format!("it did not start: {error}"))),
            Err(_) => Err(failed(format!("it did not start within {} s", self.config.startup.as_secs_f64()))),
        }
    }

    /// The user's own program: not confined, but with a clean environment and the variables that its entry names.
    fn job(&self, command: &str, args: &[String], env: &BTreeMap<String, String>) -> Result<CommandSpec, String> {
        let surroundings = &self.commands.surroundings;
        let program = resolve(command, surroundings, &self.roots)?;
        let mut all = surroundings.plain_env(&self.commands.options);
        all.extend(env.iter().map(|(name, value)| (name.clone(), expand(value, surroundings))));
        let argv = std::iter::once(program.display().to_string()).chain(args.iter().map(|it| expand(it, surroundings)));
        Ok(CommandSpec {
            argv: argv.collect(),
            workdir: self.roots.first().cloned().unwrap_or_else(|| PathBuf::from("/")),
            env: all,
            input: Input::Nothing,
            jail: Jail::Open,
            limits: self.commands.limits.clone(),
            kept: Vec::new(),
            streams: Streams::Apart,
            way_out: None,
        })
    }

    async fn connect(
        &self,
        listener: ListenTask,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<RunningService<RoleClient, ListenTask>, String> {
        let mut all = HashMap::new();
        for (name, value) in headers {
            let value = expand(value, &self.commands.surroundings);
            let name = name.parse().map_err(|_| format!("`{name}` is no header name"))?;
            all.insert(name, value.parse().map_err(|_| "a header's value has odd characters".to_owned())?);
        }
        let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned()).custom_headers(all);
        let transport = StreamableHttpClientTransport::from_config(config);
        match tokio::time::timeout(self.config.startup, listener.serve(transport)).await {
            Ok(Ok(service)) => Ok(service),
            Ok(Err(error)) => Err(format!("it cannot be reached: {error}")),
            Err(_) => Err(format!("no answer within {} s", self.config.startup.as_secs_f64())),
        }
    }

    async fn list(&self, service: &RunningService<RoleClient, ListenTask>) -> Result<Offer, McpError> {
        match tokio::time::timeout(LISTING, service.list_all_tools()).await {
            Ok(Ok(tools)) => Ok(Offer::of(&self.config, tools.into_iter().map(described).collect())),
            Ok(Err(error)) => Err(self.failed(format!("it does not list its tools: {}", words(&error)))),
            Err(_) => Err(self.failed("it does not list its tools in time".to_owned())),
        }
    }

    fn failed(&self, why: String) -> McpError {
        McpError::Failed { server: self.config.name.clone(), why: visible(&why).chars().take(2_000).collect() }
    }
}

fn hashes(offer: &Offer) -> BTreeMap<String, String> {
    offer.tools.iter().map(|tool| (tool.original.clone(), tool.hash.clone())).collect()
}

fn described(tool: rmcp::model::Tool) -> Described {
    Described {
        name: tool.name.into_owned(),
        description: tool.description.map(|it| it.into_owned()).unwrap_or_default(),
        schema: Value::Object(Map::clone(&tool.input_schema)),
        read_only: tool.annotations.is_some_and(|it| it.read_only_hint == Some(true)),
    }
}

fn words(error: &ServiceError) -> String {
    error.to_string()
}

/// The last words that a server wrote to its error stream.
struct Complaints(Arc<Lock<Vec<u8>>>);

impl Complaints {
    const KEPT: usize = 2_000;

    /// Listens until the stream ends, so that a server that complains a lot is not held up.
    fn listen(mut stream: tokio::net::unix::pipe::Receiver) -> Self {
        let kept = Arc::new(Lock::new(Vec::new()));
        let into = kept.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 8 << 10];
            while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..len]);
                let surplus = kept.len().saturating_sub(Self::KEPT);
                kept.drain(..surplus);
            }
        });
        Self(kept)
    }

    fn last(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        visible(String::from_utf8_lossy(&kept).trim())
    }
}
