//! `Task`: what a host submits to the runtime.

use std::{collections::BTreeMap, path::PathBuf};

use homing_core::{
    authority::Grant,
    limits::Limits,
    message::{Attachment, Message},
};
use serde_json::Value;

use crate::handle::RunHandle;

/// A task for an agent.
///
/// # Examples
///
/// ```
/// # use homing_runtime as homing;
/// use homing::Task;
/// use serde_json::json;
///
/// let task = Task::new("reviewer", "Review {{file}}").set("file", "src/lib.rs").tag("ticket", "42").schema(json!({"type": "object"}));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Task {
    /// The agent to run.
    pub agent: String,
    /// The text of the task.
    pub text: String,
    /// Files that belong to the task.
    pub attachments: Vec<Attachment>,
    /// Limits of the run; the agent's own limits and the defaults apply where it sets none.
    pub limits: Limits,
    /// The model to use instead of the agent's own.
    pub model: Option<String>,
    /// Values that replace `{{key}}` in prompts; children get those that their definition names.
    pub context: BTreeMap<String, Value>,
    /// Messages before the task.
    pub history: Vec<Message>,
    /// The working folder, instead of the runtime's.
    pub workdir: Option<PathBuf>,
    /// The most that the run may do, instead of the runtime's policy.
    pub policy: Option<Grant>,
    /// The JSON schema of the answer.
    pub schema: Option<Value>,
    /// A command that must succeed before the run is done.
    pub until: Option<String>,
    /// The budget account to charge.
    pub account: Option<String>,
    /// Labels to find the run by.
    pub tags: BTreeMap<String, String>,
    /// The skill whose text is the task: its effort and its rules on tools apply to the run.
    pub skill: Option<String>,
    /// Warnings of the host, which are added to those of the run.
    pub warnings: Vec<String>,
}

impl Task {
    /// A task with this text for `agent`.
    pub fn new(agent: impl Into<String>, text: impl Into<String>) -> Self {
        Self { agent: agent.into(), text: text.into(), ..Self::default() }
    }

    /// A task that continues the conversation of an earlier run: the same agent, model, folder, context, account and authority,
    /// with the run's messages before `text`. Limits, schema and tags are those of a new task.
    pub fn continuing(run: &RunHandle, text: impl Into<String>) -> Self {
        run.continuation(text.into())
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the model to use instead of the agent's own.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Attaches a file: a text becomes a part of the task, an image or a PDF document follows it.
    #[must_use]
    pub fn attach(mut self, attachment: Attachment) -> Self {
        self.attachments.push(attachment);
        self
    }

    /// Sets a value of the context.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.insert(key.into(), value.into());
        self
    }

    /// Sets the JSON schema of the answer.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets the command that must succeed before the run is done.
    #[must_use]
    pub fn until(mut self, command: impl Into<String>) -> Self {
        self.until = Some(command.into());
        self
    }

    /// Sets the budget account to charge.
    #[must_use]
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into());
        self
    }

    /// Sets the messages before the task.
    #[must_use]
    pub fn history(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.history = messages.into_iter().collect();
        self
    }

    /// Sets the most that the run may do, instead of the runtime's policy.
    #[must_use]
    pub fn policy(mut self, policy: Grant) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Sets the skill whose text is the task.
    #[must_use]
    pub fn skill(mut self, skill: impl Into<String>) -> Self {
        self.skill = Some(skill.into());
        self
    }

    /// Adds a warning of the host to those of the run.
    #[must_use]
    pub fn warning(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn workdir(mut self, workdir: impl Into<PathBuf>) -> Self {
        self.workdir = Some(workdir.into());
        self
    }
}
