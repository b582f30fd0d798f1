//! Telemetry options, and their standard OpenTelemetry variables. The caller looks the variables up; this module does not
//! read the environment.

use std::time::Duration;

use crate::span::SpanBodies;

/// The variable that includes prompts and answers in spans.
const BODIES: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Destination and content of telemetry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TelemetryOptions {
    /// URL for spans, such as `http://127.0.0.1:4318/v1/traces`; `None` sends none.
    pub traces: Option<String>,
    /// URL for metrics, such as `http://127.0.0.1:4318/v1/metrics`; `None` sends none.
    pub metrics: Option<String>,
    /// Headers of every request. They may contain a key.
    pub headers: Vec<(String, String)>,
    /// Service name.
    pub service: String,
    /// Further attributes of this process.
    pub resource: Vec<(String, String)>,
    /// Setting for prompts, answers, arguments and results.
    pub bodies: SpanBodies,
    /// Time limit of one request.
    pub timeout: Duration,
    /// Interval at which spans and metrics are sent.
    pub every: Duration,
}

/// An invalid telemetry option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {why}")]
#[non_exhaustive]
pub struct TelemetryOptionsError {
    /// The variable or option.
    pub variable: &'static str,
    /// The reason.
    pub why: String,
}

impl TelemetryOptions {
    /// Creates options that send everything to the collector at `endpoint`, a URL without path.
    pub fn new(endpoint: &str) -> Self {
        let base = endpoint.trim_end_matches('/');
        Self {
            traces: Some(format!("{base}/v1/traces")),
            metrics: Some(format!("{base}/v1/metrics")),
            headers: Vec::new(),
            service: "homing".to_owned(),
            resource: Vec::new(),
            bodies: SpanBodies::Omitted,
            timeout: Duration::from_secs(10),
            every: Duration::from_secs(5),
        }
    }

    /// Reads the options from variables; `None` if they name no collector.
    ///
    /// # Errors
    /// Fails if a variable has an invalid value.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TelemetryOptionsError> {
        let get = |name: &str| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let is_on = |name: &str| get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let base = get("OTEL_EXPORTER_OTLP_ENDPOINT");
        let (traces, metrics) = (get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"));
        if is_on("OTEL_SDK_DISABLED") || [&base, &traces, &metrics].iter().all(|endpoint| endpoint.is_none()) {
            return Ok(None);
        }
        check_protocol(get("OTEL_EXPORTER_OTLP_PROTOCOL"))?;
        let mut options = Self::new(base.as_deref().unwrap_or_default());
        if base.is_none() {
            (options.traces, options.metrics) = (None, None);
        }
        options.traces = unless_off(get("OTEL_TRACES_EXPORTER"), traces.or(options.traces));
        options.metrics = unless_off(get("OTEL_METRICS_EXPORTER"), metrics.or(options.metrics));
        options.headers = pairs("OTEL_EXPORTER_OTLP_HEADERS", get("OTEL_EXPORTER_OTLP_HEADERS"))?;
        options.resource = pairs("OTEL_RESOURCE_ATTRIBUTES", get("OTEL_RESOURCE_ATTRIBUTES"))?;
        let named = options.resource.iter().find(|(key, _)| key == "service.name").map(|(_, value)| value.clone());
        options.service = get("OTEL_SERVICE_NAME").or(named).unwrap_or(options.service);
        options.resource.retain(|(key, _)| key != "service.name");
        if is_on(BODIES) {
            options.bodies = SpanBodies::Included;
        }
        if let Some(ms) = get("OTEL_EXPORTER_OTLP_TIMEOUT") {
            let error = |_| invalid("OTEL_EXPORTER_OTLP_TIMEOUT", format!("`{ms}` is not a number of milliseconds"));
            options.timeout = Duration::from_millis(ms.parse().map_err(error)?);
        }
        Ok(Some(options))
    }
}

pub(crate) fn invalid(variable: &'static str, why: impl Into<String>) -> TelemetryOptionsError {
    TelemetryOptionsError { variable, why: why.into() }
}

fn check_protocol(value: Option<String>) -> Result<(), TelemetryOptionsError> {
    match value.as_deref() {
        None | Some("http/protobuf") => Ok(()),
        Some(other) => Err(invalid(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            format!("`{other}` is not supported; only http/protobuf is, which collectors accept at port 4318"),
        )),
    }
}

fn unless_off(exporter: Option<String>, endpoint: Option<String>) -> Option<String> {
    endpoint.filter(|_| exporter.as_deref() != Some("none"))
}

/// Parses `key=value,key=value` with percent-encoded values.
fn pairs(variable: &'static str, text: Option<String>) -> Result<Vec<(String, String)>, TelemetryOptionsError> {
    let text = text.unwrap_or_default();
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        // The part may be a secret, so the message does not repeat it.
        let (key, value) = part.split_once('=').ok_or_else(|| invalid(variable, "expected key=value,key=value"))?;
        Ok((key.trim().to_owned(), decoded(value.trim())))
    };
    parts.map(pair).collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<TelemetryOptions>, TelemetryOptionsError> {
        let map: HashMap<&str, &str> = variables.iter().copied().collect();
        TelemetryOptions::from_variables(|name| map.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn without_an_endpoint_there_is_no_telemetry() {
        assert!(read(&[("OTEL_SERVICE_NAME", "x")]).expect("fine").is_none());
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).expect("fine").is_none());
        let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_SDK_DISABLED", "true")];
        assert!(read(&off).expect("fine").is_none());
    }

    #[test]
    fn standard_variables_are_read() {
        let options = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://other/m"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-team = a%2Cb"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=ci,service.name=from-resource"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ]);
        let options = options.expect("fine").expect("on");
        assert_eq!(options.traces.as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!(options.metrics.as_deref(), Some("http://other/m"));
        let headers = [("authorization", "Bearer abc"), ("x-team", "a,b")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(options.headers, headers);
        assert_eq!(options.service, "from-resource");
        assert_eq!(options.resource, [("deployment.environment".to_owned(), "ci".to_owned())]);
        assert_eq!(options.timeout, Duration::from_millis(1_500));
        assert_eq!(options.bodies, SpanBodies::Omitted, "bodies are omitted by default");
    }

    #[test]
    fn errors_do_not_repeat_secrets() {
        let with = |name, value| read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), (name, value)]);
        let grpc = with("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").expect_err("not supported");
        assert!(grpc.to_string().contains("http/protobuf"), "{grpc}");
        let headers = with("OTEL_EXPORTER_OTLP_HEADERS", "s3cret").expect_err("not a pair");
        assert!(!headers.to_string().contains("s3cret"), "{headers}");
        assert!(with("OTEL_EXPORTER_OTLP_TIMEOUT", "soon").is_err());
    }

    #[test]
    fn invalid_percent_escapes_are_kept() {
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(decoded("ä%C3%A4"), "ää");
    }
}
