//! Workflow scripts: a team whose program is a JavaScript file, as in `.claude/workflows`.
//!
//! The script is executed from its beginning at every step, and is told how its agents ended in the order in which the team
//! learned of it. It reads no files, clock or random numbers, so it asks for the same agents again, and those that have ended
//! are not started again.

#[cfg(feature = "scripts")]
mod engine;
mod load;
mod meta;
#[cfg(feature = "scripts")]
mod program;

use homing_core::definition::AgentDefinition;
use serde::{Deserialize, Serialize};

use crate::team::{Pattern, Team};

pub(crate) use self::load::{is_script, load};
#[cfg(feature = "scripts")]
pub(crate) use self::program::ScriptProgram;

/// A workflow script.
///
/// # Examples
///
/// ```
/// # use homing_teams as teams;
/// use teams::{Script, Team};
///
/// let text = "
/// export const meta = { name: 'greet', description: 'Greets twice' }
/// const first = await agent('Greet the user')
/// return [first, await agent('Greet the user again')]
/// ";
/// let team = Team::script("greet", Script::new(text));
/// assert_eq!(team.name, "greet");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Script {
    /// The text of the script, with its header.
    pub source: String,
    /// The file of the script, for messages; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl Script {
    /// Creates a script from its text.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), path: String::new() }
    }

    /// The prefix of a message about the script, such as `review.js:7:5: `.
    #[cfg(feature = "scripts")]
    fn at(&self, position: Option<(u32, u32)>) -> String {
        let path = if self.path.is_empty() { "script" } else { &self.path };
        match position {
            Some((line, column)) => format!("{path}:{line}:{column}: "),
            None => format!("{path}: "),
        }
    }
}

impl From<Script> for Pattern {
    fn from(pattern: Script) -> Self {
        Self::Script(pattern)
    }
}

/// The agent that works for `agent()` without an `agentType`.
fn default_agent(team: &str) -> AgentDefinition {
    AgentDefinition::new(default_agent_name(team), format!("Works for the workflow `{team}`."), DEFAULT_PROMPT)
}

/// The name of the agent that works for `agent()` without an `agentType`.
pub(crate) fn default_agent_name(team: &str) -> String {
    format!("{team}-agent")
}

const DEFAULT_PROMPT: &str = "\
You work on one step of a workflow. A script gave you this task, and it reads your answer: your last message is returned to it \
unchanged.
Use your tools to complete the task. Then answer with the result alone: no greeting, no confirmation, no explanation of what \
you did. If you are asked for JSON, answer with nothing but the JSON.";

impl Team {
    /// Creates a team whose program is a script.
    pub fn script(name: impl Into<String>, script: Script) -> Self {
        let name = name.into();
        let agent = default_agent(&name);
        Self::new(name, script).agent(agent)
    }
}
