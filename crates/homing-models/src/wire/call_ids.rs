//! Call ids in requests: a call and its result have the same id, and no two calls share one.

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
pub(crate) fn of_reply(reply: &Reply, position: usize, style: IdStyle) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for (index, call) in reply.calls().enumerate() {
        let mut id: String =
            call.id.chars().filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')).collect();
        id.truncate(64);
        if is_generic(&id) {
            id = format!("call_{position}_{index}");
        }
        if ids.contains(&id) {
            id = format!("{id}_{index}");
        }
        ids.push(id);
    }
    match style {
        IdStyle::Free => ids,
        IdStyle::Nine => ids.iter().map(|id| nine(id)).collect(),
    }
}

/// The id of `result`, given the message before the results and its position.
pub(crate) fn of_result(result: &ToolResult, before: Option<(usize, &Message)>, style: IdStyle) -> String {
    let call = before.and_then(|(position, message)| match message {
        Message::Assistant(reply) => of_reply(reply, position, style).into_iter().nth(result.index as usize),
        Message::User { .. } | Message::Tool(_) => None,
    });
    call.unwrap_or_else(|| match style {
        IdStyle::Free => result.call_id.clone(),
        IdStyle::Nine => nine(&result.call_id),
    })
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
            Part::Call(ToolCall { id: (*id).to_owned(), name: "read".into(), args: Args::Json(serde_json::json!({})) })
        };
        Reply::new(ids.iter().map(call).collect())
    }

    #[test]
    fn l5_repeated_and_missing_ids_become_unique() {
        let ids = of_reply(&reply(&["a", "a", "", "call_1", "toolu_01"]), 7, IdStyle::Free);
        assert_eq!(ids, ["a", "a_1", "call_7_2", "call_7_3", "toolu_01"]);
    }

    #[test]
    fn result_has_the_id_of_its_call() {
        let message = Message::Assistant(reply(&["a", "a"]));
        let result = ToolResult {
            index: 1,
            call_id: "a".into(),
            name: "read".into(),
            text: String::new(),
            images: vec![],
            data: None,
            is_error: false,
        };
        assert_eq!(of_result(&result, Some((3, &message)), IdStyle::Free), "a_1");
        let nine = of_result(&result, Some((3, &message)), IdStyle::Nine);
        assert_eq!(nine.len(), 9);
        assert_eq!(vec![nine], of_reply(&reply(&["a", "a"]), 3, IdStyle::Nine)[1..]);
    }
}
