//! `homing doctor`: checks the installation by trying each part. Asks no model, so it costs nothing.

mod provider_check;

use std::{path::Path, sync::Arc, time::Duration};

use homing::{CodingSetup, Folders, environment};
use homing_models::{ProviderRow, Providers};
use homing_runtime::journal::sqlite::{SqliteJournal, SqliteOptions};
use homing_sandbox::{Backend, CommandEnv, OwnNetwork, PrivateFolder, Sandboxes};
use homing_tools::trust::{AuthorityFiles, TrustState};
use serde_json::json;

use self::provider_check::OfferedModels;
use crate::{
    cli::{DoctorArgs, run::JournalArgs},
    config::Layered,
    exit::{Exit, Trouble, print},
    session, terminal,
};

/// Maximum time for a provider to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// The result of one check.
enum Finding {
    Good(String),
    /// Works, but the user should know something.
    Note(String),
    Bad(String),
}

pub(crate) async fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let folder = session::working_folder(None)?;
    let folders = Folders::from_env();
    let setup = CodingSetup::from_env(&folder);
    let project = setup.places.project_folders().into_iter().next().unwrap_or_else(|| folder.clone());
    let config = Layered::read(folders.config.as_deref(), &project);
    let (mut is_well, mut rows) = (true, Vec::new());
    let mut show = |name: &str, finding: Finding| -> anyhow::Result<()> {
        let (sign, text) = match finding {
            Finding::Good(text) => ("ok", text),
            Finding::Note(text) => ("note", text),
            Finding::Bad(text) => {
                is_well = false;
                ("BAD", text)
            }
        };
        if args.json {
            rows.push(json!({"check": name, "state": sign.to_lowercase(), "message": text}));
            return Ok(());
        }
        Ok(print(&format!("{sign:<4}  {name:<10}  {}", homing_core::sanitize::inert(&text)))?)
    };
    show("homing", Finding::Good(format!("version {}", env!("CARGO_PKG_VERSION"))))?;
    show("config", configuration(&config))?;
    show("sandbox", sandbox(&setup).await)?;
    show("git", git().await)?;
    let config = config.ok();
    let providers = providers(config.as_ref());
    let mut offered = OfferedModels::new();
    let table = providers.rows();
    for row in table.iter().filter(|row| providers.is_usable(&row.name) && !args.offline) {
        // The key of a provider that was moved is not for the others that share it.
        let is_moved =
            |other: &Arc<ProviderRow>| other.has_own_url && !row.has_own_url && other.key_vars == row.key_vars;
        if !row.key_vars.is_empty() && table.iter().any(is_moved) {
            continue;
        }
        if let Some(finding) = provider_check::provider(&providers, row, &mut offered).await {
            show(&row.name, finding)?;
        }
    }
    show("model", provider_check::model(&providers, config.as_ref(), (!args.offline).then_some(&offered)).await)?;
    show("journal", journal(config.as_ref(), &folders, args.journal))?;
    show("trust", trust(&setup))?;
    show("terminal", screen())?;
    if args.json {
        print(&terminal::json(&rows.into()))?;
    }
    Ok(if is_well { Exit::Done } else { Exit::Failed })
}

fn configuration(config: &Result<Layered, Trouble>) -> Finding {
    match config {
        Err(trouble) => Finding::Bad(trouble.to_string()),
        Ok(config) => match config.warnings().first() {
            Some(warning) => Finding::Note(warning.clone()),
            None => Finding::Good("readable".to_owned()),
        },
    }
}

/// Probes the sandbox back-ends with a command that does nothing.
pub(crate) async fn sandboxes(setup: &CodingSetup) -> Option<Sandboxes> {
    let helper = environment::executable().ok()?;
    Some(Sandboxes::probe_best(&helper, &command_env(setup), &setup.private).await)
}

fn command_env(setup: &CodingSetup) -> CommandEnv {
    let home = setup.places.home.clone().unwrap_or_else(|| setup.private.join("home"));
    CommandEnv { home, env: setup.env.clone() }
}

async fn sandbox(setup: &CodingSetup) -> Finding {
    if let Err(error) = PrivateFolder::try_in(&setup.private, &command_env(setup)) {
        return Finding::Bad(format!(
            "commands are refused: {error}. Correct the folder's owner and mode, or remove it"
        ));
    }
    let Some(found) = sandboxes(setup).await else {
        return Finding::Bad("cannot locate the homing executable, which supervises commands".to_owned());
    };
    match found.best() {
        Some(Backend::Bubblewrap { program, .. }) => Finding::Good(format!("bubblewrap ({})", program.display())),
        Some(Backend::Landlock { version, network: OwnNetwork::Possible }) => {
            Finding::Good(format!("Landlock version {version} ({})", found.why_not()))
        }
        Some(Backend::Landlock { version, network: OwnNetwork::Impossible }) => Finding::Good(format!(
            "Landlock version {version}; commands have no loopback and cannot reach listed hosts"
        )),
        Some(Backend::Seatbelt { program }) => Finding::Good(format!("Seatbelt ({})", program.display())),
        None => Finding::Bad(format!(
            "none available, so commands are refused: {}. Install bubblewrap, use a kernel with Landlock, or run commands \
             unconfined with --sandbox off",
            found.why_not()
        )),
    }
}

async fn git() -> Finding {
    let version = tokio::process::Command::new("git").arg("--version").output();
    match tokio::time::timeout(CONNECT, version).await {
        Ok(Ok(output)) if output.status.success() => {
            Finding::Good(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Finding::Bad("not found, but needed for worktrees and diffs. Install git, or add it to PATH".to_owned()),
    }
}

pub(crate) fn providers(config: Option<&Layered>) -> Providers {
    Providers::new(config.map(|config| config.user.providers.clone()).unwrap_or_default(), environment::key)
        .with_aws_profile(environment::aws_profile())
}

fn journal(config: Option<&Layered>, folders: &Folders, all: bool) -> Finding {
    let args = JournalArgs { journal: environment::variable("HOMING_JOURNAL") };
    let path = match config {
        Some(config) => session::journal_path(&args, config, folders),
        None => folders.journal(),
    };
    let Some(path) = path else {
        return Finding::Note(
            "turned off, or HOME is not set: runs are not recorded. Name a file with --journal".into(),
        );
    };
    match SqliteJournal::open(path.clone(), SqliteOptions::default()) {
        Err(error) => Finding::Bad(format!("{}: {error}. Choose another file with --journal", path.display())),
        Ok(_) if !all => Finding::Good(format!("{} (`homing doctor --journal` checks every record)", path.display())),
        Ok(journal) => checked(&journal, &path),
    }
}

fn checked(journal: &SqliteJournal, path: &Path) -> Finding {
    match journal.check() {
        Err(error) => Finding::Bad(format!("{}: {error}", path.display())),
        Ok(report) if report.problems.is_empty() => Finding::Good(format!(
            "{}: {} run trees, {} records, no damage",
            path.display(),
            report.trees,
            report.records
        )),
        Ok(report) => {
            let problems: Vec<String> = report.problems.iter().take(10).map(ToString::to_string).collect();
            Finding::Bad(format!(
                "{}: {} problems:\n  {}",
                path.display(),
                report.problems.len(),
                problems.join("\n  ")
            ))
        }
    }
}

fn trust(setup: &CodingSetup) -> Finding {
    let files = AuthorityFiles::of_project(&setup.places.project_folders());
    match setup.trust.as_ref().map(|store| store.state(files.project(), &files)) {
        Some(TrustState::Nothing) => Finding::Good("this project needs no trust".to_owned()),
        Some(TrustState::Trusted) => Finding::Good("this project's files are trusted".to_owned()),
        Some(TrustState::Changed { .. }) => {
            Finding::Note("this project's files changed since they were trusted; run `homing trust`".to_owned())
        }
        Some(TrustState::Untrusted) => Finding::Note(
            "this project's files are not trusted, so their hooks and servers do not run; run `homing trust`"
                .to_owned(),
        ),
        None => Finding::Note("HOME is not set, so nothing is trusted".to_owned()),
    }
}

fn screen() -> Finding {
    if !terminal::is_watched() {
        return Finding::Good("none: progress is printed as lines".to_owned());
    }
    let (width, height) = terminal::size();
    let colours = if terminal::has_colours() { "colours" } else { "no colours" };
    let letters = if environment::is_unicode_locale() { "UTF-8" } else { "ASCII only: set LANG to a UTF-8 locale" };
    Finding::Good(format!("{width}×{height}, {colours}, {letters}"))
}
