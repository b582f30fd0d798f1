//! `HomingBuilder`: assembles agents, models, tools, journal and permissions into a [`Homing`]. Anything the host does not
//! ask for is not read, opened or started.

mod journal_choice;
mod model_source;
#[cfg(not(feature = "providers"))]
mod own_models;
mod permissions;
mod tool_sources;
#[cfg(feature = "shell")]
mod unstarted;

use std::{fmt, path::PathBuf, sync::Arc};

use homing_core::{
    definition::AgentDefinition,
    diagnostic::Diagnostic,
    fact::Record,
    model::{Model, Models},
    registry::Registry,
    rule::RuleError,
    tool::Tool,
};
use homing_runtime::{
    PermissionHandler, Runtime, RuntimeConfig, RuntimeParts,
    journal::{FactListener, JournalError},
};

pub use self::{
    journal_choice::JournalChoice,
    permissions::{IntoRule, Permissions},
    tool_sources::{Extensions, ToolWrapper},
};
use self::{model_source::ModelSource, tool_sources::ToolSources};
use crate::{Homing, PendingApproval};

/// An error of [`HomingBuilder::build`].
///
/// # Examples
///
/// ```
/// use homing::{AgentDefinition, BuildError, Homing};
///
/// let built = Homing::builder().agent(AgentDefinition::new("a", "d", "p")).build();
/// assert!(matches!(built, Err(BuildError::NoModels)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no model to use.
    #[error("no models are configured: add one with `.own_model(…)`, or call `.keys_from_env()`")]
    NoModels,
    /// The working folder does not exist.
    #[error("cannot use {0} as the working folder: {1}")]
    NoFolder(PathBuf, std::io::Error),
    /// The working folder holds the user's keys or this program's own data.
    #[error("agents cannot work in {0}: {1}")]
    RefusedFolder(PathBuf, String),
    /// A team is invalid.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Team(Vec<Diagnostic>),
    /// This program cannot be started as the helper that supervises commands.
    #[error(
        "no program can supervise commands: call `homing::run_helper_if_asked()` first in `main`, install `homing-helper` beside \
         this program, or leave commands out with `.without_commands()`"
    )]
    NoHelper,
    /// A permission rule cannot be parsed.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A definition needs a feature of this crate that is turned off.
    #[error(transparent)]
    MissingFeature(#[from] crate::MissingFeature),
    /// An agent has hooks or MCP servers, and this builder has no coding setup, which would start them.
    #[error(
        "agent {agent} has {what}, which only a coding setup starts: add one with `.coding_setup(…)`, or remove them"
    )]
    NeedsCodingSetup {
        /// Name of the agent.
        agent: String,
        /// Its hooks or MCP servers.
        what: &'static str,
    },
    /// The folder for the journal is not known.
    #[error(
        "there is no folder for the journal, because HOME is not set: name a file with `.journal(path)`, or turn it off"
    )]
    NoHome,
}

/// Builds a [`Homing`].
///
/// # Examples
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use homing::{
///     AgentDefinition, Homing, Permissions, Task, model_fn, testing::say,
/// };
///
/// let homing = Homing::builder()
///     .agent(AgentDefinition::new("greeter", "Greets", "Greet the user."))
///     .own_model(model_fn("demo/hello", |_| Ok(say("Hello!"))))
///     .permissions(Permissions::default().deny(["bash"]))
///     .build()?;
/// assert_eq!(homing.spawn(Task::new("greeter", "hi"))?.await.output, "Hello!");
/// # Ok(())
/// # }
/// ```
pub struct HomingBuilder {
    pub(crate) registry: Registry,
    #[cfg(feature = "teams")]
    pub(crate) teams: Vec<homing_teams::Team>,
    #[cfg(all(feature = "tools", feature = "teams"))]
    pub(crate) found_teams: Vec<crate::team_files::FoundTeam>,
    models: ModelSource,
    pub(crate) tools: ToolSources,
    pub(crate) permissions: Permissions,
    journal: JournalChoice,
    permission_handler: Option<Arc<dyn PermissionHandler>>,
    fact_listener: Option<FactListener>,
    pub(crate) config: RuntimeConfig,
    workdir: PathBuf,
    #[cfg(feature = "tools")]
    has_project_context: bool,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) pending: Vec<PendingApproval>,
    #[cfg(feature = "tools")]
    coding_setup: Option<crate::CodingSetup>,
}

impl fmt::Debug for HomingBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomingBuilder").field("agents", &self.registry.len()).finish_non_exhaustive()
    }
}

impl Default for HomingBuilder {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            #[cfg(feature = "teams")]
            teams: Vec::new(),
            #[cfg(all(feature = "tools", feature = "teams"))]
            found_teams: Vec::new(),
            models: ModelSource::default(),
            tools: ToolSources::default(),
            permissions: Permissions::default(),
            journal: JournalChoice::Off,
            permission_handler: None,
            fact_listener: None,
            config: RuntimeConfig::default(),
            workdir: PathBuf::from("."),
            #[cfg(feature = "tools")]
            has_project_context: false,
            diagnostics: Vec::new(),
            pending: Vec::new(),
            #[cfg(feature = "tools")]
            coding_setup: None,
        }
    }
}

/// Agents and the folder they work in.
impl HomingBuilder {
    /// Adds an agent. A later agent hides an earlier one of the same name.
    #[must_use]
    pub fn agent(mut self, agent: AgentDefinition) -> Self {
        self.registry.register(agent);
        self
    }

    /// Adds several agents.
    #[must_use]
    pub fn agents(mut self, agents: impl IntoIterator<Item = AgentDefinition>) -> Self {
        self.registry.register_all(agents);
        self
    }

    /// Adds agents that were read from files.
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn agent_files(mut self, files: crate::AgentFiles) -> Self {
        self.registry.register_all(files.definitions);
        self.diagnostics.extend(files.diagnostics);
        self
    }

    /// Adds a team: an agent whose model is a program, together with its members.
    #[cfg(feature = "teams")]
    #[must_use]
    pub fn team(mut self, team: homing_teams::Team) -> Self {
        self.teams.push(team);
        self
    }

    /// Adds the agents, skills, tools and rules of a project and its user. See [`CodingSetup`](crate::CodingSetup).
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn coding_setup(mut self, setup: crate::CodingSetup) -> Self {
        self.coding_setup = Some(setup);
        self
    }

    /// Leaves out everything that runs commands: `bash`, hooks, MCP servers and worktrees. Only a coding setup has them, and only
    /// with the feature `shell`.
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn without_commands(mut self) -> Self {
        if let Some(setup) = &mut self.coding_setup {
            setup.without_commands = true;
        }
        self
    }

    /// Sets the working folder. Agents may read and change it as far as their tools allow. The default is the current folder.
    #[must_use]
    pub fn workdir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workdir = folder.into();
        self
    }

    /// Adds a description of the working folder and the project's instruction files to the agents' prompts.
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn with_project_context(mut self) -> Self {
        self.has_project_context = true;
        self
    }
}

/// Models.
impl HomingBuilder {
    /// Adds a model under the name on its card. The first one is the default model.
    #[must_use]
    pub fn own_model(mut self, model: Arc<dyn Model>) -> Self {
        self.models.add(model);
        self
    }

    /// Sets the source of all models, which replaces providers and own models.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn Models>) -> Self {
        self.models.given = Some(models);
        self
    }

    /// Sets how model names are resolved.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn model_options(mut self, options: crate::ModelOptions) -> Self {
        self.models.options = options;
        self
    }

    /// Sets the default model: `provider/model` or an alias.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.models.options.default = Some(name.into());
        self
    }

    /// Sets the lookup for API keys and addresses of providers, by the names of their variables.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn keys(mut self, lookup: impl Fn(&str) -> Option<secrecy::SecretString> + Send + Sync + 'static) -> Self {
        self.models.keys = Some(Box::new(lookup));
        self
    }

    /// Asks the default provider's server for its models, if it is on this machine or in its network and no model is chosen,
    /// and takes the first as the default model. Call it once everything else about models is set.
    #[cfg(feature = "providers")]
    pub async fn ask_local_server(mut self) -> Self {
        if self.models.given.is_none() {
            let catalog = std::mem::take(&mut self.models).catalog();
            catalog.ask_served_default().await;
            self.models.given = Some(Arc::new(catalog));
        }
        self
    }

    /// Takes API keys and addresses of providers from the environment.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn keys_from_env(self) -> Self {
        let mut builder = self.keys(crate::environment::key);
        builder.models.aws_profile = Some(crate::environment::aws_profile());
        builder
    }
}

/// Tools and permissions.
impl HomingBuilder {
    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.tools.push(tool);
        self
    }

    /// Adds several tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.tools.extend(tools);
        self
    }

    /// Sets skills, hooks, worktrees and a wrapper around tools.
    #[must_use]
    pub fn extensions(mut self, extensions: Extensions) -> Self {
        self.tools.extensions = extensions;
        self
    }

    /// Sets what agents may do.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Sets the handler that answers questions and approvals, such as an [`ask_fn`](crate::ask_fn). Without one, calls that need
    /// approval are denied.
    #[must_use]
    pub fn on_ask(mut self, handler: Arc<dyn PermissionHandler>) -> Self {
        self.permission_handler = Some(handler);
        self
    }
}

/// Installs the teams of a project and its user beside the agents. A team that does not fit is left out with a warning.
#[cfg(all(feature = "tools", feature = "teams"))]
fn install_found(parts: &mut RuntimeParts, found: Vec<crate::team_files::FoundTeam>) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for crate::team_files::FoundTeam { team, path, scope } in found {
        let source = homing_core::definition::Source { kind: scope, path: Some(path), dialect: "homing".to_owned() };
        if let Err(problems) = homing_teams::install_beside(parts, team, &source) {
            let problems = problems.into_iter().map(crate::team_files::as_warning);
            diagnostics.extend(problems.map(|problem| problem.path(source.path.clone().map(Arc::new))));
        }
    }
    diagnostics
}

/// Journal, events and the runtime.
impl HomingBuilder {
    /// Sets where facts are recorded: a file, which is created if it is missing, or another [`JournalChoice`]. Without a journal,
    /// which is the default, a crash loses all runs.
    #[must_use]
    pub fn journal(mut self, journal: impl Into<JournalChoice>) -> Self {
        self.journal = journal.into();
        self
    }

    /// Sets a function that is called with every record once it is durable, in order per tree. It must not block.
    #[must_use]
    pub fn on_fact(mut self, listener: impl Fn(&Arc<Record>) + Send + Sync + 'static) -> Self {
        self.fact_listener = Some(Arc::new(listener));
        self
    }

    /// Sets the runtime's configuration.
    #[must_use]
    pub fn settings(mut self, config: RuntimeConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the number of runs that work at once; the others queue.
    #[must_use]
    pub fn parallel(mut self, runs: usize) -> Self {
        (self.config.max_runs, self.config.max_asks) = (runs, runs);
        self
    }

    /// Builds the [`Homing`]. Opening a journal resumes nothing and spends nothing.
    ///
    /// # Errors
    ///
    /// Fails if the working folder does not exist, no model is configured, a permission rule or a team is invalid, an agent needs
    /// a feature or a coding setup that is missing, no program can supervise commands, or the journal cannot be opened.
    pub fn build(mut self) -> Result<Homing, BuildError> {
        let workdir =
            std::fs::canonicalize(&self.workdir).map_err(|error| BuildError::NoFolder(self.workdir.clone(), error))?;
        crate::missing_features::check(&self.registry)?;
        #[cfg(feature = "shell")]
        if self.coding_setup.is_none() {
            unstarted::check_started(&self.registry, &self.tools)?;
        }
        let journal = std::mem::replace(&mut self.journal, JournalChoice::Off);
        #[cfg(feature = "tools")]
        let opened = match self.coding_setup.take() {
            Some(setup) => {
                self = with_own_files_protected(self, &setup, &workdir)?;
                let (opened, with_setup) = journal.open_beside(|| setup.add_to(self));
                self = with_setup;
                opened?
            }
            None => journal.open()?,
        };
        #[cfg(not(feature = "tools"))]
        let opened = journal.open()?;
        let mut parts = RuntimeParts::new(self.registry, self.models.build()?, opened.journal);
        let on_question = self.permissions.on_question;
        parts.policy = self.permissions.grant(&workdir)?;
        parts.workdir = workdir;
        #[cfg(feature = "shell")]
        let commands = self.tools.commands.take();
        self.tools.add_to(&mut parts);
        parts.permission_handler = self.permission_handler;
        parts.on_fact = self.fact_listener;
        parts.config = self.config;
        parts.config.on_question = on_question;
        #[cfg(feature = "tools")]
        if self.has_project_context {
            parts.prompt_context = Arc::new(crate::project_context);
        }
        #[cfg(feature = "teams")]
        homing_teams::install(&mut parts, self.teams).map_err(BuildError::Team)?;
        #[cfg(all(feature = "tools", feature = "teams"))]
        self.diagnostics.extend(install_found(&mut parts, self.found_teams));
        let registry = parts.registry.clone();
        let runtime = Runtime::new(parts);
        Ok(Homing {
            runtime,
            registry,
            diagnostics: self.diagnostics.into(),
            pending: self.pending.into(),
            #[cfg(feature = "sqlite")]
            journal: opened.file,
            #[cfg(feature = "shell")]
            commands,
        })
    }
}

/// Refuses a folder that agents must not work in, and keeps the user's own files from them.
#[cfg(feature = "tools")]
fn with_own_files_protected(
    mut builder: HomingBuilder,
    setup: &crate::CodingSetup,
    workdir: &std::path::Path,
) -> Result<HomingBuilder, BuildError> {
    if setup.helper.is_none() && !setup.without_commands {
        return Err(BuildError::NoHelper);
    }
    let Some(files) = setup.user_files() else { return Ok(builder) };
    if let Some(why) = files.refuses(workdir) {
        return Err(BuildError::RefusedFolder(workdir.to_owned(), why));
    }
    builder.diagnostics.extend(files.warning(workdir));
    if let Some(layer) = files.layer(&builder.permissions.roots(workdir)) {
        builder.permissions = builder.permissions.layer(layer);
    }
    Ok(builder)
}
