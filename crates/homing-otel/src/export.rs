//! Sends requests to a collector, each once and within a time limit.

use std::time::Duration;

use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use crate::options::{TelemetryOptions, TelemetryOptionsError, invalid};

/// The connection to a collector.
#[derive(Clone)]
pub(crate) struct Exporter {
    pub(crate) traces: Option<Url>,
    pub(crate) metrics: Option<Url>,
    headers: HeaderMap,
    timeout: Duration,
    client: Client,
}

impl Exporter {
    pub(crate) fn new(options: &TelemetryOptions) -> Result<Self, TelemetryOptionsError> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(options.timeout)
            .no_proxy()
            .user_agent(concat!("homing/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| invalid("the HTTP client", error.to_string()))?;
        Ok(Self {
            traces: url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", options.traces.as_deref())?,
            metrics: url("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", options.metrics.as_deref())?,
            headers: headers(options)?,
            timeout: options.timeout,
            client,
        })
    }

    /// Sends a body.
    ///
    /// # Errors
    /// Fails with the reason for which the collector did not accept it.
    pub(crate) async fn send(&self, url: Url, body: Vec<u8>) -> Result<(), String> {
        let request = self.client.post(url).headers(self.headers.clone()).timeout(self.timeout).body(body);
        let response = request.send().await.map_err(|error| reason(&error))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the collector answered {status}")),
        }
    }
}

/// Returns the innermost reason, which is the most specific: "connection refused" rather than "error sending request".
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "the collector did not answer in time".to_owned();
    }
    let mut reason: &dyn std::error::Error = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

fn url(variable: &'static str, text: Option<&str>) -> Result<Option<Url>, TelemetryOptionsError> {
    let Some(text) = text else { return Ok(None) };
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Some(url)),
        Ok(_) | Err(_) => Err(invalid(variable, format!("`{text}` is not an http or https URL"))),
    }
}

fn headers(options: &TelemetryOptions) -> Result<HeaderMap, TelemetryOptionsError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let error =
            || invalid("OTEL_EXPORTER_OTLP_HEADERS", format!("`{name}` is not a valid header, or its value is not"));
        let key = HeaderName::from_bytes(name.to_lowercase().as_bytes()).map_err(|_| error())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| error())?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    Ok(headers)
}
