//! Everything that is needed to run agents, put together from flags, configuration and environment.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing::{
    BuildError, Catalog, Claim, CodingSetup, Folders, Homing, HomingBuilder, ModelOptions, RunHandle, SpawnError, Task,
};
use homing_core::{
    authority::Layer,
    definition::{AgentDefinition, ModelChoice, Scope},
    diagnostic::{Diagnostic, Severity},
    limits::{Cap, Limit, Limits},
};
use homing_models::{
    Providers,
    names::{OfflineCase, Resolver, may_go_offline},
};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::{Replay, SqliteOptions};
use homing_tools::trust::TrustHash;
use uuid::Uuid;

use crate::{
    cli::{
        run::{JournalArgs, WithArgs},
        values,
    },
    config::Layered,
    exit::{Trouble, TroubleKind},
    permission_prompt::TerminalPrompt,
    terminal,
};

/// Everything that is needed to run agents.
pub(crate) struct Session {
    pub(crate) homing: Homing,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) config: Layered,
    pub(crate) model: Option<String>,
    pub(crate) asker: Arc<TerminalPrompt>,
    telemetry: Option<Telemetry>,
}

/// How a session differs from one command to another.
#[derive(Default)]
pub(crate) struct SessionRequest<'a> {
    /// The agent that gets `--delegates`.
    pub(crate) agent: Option<&'a str>,
    /// A recording that answers instead of models and tools.
    pub(crate) replay: Option<Arc<Replay>>,
    /// The command makes no sense without a journal.
    pub(crate) needs_journal: bool,
    /// Teams that are known besides the agents.
    pub(crate) teams: Vec<homing_teams::Team>,
    /// Who is asked instead of the person at the terminal.
    pub(crate) asker: Option<Arc<dyn homing::PermissionHandler>>,
    /// Who is told of every fact.
    pub(crate) telemetry: Option<Telemetry>,
}

impl Session {
    /// Puts everything together. Nothing is spent.
    pub(crate) async fn open(with: &WithArgs, mut wanted: SessionRequest<'_>) -> anyhow::Result<Self> {
        let folder = working_folder(with.cwd.as_deref())?;
        let folders = Folders::from_env();
        let standard = standard(with, &folder)?;
        let project = standard.places.project_folders().into_iter().next().unwrap_or_else(|| folder.clone());
        let config = Layered::read(folders.config.as_deref(), &project)?;
        for remark in config.ignored() {
            terminal::say(&format!("warning: {remark}"));
        }
        let catalog = catalog(with, &config);
        let model = with.model.as_deref().map(|name| checked_model(&catalog, &config, with, name)).transpose()?;
        let asker = Arc::new(TerminalPrompt::new(with.yes, config.user_path.clone()));
        let on_ask: Arc<dyn homing::PermissionHandler> = match wanted.asker.take() {
            // `--yes` was the answer already.
            Some(other) if !with.yes => other,
            Some(_) | None => asker.clone(),
        };
        let builder = Homing::builder().workdir(&folder).with_surroundings().on_ask(on_ask);
        let builder = builder.standard(with_delegates(standard, with, &wanted, &config));
        let builder = permissions(builder, with, &config)?;
        let builder = models(builder, &catalog, wanted.replay.clone());
        let path = journal_path(&with.journal, &config, &folders);
        let builder = keep(builder, path, &config, &wanted)?;
        let builder = std::mem::take(&mut wanted.teams).into_iter().fold(builder, HomingBuilder::team);
        let telemetry = wanted.telemetry.take();
        let builder = telemetry.iter().fold(builder, |builder, it| builder.on_fact(it.listener()));
        let homing = builder.build().await.map_err(trouble)?;
        let session = Self { homing, catalog, config, model, asker, telemetry };
        session.say_remarks(with.strict)?;
        Ok(session)
    }

    /// Goes on with a tree of the journal. Telemetry learns what happened before, so that what goes on has its beginning.
    pub(crate) async fn resume(&self, tree: Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        if let (Some(telemetry), Some(journal)) = (&self.telemetry, self.homing.journal())
            && let Ok(past) = journal.follow(tree, 0)
        {
            telemetry.recall(past);
        }
        self.homing.resume(tree, claim, more).await
    }

    /// The task with what it may spend, and with a warning where its agent's file asks for more.
    pub(crate) fn bounded(&self, mut task: Task, flags: Limits) -> Task {
        let Ok(agent) = self.homing.registry().get(&task.agent) else {
            return task.limits(self.config.limits(flags, Limits::default()));
        };
        task.warnings.extend(self.lowered(agent, flags));
        task.limits(self.config.limits(flags, agent.limits))
    }

    /// What the agent's file asks for in vain: without trust, or beyond the user's configuration. A flag settles it.
    fn lowered(&self, agent: &AgentDefinition, flags: Limits) -> Vec<String> {
        let path = agent.source.path.as_ref();
        let on_limits =
            |it: &&Diagnostic| path.is_some() && it.path.as_deref() == path && it.field.as_deref() == Some("limits");
        let untrusted = self.homing.diagnostics().iter().filter(on_limits).map(|it| it.message.clone());
        let ceiling = self.config.ceiling();
        let above = |limit: &Limit| match (agent.limits.cap(*limit), ceiling.cap(*limit)) {
            (Cap::Unlimited, Cap::At(_)) => true,
            (Cap::At(said), Cap::At(most)) => said > most,
            (Cap::Default, _) | (_, Cap::Default | Cap::Unlimited) => false,
        };
        let open = Limit::SETTABLE.into_iter().filter(|it| flags.cap(*it) == Cap::Default);
        let words = |limit: Limit| {
            let (asks, most) = (limit.shown(agent.limits.cap(limit)), limit.shown(ceiling.cap(limit)));
            format!("agent {} asks for {limit} {asks}; your configuration allows {most}", agent.name)
        };
        untrusted.chain(open.filter(above).map(words)).collect()
    }

    /// Makes sure that there is a model for `agent`, and says which one was chosen where nobody chose.
    pub(crate) fn choose_model(&self, agent: &AgentDefinition, person_reads: bool) -> Result<(), Trouble> {
        if self.model.is_some() || self.config.user.model.is_some() {
            return Ok(());
        }
        let names_a_model = matches!(agent.model, ModelChoice::Named(_));
        if let Some((_, why)) = self.catalog.default_model() {
            if !names_a_model {
                terminal::say(&why);
            }
            return Ok(());
        }
        let case = OfflineCase { agent_is_built_in: agent.source.kind == Scope::BuiltIn, names_a_model, person_reads };
        if may_go_offline(case) {
            self.catalog.fall_back_to("offline");
            terminal::say(OFFLINE);
            return Ok(());
        }
        Err(Trouble::new(TroubleKind::Auth, "there is no model to speak with: no provider's key is set")
            .hint("set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key, or pass --model offline, which needs none; `homing doctor` lists the providers"))
    }

    /// Takes providers' keys out of a text, should one have found its way there.
    pub(crate) fn redactor(&self) -> impl Fn(&str) -> String + use<> {
        let names = self.catalog.providers().rows().iter().flat_map(|row| row.key_vars.clone());
        let keys: Vec<String> = names.filter_map(|it| std::env::var(it).ok()).filter(|it| it.len() >= 8).collect();
        move |text| keys.iter().fold(text.to_owned(), |text, key| text.replace(key, "[redacted]"))
    }

    /// Errors stop us; warnings are counted.
    fn say_remarks(&self, strict: bool) -> Result<(), Trouble> {
        let all: Vec<_> = self.homing.diagnostics().iter().filter(|it| it.severity > Severity::Info).collect();
        let given = all.iter().find(|it| it.path.is_none() && it.severity == Severity::Error);
        if let Some(error) = given {
            return Err(Trouble::config(format!("--agents{error}")));
        }
        if let (true, Some(first)) = (strict, all.first()) {
            let more = all.len() - 1;
            return Err(Trouble::config(format!(
                "{first}{}",
                if more > 0 { format!(" (and {more} more)") } else { String::new() }
            ))
            .hint("`homing check` shows all remarks; without --strict they are warnings"));
        }
        let (files, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.path.is_some());
        for it in others {
            let hint = it.hint.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
            terminal::say(&format!("warning: {}{hint}", it.message));
        }
        match files.len() {
            0 => (),
            1 => terminal::say("1 remark on agent files; `homing check` shows it"),
            count => terminal::say(&format!("{count} remarks on agent files; `homing check` shows them")),
        }
        Ok(())
    }
}

const OFFLINE: &str = "using the offline model: a keyword search that needs no key. For a real model set ANTHROPIC_API_KEY or \
                       OPENAI_API_KEY, or choose one with --model provider/model.";

/// The folder to work in.
pub(crate) fn working_folder(said: Option<&Path>) -> Result<PathBuf, Trouble> {
    let folder = match said {
        Some(folder) => folder.to_owned(),
        None => std::env::current_dir()
            .map_err(|error| Trouble::config(format!("the current folder cannot be found: {error}")))?,
    };
    let whole = std::fs::canonicalize(&folder)
        .map_err(|error| Trouble::usage(format!("there is no folder {}: {error}", folder.display())))?;
    match whole.is_dir() {
        true => Ok(whole),
        false => Err(Trouble::usage(format!("{} is no folder", folder.display()))),
    }
}

fn standard(with: &WithArgs, folder: &Path) -> Result<CodingSetup, Trouble> {
    let mut standard = CodingSetup::from_env(folder);
    standard.places.agents_json.clone_from(&with.agents);
    standard.options.strict = with.strict;
    standard.helper = std::env::current_exe().ok();
    let hash =
        |text: &String| TrustHash::try_from(text.clone()).map_err(|error| Trouble::usage(format!("--trust: {error}")));
    let given: Vec<TrustHash> = with.trust.iter().map(hash).collect::<Result<_, _>>()?;
    if !given.is_empty() {
        let store = match standard.trust.take() {
            Some(store) => store,
            None => homing_tools::trust::TrustStore::load(standard.private.join("trust.json"))
                .map_err(|error| Trouble::config(format!("what is trusted cannot be read: {error}")))?,
        };
        standard.trust = Some(store.with_given(given));
    }
    Ok(standard)
}

fn with_delegates(
    mut standard: CodingSetup,
    with: &WithArgs,
    wanted: &SessionRequest<'_>,
    config: &Layered,
) -> CodingSetup {
    standard.delegates.clone_from(&config.user.delegates);
    if let (Some(agent), false) = (wanted.agent, with.delegates.is_empty()) {
        standard.delegates.insert(agent.to_owned(), with.delegates.clone());
    }
    standard.sandbox = config.user.sandbox.options();
    standard.servers.clone_from(&config.user.mcp);
    standard.limits = config.ceiling();
    standard
}

fn permissions(builder: HomingBuilder, with: &WithArgs, config: &Layered) -> Result<HomingBuilder, Trouble> {
    let network = with.network.as_deref().map(values::network).transpose();
    let network = network.map_err(|error| Trouble::usage(format!("--network: {error}")))?;
    let flags = Layer { settled: with.allow.clone(), deny: with.deny.clone(), ..Layer::everything("flags") };
    let layers = config.layers().into_iter().chain([flags]);
    let mut builder = layers.fold(builder, HomingBuilder::layer);
    builder = builder.network(config.network(network)).sandbox(config.sandbox(with.sandbox.map(Into::into)));
    for folder in &config.user.sandbox.read {
        builder = builder.may_read(folder);
    }
    for folder in &config.user.sandbox.write {
        builder = builder.may_write(folder);
    }
    if let Some(parallel) = config.parallel(with.parallel) {
        builder = builder.parallel(usize::try_from(parallel).unwrap_or(usize::MAX));
    }
    Ok(builder)
}

fn models(builder: HomingBuilder, catalog: &Arc<Catalog>, replay: Option<Arc<Replay>>) -> HomingBuilder {
    let Some(replay) = replay else { return builder.models(catalog.clone()) };
    let prices = catalog.clone();
    let card = move |name: &str| {
        use homing_core::model::{ModelCard, Models};
        prices.get(name).map_or_else(|_| ModelCard::free(name), |model| model.card().clone())
    };
    builder.models(replay.models(card)).wrap_tools(move |tool| replay.tool(tool))
}

/// Where runs are recorded; `None` is nowhere.
pub(crate) fn journal_path(args: &JournalArgs, config: &Layered, folders: &Folders) -> Option<PathBuf> {
    match args.journal.as_deref().or(config.user.journal.as_deref()) {
        Some("off") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => folders.journal(),
    }
}

fn keep(
    builder: HomingBuilder,
    path: Option<PathBuf>,
    config: &Layered,
    wanted: &SessionRequest<'_>,
) -> Result<HomingBuilder, Trouble> {
    let said_off = |it: &Option<String>| it.as_deref() == Some("off");
    match path {
        Some(path) => {
            let mut options = SqliteOptions::default();
            options.accounts = config.user.accounts().map_err(Trouble::config)?;
            Ok(builder.journal_with(path, options))
        }
        None if wanted.needs_journal => Err(no_journal()),
        None => {
            if !said_off(&config.user.journal) && Folders::from_env().journal().is_none() {
                terminal::say("warning: HOME is not set, so this run is not recorded; name a file with --journal");
            }
            Ok(builder.journal_off())
        }
    }
}

pub(crate) fn no_journal() -> Trouble {
    Trouble::config("there is no journal: it is switched off, or HOME is not set")
        .hint("name a file with --journal PATH")
}

fn trouble(error: BuildError) -> Trouble {
    match error {
        BuildError::Journal(error) => error.into(),
        other => Trouble::config(other.to_string()),
    }
}

fn catalog(with: &WithArgs, config: &Layered) -> Arc<Catalog> {
    let lookup = |name: &str| std::env::var(name).ok().filter(|it| !it.trim().is_empty()).map(Into::into);
    let providers = Providers::new(config.user.providers.clone(), lookup);
    let mut options = ModelOptions::default();
    options.default = with.model.clone().or_else(|| config.user.model.clone());
    options.aliases.clone_from(&config.user.aliases);
    options.map = model_map(with, config);
    options.strict = with.strict;
    Arc::new(Catalog::new(providers, options, BTreeMap::new()))
}

/// Flags come first, because the first match wins.
fn model_map(with: &WithArgs, config: &Layered) -> Vec<(String, String)> {
    let flags = with.model_map.iter().flat_map(|it| it.iter().cloned());
    flags.chain(config.user.model_map.iter().map(|(from, to)| (from.clone(), to.clone()))).collect()
}

/// A model that somebody named must be one that can be had: nothing stands in for it.
fn checked_model(catalog: &Catalog, config: &Layered, with: &WithArgs, name: &str) -> Result<String, Trouble> {
    let resolver = |strict: bool| Resolver {
        providers: catalog.providers(),
        default: None,
        aliases: config.user.aliases.clone(),
        map: model_map(with, config),
        strict,
    };
    let choice = ModelChoice::Named(vec![name.to_owned()]);
    if let Ok(found) = resolver(with.strict).resolve(&choice, None) {
        return Ok(found.names.into_iter().next().unwrap_or_else(|| name.to_owned()));
    }
    let why = match resolver(true).resolve(&choice, None) {
        Err(error) => error.to_string(),
        Ok(_) => format!("`{name}` cannot be had"),
    };
    let why = why.trim_end_matches(" (--strict)");
    Err(match why.contains("no key") {
        true => Trouble::new(TroubleKind::Auth, why).hint("`homing doctor` says which variable holds its key"),
        false => Trouble::usage(why.to_owned())
            .hint("write provider/model, such as anthropic/claude-sonnet-5-5; `homing doctor` lists the providers"),
    })
}
