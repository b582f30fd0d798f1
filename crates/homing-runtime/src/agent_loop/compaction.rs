//! Prepares the summary of a history that has grown too long: its input, and the number of messages it replaces.

use std::{fmt::Write, sync::Arc};

use homing_core::message::{Message, TranscriptEntry};

/// The prompt of the model that writes the summary.
pub(crate) const PROMPT: &str = "You keep the notes of an agent at work. Below is the older part of its conversation. Write down \
     everything it needs to go on without it: the goal, decisions, facts found (with file paths, line numbers and names), what was \
     changed, what failed, and what is left to do. Be exact and brief. Write the notes only.";

/// Number of messages at the end that are never summarised.
pub(crate) const KEPT: usize = 4;

/// The conversation as text that fits a context of `window` tokens.
pub(crate) fn digest(messages: &[Arc<TranscriptEntry>], window: u64) -> String {
    // A token is about four bytes, so a byte per token leaves enough of the context for the prompt and the summary.
    let max_bytes = usize::try_from(window).unwrap_or(usize::MAX).max(2_000);
    let each = (max_bytes / messages.len().max(1)).clamp(200, 8_000);
    let mut text = String::new();
    for entry in messages {
        let (role, content) = described(&entry.message);
        let _ = writeln!(text, "{role}: {}", cut(&content, each));
    }
    cut(&text, max_bytes)
}

/// The role and the content of a message, as text.
pub(crate) fn described(message: &Message) -> (&'static str, String) {
    match message {
        Message::User { text, .. } => ("user", text.clone()),
        Message::Assistant(reply) => {
            let calls: Vec<String> =
                reply.calls().map(|call| format!("[calls {} {:?}]", call.name, call.args)).collect();
            ("agent", format!("{} {}", reply.text(), calls.join(" ")))
        }
        Message::Tool(result) => ("tool", format!("{}: {}", result.name, result.text)),
    }
}

/// Number of messages that the summary replaces: all but the last few, without separating a call from its result.
pub(crate) fn boundary(transcript: &[Arc<TranscriptEntry>]) -> usize {
    let wanted = transcript.len().saturating_sub(KEPT);
    let is_result = |at: usize| matches!(transcript.get(at).map(|entry| &entry.message), Some(Message::Tool(_)));
    (wanted..transcript.len()).find(|at| !is_result(*at)).unwrap_or(transcript.len())
}

/// Cuts the middle out of a text that is too long.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let (head, tail) = (most * 2 / 3, most / 3);
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - tail)..];
    format!("{head}\n[… {} bytes left out …]\n{tail}", text.len() - head.len() - tail.len())
}
