//! The files that the tests search: a small HTTP client for model providers, reduced to the lines that matter. They are
//! fixed here so that edits of real sources do not change the results.

/// Paths and contents.
pub(crate) const FILES: &[(&str, &str)] = &[
    (
        "src/errors.rs",
        "//! Classifies error responses of providers.\n\
         \n\
         /// Parses the `Retry-After` header: seconds, or an HTTP date.\n\
         pub fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {\n\
         \x20   let value = headers.get(\"retry-after\")?;\n\
         \x20   seconds(value).or_else(|| http_date(value, now))\n\
         }\n\
         \n\
         /// Returns true if a request with this status may be repeated.\n\
         pub fn is_transient(status: u16) -> bool {\n\
         \x20   matches!(status, 408 | 429 | 500..=599)\n\
         }\n",
    ),
    (
        "src/retry.rs",
        "//! Repeats failed requests with exponential backoff.\n\
         \n\
         /// Time before the next attempt.\n\
         pub fn backoff(attempt: u32, retry_after: Option<Duration>) -> Duration {\n\
         \x20   retry_after.unwrap_or(Duration::from_secs(1 << attempt))\n\
         }\n",
    ),
    (
        "src/wire/text_tool_calls.rs",
        "//! Recognizes tool calls that a model has written as text.\n\
         \n\
         /// Returns the tool calls that are written in `text`.\n\
         pub fn tool_calls_in_text(text: &str) -> Vec<ToolCall> {\n\
         \x20   blocks(text).filter_map(parse_tool_call).collect()\n\
         }\n",
    ),
    (
        "src/secret.rs",
        "//! API keys.\n\
         \n\
         /// Scrubs the key from an error message.\n\
         pub fn scrub_key(key: &Secret, error: &str) -> String {\n\
         \x20   error.replace(key.expose(), \"***\")\n\
         }\n",
    ),
    (
        "src/sse.rs",
        "//! Splits a byte stream into server-sent events.\n\
         \n\
         /// A splitter of server-sent events.\n\
         pub struct EventSplitter {\n\
         \x20   buffer: Vec<u8>,\n\
         }\n\
         \n\
         impl EventSplitter {\n\
         \x20   /// Returns the events that `bytes` complete.\n\
         \x20   pub fn split(&mut self, bytes: &[u8]) -> Vec<ServerEvent> {\n\
         \x20       self.buffer.extend(bytes);\n\
         \x20       self.complete_events()\n\
         \x20   }\n\
         }\n",
    ),
    (
        "src/names.rs",
        "//! Names of models.\n\
         \n\
         /// Retired model names and their successors.\n\
         const RETIRED: &[(&str, &str)] = &[(\"large-1\", \"large-2\")];\n\
         \n\
         /// Maps a retired model name to its successor.\n\
         pub fn successor(name: &str) -> &str {\n\
         \x20   RETIRED.iter().find(|(retired, _)| *retired == name).map_or(name, |(_, next)| next)\n\
         }\n",
    ),
    (
        "src/prices.rs",
        "//! Prices of models.\n\
         \n\
         /// Returns the price of `tokens` in micro-dollars, rounded up.\n\
         pub fn price_micros(tokens: u64, per_million: u64) -> u64 {\n\
         \x20   (tokens * per_million).div_ceil(1_000_000)\n\
         }\n",
    ),
    (
        "src/wire/anthropic_stream.rs",
        "//! Decodes the event stream of the Anthropic messages format.\n\
         \n\
         /// A decoder for Anthropic's stream.\n\
         pub struct AnthropicStreamDecoder {\n\
         \x20   reply: ReplyBuilder,\n\
         }\n",
    ),
    (
        "src/wire/openai_stream.rs",
        "//! Decodes the event stream of the chat completions format.\n\
         \n\
         /// A decoder for the stream of chat completions.\n\
         pub struct ChatStreamDecoder {\n\
         \x20   reply: ReplyBuilder,\n\
         }\n",
    ),
    (
        "src/client.rs",
        "//! The HTTP client.\n\
         \n\
         use crate::{errors::parse_retry_after, names::successor, prices::price_micros, sse::EventSplitter};\n\
         \n\
         /// Builds a client that refuses redirects, because a redirect could leak the key.\n\
         pub fn client() -> Client {\n\
         \x20   Client::builder().redirect(Policy::none()).build()\n\
         }\n\
         \n\
         async fn send(request: Request, key: &Secret) -> Result<Response, Error> {\n\
         \x20   let response = request.header(\"authorization\", key.expose()).send().await?;\n\
         \x20   if is_transient(response.status()) {\n\
         \x20       return Err(Error::busy(parse_retry_after(response.headers(), SystemTime::now())));\n\
         \x20   }\n\
         \x20   Ok(response)\n\
         }\n",
    ),
    (
        "tests/errors.rs",
        "#[test]\n\
         fn waits_as_long_as_the_server_asks() {\n\
         \x20   assert_eq!(parse_retry_after(&headers(\"7\"), now()), Some(seconds(7)));\n\
         }\n",
    ),
    (
        "README.md",
        "# A client for model providers\n\nIt parses the Retry-After header and splits server-sent events.\n",
    ),
];
