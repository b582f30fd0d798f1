//! Agents made in code: say who it is, step by step, and have it checked once. It must not know files.

use serde_json::Value;

use crate::{
    authority::Allow,
    definition::{AgentDefinition, Inherit, ModelChoice, OnFailure},
    limits::Limits,
    rule::{Rule, RuleError},
};

/// Builds an [`AgentDefinition`] in code.
///
/// ```
/// use crate::agent_builder::AgentBuilder;
/// let agent = AgentBuilder::new("reviewer").description("Reviews code").prompt("Be strict.").tools(["read", "grep"]).build()?;
/// assert_eq!(agent.name, "reviewer");
/// # Ok::<(), crate::agent_builder::BadAgent>(())
/// ```
#[derive(Clone, Debug)]
pub struct AgentBuilder {
    agent: AgentDefinition,
    tools: Option<Vec<String>>,
    denied: Vec<String>,
}

/// Why an agent made in code is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentBuildError {
    /// Names are what models write, so they are plain.
    #[error(
        "`{0}` is no name for an agent: begin with a lower-case letter, go on with lower-case letters, digits and -"
    )]
    Name(String),
    /// The parent's model chooses by it.
    #[error("agent `{0}` has no description: say when to use it")]
    NoDescription(String),
    /// A rule cannot be read.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl AgentBuilder {
    /// An agent of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { agent: AgentDefinition::new(name, "", ""), tools: None, denied: Vec::new() }
    }

    /// When to use it; the parent's model reads this.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.agent.description = description.into();
        self
    }

    /// The system prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        self.agent.prompt = prompt.into();
        self
    }

    /// The tools it may use, as rules such as `read` or `bash(git log *)`; without this call, all that its parent grants.
    #[must_use]
    pub fn tools<'a>(mut self, rules: impl IntoIterator<Item = &'a str>) -> Self {
        self.tools = Some(rules.into_iter().map(str::to_owned).collect());
        self
    }

    /// Calls it may not make.
    #[must_use]
    pub fn deny<'a>(mut self, rules: impl IntoIterator<Item = &'a str>) -> Self {
        self.denied.extend(rules.into_iter().map(str::to_owned));
        self
    }

    /// The model it speaks with; the parent's by default.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.agent.model = ModelChoice::Named(vec![name.into()]);
        self
    }

    /// What it may spend.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.agent.limits = limits;
        self
    }

    /// Skills whose bodies stand in its prompt.
    #[must_use]
    pub fn skills<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.agent.skills.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Keys of the parent's context that it gets to see.
    #[must_use]
    pub fn shares<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.agent.shared_context.extend(keys.into_iter().map(str::to_owned));
        self
    }

    /// Which of the parent's messages it starts with.
    #[must_use]
    pub fn inherit(mut self, inherit: Inherit) -> Self {
        self.agent.inherit = inherit;
        self
    }

    /// JSON schema of its answer.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.agent.schema = Some(schema);
        self
    }

    /// What its failure means to the parent.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.agent.on_failure = on_failure;
        self
    }

    /// The agent, or what is wrong with it.
    pub fn build(self) -> Result<AgentDefinition, AgentBuildError> {
        let mut agent = self.agent;
        if !is_name(&agent.name) {
            return Err(AgentBuildError::Name(agent.name));
        }
        if agent.description.trim().is_empty() {
            return Err(AgentBuildError::NoDescription(agent.name));
        }
        let read = |rules: Vec<String>| rules.iter().map(|rule| rule.parse()).collect::<Result<Vec<Rule>, _>>();
        if let Some(tools) = self.tools {
            agent.tools = Allow::Only(read(tools)?);
        }
        agent.denied = read(self.denied)?;
        Ok(agent)
    }
}

/// Whether agents and teams may be called this.
pub fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r42_an_agent_is_made_in_code_and_checked_once() {
        let agent = AgentBuilder::new("coder")
            .description("Writes code")
            .prompt("Write code.")
            .tools(["read", "bash(cargo *)"])
            .deny(["bash(cargo publish*)"])
            .model("fast")
            .limits(Limits::small())
            .build()
            .unwrap();
        assert_eq!(agent.tools, Allow::Only(vec![Rule::tool("read"), Rule::calls("bash", "cargo *")]));
        assert_eq!(agent.model, ModelChoice::Named(vec!["fast".into()]));
        assert_eq!(agent.denied.len(), 1);
    }

    #[test]
    fn r42_what_is_wrong_with_an_agent_is_said_in_words() {
        let bad = AgentBuilder::new("Not A Name").description("d").build().unwrap_err();
        assert!(bad.to_string().contains("lower-case"), "{bad}");
        assert_eq!(AgentBuilder::new("mute").build(), Err(AgentBuildError::NoDescription("mute".into())));
        assert!(AgentBuilder::new("a").description("d").tools(["read("]).build().is_err());
    }
}
