//! Chats: agents that take turns in one conversation.

pub(crate) mod script;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{code::Code, crew::OnTaskFailure, limit_fields::LimitFields};

/// A conversation between agents.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::{Chat, Team};
///
/// let chat = Chat::new(["optimist", "critic"]).max_rounds(6).stop_word("AGREED").summary("editor");
/// assert_eq!(Team::new("debate", chat).members(), ["optimist", "critic", "editor"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A conversation between agents.")]
#[serde(deny_unknown_fields, default)]
pub struct Chat {
    /// Agents that take part, in the order of a round.
    pub members: Vec<String>,
    /// Choice of the next speaker.
    pub next: NextSpeaker,
    /// Rules that choose the next speaker; the first whose condition holds applies.
    pub rules: Vec<SpeakerRule>,
    /// Agent that chooses the next speaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Maximum number of contributions.
    pub max_rounds: u32,
    /// Words that end the conversation when a contribution contains one.
    pub stop_words: Vec<String>,
    /// Agent that sums up at the end; without one, the answer is the last contribution that is more than a stop word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Limits of each contribution.
    pub limits: LimitFields,
    /// Consequence of a speaker or selector that failed. By default a failed selector, and a failed last speaker of a
    /// chat without a summary, fail the chat. With `skip` the next in the round speaks instead, and the answer is the last
    /// contribution that was made; `fail` ends the chat at the first failure.
    pub on_failure: OnTaskFailure,
    /// Selector in code.
    #[serde(skip)]
    pub(crate) select: Code<SelectFn>,
}

/// A selector in code: the next speaker after this conversation.
pub(crate) type SelectFn = dyn Fn(&[ChatMessage]) -> Option<String> + Send + Sync;

/// A contribution to a chat, as a selector in code sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatMessage {
    /// The member that spoke, or `user`.
    pub speaker: String,
    /// Its words.
    pub text: String,
}

/// Choice of the next speaker. If it names no member of the chat, the next in the round speaks, or the same speaker again if
/// speakers hand over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NextSpeaker {
    /// All members in turn.
    #[default]
    RoundRobin,
    /// The member that the rules name.
    Rule,
    /// The member that the selector chooses.
    Model,
    /// The member that the last speaker names as `@name`.
    Handoff,
}

/// A condition under which a member speaks next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SpeakerRule {
    /// A condition over `last` (`speaker`, `text`), `round` and `task`.
    pub when: String,
    /// Member that speaks if the condition holds.
    pub speaker: String,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            next: NextSpeaker::default(),
            rules: Vec::new(),
            selector: None,
            max_rounds: 10,
            stop_words: Vec::new(),
            summary: None,
            limits: LimitFields::default(),
            on_failure: OnTaskFailure::default(),
            select: Code::default(),
        }
    }
}

impl Chat {
    /// Creates a conversation of these agents, in turn.
    pub fn new<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        Self { members: members.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Sets the maximum number of contributions.
    #[must_use]
    pub fn max_rounds(mut self, rounds: u32) -> Self {
        self.max_rounds = rounds;
        self
    }

    /// Sets the agent that chooses the next speaker.
    #[must_use]
    pub fn selected_by(mut self, selector: impl Into<String>) -> Self {
        (self.next, self.selector) = (NextSpeaker::Model, Some(selector.into()));
        self
    }

    /// Lets a function of the conversation choose the next speaker; `None`, or a name that is not a member, is the next in the
    /// round. It must be pure: it is called again after a crash.
    #[must_use]
    pub fn selected_with(mut self, select: impl Fn(&[ChatMessage]) -> Option<String> + Send + Sync + 'static) -> Self {
        self.select = Code(Some(Arc::new(select)));
        self
    }

    /// Lets speakers name the next speaker as `@name`.
    #[must_use]
    pub fn handing_off(mut self) -> Self {
        self.next = NextSpeaker::Handoff;
        self
    }

    /// Adds a rule for the next speaker.
    #[must_use]
    pub fn rule(mut self, when: impl Into<String>, speaker: impl Into<String>) -> Self {
        self.next = NextSpeaker::Rule;
        self.rules.push(SpeakerRule { when: when.into(), speaker: speaker.into() });
        self
    }

    /// Adds a word that ends the conversation.
    #[must_use]
    pub fn stop_word(mut self, word: impl Into<String>) -> Self {
        self.stop_words.push(word.into());
        self
    }

    /// Sets the agent that sums up.
    #[must_use]
    pub fn summary(mut self, agent: impl Into<String>) -> Self {
        self.summary = Some(agent.into());
        self
    }

    /// Sets the consequence of a speaker or selector that failed.
    #[must_use]
    pub fn on_failure(mut self, policy: OnTaskFailure) -> Self {
        self.on_failure = policy;
        self
    }

    pub(crate) fn participants(&self) -> Vec<&str> {
        self.members.iter().chain(&self.selector).chain(&self.summary).map(String::as_str).collect()
    }

    pub(crate) fn size(&self) -> u64 {
        u64::from(self.max_rounds) * 2 + 1
    }
}
