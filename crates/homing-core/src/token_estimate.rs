//! Upper bound on the input tokens of a request, used for its reservation. It does not depend on the provider.
//!
//! It uses no tokenizer, because providers do not publish theirs. The bound starts from the usage that the provider
//! reported for the previous request, so it is loose for the first request only.

use std::sync::Arc;

use crate::message::{Image, TranscriptEntry};

/// Usage that the provider reported for the previous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAsk {
    /// Input tokens as the provider counted them, cached ones included.
    pub input: u64,
    /// Number of messages in that request and its reply.
    pub messages: usize,
}

/// Maximum tokens for an image of any size, because providers scale large ones down, and for a page of a document, which
/// they send as text and as an image.
const IMAGE_TOKENS: u64 = 5_000;

/// Tokens for the role markers and separators around one message.
const MESSAGE_TOKENS: u64 = 16;

/// Fixed tokens per request.
const REQUEST_TOKENS: u64 = 32;

/// Tokens for the instructions that a provider adds to requests with tools.
const TOOL_PROMPT_TOKENS: u64 = 700;

/// Returns an upper bound on a request's input tokens.
///
/// `tools_bytes` is the size of the tool schemas as JSON. If the history is shorter than at the previous request, it was
/// compacted, and is counted from the start.
pub fn input_bound(system: &str, tools_bytes: u64, messages: &[Arc<TranscriptEntry>], last: Option<LastAsk>) -> u64 {
    match last.and_then(|last| messages.get(last.messages..).map(|new| (last.input, new))) {
        Some((input, new)) if input > 0 => input.saturating_add(messages_bound(new)),
        Some(_) | None => {
            let tool_prompt = if tools_bytes > 0 { TOOL_PROMPT_TOKENS } else { 0 };
            let fixed = REQUEST_TOKENS + tool_prompt + text_bound(system.len() as u64);
            fixed.saturating_add(text_bound(tools_bytes)).saturating_add(messages_bound(messages))
        }
    }
}

fn messages_bound(messages: &[Arc<TranscriptEntry>]) -> u64 {
    messages.iter().fold(0, |sum, entry| sum.saturating_add(message_bound(entry)))
}

fn message_bound(entry: &TranscriptEntry) -> u64 {
    let images = entry.message.images();
    let encoded = images.iter().map(|image| image.base64.len() as u64).sum::<u64>();
    let words = text_bound(entry.size().saturating_sub(encoded));
    words.saturating_add(MESSAGE_TOKENS).saturating_add(images.iter().map(image_bound).sum())
}

fn image_bound(image: &Image) -> u64 {
    IMAGE_TOKENS.saturating_mul(u64::from(image.pages.unwrap_or(1).max(1)))
}

/// Returns an upper bound on the tokens of a request without tools and messages whose system prompt has this many bytes.
pub(crate) fn request_tokens(system: u64) -> u64 {
    REQUEST_TOKENS + text_bound(system)
}

/// Returns an upper bound on the tokens of a message of this many bytes.
pub(crate) fn message_tokens(bytes: u64) -> u64 {
    text_bound(bytes).saturating_add(MESSAGE_TOKENS)
}

/// Returns an upper bound on the output tokens of a reply of which this many bytes have arrived.
pub fn output_bound(bytes: u64) -> u64 {
    text_bound(bytes)
}

/// Bounds the tokens of a text, assuming at least 2.5 bytes per token on average, plus a margin of a tenth.
fn text_bound(bytes: u64) -> u64 {
    bytes.saturating_mul(11).div_ceil(25)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    fn user(text: &str) -> Arc<TranscriptEntry> {
        TranscriptEntry::new(Message::user(text))
    }

    #[test]
    fn first_request_counts_everything_sent() {
        let messages = [user(&"word ".repeat(1_000))];
        let bare = input_bound("", 0, &messages, None);
        assert!((2_200..2_300).contains(&bare), "{bare}");
        assert_eq!(input_bound(&"s".repeat(250), 0, &messages, None), bare + 110);
        assert_eq!(input_bound("", 250, &messages, None), bare + 110 + TOOL_PROMPT_TOKENS);
    }

    #[test]
    fn later_requests_start_from_reported_usage() {
        let messages = [user(&"word ".repeat(1_000)), user("and now?")];
        let last = LastAsk { input: 1_010, messages: 1 };
        let bound = input_bound(&"s".repeat(9_999), 9_999, &messages, Some(last));
        assert!((1_026..1_060).contains(&bound), "{bound}");
    }

    #[test]
    fn compacted_history_and_missing_usage_are_counted_from_the_start() {
        let messages = [user("summary")];
        let fresh = input_bound("", 0, &messages, None);
        assert_eq!(input_bound("", 0, &messages, Some(LastAsk { input: 90_000, messages: 40 })), fresh);
        assert_eq!(input_bound("", 0, &messages, Some(LastAsk { input: 0, messages: 1 })), fresh);
    }

    #[test]
    fn image_tokens_do_not_depend_on_size() {
        let picture = |len| Image { media_type: "image/png".into(), base64: "A".repeat(len), pages: None };
        let message = |len| TranscriptEntry::new(Message::User { text: "look".into(), images: vec![picture(len)] });
        let small = input_bound("", 0, &[message(8)], None);
        assert_eq!(small, input_bound("", 0, &[message(4_000_000)], None));
        assert!(small > IMAGE_TOKENS);
    }

    #[test]
    fn document_counts_each_of_its_pages() {
        let document = |pages| {
            let image = Image { media_type: Image::PDF.into(), base64: "A".repeat(80), pages: Some(pages) };
            TranscriptEntry::new(Message::User { text: "look".into(), images: vec![image] })
        };
        let bound = |pages| input_bound("", 0, &[document(pages)], None);
        assert_eq!(bound(8) - bound(1), 7 * IMAGE_TOKENS);
    }
}
