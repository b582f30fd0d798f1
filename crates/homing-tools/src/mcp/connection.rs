//! Connection to one MCP server: started on first use, checked against its approval, restarted a few times if it dies,
//! and ended with its scope.

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

use homing_core::{tool::Tool, trace_context::TraceContext};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use rmcp::{
    ClientHandler, RoleClient, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion,
        RequestParamsMeta,
    },
    service::{ClientInitializeError, NotificationContext, Peer, RunningService},
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport, auth::AuthClient,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Map, Value};
use tokio::{io::AsyncReadExt, sync::Mutex};

use super::{
    config::{ServerConfig, ServerPlace, UrlTransport, expand, resolve},
    definitions::{ListedTool, ToolDescription, ToolListing, visible},
    oauth::OauthTokens,
    sse_transport::{self, SseError},
    tool::McpTool,
};
use crate::{
    mcp::approvals::{ApprovalState, McpApprovals},
    shell::commands::Commands,
};
use homing_sandbox::process::{CommandSpec, Confinement, Input, Protection, Streams};

/// Maximum length of a line from a server; longer lines are dropped.
const MAX_LINE: usize = 8 << 20;

/// Maximum number of starts of a server in one scope.
const MAX_STARTS: u32 = 3;

/// Maximum length of a server's own words in an error.
const MAX_REASON: usize = 300;

/// Timeout for listing the tools of a server.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers of one scope, such as one run tree. Each server runs once per scope and ends with it.
pub struct McpScope {
    commands: Arc<Commands>,
    /// The workspace: the first folder is the servers' working folder, and no server program may lie in any of them.
    roots: Vec<PathBuf>,
    tokens: Option<OauthTokens>,
    connections: Lock<HashMap<String, Arc<Connection>>>,
}

/// The reason why a server's tools cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The server is not approved.
    #[error("MCP server `{0}` is not approved")]
    NotApproved(String),
    /// The server differs from what was approved.
    #[error("MCP server `{server}`: {what} has changed since it was approved; review and approve it again")]
    Changed {
        /// The server.
        server: String,
        /// The part that changed.
        what: String,
    },
    /// The server needs a token, or refuses the one it got.
    #[error("MCP server `{0}` requires authorization (401 Unauthorized)")]
    Unauthorized(String),
    /// The server cannot be started or does not respond.
    #[error("MCP server `{server}`: {why}")]
    Failed {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
}

/// One server of one scope.
pub(super) struct Connection {
    config: ServerConfig,
    commands: Arc<Commands>,
    roots: Vec<PathBuf>,
    tokens: Option<OauthTokens>,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    session: Option<McpSession>,
    starts: u32,
}

/// A running server.
struct McpSession {
    service: RunningService<RoleClient, ChangeListener>,
    /// Hashes of its tool descriptions, by the server's own tool names.
    hashes: BTreeMap<String, String>,
    listing: ToolListing,
    changed: Arc<AtomicBool>,
    _shutdown: Option<ShutdownOnDrop>,
}

impl McpSession {
    fn is_over(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }
}

/// Ends a server's processes when dropped, even if the async runtime is already shutting down.
struct ShutdownOnDrop(std::os::unix::net::UnixStream);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// The client side of the protocol: declines all requests of the server and notes changes of its tool list.
#[derive(Clone)]
struct ChangeListener {
    changed: Arc<AtomicBool>,
    /// The revision of the protocol to ask for.
    version: ProtocolVersion,
}

impl ClientHandler for ChangeListener {
    fn get_info(&self) -> ClientConfig {
        let homing = Implementation::new("homing", env!("CARGO_PKG_VERSION")).with_title("Homing");
        ClientConfig::new(ClientCapabilities::default(), homing).with_protocol_version(self.version.clone())
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

impl McpScope {
    /// Creates a scope for runs in these folders; the first is the servers' working folder.
    pub fn new(commands: Arc<Commands>, roots: Vec<PathBuf>) -> Self {
        Self { commands, roots, tokens: None, connections: Lock::default() }
    }

    /// Uses these tokens for remote servers.
    #[must_use]
    pub fn with_tokens(self, tokens: Option<OauthTokens>) -> Self {
        Self { tokens, ..self }
    }

    /// Starts a server and lists its tools, for the user to approve.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be started or reached, or does not speak the protocol.
    pub async fn discover(&self, config: &ServerConfig) -> Result<ToolListing, McpError> {
        let connection = self.connection(config);
        let mut state = connection.state.lock().await;
        Ok(connection.session(&mut state).await?.listing.clone())
    }

    /// Returns the approved tools of a server. The server is started when one of them is called.
    ///
    /// # Errors
    ///
    /// Fails if the user has not approved the tools of the server, or if they have changed since.
    pub fn tools(&self, config: &ServerConfig, approvals: &McpApprovals) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        match approvals.state(config) {
            ApprovalState::Unknown => Err(McpError::NotApproved(config.name.clone())),
            ApprovalState::Changed => {
                Err(McpError::Changed { server: config.name.clone(), what: "its configuration".to_owned() })
            }
            ApprovalState::Approved(tools) => {
                let connection = self.connection(config);
                let make =
                    |tool: &ListedTool| -> Arc<dyn Tool> { Arc::new(McpTool::new(tool.clone(), connection.clone())) };
                Ok(tools.iter().map(make).collect())
            }
        }
    }

    fn connection(&self, config: &ServerConfig) -> Arc<Connection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let (commands, roots, tokens) = (self.commands.clone(), self.roots.clone(), self.tokens.clone());
            Arc::new(Connection { config: config.clone(), commands, roots, tokens, state: Mutex::default() })
        };
        // Two configurations with the same name are two servers.
        connections.entry(format!("{}:{}", config.name, config.hash())).or_insert_with(make).clone()
    }
}

impl Connection {
    /// Calls a tool if the server still describes it as approved.
    pub(super) async fn call(
        &self,
        tool: &ListedTool,
        args: Map<String, Value>,
        trace: Option<&TraceContext>,
    ) -> Result<CallToolResult, McpError> {
        let peer = self.peer(tool).await?;
        let mut params = CallToolRequestParams::new(tool.original.clone()).with_arguments(args);
        if let Some(trace) = trace {
            let meta = params.meta_or_default();
            meta.set_traceparent(trace.to_string());
            trace.state.iter().for_each(|state| meta.set_tracestate(state));
        }
        match tokio::time::timeout(self.config.call, peer.call_tool(params)).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(self.failed(error.to_string())),
            Err(_) => Err(self.failed(format!("no response within {} s", self.config.call.as_secs_f64()))),
        }
    }

    async fn peer(&self, tool: &ListedTool) -> Result<Peer<RoleClient>, McpError> {
        let mut state = self.state.lock().await;
        let session = self.session(&mut state).await?;
        if session.changed.swap(false, Ordering::Relaxed) {
            session.listing = self.list(&session.service).await?;
            session.hashes = hashes(&session.listing);
        }
        if session.hashes.get(&tool.original) != Some(&tool.hash) {
            return Err(McpError::Changed { server: self.config.name.clone(), what: format!("`{}`", tool.name) });
        }
        Ok(session.service.peer().clone())
    }

    /// Returns the running server; starts it if necessary.
    async fn session<'a>(&self, state: &'a mut ConnectionState) -> Result<&'a mut McpSession, McpError> {
        if state.session.as_ref().is_some_and(|session| session.is_over()) {
            state.session = None;
        }
        if state.session.is_none() {
            if state.starts >= MAX_STARTS {
                return Err(self.failed(format!("the server has ended {MAX_STARTS} times and is not started again")));
            }
            state.starts += 1;
            state.session = Some(self.start().await?);
        }
        state.session.as_mut().ok_or_else(|| self.failed("the server is not running".to_owned()))
    }

    /// Starts the server. One that refuses our revision of the protocol and names others is asked once more.
    async fn start(&self) -> Result<McpSession, McpError> {
        let changed = Arc::new(AtomicBool::new(false));
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        let listener = ChangeListener { changed: changed.clone(), version };
        let started = match self.try_start(listener.clone()).await {
            Err(StartError { retry: Some(version), .. }) => {
                self.try_start(ChangeListener { version, ..listener }).await
            }
            started => started,
        };
        let (service, _shutdown) = started.map_err(|error| {
            if error.unauthorized { McpError::Unauthorized(self.config.name.clone()) } else { self.failed(error.why) }
        })?;
        let listing = self.list(&service).await?;
        Ok(McpSession { service, hashes: hashes(&listing), listing, changed, _shutdown })
    }

    async fn try_start(&self, listener: ChangeListener) -> Result<StartedServer, StartError> {
        match &self.config.place {
            ServerPlace::Program { command, args, env } => {
                Box::pin(self.start_program(listener, command, args, env)).await
            }
            ServerPlace::Url { url, headers, transport } => {
                let service = Box::pin(self.connect(listener, url, headers, *transport)).await?;
                Ok((service, None))
            }
        }
    }

    async fn start_program(
        &self,
        listener: ChangeListener,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
    ) -> Result<StartedServer, StartError> {
        let job = self.job(command, args, env)?;
        let server = self.commands.launcher.serve(job).await.map_err(|error| error.to_string())?;
        let stdin = server.input.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        let shutdown = ShutdownOnDrop(stdin.into());
        let stderr = StderrTail::collect(server.stderr);
        let transport = AsyncRwTransport::new(server.output, server.input).with_max_line_length(MAX_LINE);
        let failed = |why: String| match stderr.text() {
            text if text.is_empty() => why,
            text => format!("{why}; its error output: {text}"),
        };
        let version = listener.version.clone();
        match tokio::time::timeout(self.config.startup, listener.serve(transport)).await {
            Ok(Ok(service)) => Ok((service, Some(shutdown))),
            Ok(Err(error)) => {
                let error = StartError::of(&error, &version, "the server did not start");
                Err(StartError { why: failed(error.why), ..error })
            }
            Err(_) => {
                Err(failed(format!("the server did not start within {} s", self.config.startup.as_secs_f64())).into())
            }
        }
    }

    /// Describes the server's process: not confined, with a clean environment plus the variables of its entry.
    fn job(&self, command: &str, args: &[String], env: &BTreeMap<String, String>) -> Result<CommandSpec, String> {
        let host_env = &self.commands.host_env;
        let program = resolve(command, host_env, &self.roots)?;
        let mut all = host_env.plain_env(&self.commands.options);
        all.extend(env.iter().map(|(name, value)| (name.clone(), expand(value, host_env))));
        let argv = std::iter::once(program.display().to_string()).chain(args.iter().map(|arg| expand(arg, host_env)));
        Ok(CommandSpec {
            argv: argv.collect(),
            workdir: self.roots.first().cloned().unwrap_or_else(|| PathBuf::from("/")),
            env: all,
            input: Input::Nothing,
            confinement: Confinement::None,
            limits: self.commands.limits.clone(),
            protected: Protection::default(),
            streams: Streams::Apart,
            proxy: None,
        })
    }

    async fn connect(
        &self,
        listener: ChangeListener,
        url: &str,
        headers: &BTreeMap<String, String>,
        transport: UrlTransport,
    ) -> Result<RunningService<RoleClient, ChangeListener>, StartError> {
        let headers = self.headers(headers)?;
        let version = listener.version.clone();
        let work = async {
            let tokens = self.tokens.as_ref().filter(|tokens| tokens.has(url));
            let manager = match tokens {
                Some(tokens) => Some(tokens.authorized(url).await.map_err(StartError::from)?),
                None => None,
            };
            let served = match (transport, manager) {
                (UrlTransport::Sse, manager) => {
                    let mut headers: HeaderMap = headers.into_iter().collect();
                    if let Some(manager) = manager {
                        let token = manager.get_access_token().await.map_err(|_| StartError::unauthorized())?;
                        let value = format!("Bearer {token}").parse().map_err(|_| StartError::unauthorized())?;
                        headers.insert(AUTHORIZATION, value);
                    }
                    let (read, write) = sse_transport::connect(url, headers).await.map_err(|error| match error {
                        SseError::Unauthorized => StartError::unauthorized(),
                        SseError::Failed(why) => format!("cannot connect to {url}: {why}").into(),
                    })?;
                    listener.serve(AsyncRwTransport::new(read, write).with_max_line_length(MAX_LINE)).await
                }
                (UrlTransport::Http, manager) => {
                    let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned()).custom_headers(headers);
                    match manager {
                        Some(manager) => {
                            let client = AuthClient::new(reqwest::Client::default(), manager);
                            listener.serve(StreamableHttpClientTransport::with_client(client, config)).await
                        }
                        None => listener.serve(StreamableHttpClientTransport::from_config(config)).await,
                    }
                }
            };
            served.map_err(|error| StartError::of(&error, &version, &format!("cannot connect to {url}")))
        };
        let late = || format!("no response from {url} within {} s", self.config.startup.as_secs_f64());
        tokio::time::timeout(self.config.startup, work).await.unwrap_or_else(|_| Err(late().into()))
    }

    fn headers(&self, headers: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>, String> {
        let mut all = HashMap::new();
        for (name, value) in headers {
            let value = expand(value, &self.commands.host_env);
            let name = name.parse().map_err(|_| format!("`{name}` is not a valid header name"))?;
            all.insert(name, value.parse().map_err(|_| "a header value contains invalid characters".to_owned())?);
        }
        Ok(all)
    }

    async fn list(&self, service: &RunningService<RoleClient, ChangeListener>) -> Result<ToolListing, McpError> {
        match tokio::time::timeout(LIST_TIMEOUT, service.list_all_tools()).await {
            Ok(Ok(tools)) => Ok(ToolListing::new(&self.config, tools.into_iter().map(described).collect())),
            Ok(Err(error)) => Err(self.failed(format!("cannot list its tools: {error}"))),
            Err(_) => Err(self.failed("listing its tools timed out".to_owned())),
        }
    }

    fn failed(&self, why: String) -> McpError {
        McpError::Failed { server: self.config.name.clone(), why: visible(&why).chars().take(2_000).collect() }
    }
}

/// A running server, and what ends its processes.
type StartedServer = (RunningService<RoleClient, ChangeListener>, Option<ShutdownOnDrop>);

/// The reason why a server cannot be used.
struct StartError {
    why: String,
    /// True if it needs a token, or refuses the one it got.
    unauthorized: bool,
    /// A revision of the protocol that the server names instead of the one it was asked for.
    retry: Option<ProtocolVersion>,
}

impl From<String> for StartError {
    fn from(why: String) -> Self {
        Self { why, unauthorized: false, retry: None }
    }
}

impl StartError {
    fn unauthorized() -> Self {
        Self { unauthorized: true, ..Self::from(String::new()) }
    }

    fn of(error: &ClientInitializeError, asked: &ProtocolVersion, what: &str) -> Self {
        // The sources have what the message of the outermost error lacks.
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            if !why.contains(&inner.to_string()) {
                why.push_str(&format!(": {inner}"));
            }
            source = inner.source();
        }
        let details = format!("{error:?}");
        let unauthorized =
            ["Auth required", "AuthRequired", "HTTP 401", "401 Unauthorized", "OAuth authorization required"]
                .iter()
                .any(|text| why.contains(text) || details.contains(text));
        let is_about_version = details.to_lowercase().contains("version");
        let named = ProtocolVersion::KNOWN_VERSIONS
            .iter()
            .rev()
            .find(|version| *version != asked && version.has_initialize() && details.contains(version.as_str()));
        let is_older = ["HTTP 404", "HTTP 405", "404 Not Found", "405 Method Not Allowed"]
            .iter()
            .any(|text| why.contains(text) || details.contains(text));
        // Another kind of server may answer with a whole page.
        let why: String = why.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_REASON).collect();
        let older = if is_older { "; an older server may need `type = \"sse\"`" } else { "" };
        let retry = named.filter(|_| is_about_version).cloned();
        Self { why: format!("{what}: {why}{older}"), unauthorized, retry }
    }
}

fn hashes(listing: &ToolListing) -> BTreeMap<String, String> {
    listing.tools.iter().map(|tool| (tool.original.clone(), tool.hash.clone())).collect()
}

fn described(tool: rmcp::model::Tool) -> ToolDescription {
    ToolDescription {
        name: tool.name.into_owned(),
        description: tool.description.map(Into::into).unwrap_or_default(),
        schema: Value::Object(Map::clone(&tool.input_schema)),
        read_only: tool.annotations.is_some_and(|annotations| annotations.read_only_hint == Some(true)),
    }
}

/// The end of a server's error output.
struct StderrTail(Arc<Lock<Vec<u8>>>);

impl StderrTail {
    const MAX_BYTES: usize = 2_000;

    /// Reads until the stream ends, so that a server with a lot of error output does not block.
    fn collect(mut stream: tokio::net::unix::pipe::Receiver) -> Self {
        let kept = Arc::new(Lock::new(Vec::new()));
        let into = kept.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 8 << 10];
            while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..len]);
                let surplus = kept.len().saturating_sub(Self::MAX_BYTES);
                kept.drain(..surplus);
            }
        });
        Self(kept)
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        visible(String::from_utf8_lossy(&kept).trim())
    }
}
