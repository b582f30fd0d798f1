//! Classifies the errors of `genai`.

use std::time::SystemTime;

use homing_core::model::ModelError;

use crate::{
    classify_error::{self, ErrorBody, shortened},
    genai::http::transport,
    http::Peer,
};

/// Classifies an error of a call to `peer`. `genai` boxes the status of a failed stream inside an error of its own type.
pub(super) fn classify(error: &genai::Error, peer: &Peer) -> ModelError {
    use genai::Error as E;
    match error {
        E::HttpError { status, body, headers, .. } => from_parts(status.as_u16(), headers, body),
        E::WebStream { error, cause, .. } => match error.downcast_ref::<genai::Error>() {
            Some(inner) => classify(inner, peer),
            None => match error.downcast_ref::<reqwest::Error>() {
                Some(inner) => transport(inner, peer),
                None => ModelError::Broken { reason: shortened(cause) },
            },
        },
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => classify_call(webc_error, peer),
        E::ChatResponse { body, .. } => classify_error::from_event(body.get("error").unwrap_or(body)),
        E::StreamParse { serde_error, .. } => {
            ModelError::Broken { reason: format!("cannot parse an event: {serde_error}") }
        }
        E::ChatResponseGeneration { cause, .. } => ModelError::Unusable { reason: shortened(cause) },
        other => ModelError::Unusable { reason: shortened(&other.to_string()) },
    }
}

fn classify_call(error: &genai::webc::Error, peer: &Peer) -> ModelError {
    use genai::webc::Error as E;
    match error {
        E::ResponseFailedStatus { status, body, headers } => from_parts(status.as_u16(), headers, body),
        E::Reqwest(inner) => transport(inner, peer),
        other => ModelError::Unusable { reason: shortened(&other.to_string()) },
    }
}

fn from_parts(status: u16, headers: &reqwest::header::HeaderMap, body: &str) -> ModelError {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    classify_error::from_status(&ErrorBody { status, header: &header, body: body.as_bytes(), now: SystemTime::now() })
}
