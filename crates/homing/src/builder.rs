//! Puts the rooms together. What a host does not ask for is not read, not opened and not started.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use homing_core::{
    authority::{Allow, Grant, Layer, Network, Sandbox},
    definition::AgentDefinition,
    diagnostic::Diagnostic,
    hooks::Hooks,
    model::{Model, Models},
    registry::Registry,
    rule::Rule,
    skill::SkillLibrary,
    tool::{AgentToolSource, Tool},
    workspace::Workspaces,
};
use homing_runtime::{
    PermissionHandler, Runtime, RuntimeConfig, RuntimeParts,
    journal::{FactListener, Journal, JournalError, NullJournal},
};

use crate::{Homing, InboxWatch};

/// What could not be put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no model to speak with.
    #[error("there are no models: add one with `.model(…)`, or call `.keys_from_env()`")]
    NoModels,
    /// The folder to work in does not exist.
    #[error("{0} is no folder: {1}")]
    NoFolder(PathBuf, std::io::Error),
    /// A team cannot work.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Team(Vec<Diagnostic>),
    /// No home is known for the journal.
    #[error("there is no folder for the journal: HOME is not set; name a file with `.journal(path)`, or switch it off")]
    NoHome,
}

/// Where facts are kept.
enum Kept {
    Nowhere,
    #[cfg(feature = "sqlite")]
    File(PathBuf, Box<homing_runtime::journal::sqlite::SqliteOptions>),
    Given(Arc<dyn Journal>),
}

/// Puts something around a tool.
type Wrap = Arc<dyn Fn(Arc<dyn Tool>) -> Arc<dyn Tool> + Send + Sync>;

/// Tools that agents bring along, with something around each.
struct Wrapped {
    brought: Arc<dyn AgentToolSource>,
    wrap: Wrap,
}

impl AgentToolSource for Wrapped {
    fn brought_by(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>> {
        self.brought.brought_by(agent).into_iter().map(|it| (self.wrap)(it)).collect()
    }
}

/// Finds keys and addresses by the names of their variables.
#[cfg(feature = "providers")]
type Keys = Box<dyn Fn(&str) -> Option<secrecy::SecretString> + Send + Sync>;

/// Puts a [`Homing`] together.
pub struct HomingBuilder {
    pub(crate) agents: Vec<AgentDefinition>,
    pub(crate) workdir: PathBuf,
    journal: Kept,
    tools: Vec<Arc<dyn Tool>>,
    pub(crate) agent_tools: Option<Arc<dyn AgentToolSource>>,
    own_models: BTreeMap<String, Arc<dyn Model>>,
    models: Option<Arc<dyn Models>>,
    skills: Option<Arc<dyn SkillLibrary>>,
    asker: Option<Arc<dyn PermissionHandler>>,
    on_fact: Option<FactListener>,
    hooks: Option<Arc<dyn Hooks>>,
    workspaces: Option<Arc<dyn Workspaces>>,
    settings: RuntimeConfig,
    layer: Layer,
    more_layers: Vec<Layer>,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    network: Network,
    sandbox: Sandbox,
    surroundings: bool,
    wrap: Option<Wrap>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    #[cfg(feature = "providers")]
    model_options: crate::ModelOptions,
    #[cfg(feature = "providers")]
    keys: Option<Keys>,
    #[cfg(feature = "tools")]
    pub(crate) standard: Option<crate::coding_preset::CodingSetup>,
    #[cfg(feature = "teams")]
    teams: Vec<homing_teams::Team>,
}

impl Default for HomingBuilder {
    fn default() -> Self {
        Self {
            agents: Vec::new(),
            workdir: PathBuf::from("."),
            journal: Kept::Nowhere,
            tools: Vec::new(),
            agent_tools: None,
            own_models: BTreeMap::new(),
            models: None,
            skills: None,
            asker: None,
            on_fact: None,
            hooks: None,
            workspaces: None,
            settings: RuntimeConfig::default(),
            layer: Layer::everything("the host"),
            more_layers: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            network: Network::Off,
            sandbox: Sandbox::WorkspaceWrite,
            surroundings: false,
            wrap: None,
            diagnostics: Vec::new(),
            #[cfg(feature = "providers")]
            model_options: crate::ModelOptions::default(),
            #[cfg(feature = "providers")]
            keys: None,
            #[cfg(feature = "tools")]
            standard: None,
            #[cfg(feature = "teams")]
            teams: Vec::new(),
        }
    }
}

impl HomingBuilder {
    /// Adds an agent; later ones of the same name hide earlier ones.
    #[must_use]
    pub fn agent(mut self, agent: AgentDefinition) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds agents.
    #[must_use]
    pub fn agents(mut self, agents: impl IntoIterator<Item = AgentDefinition>) -> Self {
        self.agents.extend(agents);
        self
    }

    /// Where agents work: they may read and change this folder, as far as their tools go.
    #[must_use]
    pub fn workdir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workdir = folder.into();
        self
    }

    /// Adds a team: an agent whose model is a program, with the agents it brings.
    #[cfg(feature = "teams")]
    #[must_use]
    pub fn team(mut self, team: homing_teams::Team) -> Self {
        self.teams.push(team);
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Puts something around every tool, those of the standard set included: a recording that answers in their place.
    #[must_use]
    pub fn wrap_tools(mut self, wrap: impl Fn(Arc<dyn Tool>) -> Arc<dyn Tool> + Send + Sync + 'static) -> Self {
        self.wrap = Some(Arc::new(wrap));
        self
    }

    /// Adds a model of your own under its card's name; the first one is the default.
    #[must_use]
    pub fn own_model(mut self, model: Arc<dyn Model>) -> Self {
        let name = model.card().name.clone();
        #[cfg(feature = "providers")]
        self.model_options.default.get_or_insert(name.clone());
        self.own_models.insert(name, model);
        self
    }

    /// Where all models come from, instead of providers and own models.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn Models>) -> Self {
        self.models = Some(models);
        self
    }

    /// The skills that there are.
    #[must_use]
    pub fn skills(mut self, skills: Arc<dyn SkillLibrary>) -> Self {
        self.skills = Some(skills);
        self
    }

    #[cfg(feature = "tools")]
    pub(crate) fn library(&self) -> Option<Arc<dyn SkillLibrary>> {
        self.skills.clone()
    }

    /// Who answers questions. Without anybody, what needs permission is denied.
    #[must_use]
    pub fn on_ask(mut self, asker: Arc<dyn PermissionHandler>) -> Self {
        self.asker = Some(asker);
        self
    }

    /// Who is told of every fact of every tree once it is durable, in each tree's order: telemetry, a view of all runs.
    /// It must not wait.
    #[must_use]
    pub fn on_fact(mut self, tell: FactListener) -> Self {
        self.on_fact = Some(tell);
        self
    }

    /// The user's own commands at certain moments.
    #[must_use]
    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Who makes folders for runs that want one of their own.
    #[must_use]
    pub fn workspaces(mut self, workspaces: Arc<dyn Workspaces>) -> Self {
        self.workspaces = Some(workspaces);
        self
    }

    /// The runtime's knobs.
    #[must_use]
    pub fn settings(mut self, settings: RuntimeConfig) -> Self {
        self.settings = settings;
        self
    }

    /// Runs that work at once; the rest queue.
    #[must_use]
    pub fn parallel(mut self, runs: usize) -> Self {
        (self.settings.max_runs, self.settings.max_asks) = (runs, runs);
        self
    }

    /// Allows nothing but these, and what other calls of this method allow.
    #[must_use]
    pub fn only(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        match &mut self.layer.allow {
            Allow::Only(list) => list.extend(rules),
            Allow::All => self.layer.allow = Allow::Only(rules.into_iter().collect()),
        }
        self
    }

    /// Denies these, whatever else allows them.
    #[must_use]
    pub fn deny(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.layer.deny.extend(rules);
        self
    }

    /// Asks somebody before these.
    #[must_use]
    pub fn ask(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.layer.ask.extend(rules);
        self
    }

    /// One more party that has a say.
    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.more_layers.push(layer);
        self
    }

    /// A folder outside the working one that may be read.
    #[must_use]
    pub fn may_read(mut self, folder: impl Into<PathBuf>) -> Self {
        self.read.push(folder.into());
        self
    }

    /// A folder outside the working one that may be read and changed.
    #[must_use]
    pub fn may_write(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.read.push(folder.clone());
        self.write.push(folder);
        self
    }

    /// What the network may be used for; off by default.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// How commands are confined; to the working folder by default.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Tells agents about the folder they work in, and gives them the project's instruction files.
    #[must_use]
    pub fn with_surroundings(mut self) -> Self {
        self.surroundings = true;
        self
    }

    /// Keeps facts in this file, which is made where it is missing.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn journal(self, path: impl Into<PathBuf>) -> Self {
        self.journal_with(path, homing_runtime::journal::sqlite::SqliteOptions::default())
    }

    /// The same with options: accounts, retention.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn journal_with(
        mut self,
        path: impl Into<PathBuf>,
        options: homing_runtime::journal::sqlite::SqliteOptions,
    ) -> Self {
        self.journal = Kept::File(path.into(), Box::new(options));
        self
    }

    /// Keeps facts wherever you like.
    #[must_use]
    pub fn own_journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Kept::Given(journal);
        self
    }

    /// Keeps no facts: a crash loses everything.
    #[must_use]
    pub fn journal_off(mut self) -> Self {
        self.journal = Kept::Nowhere;
        self
    }

    /// How model names are understood.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn model_options(mut self, options: crate::ModelOptions) -> Self {
        self.model_options = options;
        self
    }

    /// What runs speak with where nothing else is said: `provider/model` or an alias.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model_options.default = Some(name.into());
        self
    }

    /// Finds keys and addresses of providers by the names of their variables.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn keys(mut self, lookup: impl Fn(&str) -> Option<secrecy::SecretString> + Send + Sync + 'static) -> Self {
        self.keys = Some(Box::new(lookup));
        self
    }

    /// Takes keys and addresses of providers from the environment.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn keys_from_env(self) -> Self {
        self.keys(|name| std::env::var(name).ok().filter(|it| !it.trim().is_empty()).map(Into::into))
    }

    /// Puts everything together. Opening a journal resumes nothing and spends nothing.
    pub async fn build(mut self) -> Result<Homing, BuildError> {
        let workdir =
            std::fs::canonicalize(&self.workdir).map_err(|error| BuildError::NoFolder(self.workdir.clone(), error))?;
        #[cfg(feature = "tools")]
        if let Some(standard) = self.standard.take() {
            self = standard.add_to(self);
        }
        let models = self.all_models()?;
        let registry = Arc::new(Registry::from_iter(std::mem::take(&mut self.agents)));
        #[cfg(feature = "sqlite")]
        let mut file = None;
        let journal: Arc<dyn Journal> = match std::mem::replace(&mut self.journal, Kept::Nowhere) {
            Kept::Nowhere => Arc::new(NullJournal::default()),
            Kept::Given(journal) => journal,
            #[cfg(feature = "sqlite")]
            Kept::File(path, options) => {
                file.insert(homing_runtime::journal::sqlite::SqliteJournal::open(path, *options)?).clone()
            }
        };
        let mut parts = RuntimeParts::new(Registry::default(), models, journal);
        parts.registry = registry;
        parts.policy = self.policy(&workdir);
        parts.workdir = workdir;
        parts.tools = std::mem::take(&mut self.tools);
        parts.agent_tools = self.agent_tools.take();
        if let Some(wrap) = self.wrap.take() {
            parts.tools = parts.tools.into_iter().map(|it| wrap(it)).collect();
            let wrapped =
                parts.agent_tools.map(|brought| Arc::new(Wrapped { brought, wrap }) as Arc<dyn AgentToolSource>);
            parts.agent_tools = wrapped;
        }
        parts.skills = self.skills.take();
        parts.asker = self.asker.take();
        parts.on_fact = self.on_fact.take();
        parts.hooks = self.hooks.take();
        parts.workspaces = self.workspaces.take();
        parts.settings = self.settings.clone();
        if self.surroundings {
            parts.setting = Arc::new(crate::surroundings);
        }
        #[cfg(feature = "teams")]
        homing_teams::install(&mut parts, std::mem::take(&mut self.teams)).map_err(BuildError::Team)?;
        let registry = parts.registry.clone();
        let runtime = Runtime::new(parts);
        Ok(Homing {
            _inbox: InboxWatch::start(&runtime),
            runtime,
            registry,
            diagnostics: self.diagnostics,
            #[cfg(feature = "sqlite")]
            journal: file,
        })
    }

    fn policy(&self, workdir: &std::path::Path) -> Grant {
        let layers = [&self.layer].into_iter().chain(&self.more_layers).cloned().map(Arc::new).collect();
        let with = |more: &[PathBuf]| [workdir.to_owned()].into_iter().chain(more.iter().cloned()).collect();
        let write = if self.sandbox == Sandbox::ReadOnly { Vec::new() } else { with(&self.write) };
        Grant { layers, read: with(&self.read), write, network: self.network.clone(), sandbox: self.sandbox }
    }

    #[cfg(feature = "providers")]
    fn all_models(&mut self) -> Result<Arc<dyn Models>, BuildError> {
        if let Some(models) = self.models.take() {
            return Ok(models);
        }
        let own = std::mem::take(&mut self.own_models);
        if self.keys.is_none() && own.is_empty() && self.model_options.default.is_none() {
            return Err(BuildError::NoModels);
        }
        let keys = self.keys.take().unwrap_or_else(|| Box::new(|_| None));
        let mut options = std::mem::take(&mut self.model_options);
        let providers = homing_models::Providers::new(std::mem::take(&mut options.providers), keys);
        Ok(Arc::new(crate::Catalog::new(providers, options, own)))
    }

    #[cfg(not(feature = "providers"))]
    fn all_models(&mut self) -> Result<Arc<dyn Models>, BuildError> {
        let own = std::mem::take(&mut self.own_models).into_values().next();
        let own = || own.map(|model| Arc::new(homing_core::model::SingleModel(model)) as Arc<dyn Models>);
        self.models.take().or_else(own).ok_or(BuildError::NoModels)
    }
}
