//! `RuntimeParts`: what a host supplies to a runtime, such as models, tools, the journal and the handler of questions.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    BoxFuture,
    authority::{Grant, Network, Sandbox},
    hooks::Hooks,
    model::Models,
    registry::Registry,
    skill::SkillLibrary,
    tool::{AgentToolSource, Answer, Question, Tool},
    workspace::Workspaces,
};

use crate::{
    clock::Sources,
    config::RuntimeConfig,
    journal::{FactListener, Journal},
    prompt::PromptContext,
};

/// The parts that a host supplies.
pub struct RuntimeParts {
    /// The agent definitions.
    pub registry: Arc<Registry>,
    /// The models.
    pub models: Arc<dyn Models>,
    /// The tools of the host; a run's authority decides which of them it gets.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The tools that agents supply in addition, each for its own runs and their descendants.
    pub agent_tools: Option<Arc<dyn AgentToolSource>>,
    /// The skills.
    pub skills: Option<Arc<dyn SkillLibrary>>,
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// The clock and the source of ids.
    pub sources: Sources,
    /// The most that a root may do.
    pub policy: Grant,
    /// The folder of roots whose task names none.
    pub workdir: PathBuf,
    /// Returns the text about a folder that goes into prompts.
    pub prompt_context: Arc<dyn Fn(&Path) -> PromptContext + Send + Sync>,
    /// The user's hooks.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Creates the worktrees of runs that have their own.
    pub workspaces: Option<Arc<dyn Workspaces>>,
    /// Answers questions and requests for approval.
    pub permission_handler: Option<Arc<dyn PermissionHandler>>,
    /// Called with every record once it is durable, in order per tree. Must not block.
    pub on_fact: Option<FactListener>,
    /// The configuration of the runtime itself.
    pub config: RuntimeConfig,
}

impl RuntimeParts {
    /// Parts with the system clock, no tools, and a policy that allows every tool but no folder and no network.
    pub fn new(registry: Registry, models: Arc<dyn Models>, journal: Arc<dyn Journal>) -> Self {
        let policy = Grant::new(Vec::new()).network(Network::Off).sandbox(Sandbox::ReadOnly);
        Self {
            registry: Arc::new(registry),
            models,
            tools: Vec::new(),
            agent_tools: None,
            skills: None,
            journal,
            sources: Sources::default(),
            policy,
            workdir: PathBuf::from("."),
            prompt_context: Arc::new(|_| PromptContext::default()),
            hooks: None,
            workspaces: None,
            permission_handler: None,
            on_fact: None,
            config: RuntimeConfig::default(),
        }
    }
}

/// Answers the questions of runs and their requests for approval.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::{BoxFuture, question::{Answer, Question}}; pub use homing_runtime::PermissionHandler; }
/// use homing::{Answer, BoxFuture, PermissionHandler, Question};
///
/// /// Approves what the agent `releaser` asks for.
/// struct Releases;
///
/// impl PermissionHandler for Releases {
///     fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
///         Box::pin(async move { if question.call.agent == "releaser" { Answer::Yes } else { Answer::No } })
///     }
/// }
/// ```
pub trait PermissionHandler: Send + Sync {
    /// Answers a question; the runtime stops waiting after the time in [`RuntimeConfig::on_question`].
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}
