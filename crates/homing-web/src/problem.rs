//! Errors as RFC 9457 describes them.

use homing::{JournalError, crates::runtime::journal::sqlite::FindError};
use homing_http::{HttpResponse, full};
use hyper::{
    StatusCode,
    header::{HeaderValue, WWW_AUTHENTICATE},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::host::{HostError, HostErrorKind};

/// A problem, as the response to a request that failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// Identifies the kind of problem.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The kind of problem in a few words.
    pub(crate) title: &'static str,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The failure and its reason.
    pub(crate) detail: String,
    /// Suggestion for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let (name, title) = match status {
            StatusCode::BAD_REQUEST => ("bad-request", "The request is not valid"),
            StatusCode::UNAUTHORIZED => ("no-token", "The token is missing or wrong"),
            StatusCode::FORBIDDEN => ("refused", "The request is refused"),
            StatusCode::NOT_FOUND => ("not-found", "Not found"),
            StatusCode::METHOD_NOT_ALLOWED => ("method", "The method is not allowed here"),
            StatusCode::CONFLICT => ("conflict", "This is not possible in the present state"),
            StatusCode::PAYLOAD_TOO_LARGE => ("too-large", "The request is too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ("media-type", "The content type is not supported"),
            StatusCode::REQUEST_TIMEOUT => ("timeout", "The request took too long"),
            StatusCode::SERVICE_UNAVAILABLE => ("unavailable", "Not available"),
            _ => ("internal", "Internal error"),
        };
        let kind = format!("urn:homing:problem:{name}");
        Self { kind, title, status: status.as_u16(), detail: detail.into(), hint: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn response(&self) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(self).unwrap_or_default();
        let mut response = full(status, "application/problem+json", body);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        let status = match &error {
            JournalError::NoSuchTree(_) | JournalError::Pruned(_) => StatusCode::NOT_FOUND,
            JournalError::Owned { .. }
            | JournalError::Fenced { .. }
            | JournalError::KeyTaken { .. }
            | JournalError::CrashLoop { .. } => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Self {
        match error {
            FindError::NotFound(_) | FindError::NotInProject { .. } => Self::not_found(error.to_string()),
            FindError::TooShort(_) | FindError::Ambiguous { .. } => Self::bad_request(error.to_string()),
            FindError::Journal(error) => error.into(),
        }
    }
}

impl From<HostError> for Problem {
    fn from(error: HostError) -> Self {
        let status = match error.kind {
            HostErrorKind::Usage => StatusCode::BAD_REQUEST,
            HostErrorKind::Refused => StatusCode::FORBIDDEN,
            HostErrorKind::NotFound => StatusCode::NOT_FOUND,
            HostErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { hint: error.hint, ..Self::new(status, error.message) }
    }
}
