//! `AgentBuilder`: builds an agent definition in code and validates it once. It does not depend on agent files.

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
/// use homing_core::agent_builder::{AgentBuildError, AgentBuilder};
/// let agent = AgentBuilder::new("reviewer").description("Reviews code").prompt("Be strict.").tools(["read", "grep"]).build()?;
/// assert_eq!(agent.name, "reviewer");
/// # Ok::<(), AgentBuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AgentBuilder {
    agent: AgentDefinition,
    tools: Option<Vec<String>>,
    denied: Vec<String>,
}

/// Error of [`AgentBuilder::build`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentBuildError {
    /// The name is not valid. Models write agent names, so only plain ones are accepted.
    #[error("`{0}` is not a valid agent name: use lower-case letters, digits and -, starting with a letter")]
    Name(String),
    /// The description is missing; the parent's model chooses agents by it.
    #[error("agent `{0}` has no description: say when to use it")]
    NoDescription(String),
    /// A permission rule cannot be parsed.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl AgentBuilder {
    /// Starts an agent with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { agent: AgentDefinition::new(name, "", ""), tools: None, denied: Vec::new() }
    }

    /// Sets the description, which the parent's model reads to decide when to use the agent.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.agent.description = description.into();
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        self.agent.prompt = prompt.into();
        self
    }

    /// Sets the tools it may use, as rules such as `read` or `bash(git log *)`. Default: everything its parent grants.
    #[must_use]
    pub fn tools<'a>(mut self, rules: impl IntoIterator<Item = &'a str>) -> Self {
        self.tools = Some(rules.into_iter().map(str::to_owned).collect());
        self
    }

    /// Adds rules for calls that it may not make.
    #[must_use]
    pub fn deny<'a>(mut self, rules: impl IntoIterator<Item = &'a str>) -> Self {
        self.denied.extend(rules.into_iter().map(str::to_owned));
        self
    }

    /// Sets the model. Default: the parent's.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.agent.model.choice = ModelChoice::Named(vec![name.into()]);
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.agent.limits = limits;
        self
    }

    /// Adds skills whose bodies are included in its prompt.
    #[must_use]
    pub fn skills<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.agent.attachments.skills.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds keys of the parent's context that it can see.
    #[must_use]
    pub fn shares<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.agent.context.shared_context.extend(keys.into_iter().map(str::to_owned));
        self
    }

    /// Sets the part of the parent's transcript that it starts with.
    #[must_use]
    pub fn inherit(mut self, inherit: Inherit) -> Self {
        self.agent.context.inherit = inherit;
        self
    }

    /// Sets the JSON schema of its answer.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.agent.task.schema = Some(schema);
        self
    }

    /// Sets the effect of its failure on the parent.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.agent.task.on_failure = on_failure;
        self
    }

    /// Validates the agent and returns its definition.
    ///
    /// # Errors
    /// Fails if the name or a rule is not valid, or the description is missing.
    pub fn build(self) -> Result<AgentDefinition, AgentBuildError> {
        let mut agent = self.agent;
        if !is_name(&agent.name) {
            return Err(AgentBuildError::Name(agent.name));
        }
        if agent.description.trim().is_empty() {
            return Err(AgentBuildError::NoDescription(agent.name));
        }
        let parse = |rules: Vec<String>| rules.iter().map(|rule| rule.parse()).collect::<Result<Vec<Rule>, _>>();
        if let Some(tools) = self.tools {
            agent.tools.allowed = Allow::Only(parse(tools)?);
        }
        agent.tools.denied = parse(self.denied)?;
        Ok(agent)
    }
}

/// Returns whether `name` is valid for an agent or a team.
pub fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r42_builder_makes_a_definition() {
        let agent = AgentBuilder::new("coder")
            .description("Writes code")
            .prompt("Write code.")
            .tools(["read", "bash(cargo *)"])
            .deny(["bash(cargo publish*)"])
            .model("fast")
            .limits(Limits::small())
            .build()
            .unwrap();
        assert_eq!(agent.tools.allowed, Allow::Only(vec![Rule::tool("read"), Rule::calls("bash", "cargo *")]));
        assert_eq!(agent.model.choice, ModelChoice::Named(vec!["fast".into()]));
        assert_eq!(agent.tools.denied.len(), 1);
    }

    #[test]
    fn r42_builder_rejects_bad_name_description_or_rule() {
        let bad = AgentBuilder::new("Not A Name").description("d").build().unwrap_err();
        assert!(bad.to_string().contains("lower-case"), "{bad}");
        assert_eq!(AgentBuilder::new("mute").build(), Err(AgentBuildError::NoDescription("mute".into())));
        assert!(AgentBuilder::new("a").description("d").tools(["read("]).build().is_err());
    }
}
