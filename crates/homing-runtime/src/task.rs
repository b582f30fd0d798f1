//! What a host hands over to have something done.

use std::{collections::BTreeMap, path::PathBuf};

use homing_core::{authority::Grant, limits::Limits, message::Message};
use serde_json::Value;

/// A piece of work for an agent.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Task {
    /// Who is to do it.
    pub agent: String,
    /// What is to be done.
    pub text: String,
    /// What it may spend; the agent's own limits and the defaults fill in what is left open.
    pub limits: Limits,
    /// The model, whatever the agent's file says.
    pub model: Option<String>,
    /// Keys that the agent and, by name, its children get to see; `{{key}}` in prompts stands for them.
    pub context: BTreeMap<String, Value>,
    /// Messages to start with, before the task.
    pub history: Vec<Message>,
    /// The folder to work in, if not the runtime's.
    pub workdir: Option<PathBuf>,
    /// What it may do at most, if not what the runtime's policy says.
    pub policy: Option<Grant>,
    /// JSON schema of the answer.
    pub schema: Option<Value>,
    /// A command that must succeed before it is done.
    pub until: Option<String>,
    /// The same key twice is the same run.
    pub key: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// Labels for finding it again.
    pub tags: BTreeMap<String, String>,
    /// What the host has to say about it beforehand; it stands in the run's warnings.
    pub warnings: Vec<String>,
}

impl Task {
    /// `text` for `agent`.
    pub fn new(agent: impl Into<String>, text: impl Into<String>) -> Self {
        Self { agent: agent.into(), text: text.into(), ..Self::default() }
    }

    /// What it may spend.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The model, whatever the agent's file says.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// A key of the context.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.insert(key.into(), value.into());
        self
    }

    /// JSON schema of the answer.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The submission's key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A label.
    #[must_use]
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// The folder to work in.
    #[must_use]
    pub fn workdir(mut self, workdir: impl Into<PathBuf>) -> Self {
        self.workdir = Some(workdir.into());
        self
    }
}
