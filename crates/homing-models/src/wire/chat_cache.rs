//! Cache marks in chat completions, for routers that pass them on to providers that cache up to a mark. Encodings are cached
//! without marks, which move with the conversation.

use homing_core::{message::Message, model::ModelRequest};

use super::CACHE_MARK;

/// The marks of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CacheMarks {
    /// The system prompt is marked, and with it the tools, which come before it.
    pub(super) system: bool,
    /// Positions of the marked messages.
    messages: [Option<usize>; 2],
}

impl CacheMarks {
    /// The marks for `model`, whose provider is the first part of its name. Models of other providers are cached without
    /// marks.
    pub(super) fn of(request: &ModelRequest<'_>, model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or_default();
        let is_blank = request.system.trim().is_empty();
        if model.starts_with("anthropic/") || name.starts_with("claude-") {
            return Self { system: !is_blank, messages: ends(request) };
        }
        // Gemini stores one prefix at a price per hour, so only the part that stays the same is worth a mark.
        Self { system: !is_blank && name.starts_with("gemini-"), messages: [None, None] }
    }

    pub(super) fn contains(&self, position: usize) -> bool {
        self.messages.contains(&Some(position))
    }
}

/// The last message that can carry a mark, and the last one of the request before: the provider looks back over a limited
/// number of blocks.
fn ends(request: &ModelRequest<'_>) -> [Option<usize>; 2] {
    let entries = request.messages;
    let last_reply = entries.iter().rposition(|entry| matches!(entry.message, Message::Assistant(_)));
    let last_in = |end: usize| entries[..end].iter().rposition(|entry| can_be_marked(&entry.message));
    let end = last_in(entries.len());
    [end, last_reply.and_then(last_in).filter(|before| Some(*before) != end)]
}

/// Only text can carry a mark, and blank text cannot.
fn can_be_marked(message: &Message) -> bool {
    match message {
        Message::User { text, images } => images.is_empty() && !text.trim().is_empty(),
        Message::Tool(result) => result.images.is_empty() && !result.text.trim().is_empty(),
        Message::Assistant(_) => false,
    }
}

/// Adds a mark to an encoded message that ends with its text.
pub(super) fn marked(message: &str) -> String {
    const KEY: &str = "\"content\":";
    // Roles and ids, which come before the text, never contain quotes.
    let Some(start) = message.find(KEY).map(|at| at + KEY.len()) else { return message.to_owned() };
    let (head, text) = (&message[..start], &message[start..message.len() - 1]);
    format!("{head}[{{\"type\":\"text\",\"text\":{text}{CACHE_MARK}}}]}}")
}
