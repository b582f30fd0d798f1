//! `Server`: the addresses of a Restate server, and calls to its admin API and its ingress.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The oldest version of the server that works.
pub const MIN_VERSION: (u64, u64) = (1, 6);

/// Time for which a request is repeated while the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Restate server.
#[derive(Clone, Debug)]
pub struct Server {
    http: reqwest::Client,
    admin: String,
    ingress: String,
}

/// The reason why a call to the server failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// There is no connection.
    #[error("cannot connect to the Restate server at {url}: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The answer is not that of a Restate server.
    #[error("{url} is not the admin address of a Restate server: {reason}")]
    NotRestate {
        /// The address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The server is too old.
    #[error("the Restate server at {url} has version {found}; at least {}.{} is needed", MIN_VERSION.0, MIN_VERSION.1)]
    Version {
        /// The address.
        url: String,
        /// Its version.
        found: String,
    },
    /// No worker is registered.
    #[error("no worker is registered with the Restate server at {url}")]
    NoWorker {
        /// The address.
        url: String,
    },
    /// The server cannot reach a worker at the address that it advertises.
    #[error("the Restate server at {url} cannot reach this worker at {worker}: {reason}")]
    WorkerUnreachable {
        /// The server's address.
        url: String,
        /// The worker's address.
        worker: String,
        /// The reason.
        reason: String,
    },
    /// The worker refuses the submission.
    #[error("the worker refuses this run: {0}")]
    Refused(String),
    /// A call failed.
    #[error("the Restate server at {url} failed: {reason}")]
    Failed {
        /// The address.
        url: String,
        /// The reason.
        reason: String,
    },
}

impl ServerError {
    /// Returns whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoWorker { .. } | Self::Failed { .. })
    }
}

#[derive(Deserialize)]
struct Version {
    version: String,
    ingress_endpoint: Option<String>,
}

impl Server {
    /// Connects to the server with this admin address and checks its version. Without an ingress address, the one that the
    /// server names is used.
    ///
    /// # Errors
    /// Fails if there is no server, or not one that works.
    pub async fn connect(admin: &str, ingress: Option<&str>) -> Result<Self, ServerError> {
        let admin = admin.trim_end_matches('/').to_owned();
        let not_restate = |reason: String| ServerError::NotRestate { url: admin.clone(), reason };
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .no_proxy()
            .build()
            .map_err(|error| not_restate(error.to_string()))?;
        let reply = http.get(format!("{admin}/version")).timeout(Duration::from_secs(10)).send().await;
        let reply = reply.map_err(|error| unreachable(&admin, &error))?;
        let found: Version = reply.json().await.map_err(|error| not_restate(error.to_string()))?;
        let mut parts = found.version.split(['.', '-']).map(|part| part.parse::<u64>().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < MIN_VERSION {
            return Err(ServerError::Version { url: admin, found: found.version });
        }
        let ingress = ingress.map(str::to_owned).or(found.ingress_endpoint);
        let ingress = ingress.ok_or_else(|| not_restate("it names no ingress address".to_owned()))?;
        Ok(Self { http, admin, ingress: ingress.trim_end_matches('/').to_owned() })
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The admin address.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// The ingress address.
    pub fn ingress(&self) -> &str {
        &self.ingress
    }

    /// Registers the worker at this address.
    pub(crate) async fn register(&self, worker: &str) -> Result<(), ServerError> {
        let url = format!("{}/deployments", self.admin);
        // A worker whose services changed replaces the registration; runs in progress are resumed by their facts.
        let body = json!({ "uri": worker, "force": true });
        let reply = self.http.post(url).json(&body).timeout(Duration::from_secs(30)).send().await;
        let reply = reply.map_err(|error| unreachable(&self.admin, &error))?;
        if reply.status().is_success() {
            return Ok(());
        }
        let reason = message(reply).await;
        let (url, worker) = (self.admin.clone(), worker.to_owned());
        Err(ServerError::WorkerUnreachable { url, worker, reason })
    }

    /// Reads the server's own tables.
    pub(crate) async fn query<T: DeserializeOwned>(&self, query: &Value) -> Result<T, ServerError> {
        let url = format!("{}/query", self.admin);
        let call =
            self.http.post(url).json(query).header("accept", "application/json").timeout(Duration::from_secs(60));
        let reply = call.send().await.map_err(|error| unreachable(&self.admin, &error))?;
        let failed = |reason: String| ServerError::Failed { url: self.admin.clone(), reason };
        if !reply.status().is_success() {
            return Err(failed(message(reply).await));
        }
        reply.json().await.map_err(|error| failed(error.to_string()))
    }

    /// Calls a handler and waits for its result.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        path: &[&str],
        request: &impl Serialize,
    ) -> Result<T, ServerError> {
        self.call_keyed(path, request, None).await
    }

    /// Calls a handler. Two calls with the same idempotency key are carried out once.
    async fn call_keyed<T: DeserializeOwned>(
        &self,
        path: &[&str],
        request: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, ServerError> {
        let url = format!("{}/{}", self.ingress, path.join("/"));
        let body = serde_json::to_vec(request).map_err(|error| self.failed(error.to_string()))?;
        let mut call = self.http.post(url);
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        // A handler without an argument accepts no body.
        if body != b"null" {
            call = call.header("content-type", "application/json").body(body);
        }
        let reply = call.send().await.map_err(|error| unreachable(&self.ingress, &error))?;
        let status = reply.status();
        if status.is_success() {
            let failed = |error: reqwest::Error| self.failed(error.to_string());
            let bytes = reply.bytes().await.map_err(failed)?;
            let bytes = if bytes.is_empty() { b"null" } else { bytes.as_ref() };
            return serde_json::from_slice(bytes).map_err(|error| self.failed(error.to_string()));
        }
        let reason = message(reply).await;
        if status == reqwest::StatusCode::NOT_FOUND && reason.contains("not found") {
            return Err(ServerError::NoWorker { url: self.admin.clone() });
        }
        Err(self.failed(reason))
    }

    /// Calls a handler until it has answered, while the server or a node of its cluster is away. The handler must tolerate the same
    /// request twice.
    pub(crate) async fn call_until_answered<T: DeserializeOwned>(
        &self,
        path: &[&str],
        request: &impl Serialize,
    ) -> Result<T, ServerError> {
        self.repeat(path, request, None).await
    }

    /// Calls a handler once, however often the request must be sent.
    pub(crate) async fn call_once<T: DeserializeOwned>(
        &self,
        path: &[&str],
        request: &impl Serialize,
        key: &str,
    ) -> Result<T, ServerError> {
        self.repeat(path, request, Some(key)).await
    }

    async fn repeat<T: DeserializeOwned>(
        &self,
        path: &[&str],
        request: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, ServerError> {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(50));
        loop {
            match self.call_keyed(path, request, key).await {
                Err(error) if error.is_transient() && began.elapsed() < PATIENCE => {
                    tracing::warn!(path = path.join("/"), %error, "calling again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                result => return result,
            }
        }
    }

    fn failed(&self, reason: String) -> ServerError {
        ServerError::Failed { url: self.ingress.clone(), reason }
    }
}

fn unreachable(url: &str, error: &reqwest::Error) -> ServerError {
    let mut source: &dyn std::error::Error = error;
    while let Some(next) = source.source() {
        source = next;
    }
    ServerError::Unreachable { url: url.to_owned(), reason: source.to_string() }
}

/// The message of an error reply.
async fn message(reply: reqwest::Response) -> String {
    let status = reply.status();
    let text = reply.text().await.unwrap_or_default();
    let value: Option<Value> = serde_json::from_str(&text).ok();
    let message = value.as_ref().and_then(|value| value.get("message")?.as_str()).unwrap_or(&text);
    if message.is_empty() { status.to_string() } else { message.to_owned() }
}
