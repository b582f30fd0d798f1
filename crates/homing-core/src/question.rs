//! Questions to the user: approval of a call, a question of the `ask` tool, or the part of a person in a team. A question is
//! recorded, so it outlives the process that asked it, and any process can answer.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    message::{Args, FNV_START, ToolCall, fnv},
    place::Place,
    rule::Rule,
    run::Run,
    tool::CallKey,
};

/// A call that an agent wants to make, as the user is asked about it or as it was denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestedCall {
    /// Name of the agent.
    pub agent: String,
    /// Name of the tool.
    pub tool: String,
    /// Its arguments.
    pub args: Value,
}

impl RequestedCall {
    /// Creates the call of `tool` by `agent`.
    pub fn new(agent: impl Into<String>, tool: impl Into<String>, args: Value) -> Self {
        Self { agent: agent.into(), tool: tool.into(), args }
    }

    /// Creates a call of `agent` as its model wrote it.
    pub fn written(agent: impl Into<String>, call: &ToolCall) -> Self {
        let args = match &call.args {
            Args::Json(args) => args.clone(),
            Args::Malformed(text) => Value::from(text.as_str()),
        };
        Self::new(agent, &call.name, args)
    }

    /// Returns whether the call is not known, as in journals of earlier versions.
    pub fn is_unknown(&self) -> bool {
        self.tool.is_empty()
    }
}

/// A question to the user.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::question::{Answer, Question, RequestedCall}; }
/// # let key = homing_core::tool::CallKey { run: uuid::Uuid::nil(), turn: 1, index: 0 };
/// use homing::{Answer, Question, RequestedCall};
///
/// /// Approves deployments to staging, and nothing else.
/// fn decide(question: &Question) -> Answer {
///     let call = &question.call;
///     if call.tool == "deploy" && call.args["to"] == "staging" { Answer::Yes } else { Answer::No }
/// }
///
/// let call = RequestedCall::new("releaser", "deploy", serde_json::json!({"to": "staging"}));
/// let question = Question::new("deploy to staging?", key).call(call).rule("deploy (user)".to_owned());
/// assert_eq!(decide(&question), Answer::Yes);
/// assert_eq!(question.read_answer("no, not today")?, Answer::Text("not today".to_owned()));
/// # Ok::<(), homing_core::question::UnclearAnswer>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// The text.
    pub text: String,
    /// Answers to choose from; if empty, the answer is free text.
    pub options: Vec<String>,
    /// Identity of the call that it concerns.
    pub key: CallKey,
    /// The call: agent, tool and arguments. The runtime sets it.
    #[serde(default, skip_serializing_if = "RequestedCall::is_unknown")]
    pub call: RequestedCall,
    /// Fingerprint of the arguments of the call, to which an answer is bound.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub args_hash: u64,
    /// The rule that requires approval, followed by its layer in parentheses, if it is one.
    pub rule: Option<String>,
    /// Rules that allow exactly this call, and no others; empty if no rule can express it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exact: Vec<Rule>,
}

impl Question {
    /// Creates a question of the call `key` that is answered with text.
    pub fn new(text: impl Into<String>, key: CallKey) -> Self {
        let (text, call) = (text.into(), RequestedCall::default());
        Self { text, options: Vec::new(), key, call, args_hash: 0, rule: None, exact: Vec::new() }
    }

    /// Sets the agent, tool and arguments of the call.
    #[must_use]
    pub fn call(mut self, call: RequestedCall) -> Self {
        self.call = call;
        self
    }

    /// Sets the answers to choose from.
    #[must_use]
    pub fn options(mut self, options: Vec<String>) -> Self {
        self.options = options;
        self
    }

    /// Sets the fingerprint of the call's arguments.
    #[must_use]
    pub fn args_hash(mut self, args_hash: u64) -> Self {
        self.args_hash = args_hash;
        self
    }

    /// Sets the rule that requires approval.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<Option<String>>) -> Self {
        self.rule = rule.into();
        self
    }

    /// Sets the rules that allow exactly this call.
    #[must_use]
    pub fn exact(mut self, exact: Vec<Rule>) -> Self {
        self.exact = exact;
        self
    }

    /// Returns the ID, by which an answer refers to exactly this question about exactly this call.
    pub fn id(&self) -> QuestionId {
        let key = self.key.to_string();
        let args = self.args_hash.to_be_bytes();
        let rule = self.rule.as_deref().unwrap_or_default();
        let parts = [key.as_bytes(), &args, self.text.as_bytes(), &[0], rule.as_bytes()];
        QuestionId(parts.into_iter().fold(FNV_START, fnv))
    }

    /// Returns the form of answer that is expected.
    pub fn kind(&self) -> QuestionKind {
        match (&self.rule, self.options.is_empty()) {
            (Some(_), _) => QuestionKind::Permission,
            (None, false) => QuestionKind::Choice,
            (None, true) => QuestionKind::Text,
        }
    }

    /// Reads an answer as a user writes it: yes or no for a permission, one of the options or its number for a choice. `no`
    /// may be followed by a comma and the reason, which the model reads.
    ///
    /// # Errors
    /// Fails if the text does not answer the question.
    pub fn read_answer(&self, text: &str) -> Result<Answer, UnclearAnswer> {
        let text = text.trim();
        let unclear = |expected: String| Err(UnclearAnswer { text: text.to_owned(), expected });
        match self.kind() {
            QuestionKind::Permission => {
                let end = text.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(text.len());
                let (word, rest) = text.split_at(end);
                let reason = rest.trim_start_matches([',', '.', ':', ';', '-', ' ']).trim();
                match (word.to_ascii_lowercase().as_str(), reason) {
                    ("y" | "yes", "") => Ok(Answer::Yes),
                    ("n" | "no", "") => Ok(Answer::No),
                    ("n" | "no", reason) => Ok(Answer::Text(reason.to_owned())),
                    _ => unclear("`yes`, `no`, or `no, REASON`".to_owned()),
                }
            }
            QuestionKind::Choice => {
                let numbered = text.parse::<usize>().ok().and_then(|number| self.options.get(number.checked_sub(1)?));
                let named = self.options.iter().find(|option| option.eq_ignore_ascii_case(text));
                match self.options.iter().find(|option| *option == text).or(named).or(numbered) {
                    Some(option) => Ok(Answer::Text(option.clone())),
                    None => unclear(format!("one of {}", self.options.join(", "))),
                }
            }
            QuestionKind::Text if text.is_empty() => unclear("a text".to_owned()),
            QuestionKind::Text => Ok(Answer::Text(text.to_owned())),
        }
    }
}

/// A text that does not answer a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not answer this question: use {expected}")]
#[non_exhaustive]
pub struct UnclearAnswer {
    /// The text.
    pub text: String,
    /// Description of the answers that are possible.
    pub expected: String,
}

/// The form of answer that a question expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// Yes or no.
    Permission,
    /// One of the options.
    Choice,
    /// Free text.
    Text,
}

/// The user's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Free text, or one of the options. To a request for approval it is the reason why the user declined.
    Text(String),
    /// No user was present, or no answer arrived in time.
    #[serde(rename = "nobody")] // the name in recordings, from when no user could be asked
    Unavailable,
}

/// Identity of a question: its call, the arguments of the call, and its text. Displayed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(u64);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl QuestionId {
    /// Returns the beginning that a user types.
    pub fn short(self) -> String {
        self.to_string()[..8].to_owned()
    }
}

/// A text that is not the ID of a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the ID of a question")]
pub struct NotAQuestionId(pub String);

impl FromStr for QuestionId {
    type Err = NotAQuestionId;

    fn from_str(text: &str) -> Result<Self, NotAQuestionId> {
        u64::from_str_radix(text, 16).map(Self).map_err(|_| NotAQuestionId(text.to_owned()))
    }
}

impl Serialize for QuestionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QuestionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A question that waits for an answer, as hosts show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// ID of the question.
    pub id: QuestionId,
    /// The run that asks.
    pub run: Uuid,
    /// Its place.
    pub place: Place,
    /// Name of its agent.
    pub agent: String,
    /// The form of answer that is expected.
    pub kind: QuestionKind,
    /// The question.
    #[serde(flatten)]
    pub question: Question,
}

impl OpenQuestion {
    pub(crate) fn new(run: &Run, id: QuestionId, question: &Question) -> Self {
        let agent = run.spawned.agent.name.clone();
        let mut question = question.clone();
        if question.call.is_unknown() {
            question.call = run.questions().call(question.key).unwrap_or_default();
        }
        Self { id, run: run.id, place: run.place.clone(), agent, kind: question.kind(), question }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(rule: Option<&str>, options: &[&str]) -> Question {
        let key = CallKey { run: Uuid::nil(), turn: 1, index: 0 };
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Question { options, rule: rule.map(str::to_owned), ..Question::new("?", key) }
    }

    #[test]
    fn answers_are_read_by_the_kind_of_question() {
        let permission = question(Some("bash (user)"), &[]);
        assert_eq!(permission.read_answer(" Yes "), Ok(Answer::Yes));
        assert_eq!(permission.read_answer("n"), Ok(Answer::No));
        assert_eq!(permission.read_answer("No, use rg"), Ok(Answer::Text("use rg".into())));
        assert_eq!(permission.read_answer("no, "), Ok(Answer::No));
        assert!(permission.read_answer("perhaps").unwrap_err().to_string().contains("`yes`, `no`, or `no, REASON`"));
        let choice = question(None, &["SQLite", "Postgres"]);
        assert_eq!(choice.read_answer("2"), Ok(Answer::Text("Postgres".into())));
        assert_eq!(choice.read_answer("sqlite"), Ok(Answer::Text("SQLite".into())));
        assert!(choice.read_answer("3").is_err());
        assert_eq!(question(None, &[]).read_answer("yes"), Ok(Answer::Text("yes".into())));
        assert!(question(None, &[]).read_answer(" ").is_err());
    }

    #[test]
    fn id_differs_by_call_arguments_and_text() {
        let one = question(Some("bash (user)"), &[]);
        let mut ids = vec![one.id()];
        ids.push(Question { args_hash: 7, ..one.clone() }.id());
        ids.push(Question { key: CallKey { index: 1, ..one.key }, ..one.clone() }.id());
        ids.push(Question { text: "!".into(), ..one.clone() }.id());
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(ids[0].to_string().parse(), Ok(ids[0]));
        assert_eq!(one.clone().id(), ids[0]);
    }
}
