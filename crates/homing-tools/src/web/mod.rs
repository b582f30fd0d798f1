//! The web tools, `fetch` and `websearch`.

pub(crate) mod fetch;
pub(crate) mod html_to_text;
pub mod safe_http;
pub mod websearch;
