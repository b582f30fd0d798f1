//! Classifies the error responses of providers by what the caller can do about them.

use std::time::SystemTime;

use homing_core::model::ModelError;
use serde_json::Value;

/// An error response.
pub(crate) struct ErrorBody<'a> {
    /// The HTTP status.
    pub(crate) status: u16,
    /// Looks up a header by its lower-case name.
    pub(crate) header: &'a dyn Fn(&str) -> Option<String>,
    /// The body, or its beginning.
    pub(crate) body: &'a [u8],
    /// The current time, for a `Retry-After` that is a date.
    pub(crate) now: SystemTime,
}

/// Classifies a response with an error status.
pub(crate) fn from_status(response: &ErrorBody<'_>) -> ModelError {
    let body = String::from_utf8_lossy(response.body);
    let value: Value = serde_json::from_str(&body).unwrap_or_default();
    let value = if let Value::Array(items) = value { items.into_iter().next().unwrap_or_default() } else { value };
    let message = message(&value).unwrap_or_else(|| plain(&body));
    let reason = format!("HTTP {}: {message}", response.status);
    let wait = retry_after(response.header, response.now).or_else(|| delay_in_body(&value));
    let aws_kind = (response.header)("x-amzn-errortype").unwrap_or_default();
    let error = classify(response.status, &format!("{} {aws_kind}", kind(&value)), reason, wait);
    apply_should_retry((response.header)("x-should-retry").as_deref(), error)
}

/// Classifies an error in a stream, or in a body with a success status.
pub(crate) fn from_event(error: &Value) -> ModelError {
    let reason = message(error).unwrap_or_else(|| plain(&error.to_string()));
    let kind = kind(error);
    let number = |key: &str| error.get(key).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
    let status = number("code").or_else(|| number("status")).filter(|status| (400..600).contains(status));
    classify(status.unwrap_or_else(|| status_of(&kind)), &kind, reason, delay_in_body(error))
}

fn classify(status: u16, kind: &str, reason: String, wait: Option<u64>) -> ModelError {
    let said = format!("{kind} {reason}").to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| said.contains(phrase));
    match status {
        400..=499 if says(QUOTA) => ModelError::Unauthorized { reason },
        429 => ModelError::Busy { retry_after_ms: wait, reason },
        400 if says(AWS_BUSY) => ModelError::Busy { retry_after_ms: wait, reason },
        400 | 403 | 413 | 422 if says(FILTER) => ModelError::Refused { reason },
        413 => ModelError::ContextFull { reason },
        400 | 404 | 422 | 500 if says(CONTEXT) => ModelError::ContextFull { reason },
        400 if says(BAD_CALL) => ModelError::Broken { reason },
        401..=403 => ModelError::Unauthorized { reason },
        400 if says(BAD_KEY) => ModelError::Unauthorized { reason },
        503 | 529 => ModelError::Busy { retry_after_ms: wait, reason },
        408 | 409 | 424 | 425 | 500..=599 => match wait {
            Some(_) => ModelError::Busy { retry_after_ms: wait, reason },
            None => ModelError::Broken { reason },
        },
        _ => ModelError::Unusable { reason },
    }
}

/// Applies the provider's own header about retries.
fn apply_should_retry(should_retry: Option<&str>, error: ModelError) -> ModelError {
    match (should_retry, error) {
        (Some("false"), ModelError::Busy { reason, .. } | ModelError::Broken { reason }) => {
            ModelError::Unusable { reason }
        }
        (Some("true"), ModelError::Unusable { reason }) => ModelError::Busy { retry_after_ms: None, reason },
        (_, error) => error,
    }
}

/// Phrases for exhausted credit, which waiting does not restore.
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "insufficient credits",
    "credit balance is too low",
    "insufficient balance",
    "billing_error",
];

/// Names of AWS's errors for too many requests, which some of its services send with status 400.
const AWS_BUSY: &[&str] = &["throttlingexception", "servicequotaexceeded"];

const BAD_KEY: &[&str] = &["api key not valid", "invalid api key", "api_key_invalid", "incorrect api key"];

/// Phrases for a call that the provider's own server could not parse; a retry may succeed.
const BAD_CALL: &[&str] = &["tool_use_failed", "output_parse_failed"];

const FILTER: &[&str] = &[
    "content_filter",
    "content filter",
    "content management policy",
    "content_policy",
    "content policy",
    "responsibleaipolicy",
    "data_inspection_failed",
    "moderation",
    "safety system",
    "safety_check",
    "prohibited_content",
    "blocked by",
];

const CONTEXT: &[&str] = &[
    "context_length",
    "context length",
    "context window",
    "context limit",
    "context size",
    "exceed_context",
    "maximum context",
    "maximum prompt length",
    "maximum model length",
    "max model len",
    "model_max_prompt_tokens",
    "exceeds max length",
    "exceeds the maximum number of tokens",
    "exceeded model token limit",
    "input is too long",
    "input too long",
    "prompt is too long",
    "prompt too long",
    "prompt token count",
    "prompt contains too many tokens",
    "reduce the length",
    "request_too_large",
    "string too long",
    "string_above_max_length",
    "too large for model",
    "too many input tokens",
    "too many tokens",
    "context the overflows",
    "tokens + `max_new_tokens`",
];

fn status_of(kind: &str) -> u16 {
    let kind = kind.to_lowercase();
    let table = [
        ("overloaded", 529),
        ("unavailable", 503),
        ("rate_limit", 429),
        ("resource_exhausted", 429),
        ("too_many_requests", 429),
        ("throttling", 429),
        ("servicequotaexceeded", 429),
        ("validationexception", 400),
        ("insufficient_quota", 429),
        ("authentication", 401),
        ("unauthorized", 401),
        ("billing", 402),
        ("permission", 403),
        ("not_found", 404),
        ("request_too_large", 413),
        ("invalid_request", 400),
        ("invalid_argument", 400),
        ("context_length", 400),
        ("exceed_context", 400),
        ("content_filter", 400),
        ("invalid_prompt", 400),
        ("tool_use_failed", 400),
    ];
    // An error without a known name counts as the provider's own, which a retry may resolve.
    table.iter().find(|(word, _)| kind.contains(word)).map_or(500, |(_, status)| *status)
}

/// The machine-readable fields of an error, joined.
fn kind(value: &Value) -> String {
    let inner = value.get("error").filter(|it| it.is_object()).unwrap_or(value);
    let words = ["type", "code", "status"].iter().filter_map(|key| inner.get(key).and_then(Value::as_str));
    words.collect::<Vec<_>>().join(" ")
}

/// The provider's message, from any of the fields that providers use.
fn message(value: &Value) -> Option<String> {
    let text = |value: &Value, key: &str| match value.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
        Some(list @ Value::Array(items)) if !items.is_empty() => Some(list.to_string()),
        _ => None,
    };
    let inner = value.get("error").filter(|it| it.is_object()).unwrap_or(value);
    let raw = inner.get("metadata").and_then(|metadata| text(metadata, "raw"));
    let places = ["message", "detail", "error", "errors", "error_msg", "error_message", "msg", "Message"];
    let said = places.iter().find_map(|key| text(inner, key))?;
    let both = raw.map_or(said.clone(), |raw| format!("{said} ({raw})"));
    Some(shortened(&both))
}

/// The message in a body that is not JSON: the title of a web page, or the beginning of the text.
fn plain(body: &str) -> String {
    let text = body.trim();
    if text.is_empty() {
        return "no reason given".to_owned();
    }
    let lower = text.get(..4_096).unwrap_or(text).to_ascii_lowercase();
    if let (Some(from), Some(to)) = (lower.find("<title>"), lower.find("</title>"))
        && let Some(title) = text.get(from + 7..to)
    {
        return shortened(title);
    }
    shortened(text)
}

/// At most 600 characters on one line, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut words = clean.take(600).collect::<String>().trim().to_owned();
    if text.chars().nth(600).is_some() {
        words.push('…');
    }
    words
}

/// The delay in milliseconds that the provider asks for, if it can be parsed.
fn retry_after(header: &dyn Fn(&str) -> Option<String>, now: SystemTime) -> Option<u64> {
    let number = |text: &str, scale: f64| {
        let value = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
        Some((value * scale).ceil() as u64)
    };
    if let Some(ms) = header("retry-after-ms").and_then(|text| number(&text, 1.0)) {
        return Some(ms);
    }
    let text = header("retry-after")?;
    number(&text, 1_000.0).or_else(|| {
        let at = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
        let now = jiff::Timestamp::try_from(now).ok()?;
        u64::try_from(at.as_millisecond() - now.as_millisecond()).ok()
    })
}

/// Google's `RetryInfo`, such as `"retryDelay": "12.5s"`.
fn delay_in_body(value: &Value) -> Option<u64> {
    let inner = value.get("error").unwrap_or(value);
    let details = inner.get("details")?.as_array()?;
    let text = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = text.strip_suffix('s')?.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    Some((seconds * 1_000.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn status(status: u16, body: &str) -> ModelError {
        from_status(&ErrorBody { status, header: &|_| None, body: body.as_bytes(), now: SystemTime::UNIX_EPOCH })
    }

    fn wait(name: &'static str, value: &'static str) -> Option<u64> {
        // 1994-11-06 08:49:37 UTC
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let header = move |asked: &str| (asked == name).then(|| value.to_owned());
        match from_status(&ErrorBody { status: 429, header: &header, body: b"", now }) {
            ModelError::Busy { retry_after_ms, .. } => retry_after_ms,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fault21_every_form_of_retry_after_is_parsed() {
        assert_eq!(wait("retry-after", "1"), Some(1_000));
        assert_eq!(wait("retry-after", "0.25"), Some(250));
        assert_eq!(wait("retry-after", "86400"), Some(86_400_000));
        assert_eq!(wait("retry-after-ms", "1500"), Some(1_500));
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), Some(30_000));
        for garbage in ["-5", "soon", "", "NaN", "inf", "Sun, 06 Nov 1994 08:49:00 GMT", "Foo, 99 Bar 1994"] {
            assert_eq!(wait("retry-after", garbage), None, "{garbage}");
        }
    }

    #[test]
    fn fault24_full_context_is_recognized_for_every_provider() {
        for (code, body) in [
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 1 + 2 > 3"}}"#,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (4096 tokens)","type":"exceed_context_size_error"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (1) exceeds the maximum number of tokens allowed (0).","status":"INVALID_ARGUMENT"}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"Prompt contains 9 tokens, too large for model with 8 maximum context length"}"#,
            ),
            (
                400,
                r#"{"error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
            ),
            (400, r#"{"message":"Input is too long for requested model."}"#),
            (400, r#"{"message":"too many tokens: total number of tokens in the prompt exceeds 4081"}"#),
        ] {
            assert!(matches!(status(code, body), ModelError::ContextFull { .. }), "{body}");
        }
        let cap = r#"{"error":{"message":"max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"}}"#;
        assert!(matches!(status(400, cap), ModelError::Unusable { .. }));
    }

    #[test]
    fn statuses_are_classified() {
        for code in [408, 409, 500, 502, 504] {
            assert!(matches!(status(code, ""), ModelError::Broken { .. }), "{code}");
        }
        for code in [429, 503, 529] {
            assert!(matches!(status(code, ""), ModelError::Busy { .. }), "{code}");
        }
        for code in [401, 402, 403] {
            assert!(matches!(status(code, ""), ModelError::Unauthorized { .. }), "{code}");
        }
        for code in [302, 400, 404, 405, 422] {
            assert!(matches!(status(code, "<html><title>Nope</title>"), ModelError::Unusable { .. }), "{code}");
        }
        let broke = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}"#;
        assert!(matches!(status(429, broke), ModelError::Unauthorized { .. }));
        let filtered = r#"{"error":{"code":"content_filter","message":"The response was filtered"}}"#;
        assert!(matches!(status(400, filtered), ModelError::Refused { .. }));
    }

    #[test]
    fn errors_in_a_stream_are_classified() {
        let event = |text: &str| from_event(&serde_json::from_str(text).unwrap());
        assert!(matches!(event(r#"{"type":"overloaded_error","message":"Overloaded"}"#), ModelError::Busy { .. }));
        assert!(matches!(event(r#"{"type":"api_error","message":"oops"}"#), ModelError::Broken { .. }));
        assert!(matches!(event(r#"{"type":"invalid_request_error","message":"x"}"#), ModelError::Unusable { .. }));
        assert!(matches!(event(r#"{"code":429,"message":"slow down"}"#), ModelError::Busy { .. }));
        assert!(matches!(event(r#""plain words""#), ModelError::Broken { .. }));
    }

    #[test]
    fn h8_l13_control_characters_are_removed_from_messages() {
        let ModelError::Broken { reason } = status(500, "\u{1b}]0;evil\u{7} text") else { panic!() };
        assert_eq!(reason, "HTTP 500: ]0;evil  text");
    }
}
