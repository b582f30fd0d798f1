//! How many input tokens a request can have, before it is sent. The ledger holds this much; it must not know providers.
//!
//! No tokenizer is asked: providers keep theirs to themselves. The bound starts from what the provider reported last
//! time, so it is loose once, at the first ask, and tight afterwards.

use std::sync::Arc;

use crate::message::{Image, Message, TranscriptEntry};

/// What the provider reported about the ask before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAsk {
    /// Input tokens as the provider counted them, cached ones included.
    pub input: u64,
    /// How many messages that request had.
    pub messages: usize,
}

/// Tokens that a picture can cost at most, whatever its size in bytes; providers scale large ones down.
const IMAGE_TOKENS: u64 = 5_000;

/// Role markers and separators around one message.
const MESSAGE_TOKENS: u64 = 16;

/// What every request carries besides its parts.
const REQUEST_TOKENS: u64 = 32;

/// Instructions of its own that a provider adds as soon as tools are on offer.
const TOOL_PROMPT_TOKENS: u64 = 700;

/// An upper bound on a request's input tokens, tight from the second ask on.
///
/// `tools_bytes` is the size of the tools' schemas as JSON. A history that became shorter than it was at the last ask
/// has been compacted, and is counted from the start.
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
    let images = images(&entry.message);
    let encoded = images.iter().map(|image| image.base64.len() as u64).sum::<u64>();
    let words = text_bound(entry.size().saturating_sub(encoded));
    words.saturating_add(MESSAGE_TOKENS).saturating_add(IMAGE_TOKENS.saturating_mul(images.len() as u64))
}

fn images(message: &Message) -> &[Image] {
    match message {
        Message::User { images, .. } => images,
        Message::Assistant(_) => &[],
        Message::Tool(result) => &result.images,
    }
}

/// A token has at least 2.5 bytes on average in any text of some length; a tenth is added on top.
fn text_bound(bytes: u64) -> u64 {
    bytes.saturating_mul(11).div_ceil(25)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Arc<TranscriptEntry> {
        TranscriptEntry::new(Message::user(text))
    }

    #[test]
    fn the_first_ask_counts_everything_that_is_sent() {
        let messages = [said(&"word ".repeat(1_000))];
        let bare = input_bound("", 0, &messages, None);
        assert!((2_200..2_300).contains(&bare), "{bare}");
        assert_eq!(input_bound(&"s".repeat(250), 0, &messages, None), bare + 110);
        assert_eq!(input_bound("", 250, &messages, None), bare + 110 + TOOL_PROMPT_TOKENS);
    }

    #[test]
    fn later_asks_start_from_what_the_provider_reported() {
        let messages = [said(&"word ".repeat(1_000)), said("and now?")];
        let last = LastAsk { input: 1_010, messages: 1 };
        let bound = input_bound(&"s".repeat(9_999), 9_999, &messages, Some(last));
        assert!((1_026..1_060).contains(&bound), "{bound}");
    }

    #[test]
    fn a_compacted_history_and_a_silent_provider_are_counted_from_the_start() {
        let messages = [said("summary")];
        let fresh = input_bound("", 0, &messages, None);
        assert_eq!(input_bound("", 0, &messages, Some(LastAsk { input: 90_000, messages: 40 })), fresh);
        assert_eq!(input_bound("", 0, &messages, Some(LastAsk { input: 0, messages: 1 })), fresh);
    }

    #[test]
    fn a_picture_costs_the_same_whatever_its_size() {
        let picture = |len| Image { media_type: "image/png".into(), base64: "A".repeat(len) };
        let message = |len| TranscriptEntry::new(Message::User { text: "look".into(), images: vec![picture(len)] });
        let small = input_bound("", 0, &[message(8)], None);
        assert_eq!(small, input_bound("", 0, &[message(4_000_000)], None));
        assert!(small > IMAGE_TOKENS);
    }
}
