//! Call ids in requests: a call and its result have the same id, and no two calls share one.

use std::borrow::Cow;

use homing_core::message::{Message, Reply, ToolResult};

/// The form of ids that a provider accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdStyle {
    /// Letters, digits, `_` and `-`.
    #[default]
    Free,
    /// Exactly nine letters and digits.
    Nine,
}

/// The ids of a reply's calls, in order. `position` is the reply's index in the transcript.
///
/// Ids depend on the reply and its position only, so that a result encoded later gets the same one.
pub(crate) fn of_reply(reply: &Reply, position: usize, style: IdStyle) -> Vec<Cow<'_, str>> {
    let mut ids: Vec<Cow<'_, str>> = Vec::with_capacity(reply.parts.len());
    for (index, call) in reply.calls().enumerate() {
        let mut id = allowed(&call.id);
        if is_generic(&id) {
            id = Cow::Owned(format!("call_{position}_{index}"));
        }
        if ids.contains(&id) {
            id = Cow::Owned(format!("{id}_{index}"));
        }
        ids.push(id);
    }
    match style {
        IdStyle::Free => ids,
        IdStyle::Nine => ids.iter().map(|id| Cow::Owned(nine(id))).collect(),
    }
}

/// The letters of an id that every provider accepts.
fn allowed(id: &str) -> Cow<'_, str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if id.len() <= 64 && id.bytes().all(is_allowed) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(id.bytes().filter(|byte| is_allowed(*byte)).take(64).map(char::from).collect())
}

/// The ids of calls and of their results, which are the same. Those of a reply are computed once for it and all of its results,
/// because a lead may delegate to a hundred agents in one reply.
#[derive(Default)]
pub(crate) struct ResultIds<'a> {
    /// The position of the last reply, and the ids of its calls.
    reply: Option<(usize, Vec<Cow<'a, str>>)>,
}

impl<'a> ResultIds<'a> {
    /// The ids of the calls of a reply, given that with its position; none of a message that is not a reply.
    pub(crate) fn of_calls(&mut self, reply: Option<(usize, &'a Message)>, style: IdStyle) -> &[Cow<'a, str>] {
        let Some((position, Message::Assistant(reply))) = reply else { return &[] };
        if self.reply.as_ref().is_none_or(|(known, _)| *known != position) {
            self.reply = Some((position, of_reply(reply, position, style)));
        }
        self.reply.as_ref().map_or(&[], |(_, ids)| ids)
    }

    /// The id of `result`, given the message before the results and its position.
    pub(crate) fn of<'b>(
        &'b mut self,
        result: &'b ToolResult,
        before: Option<(usize, &'a Message)>,
        style: IdStyle,
    ) -> Cow<'b, str> {
        if let Some(id) = self.of_calls(before, style).get(result.index as usize) {
            return Cow::Borrowed(id);
        }
        match style {
            IdStyle::Free => Cow::Borrowed(&result.call_id),
            IdStyle::Nine => Cow::Owned(nine(&result.call_id)),
        }
    }
}

/// Returns true for ids that count the calls of one reply, which are not unique in the conversation.
fn is_generic(id: &str) -> bool {
    let count = id.strip_prefix("call_").unwrap_or(id);
    count.len() <= 3 && count.bytes().all(|byte| byte.is_ascii_digit())
}

fn nine(id: &str) -> String {
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // FNV-1a is short and stable between processes; the id needs no cryptographic strength.
    let mut hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = String::new();
    for _ in 0..9 {
        text.push(char::from(digits[usize::try_from(hash % 36).expect("below 36")]));
        hash /= 36;
    }
    text
}

#[cfg(test)]
mod tests {
    use homing_core::message::{Args, Part, ToolCall};

    use super::*;

    fn reply(ids: &[&str]) -> Reply {
        let call = |id: &&str| {
            Part::from(ToolCall { id: (*id).to_owned(), name: "read".into(), args: Args::Json(serde_json::json!({})) })
        };
        Reply::new(ids.iter().map(call).collect())
    }

    #[test]
    fn l5_repeated_and_missing_ids_become_unique() {
        let reply = reply(&["a", "a", "", "call_1", "toolu_01"]);
        let ids = of_reply(&reply, 7, IdStyle::Free);
        assert_eq!(ids, ["a", "a_1", "call_7_2", "call_7_3", "toolu_01"]);
    }

    #[test]
    fn result_has_the_id_of_its_call() {
        let message = Message::Assistant(reply(&["a", "a"]).into());
        let result = ToolResult {
            index: 1,
            call_id: "a".into(),
            name: "read".into(),
            text: String::new(),
            images: vec![],
            data: None,
            is_error: false,
        };
        let mut ids = ResultIds::default();
        assert_eq!(ids.of(&result, Some((3, &message)), IdStyle::Free), "a_1");
        let other = Message::Assistant(reply(&["b", "c"]).into());
        assert_eq!(ids.of(&result, Some((5, &other)), IdStyle::Free), "c");
        assert_eq!(ids.of(&result, None, IdStyle::Free), "a");
        let mut ids = ResultIds::default();
        let nine = ids.of(&result, Some((3, &message)), IdStyle::Nine);
        assert_eq!(nine.len(), 9);
        assert_eq!(vec![nine], of_reply(&reply(&["a", "a"]), 3, IdStyle::Nine)[1..]);
    }
}
