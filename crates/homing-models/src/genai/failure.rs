//! What `genai`'s errors mean, by what to do about them.

use std::time::SystemTime;

use homing_core::model::ModelError;

use crate::{
    classify_error::{self, ErrorBody, shortened},
    http,
};

/// `genai` hides the status of a failed stream inside a boxed error of its own kind.
pub(super) fn classify(error: &genai::Error) -> ModelError {
    use genai::Error as E;
    match error {
        E::HttpError { status, body, headers, .. } => from_parts(status.as_u16(), headers, body),
        E::WebStream { error, cause, .. } => match error.downcast_ref::<genai::Error>() {
            Some(inner) => classify(inner),
            None => match error.downcast_ref::<reqwest::Error>() {
                Some(inner) => http::transport(inner),
                None => ModelError::Broken { reason: shortened(cause) },
            },
        },
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => classify_call(webc_error),
        E::ChatResponse { body, .. } => classify_error::from_event(body.get("error").unwrap_or(body)),
        E::StreamParse { serde_error, .. } => {
            ModelError::Broken { reason: format!("an unreadable event: {serde_error}") }
        }
        E::ChatResponseGeneration { cause, .. } => ModelError::Unusable { reason: shortened(cause) },
        other => ModelError::Unusable { reason: shortened(&other.to_string()) },
    }
}

fn classify_call(error: &genai::webc::Error) -> ModelError {
    use genai::webc::Error as E;
    match error {
        E::ResponseFailedStatus { status, body, headers } => from_parts(status.as_u16(), headers, body),
        E::Reqwest(inner) => http::transport(inner),
        other => ModelError::Unusable { reason: shortened(&other.to_string()) },
    }
}

fn from_parts(status: u16, headers: &reqwest::header::HeaderMap, body: &str) -> ModelError {
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
    classify_error::from_status(&ErrorBody { status, header: &header, body: body.as_bytes(), now: SystemTime::now() })
}
