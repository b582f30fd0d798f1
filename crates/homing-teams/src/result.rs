//! What a team brought: the final answer, who did what, what it cost. A view of the envelope, nothing more.

use homing_core::envelope::{Envelope, EnvelopeError, EnvelopeUsage, Status};
use serde_json::Value;

/// The result of a team.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TeamResult {
    /// The final answer, or what there was by then.
    pub answer: String,
    /// The answer for programs.
    pub data: Option<Value>,
    /// How the team ended.
    pub status: Status,
    /// The parts that failed, if the team failed.
    pub error: Option<EnvelopeError>,
    /// Every run that worked for the team, in the order of the tree.
    pub executions: Vec<Execution>,
    /// What all of it used.
    pub total: EnvelopeUsage,
    /// The tree as indented lines.
    pub tree: String,
}

/// One run that worked for a team.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Execution {
    /// Its place in the tree.
    pub place: String,
    /// Who worked.
    pub agent: String,
    /// How it ended.
    pub status: Status,
    /// What it answered.
    pub output: String,
    /// What it used itself.
    pub usage: EnvelopeUsage,
}

impl TeamResult {
    /// Tokens of the whole team.
    pub fn total_tokens(&self) -> u64 {
        self.total.input + self.total.output
    }

    /// Turns of the whole team.
    pub fn total_steps(&self) -> u64 {
        self.total.turns
    }
}

impl From<&Envelope> for TeamResult {
    fn from(envelope: &Envelope) -> Self {
        let execution = |it: &Envelope| Execution {
            place: it.place.to_string(),
            agent: it.agent.clone(),
            status: it.status,
            output: it.output.clone(),
            usage: it.usage,
        };
        Self {
            answer: envelope.output.clone(),
            data: envelope.data.clone(),
            status: envelope.status,
            error: envelope.error.clone(),
            executions: envelope.all().into_iter().skip(1).map(execution).collect(),
            total: envelope.subtree,
            tree: envelope.tree(),
        }
    }
}
