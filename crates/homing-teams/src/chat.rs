//! Chats: several agents and one conversation that all of them see.

pub(crate) mod script;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{crew::OnFailure, limit_fields::LimitFields};

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Chat {
    /// Who takes part, in the order of a round.
    pub members: Vec<String>,
    /// Who speaks next.
    pub next: NextSpeaker,
    /// The rules by which the next speaker is found; the first that holds decides.
    pub rules: Vec<SpeakerRule>,
    /// The agent that chooses the next speaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// How many contributions there are at most.
    pub max_rounds: u32,
    /// The conversation ends when one of these is said.
    pub stop_words: Vec<String>,
    /// The agent that sums up in the end; without one, the last contribution is the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What each contribution may cost.
    pub limits: LimitFields,
    /// Consequence of a speaker or selector that failed. By default a failed selector, and a failed last speaker where
    /// there is no summary, fail the chat. With `skip` the next in the round speaks instead, and the answer is the last
    /// contribution that was made; `fail` ends the chat at the first failure.
    pub on_failure: OnFailure,
}

/// Who speaks next. Where the way that was chosen names nobody who takes part, it is the next in the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NextSpeaker {
    /// Everybody in turn.
    #[default]
    RoundRobin,
    /// Whom the rules name.
    Rule,
    /// Whom the selector chooses.
    Model,
    /// Whom the last speaker hands over to, by writing `@name`.
    Handoff,
}

/// Who speaks under which condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeakerRule {
    /// A condition over `last` (`speaker`, `text`), `round` and `task`.
    pub when: String,
    /// Who speaks if it holds.
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
            on_failure: OnFailure::default(),
        }
    }
}

impl Chat {
    /// A conversation of these, in turn.
    pub fn new<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        Self { members: members.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// How many contributions there are at most.
    #[must_use]
    pub fn max_rounds(mut self, rounds: u32) -> Self {
        self.max_rounds = rounds;
        self
    }

    /// The agent that chooses who speaks next.
    #[must_use]
    pub fn selected_by(mut self, selector: impl Into<String>) -> Self {
        (self.next, self.selector) = (NextSpeaker::Model, Some(selector.into()));
        self
    }

    /// Lets speakers hand over by writing `@name`.
    #[must_use]
    pub fn handing_off(mut self) -> Self {
        self.next = NextSpeaker::Handoff;
        self
    }

    /// One more rule for who speaks next.
    #[must_use]
    pub fn rule(mut self, when: impl Into<String>, speaker: impl Into<String>) -> Self {
        self.next = NextSpeaker::Rule;
        self.rules.push(SpeakerRule { when: when.into(), speaker: speaker.into() });
        self
    }

    /// A word that ends the conversation.
    #[must_use]
    pub fn stop_word(mut self, word: impl Into<String>) -> Self {
        self.stop_words.push(word.into());
        self
    }

    /// The agent that sums up.
    #[must_use]
    pub fn summary(mut self, agent: impl Into<String>) -> Self {
        self.summary = Some(agent.into());
        self
    }

    /// Consequence of a speaker or selector that failed.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    pub(crate) fn everybody(&self) -> Vec<&str> {
        self.members.iter().chain(&self.selector).chain(&self.summary).map(String::as_str).collect()
    }

    pub(crate) fn size(&self) -> u64 {
        u64::from(self.max_rounds) * 2 + 1
    }
}
