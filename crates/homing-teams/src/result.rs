//! The result of a team, as a view of its envelope: the answer, the runs, the usage.

use homing_core::envelope::{Envelope, EnvelopeError, EnvelopeUsage, Status};
use serde_json::Value;

use crate::team::MODEL_PREFIX;

/// The result of a team.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::envelope::Envelope; pub use homing_teams::TeamResult; }
/// use homing::{Envelope, TeamResult};
///
/// /// Returns the answer, and how many runs it took.
/// fn summary(result: &Envelope) -> String {
///     let team = TeamResult::from(result);
///     format!("{} ({} runs, {} tokens)", team.answer, team.executions.len(), team.total_tokens())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TeamResult {
    /// The final answer, or the partial result of a team that did not finish.
    pub answer: String,
    /// The structured answer.
    pub data: Option<Value>,
    /// Status of the team.
    pub status: Status,
    /// The parts that failed, if the team failed.
    pub error: Option<EnvelopeError>,
    /// The runs of the team, in the order of the tree.
    pub executions: Vec<Execution>,
    /// Usage of the whole team.
    pub total: EnvelopeUsage,
    /// The tree as indented lines.
    pub tree: String,
}

/// One run of a team.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Execution {
    /// Its place in the tree.
    pub place: String,
    /// Name of its agent.
    pub agent: String,
    /// Its status.
    pub status: Status,
    /// Its answer.
    pub output: String,
    /// Its own usage, without child runs.
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

/// Returns whether this is the result of a team, whose model is a program.
pub fn is_team(envelope: &Envelope) -> bool {
    envelope.model.starts_with(MODEL_PREFIX)
}

impl From<&Envelope> for TeamResult {
    fn from(envelope: &Envelope) -> Self {
        let execution = |run: &Envelope| Execution {
            place: run.place.to_string(),
            agent: run.agent.clone(),
            status: run.status,
            output: run.output.clone(),
            usage: run.usage,
        };
        Self {
            answer: envelope.output.clone(),
            data: envelope.data.as_deref().cloned(),
            status: envelope.status,
            error: envelope.error.clone(),
            executions: envelope.all().into_iter().skip(1).map(execution).collect(),
            total: envelope.subtree,
            tree: envelope.tree(),
        }
    }
}
