//! [`RawFrames`]: reads the raw frames of a response beside `genai`, which drops refusals, reports errors as events that
//! it cannot parse and does not say why a reply was cut.

use homing_core::model::ModelError;
use serde_json::Value;

use crate::classify_error;

/// The contents of a response's frames that `genai` does not report.
#[derive(Default)]
pub(super) struct RawFrames {
    /// The error that ended the response.
    pub(super) error: Option<ModelError>,
    /// The text of a refusal.
    pub(super) refusal: String,
    /// The model's name as the provider reports it.
    pub(super) model: Option<String>,
    /// At least one event carried data.
    pub(super) has_events: bool,
    /// Bytes of all events.
    pub(super) bytes: usize,
}

impl RawFrames {
    /// Reads one frame of a stream.
    pub(super) fn note(&mut self, frame: &str) {
        self.has_events |= !frame.is_empty();
        self.bytes += frame.len();
        // Most frames carry text only, so they are not parsed a second time.
        let matters = ["error", "refusal", "block", "fail", "incomplete"].iter().any(|word| frame.contains(word));
        if !matters && self.model.is_some() {
            return;
        }
        if let Ok(value) = serde_json::from_str::<Value>(frame) {
            self.note_frame(&value);
        }
    }

    fn note_frame(&mut self, frame: &Value) {
        let kind = frame.get("type").or_else(|| frame.get("event_type")).and_then(Value::as_str).unwrap_or_default();
        match kind {
            "response.refusal.delta" => self.refusal.push_str(text(frame, "delta")),
            "error" => self.set_error(frame.get("error").filter(|it| it.is_object()).unwrap_or(frame)),
            _ => self.note_whole(frame.get("response").or_else(|| frame.get("interaction")).unwrap_or(frame)),
        }
    }

    /// Reads a whole response, or the part of a frame that describes one.
    pub(super) fn note_whole(&mut self, body: &Value) {
        if let Some(error) = body.get("error").filter(|it| !it.is_null()) {
            self.set_error(error);
        }
        let cut = body
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str)
            .filter(|reason| *reason != "max_output_tokens");
        let blocked = body.pointer("/promptFeedback/blockReason").and_then(Value::as_str);
        if let Some(why) = blocked.or(cut) {
            self.error =
                Some(ModelError::Refused { reason: format!("blocked by the provider's content filter: {why}") });
        }
        if self.model.is_none() {
            let name = ["model", "modelVersion"].iter().map(|key| text(body, key)).find(|it| !it.is_empty());
            self.model = name.map(str::to_owned);
        }
        if self.refusal.is_empty() {
            self.refusal = refusals(body);
        }
    }

    fn set_error(&mut self, error: &Value) {
        self.error = Some(classify_error::from_event(error));
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn refusals(body: &Value) -> String {
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let pieces = list(body, "output").into_iter().flat_map(|item| list(&item, "content"));
    pieces.map(|piece| text(&piece, "refusal").to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(frames: &[&str]) -> RawFrames {
        let mut raw_frames = RawFrames::default();
        frames.iter().for_each(|frame| raw_frames.note(frame));
        raw_frames
    }

    #[test]
    fn every_form_of_error_is_read() {
        let failed = r#"{"type":"response.failed","response":{"model":"m","error":{"code":"rate_limit_exceeded","message":"slow"}}}"#;
        assert!(matches!(seen(&[failed]).error, Some(ModelError::Busy { .. })));
        let full = r#"{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"too long"}}}"#;
        assert!(matches!(seen(&[full]).error, Some(ModelError::ContextFull { .. })));
        let plain = r#"{"error":"model requires more system memory"}"#;
        assert!(matches!(seen(&[plain]).error, Some(ModelError::Broken { .. })));
        let named = r#"{"event_type":"error","error":{"code":503,"message":"overloaded"}}"#;
        assert!(matches!(seen(&[named]).error, Some(ModelError::Busy { .. })));
        let filtered = r#"{"type":"response.incomplete","response":{"error":null,"incomplete_details":{"reason":"content_filter"}}}"#;
        assert!(matches!(seen(&[filtered]).error, Some(ModelError::Refused { .. })));
        let blocked = r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"modelVersion":"g"}"#;
        assert!(matches!(seen(&[blocked]).error, Some(ModelError::Refused { .. })));
        let short =
            r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#;
        assert_eq!(seen(&[short]).error, None);
    }

    #[test]
    fn refusals_and_names_are_kept() {
        let frames = [
            r#"{"type":"response.created","response":{"model":"gpt-x"}}"#,
            r#"{"type":"response.refusal.delta","delta":"I can"}"#,
            r#"{"type":"response.refusal.delta","delta":"not."}"#,
            r#"{"type":"response.completed","response":{"output":[{"content":[{"type":"refusal","refusal":"I cannot."}]}]}}"#,
        ];
        let frames = seen(&frames);
        assert_eq!((frames.refusal.as_str(), frames.model.as_deref()), ("I cannot.", Some("gpt-x")));
        let whole = serde_json::json!({"output": [{"content": [{"type": "refusal", "refusal": "No."}]}]});
        let mut frames = RawFrames::default();
        frames.note_whole(&whole);
        assert_eq!(frames.refusal, "No.");
    }
}
