//! Completion by shells: the agents, runs, questions, models and servers that exist here. Nothing is written, no provider is
//! asked, and errors complete nothing: a message would end up in the middle of the user's line.

use std::ffi::OsStr;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use homing::{CodingSetup, Folders, environment};
use homing_core::{envelope::Status, sanitize, short_id::short_id};
use homing_runtime::journal::sqlite::{Filter, SqliteJournal, SqliteOptions};
use homing_tools::worktree::kept_worktrees;

use crate::{
    cli::run::JournalArgs,
    columns,
    commands::{doctor, which_run::this_project},
    config::Layered,
    session,
};

/// Maximum number of runs that are offered.
const MAX_RUNS: u64 = 50;

/// Maximum width of a description.
const MAX_HELP: usize = 60;

/// Completes the name of an agent, or the path of its file.
pub(crate) fn agent() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let is_path = current.to_string_lossy().starts_with(['.', '/', '~']);
        let mut found = if is_path { Vec::new() } else { starting_with(agents(), current) };
        if found.is_empty() {
            found = PathCompleter::any().complete(current);
        }
        found
    })
}

/// Completes a run of this project by its short ID.
pub(crate) fn run() -> ArgValueCandidates {
    ArgValueCandidates::new(|| runs().unwrap_or_default())
}

/// Completes an open question by its ID.
pub(crate) fn question() -> ArgValueCandidates {
    ArgValueCandidates::new(|| questions().unwrap_or_default())
}

/// Completes a model that can be used here.
pub(crate) fn model() -> ArgValueCandidates {
    ArgValueCandidates::new(models)
}

/// Completes the name of a provider.
pub(crate) fn provider() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let providers = doctor::providers(config().as_ref());
        let line = |name: &str| providers.why_usable(name).unwrap_or_else(|| "no API key".to_owned());
        providers.rows().iter().map(|row| candidate(&row.name, &line(&row.name))).collect()
    })
}

/// Completes the name of an MCP server.
pub(crate) fn server() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let folder = environment::current_folder().unwrap_or_default();
        let mut setup = CodingSetup::from_env(&folder);
        setup.servers = config().map(|config| config.user.mcp.clone()).unwrap_or_default();
        setup.known_servers().iter().map(|known| CompletionCandidate::new(&known.config.name)).collect()
    })
}

/// Completes the worktree of a run.
pub(crate) fn worktree() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let folder = environment::current_folder().unwrap_or_default();
        let kept = kept_worktrees(&CodingSetup::from_env(&folder).worktrees);
        kept.iter().map(|worktree| CompletionCandidate::new(short_id(worktree.run))).collect()
    })
}

/// Completes the status of a run.
pub(crate) fn status() -> ArgValueCandidates {
    ArgValueCandidates::new(|| Status::ALL.into_iter().map(|status| CompletionCandidate::new(status.name())).collect())
}

/// Completes one of these words.
pub(crate) fn words(words: &'static [&'static str]) -> ArgValueCandidates {
    ArgValueCandidates::new(move || words.iter().map(CompletionCandidate::new).collect())
}

fn candidate(value: &str, help: &str) -> CompletionCandidate {
    let help = columns::cut(&sanitize::inert_line(help), MAX_HELP);
    CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.into()))
}

fn starting_with(all: Vec<CompletionCandidate>, current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    all.into_iter().filter(|candidate| candidate.get_value().to_string_lossy().starts_with(&*current)).collect()
}

fn config() -> Option<Layered> {
    let folder = environment::current_folder().unwrap_or_default();
    Layered::read(Folders::from_env().config.as_deref(), &folder).ok()
}

fn agents() -> Vec<CompletionCandidate> {
    let folder = environment::current_folder().unwrap_or_default();
    let found = CodingSetup::from_env(&folder).discover();
    found.registry.all().map(|entry| candidate(&entry.definition.name, &entry.definition.description)).collect()
}

/// Opens the journal, if there is one.
fn journal() -> Option<std::sync::Arc<SqliteJournal>> {
    let args = JournalArgs { journal: environment::variable("HOMING_JOURNAL") };
    let path = session::journal_path(&args, &config()?, &Folders::from_env()).filter(|path| path.exists())?;
    let mut options = SqliteOptions::default();
    options.retention = None;
    SqliteJournal::open(path, options).ok()
}

fn runs() -> Option<Vec<CompletionCandidate>> {
    let filter = Filter { project: Some(this_project(None)), limit: Some(MAX_RUNS), ..Filter::default() };
    let rows = journal()?.runs(&filter).ok()?;
    let line = |status: Status, agent: &str, task: &str| format!("{} {agent}: {task}", status.name());
    Some(rows.iter().map(|row| candidate(&short_id(row.run), &line(row.status, &row.agent, &row.task))).collect())
}

fn questions() -> Option<Vec<CompletionCandidate>> {
    let questions = journal()?.questions(Some(&this_project(None))).ok()?;
    let line = |agent: &str, text: &str| format!("{agent}: {text}");
    let of = |open: &homing_core::question::OpenQuestion| {
        candidate(&open.id.short(), &line(&open.agent, &open.question.text))
    };
    Some(questions.iter().map(|question| of(&question.open)).collect())
}

/// The aliases of the user, and the models of the providers that are usable. Without any, all that are known.
fn models() -> Vec<CompletionCandidate> {
    let config = config();
    let providers = doctor::providers(config.as_ref());
    let aliases = config.iter().flat_map(|config| &config.user.aliases);
    let aliases = aliases.map(|(name, model)| candidate(name, model));
    let is_usable = |name: &str| providers.is_usable(name) && !providers.listed_models(name).is_empty();
    let any = providers.rows().iter().any(|row| is_usable(&row.name));
    let rows = providers.rows().into_iter().filter(|row| !any || is_usable(&row.name));
    let listed = rows.flat_map(|row| {
        let models = providers.listed_models(&row.name);
        models.into_iter().map(|model| CompletionCandidate::new(format!("{}/{model}", row.name))).collect::<Vec<_>>()
    });
    [candidate("offline", "needs no API key")].into_iter().chain(aliases).chain(listed).collect()
}
