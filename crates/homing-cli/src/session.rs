//! `Session`: everything that is needed to run agents, built from flags, configuration and environment.

mod journal_file;
mod model_choice;
mod sandbox_check;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use homing::{
    BuildError, Catalog, Claim, CodingSetup, Extensions, Folders, Homing, HomingBuilder, OnQuestion, PendingApproval,
    PermissionHandler, Permissions, RunHandle, RuntimeConfig, SpawnError, Task, environment,
};
use homing_core::{
    authority::{Layer, Sandbox},
    definition::{AgentDefinition, ModelChoice, Scope},
    diagnostic::{Diagnostic, Severity},
    limits::{Cap, Limit, Limits},
    redaction::Secrets,
    registry::RegistryEntry,
};
use homing_load::{ParseOptions, Places, is_about_hidden_agent};
use homing_models::{
    Providers,
    names::{OfflineCase, may_go_offline},
};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::CassetteReplay;
use homing_tools::trust::TrustHash;
use uuid::Uuid;

use self::{
    journal_file::journal,
    model_choice::{catalog, checked_model},
};
pub(crate) use self::{
    journal_file::{journal_path, no_journal},
    model_choice::AsIfUsable,
};
use crate::{
    cli::{
        run::{OnQuestionArg, WithArgs},
        values,
    },
    config::Layered,
    exit::{NO_KEY_HINT, Trouble, TroubleKind},
    notify::Notifier,
    permission_prompt::{RuleStore, TerminalPrompt},
    search_config::SearchConfig,
    terminal,
};

/// Maximum number of files that are named if an agent is not found.
const MAX_UNLOADED: usize = 10;

/// Everything that is needed to run agents.
pub(crate) struct Session {
    pub(crate) homing: Homing,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) config: Layered,
    pub(crate) model: Option<String>,
    pub(crate) prompt: Arc<TerminalPrompt>,
    /// The places in which agents and skills were searched.
    pub(crate) places: Places,
    /// The reason why commands are refused, if no sandbox works.
    sandbox_problem: Option<String>,
    telemetry: Option<Telemetry>,
}

/// The parts of a session that differ between commands.
#[derive(Default)]
pub(crate) struct SessionRequest<'a> {
    /// The agent that gets `--delegates`.
    pub(crate) agent: Option<&'a str>,
    /// A recording that answers instead of models and tools.
    pub(crate) replay: Option<Arc<CassetteReplay>>,
    /// Fails without a journal.
    pub(crate) needs_journal: bool,
    /// Teams in addition to the agents.
    pub(crate) teams: Vec<homing_teams::Team>,
    /// Plugin folders in addition to the user's.
    pub(crate) plugins: Vec<PathBuf>,
    /// Closes the journal when its run has ended.
    pub(crate) closes_after_run: bool,
    /// Opens no journal and prints no warnings: the command only looks at agents.
    pub(crate) is_inspection: bool,
    /// Answers questions instead of the user at the terminal.
    pub(crate) handler: Option<Arc<dyn PermissionHandler>>,
    /// Receives every record.
    pub(crate) telemetry: Option<Telemetry>,
}

impl Session {
    /// Builds a session. Spends nothing.
    pub(crate) async fn open(with: &WithArgs, mut request: SessionRequest<'_>) -> anyhow::Result<Self> {
        let folder = working_folder(with.cwd.as_deref())?;
        let folders = Folders::from_env();
        let mut setup = coding_setup(with, &folder)?;
        setup.places.plugins.append(&mut request.plugins);
        setup.places.files.extend(request.agent.map(agent_file).transpose()?.flatten());
        let project = setup.places.project_folders().into_iter().next().unwrap_or_else(|| folder.clone());
        let config = Layered::read(folders.config.as_deref(), &project)?;
        for warning in config.warnings() {
            terminal::inform(&format!("warning: {warning}"));
        }
        let places = setup.places.clone();
        let catalog = catalog(with, &config);
        // A recording answers instead of the model, so no key is needed.
        let named = with.model.as_deref().filter(|_| request.replay.is_none());
        let model = named.map(|name| checked_model(&catalog, &config, with, name)).transpose()?;
        let store = config.user_path.clone().map(|path| RuleStore { config: path, project: config.project_folder() });
        let notifier = Notifier::new(config.user.notify.clone(), project.clone());
        let prompt = Arc::new(TerminalPrompt::new(with.approval.yes, store).notified_by(notifier));
        request.needs_journal |= with.approval.on_question == Some(OnQuestionArg::Park);
        // A replay is answered as the recording was.
        let recorded = request.replay.clone().map(|replay| replay as Arc<dyn PermissionHandler>);
        request.handler = request.handler.take().or(recorded);
        let had_handler = request.handler.is_some();
        let handler: Arc<dyn PermissionHandler> = match request.handler.take() {
            Some(other) if !with.approval.yes => other,
            Some(_) | None => prompt.clone(),
        };
        let policy = on_question(with, had_handler);
        let private = setup.private.clone();
        let mut builder = Homing::builder().workdir(&folder).with_project_context().on_ask(handler);
        builder = builder.coding_setup(with_config(setup, with, &request, &config)?);
        builder = builder.permissions(permissions(with, &config)?.on_question(policy));
        builder = builder.settings(runtime_config(&config, request.telemetry.is_some()));
        if let Some(parallel) = config.parallel(with.parallel) {
            builder = builder.parallel(usize::try_from(parallel).unwrap_or(usize::MAX));
        }
        builder = models(builder, &catalog, request.replay.clone());
        builder = builder.journal(journal(with, &config, &folders, &request)?);
        builder = std::mem::take(&mut request.teams).into_iter().fold(builder, HomingBuilder::team);
        let telemetry = request.telemetry.take();
        if let Some(telemetry) = &telemetry {
            let listener = telemetry.listener();
            builder = builder.on_fact(move |record| listener(record));
        }
        let homing = builder.build().map_err(trouble)?;
        let needs_sandbox = !request.is_inspection
            && request.replay.is_none()
            && config.sandbox(with.sandbox.map(Into::into)) != Sandbox::Off;
        let mut sandbox_problem = None;
        if needs_sandbox {
            sandbox_problem = sandbox_check::sandbox_problem(&homing, folders.state.as_deref(), &private).await;
        }
        let session = Self { homing, catalog, config, model, prompt, places, sandbox_problem, telemetry };
        session.check_given_agents()?;
        if !request.is_inspection {
            session.print_diagnostics(with.strict)?;
        }
        Ok(session)
    }

    /// Resumes a run tree of the journal. Telemetry gets the earlier records first, so that its spans have their beginning.
    pub(crate) async fn resume(&self, tree: Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        if let (Some(telemetry), Some(journal)) = (&self.telemetry, self.homing.journal())
            && let Ok(past) = journal.follow(tree, 0)
        {
            telemetry.recall(past);
        }
        self.homing.resume(tree, claim, more).await
    }

    /// Adds the limits to a task, and a warning if its agent's file asks for more.
    pub(crate) fn bounded(&self, mut task: Task, flags: Limits) -> Task {
        let Ok(agent) = self.homing.registry().get(&task.agent) else {
            return task.limits(self.config.limits(flags, Limits::default()));
        };
        task.warnings.extend(self.no_sandbox());
        task.warnings.extend(self.lowered(agent, flags));
        task.limits(self.config.limits(flags, agent.limits))
    }

    /// Returns the warning that commands are refused, if no sandbox works.
    fn no_sandbox(&self) -> Option<String> {
        let why = self.sandbox_problem.as_ref()?;
        Some(format!("commands are refused, because no sandbox works here: {why}"))
    }

    /// Returns warnings about limits of the agent's file that are lowered, for lack of trust or by the user's configuration. A
    /// flag overrides both.
    fn lowered(&self, agent: &AgentDefinition, flags: Limits) -> Vec<String> {
        let path = agent.source.path.as_ref();
        let is_about_limits = |diagnostic: &&Diagnostic| {
            path.is_some() && diagnostic.path.as_deref() == path && diagnostic.field.as_deref() == Some("limits")
        };
        let diagnostics = self.homing.diagnostics().iter().filter(is_about_limits);
        let untrusted = diagnostics.map(|diagnostic| diagnostic.message.clone());
        let ceiling = self.config.ceiling();
        let is_above = |limit: &Limit| match (agent.limits.cap(*limit), ceiling.cap(*limit)) {
            (Cap::Unlimited, Cap::At(_)) => true,
            (Cap::At(asked), Cap::At(allowed)) => asked > allowed,
            (Cap::Default, _) | (_, Cap::Default | Cap::Unlimited) => false,
        };
        let open = Limit::SETTABLE.into_iter().filter(|limit| flags.cap(*limit) == Cap::Default);
        let warning = |limit: Limit| {
            let (asked, allowed) = (limit.shown(agent.limits.cap(limit)), limit.shown(ceiling.cap(limit)));
            format!("agent {} asks for {limit} {asked}; your configuration allows {allowed}", agent.name)
        };
        untrusted.chain(open.filter(is_above).map(warning)).collect()
    }

    /// Returns the agent of this name.
    ///
    /// If there is none, the error also names the files in agent folders that define no agent, with the reason.
    pub(crate) fn agent(&self, name: &str) -> Result<&RegistryEntry, Trouble> {
        if let Some(path) = agent_file(name)? {
            return self.agent_in(&path);
        }
        self.homing.registry().registered(name).map_err(|error| {
            let mut trouble = Trouble::from(SpawnError::from(error));
            let unloaded = homing_load::discover(&self.places, &ParseOptions::default()).unloaded();
            for (path, reason) in unloaded.iter().take(MAX_UNLOADED) {
                trouble.message.push_str(&format!("\nnot loaded: {}: {reason}", path.display()));
            }
            if unloaded.len() > MAX_UNLOADED {
                trouble.message.push_str(&format!("\n… and {} more files", unloaded.len() - MAX_UNLOADED));
            }
            trouble
        })
    }

    /// Returns the agent that a file defines.
    fn agent_in(&self, path: &Path) -> Result<&RegistryEntry, Trouble> {
        let is_it = |entry: &&RegistryEntry| entry.definition.source.path.as_deref() == Some(path);
        self.homing.registry().all().find(is_it).ok_or_else(|| {
            let about_it = |diagnostic: &&Diagnostic| {
                diagnostic.severity == Severity::Error
                    && diagnostic.path.as_ref().is_some_and(|other| other.as_path() == path)
            };
            let reason = self.homing.diagnostics().iter().find(about_it).map(|error| error.message.clone());
            let reason = reason.unwrap_or_else(|| "another agent of its name takes precedence".to_owned());
            Trouble::usage(format!("{} defines no agent that can run: {reason}", path.display()))
        })
    }

    /// Makes sure that there is a model for `agent`, and prints which one was chosen if the user chose none.
    pub(crate) async fn choose_model(&self, agent: &AgentDefinition, person_reads: bool) -> Result<(), Trouble> {
        if self.model.is_some() || self.config.user.model.is_some() {
            return Ok(());
        }
        self.catalog.ask_served_default().await;
        let names_a_model = matches!(agent.model.choice, ModelChoice::Named(_));
        if let Some((_, why)) = self.catalog.default_model() {
            if !names_a_model {
                terminal::inform(&why);
            }
            return Ok(());
        }
        let case = OfflineCase { agent_is_built_in: agent.source.kind == Scope::BuiltIn, names_a_model, person_reads };
        if may_go_offline(case) {
            self.catalog.fall_back_to("offline");
            terminal::inform(OFFLINE);
            return Ok(());
        }
        Err(Trouble::new(TroubleKind::Auth, "no model available: no provider API key is set").hint(NO_KEY_HINT))
    }

    /// Resolves the model that the user names in a conversation.
    pub(crate) fn named_model(&self, with: &WithArgs, name: &str) -> Result<String, Trouble> {
        checked_model(&self.catalog, &self.config, with, name)
    }

    /// Uses the offline model if no other is available, for a server whose runs people start and read.
    pub(crate) async fn choose_default_model(&self) {
        self.catalog.ask_served_default().await;
        if self.model.is_none() && self.config.user.model.is_none() && self.catalog.default_model().is_none() {
            self.catalog.fall_back_to("offline");
            terminal::inform(OFFLINE);
        }
    }

    /// Returns a function that removes providers' keys from a text.
    pub(crate) fn redactor(&self) -> impl Fn(&str) -> String + use<> {
        redactor(self.catalog.providers())
    }

    /// Fails if the agents given with `--agents` are invalid.
    fn check_given_agents(&self) -> Result<(), Trouble> {
        let is_fatal = |diagnostic: &&Diagnostic| diagnostic.path.is_none() && diagnostic.severity == Severity::Error;
        match self.homing.diagnostics().iter().find(is_fatal) {
            Some(error) => Err(Trouble::config(format!("--agents{error}"))),
            None => Ok(()),
        }
    }

    /// Prints warnings; with `strict` they are errors.
    fn print_diagnostics(&self, strict: bool) -> Result<(), Trouble> {
        let is_warning = |diagnostic: &&Diagnostic| diagnostic.severity > Severity::Info;
        let all: Vec<_> = self.homing.diagnostics().iter().filter(is_warning).collect();
        if let (true, Some(first)) = (strict, all.first()) {
            let more = all.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            return Err(Trouble::config(format!("{first}{more}"))
                .hint("`homing check` shows all warnings; without --strict they are not errors"));
        }
        let others = all.iter().filter(|it| it.path.is_none()).map(|it| {
            let hint = it.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}{hint}", it.message)
        });
        for warning in others.chain(self.hidden_agents()).chain(self.no_sandbox()) {
            terminal::inform(&format!("warning: {warning}"));
        }
        if self.sandbox_problem.is_some() {
            terminal::inform("hint: `homing doctor` says more; --sandbox off runs commands unconfined");
        }
        self.print_pending_approvals();
        let about_files = all.iter().filter(|it| it.path.is_some() && !is_about_hidden_agent(it)).count();
        if about_files > 0 {
            terminal::inform(&warnings_line(about_files));
        }
        Ok(())
    }

    /// Returns a warning for each agent of the project with the name of an agent that is built in or belongs to the user.
    pub(crate) fn hidden_agents(&self) -> impl Iterator<Item = String> {
        let all = self.homing.diagnostics().iter();
        all.filter(|diagnostic| is_about_hidden_agent(diagnostic)).map(|diagnostic| diagnostic.message.clone())
    }

    fn print_pending_approvals(&self) {
        let mut hints: Vec<String> = Vec::new();
        for pending in self.homing.pending_approvals() {
            let hint = match pending {
                PendingApproval::Server(name) => {
                    format!("look at the tools of `{name}` and approve them with `homing trust --server {name}`")
                }
                _ => "look at the project's files, then run `homing trust`".to_owned(),
            };
            if !hints.contains(&hint) {
                terminal::inform(&format!("hint: {hint}"));
                hints.push(hint);
            }
        }
    }
}

/// Returns the absolute path of the agent file that a `--agent` names: anything with a slash or the ending of such files.
pub(crate) fn agent_file(name: &str) -> Result<Option<PathBuf>, Trouble> {
    let has_ending = [".md", ".json", ".jsonc", ".yaml", ".yml", ".toml"].iter().any(|ending| name.ends_with(ending));
    if !name.contains('/') && !has_ending {
        return Ok(None);
    }
    let path = std::fs::canonicalize(name)
        .map_err(|error| Trouble::usage(format!("cannot open the agent file {name}: {error}")))?;
    if path.is_file() { Ok(Some(path)) } else { Err(Trouble::usage(format!("{name} is not a file"))) }
}

/// Returns the line that counts the warnings about agent files.
pub(crate) fn warnings_line(count: usize) -> String {
    let warnings = if count == 1 { "1 warning".to_owned() } else { format!("{count} warnings") };
    format!("{warnings}; run `homing check` for details")
}

const OFFLINE: &str = "using the offline model: a keyword search that needs no API key. For a real model set ANTHROPIC_API_KEY or \
                       OPENAI_API_KEY, or choose one with --model provider/model.";

/// Returns a function that removes the providers' keys from a text.
pub(crate) fn redactor(providers: &Providers) -> impl Fn(&str) -> String + use<> {
    let secrets: Secrets = providers.secrets().into_iter().collect();
    move |text| secrets.redact(text).into_owned()
}

/// Returns the absolute path of the working folder.
pub(crate) fn working_folder(given: Option<&Path>) -> Result<PathBuf, Trouble> {
    let folder = match given {
        Some(folder) => folder.to_owned(),
        None => environment::current_folder()
            .map_err(|error| Trouble::config(format!("cannot find the current folder: {error}")))?,
    };
    let absolute = std::fs::canonicalize(&folder)
        .map_err(|error| Trouble::usage(format!("cannot open the folder {}: {error}", folder.display())))?;
    if absolute.is_dir() { Ok(absolute) } else { Err(Trouble::usage(format!("{} is not a folder", folder.display()))) }
}

fn coding_setup(with: &WithArgs, folder: &Path) -> Result<CodingSetup, Trouble> {
    let mut setup = CodingSetup::from_env(folder);
    setup.places.agents_json.clone_from(&with.agents);
    setup.options.strict = with.strict;
    setup.helper = environment::executable().ok();
    let hash =
        |text: &String| TrustHash::try_from(text.clone()).map_err(|error| Trouble::usage(format!("--trust: {error}")));
    let given: Vec<TrustHash> = with.trust.iter().map(hash).collect::<Result<_, _>>()?;
    if !given.is_empty() {
        let store = match setup.trust.take() {
            Some(store) => store,
            None => homing_tools::trust::TrustStore::load(setup.private.join("trust.json"))
                .map_err(|error| Trouble::config(format!("cannot read the trusted projects: {error}")))?,
        };
        setup.trust = Some(store.with_given(given));
    }
    Ok(setup)
}

fn with_config(
    mut setup: CodingSetup,
    with: &WithArgs,
    request: &SessionRequest<'_>,
    config: &Layered,
) -> Result<CodingSetup, Trouble> {
    setup.delegates.clone_from(&config.user.delegates);
    if let (Some(agent), false) = (request.agent, with.delegates.is_empty()) {
        setup.delegates.insert(agent.to_owned(), with.delegates.clone());
    }
    setup.sandbox = config.user.sandbox.options();
    setup.servers.clone_from(&config.user.mcp);
    setup.limits = config.ceiling();
    setup.tools.search = config.user.websearch.as_ref().map(SearchConfig::provider).transpose()?;
    Ok(setup)
}

fn runtime_config(config: &Layered, exports_spans: bool) -> RuntimeConfig {
    let mut settings = RuntimeConfig::default();
    settings.on_demand = config.on_demand();
    settings.exports_spans = exports_spans;
    settings
}

/// Returns what happens to questions. Without anyone to ask they are denied at once, unless the user wants them to wait.
fn on_question(with: &WithArgs, has_handler: bool) -> OnQuestion {
    match with.approval.on_question {
        Some(OnQuestionArg::Park) => OnQuestion::Park,
        Some(OnQuestionArg::Deny) => OnQuestion::Deny,
        Some(OnQuestionArg::Ask) => OnQuestion::default(),
        None if has_handler || with.approval.yes || TerminalPrompt::is_possible() => OnQuestion::default(),
        None => OnQuestion::Deny,
    }
}

pub(crate) fn permissions(with: &WithArgs, config: &Layered) -> Result<Permissions, Trouble> {
    let network = with.network.as_deref().map(values::network).transpose();
    let network = network.map_err(|error| Trouble::usage(format!("--network: {error}")))?;
    let flags = Layer::everything("flags").settled(with.allow.clone()).deny(with.deny.clone());
    let layers = config.layers().into_iter().chain([flags]);
    let sandbox = config.sandbox(with.sandbox.map(Into::into));
    let permissions = Permissions::default().network(config.network(network)).sandbox(sandbox);
    let permissions = layers.fold(permissions, Permissions::layer);
    let permissions = config.user.sandbox.read.iter().fold(permissions, Permissions::may_read);
    Ok(config.user.sandbox.write.iter().fold(permissions, Permissions::may_write))
}

fn models(builder: HomingBuilder, catalog: &Arc<Catalog>, replay: Option<Arc<CassetteReplay>>) -> HomingBuilder {
    let Some(replay) = replay else { return builder.models(catalog.clone()) };
    let prices = catalog.clone();
    let card = move |name: &str| {
        use homing_core::model::{ModelCard, Models};
        prices.get(name).map_or_else(|_| ModelCard::free(name), |model| model.card().clone())
    };
    let models = replay.models(card);
    let listener = replay.listener();
    let builder = builder.on_fact(move |record| listener(record));
    let wrap_tool = Some(Arc::new(move |tool| replay.tool(tool)) as _);
    builder.models(models).extensions({
        let mut changed = Extensions::default();
        changed.wrap_tool = wrap_tool;
        changed
    })
}

fn trouble(error: BuildError) -> Trouble {
    match error {
        BuildError::Journal(error) => error.into(),
        refused @ BuildError::RefusedFolder(..) => Trouble::new(TroubleKind::Refused, refused.to_string())
            .hint("change to a project's folder, or name one with --cwd"),
        other => Trouble::config(other.to_string()),
    }
}
