//! The structured answer of a run, attempts to repair it, and the check by the `until` command.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    message::{Args, ToolCall},
    tool::Replay,
};

/// The structured answer of a run and whether it has been accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerState {
    /// The first valid answer.
    pub(super) data: Option<Arc<Value>>,
    /// Results of a program. Unlike an answer, they count even if the run did not finish.
    pub(super) results: Option<Arc<Value>>,
    /// True if the model has been asked to repair an answer.
    pub(super) repair_asked: bool,
    /// Number of repairs and of answers that did not match the schema.
    pub(super) repairs: u32,
    /// The last answer that did not match an optional schema, after the model had a second attempt. It ends the run as text.
    pub(super) best_effort: Option<String>,
    /// The last reply's text as an answer.
    pub(super) text: TextAnswer,
    pub(super) check: Check,
}

impl AnswerState {
    /// Returns whether a repair was asked for and no reply has arrived, because the attempts failed.
    pub(super) fn repair_is_open(&self) -> bool {
        self.repair_asked && self.repairs == 0
    }
}

/// An answer that the last reply gave as JSON text instead of a call.
#[derive(Clone, Debug, Default)]
pub(super) enum TextAnswer {
    /// Not checked, or the text contains no JSON.
    #[default]
    Unchecked,
    Valid,
    /// It has these problems.
    Invalid(String),
}

/// Returns the arguments of a call of `answer` as text, if there are any.
pub(super) fn written(call: &ToolCall) -> Option<String> {
    match &call.args {
        Args::Json(Value::Object(fields)) if fields.is_empty() => None,
        Args::Json(value) => serde_json::to_string_pretty(value).ok(),
        Args::Malformed(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
    }
}

/// Returns the JSON object or array that `text` consists of. It may be in a code block, with prose around it if it is the
/// only such block.
pub(super) fn json_in(text: &str) -> Option<Value> {
    let parse = |text: &str| serde_json::from_str::<Value>(text.trim()).ok();
    let found = parse(text).or_else(|| {
        let mut blocks = code_blocks(text).into_iter().filter_map(parse);
        blocks.next().filter(|_| blocks.next().is_none())
    });
    found.filter(|value| value.is_object() || value.is_array())
}

/// Returns the contents of the fenced code blocks in `text`. The last one may lack its end.
fn code_blocks(text: &str) -> Vec<&str> {
    let fences: Vec<&str> = text.split("```").collect();
    let inside = fences.iter().skip(1).step_by(2);
    // The first line of a block names its language, unless the block has only one line.
    inside.map(|block| block.split_once('\n').map_or(*block, |(_, content)| content)).collect()
}

/// Progress of the `until` command since the last reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Check {
    #[default]
    NotRun,
    Running(Replay),
    Passed,
    Failed,
}

impl Check {
    /// Returns the state after a new reply: an earlier result no longer counts, but an open check stays open.
    pub(super) fn after_reply(self) -> Self {
        match self {
            Self::Running(replay) => Self::Running(replay),
            Self::NotRun | Self::Passed | Self::Failed => Self::NotRun,
        }
    }

    /// Returns how the open check may be repeated, if one is open.
    pub(super) fn begun(self) -> Option<Replay> {
        match self {
            Self::Running(replay) => Some(replay),
            Self::NotRun | Self::Passed | Self::Failed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_found_as_whole_text_or_in_the_only_code_block() {
        let answer = Some(json!({"n": 7}));
        for text in [
            " {\"n\": 7}\n",
            "```json\n{\"n\": 7}\n```",
            "```\n{\"n\": 7}\n```\n",
            "Here it is:\n\n```json\n{\n  \"n\": 7\n}\n```\nIt took ```a while```.",
            "```json\n{\"n\": 7}",
        ] {
            assert_eq!(json_in(text), answer, "{text}");
        }
        let two = "```json\n{\"n\": 7}\n```\nor\n```json\n{\"n\": 8}\n```";
        for text in ["prose", "7", "\"7\"", "", "the answer is {\"n\": 7}", two] {
            assert_eq!(json_in(text), None, "{text}");
        }
        assert_eq!(json_in("[1]"), Some(json!([1])));
    }
}
