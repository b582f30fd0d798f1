//! Tools that reach the public web.

pub(crate) mod fetch;
pub(crate) mod html_to_text;
pub mod safe_http;
pub mod websearch;
