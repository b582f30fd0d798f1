//! One request to the API: its path, query and body.

use bytes::Bytes;
use homing::crates::core::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use homing_http::{HttpResponse, full, only, percent_decoded};
use hyper::{HeaderMap, StatusCode, header::HeaderName};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::problem::Problem;

/// One request to the API.
pub(crate) struct Call {
    /// The parts of the path that stand for `{…}`.
    pub(crate) params: Vec<String>,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The result of a request to the API.
pub(crate) type Outcome = Result<HttpResponse, Problem>;

impl Call {
    /// Returns a part of the path.
    pub(crate) fn param(&self, at: usize) -> &str {
        self.params.get(at).map(String::as_str).unwrap_or_default()
    }

    /// Returns a part of the path that is an ID.
    pub(crate) fn id(&self, at: usize) -> Result<Uuid, Problem> {
        let text = self.param(at);
        text.parse().map_err(|_| Problem::not_found(format!("`{text}` is not the ID of a run")))
    }

    /// Reads the query.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let mut values = Map::new();
        for pair in self.query.iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = percent_decoded(key, true).zip(percent_decoded(value, true));
            let (key, value) = decoded.ok_or_else(|| Problem::bad_request(format!("`{pair}` is not valid UTF-8")))?;
            if values.insert(key.clone(), Value::String(value)).is_some() {
                return Err(Problem::bad_request(format!("the parameter `{key}` occurs twice")));
            }
        }
        serde_json::from_value(Value::Object(values)).map_err(|error| Problem::bad_request(format!("query: {error}")))
    }

    /// Reads the body.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let bytes: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(bytes).map_err(|error| Problem::bad_request(format!("body: {error}")))
    }

    /// Returns a header that occurs once.
    pub(crate) fn header(&self, name: &'static str) -> Option<&str> {
        only(&self.headers, &HeaderName::from_static(name))
    }
}

/// Returns the position in a distributed trace that a program sent.
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let header = |name: &'static str| only(headers, &HeaderName::from_static(name));
    TraceContext::parse(header(TRACEPARENT)?, header(TRACESTATE))
}

/// Returns a response with JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Outcome {
    let body = serde_json::to_vec(value)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(full(status, "application/json", body))
}

/// Reads a number of a query.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text: String = Deserialize::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| serde::de::Error::custom(format!("`{text}` is not a number")))
}

/// Runs `work`, which reads the journal, on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let stopped = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; see its error output");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}
