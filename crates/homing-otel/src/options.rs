//! Where telemetry goes and what it carries, by the variables that OpenTelemetry gave names to. Values are handed in: the
//! environment itself is somebody else's.

use std::time::Duration;

use crate::span::Bodies;

/// The one variable that has spans carry prompts and answers.
const BODIES: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Where telemetry goes and what it carries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TelemetryOptions {
    /// Where spans go, such as `http://127.0.0.1:4318/v1/traces`; `None` is nowhere.
    pub traces: Option<String>,
    /// Where figures go, such as `http://127.0.0.1:4318/v1/metrics`; `None` is nowhere.
    pub metrics: Option<String>,
    /// Sent with every request; they may hold a key.
    pub headers: Vec<(String, String)>,
    /// The name under which all this is filed.
    pub service: String,
    /// What else is said about this process.
    pub resource: Vec<(String, String)>,
    /// Whether prompts, answers, arguments and results are told.
    pub bodies: Bodies,
    /// The most that one request may take.
    pub timeout: Duration,
    /// How often spans and figures are sent.
    pub every: Duration,
}

/// Why telemetry cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {why}")]
pub struct TelemetryOptionsError {
    /// The variable, or the option, that is at fault.
    pub variable: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl TelemetryOptions {
    /// Everything goes to the collector at `endpoint`, without its paths.
    pub fn new(endpoint: &str) -> Self {
        let base = endpoint.trim_end_matches('/');
        Self {
            traces: Some(format!("{base}/v1/traces")),
            metrics: Some(format!("{base}/v1/metrics")),
            headers: Vec::new(),
            service: "homing".to_owned(),
            resource: Vec::new(),
            bodies: Bodies::Left,
            timeout: Duration::from_secs(10),
            every: Duration::from_secs(5),
        }
    }

    /// What the variables say; `None` where they name no collector.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TelemetryOptionsError> {
        let get = |name: &str| lookup(name).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
        let is_on = |name: &str| get(name).is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let base = get("OTEL_EXPORTER_OTLP_ENDPOINT");
        let (traces, metrics) = (get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"));
        if is_on("OTEL_SDK_DISABLED") || [&base, &traces, &metrics].iter().all(|it| it.is_none()) {
            return Ok(None);
        }
        protocol(get("OTEL_EXPORTER_OTLP_PROTOCOL"))?;
        let mut options = Self::new(base.as_deref().unwrap_or_default());
        if base.is_none() {
            (options.traces, options.metrics) = (None, None);
        }
        options.traces = wanted(get("OTEL_TRACES_EXPORTER"), traces.or(options.traces));
        options.metrics = wanted(get("OTEL_METRICS_EXPORTER"), metrics.or(options.metrics));
        options.headers = pairs("OTEL_EXPORTER_OTLP_HEADERS", get("OTEL_EXPORTER_OTLP_HEADERS"))?;
        options.resource = pairs("OTEL_RESOURCE_ATTRIBUTES", get("OTEL_RESOURCE_ATTRIBUTES"))?;
        let named = options.resource.iter().find(|(key, _)| key == "service.name").map(|(_, value)| value.clone());
        options.service = get("OTEL_SERVICE_NAME").or(named).unwrap_or(options.service);
        options.resource.retain(|(key, _)| key != "service.name");
        if is_on(BODIES) {
            options.bodies = Bodies::Carried;
        }
        if let Some(ms) = get("OTEL_EXPORTER_OTLP_TIMEOUT") {
            let bad = |_| bad("OTEL_EXPORTER_OTLP_TIMEOUT", format!("`{ms}` is no number of milliseconds"));
            options.timeout = Duration::from_millis(ms.parse().map_err(bad)?);
        }
        Ok(Some(options))
    }
}

pub(crate) fn bad(variable: &'static str, why: impl Into<String>) -> TelemetryOptionsError {
    TelemetryOptionsError { variable, why: why.into() }
}

fn protocol(said: Option<String>) -> Result<(), TelemetryOptionsError> {
    match said.as_deref() {
        None | Some("http/protobuf") => Ok(()),
        Some(other) => Err(bad(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            format!("`{other}` is not spoken here, only http/protobuf, which collectors take at port 4318"),
        )),
    }
}

fn wanted(exporter: Option<String>, endpoint: Option<String>) -> Option<String> {
    endpoint.filter(|_| exporter.as_deref() != Some("none"))
}

/// `key=value,key=value`, with values in percent encoding.
fn pairs(variable: &'static str, text: Option<String>) -> Result<Vec<(String, String)>, TelemetryOptionsError> {
    let text = text.unwrap_or_default();
    let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    let pair = |part: &str| {
        // The part itself may be a secret, so that it is not repeated here.
        let (key, value) = part.split_once('=').ok_or_else(|| bad(variable, "write key=value,key=value"))?;
        Ok((key.trim().to_owned(), decoded(value.trim())))
    };
    parts.map(pair).collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|it| u8::from_str_radix(it, 16).ok());
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
        TelemetryOptions::from_variables(|name| map.get(name).map(|it| (*it).to_owned()))
    }

    #[test]
    fn without_an_endpoint_there_is_no_telemetry() {
        assert!(read(&[("OTEL_SERVICE_NAME", "x")]).expect("fine").is_none());
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).expect("fine").is_none());
        let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_SDK_DISABLED", "true")];
        assert!(read(&off).expect("fine").is_none());
    }

    #[test]
    fn the_usual_variables_are_understood() {
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
        assert_eq!(options.bodies, Bodies::Left, "what was said stays here unless somebody asks for it");
    }

    #[test]
    fn what_cannot_work_is_said_without_repeating_secrets() {
        let with = |name, value| read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), (name, value)]);
        let grpc = with("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").expect_err("not spoken");
        assert!(grpc.to_string().contains("http/protobuf"), "{grpc}");
        let headers = with("OTEL_EXPORTER_OTLP_HEADERS", "s3cret").expect_err("no pair");
        assert!(!headers.to_string().contains("s3cret"), "{headers}");
        assert!(with("OTEL_EXPORTER_OTLP_TIMEOUT", "soon").is_err());
    }

    #[test]
    fn odd_percent_signs_are_kept() {
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(decoded("ä%C3%A4"), "ää");
    }
}
