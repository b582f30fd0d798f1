//! `homing doctor`: checks the installation by trying each part. Calls no model, so it costs nothing.

use std::{path::Path, time::Duration};

use homing::{CodingSetup, Folders, environment};
use homing_models::{ProviderRow, Providers};
use homing_runtime::journal::sqlite::{SqliteJournal, SqliteOptions};
use homing_sandbox::{Backend, CommandEnv, OwnNetwork, Sandboxes};
use homing_tools::trust::{AuthorityFiles, TrustState};

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
    let mut is_well = true;
    let mut show = |name: &str, finding: Finding| -> anyhow::Result<()> {
        let (sign, text) = match finding {
            Finding::Good(text) => ("ok  ", text),
            Finding::Note(text) => ("note", text),
            Finding::Bad(text) => {
                is_well = false;
                ("BAD ", text)
            }
        };
        Ok(print(&format!("{sign}  {name:<10}  {}", homing_core::sanitize::inert(&text)))?)
    };
    show("homing", Finding::Good(format!("version {}", env!("CARGO_PKG_VERSION"))))?;
    show("config", configuration(&config))?;
    show("sandbox", sandbox(&setup).await)?;
    show("git", git().await)?;
    let config = config.ok();
    let providers = providers(config.as_ref());
    for row in providers.rows().iter().filter(|row| providers.is_usable(&row.name)) {
        if let Some(finding) = provider(row).await {
            show(&row.name, finding)?;
        }
    }
    show("model", model(&providers, config.as_ref()).await)?;
    show("journal", journal(config.as_ref(), &folders, args.journal))?;
    show("trust", trust(&setup))?;
    show("terminal", screen())?;
    Ok(if is_well { Exit::Done } else { Exit::Failed })
}

fn configuration(config: &Result<Layered, Trouble>) -> Finding {
    match config {
        Err(trouble) => Finding::Bad(trouble.to_string()),
        Ok(config) => match config.ignored().first() {
            Some(warning) => Finding::Note(warning.clone()),
            None => Finding::Good("readable".to_owned()),
        },
    }
}

/// Probes the sandbox back-ends with a command that does nothing.
pub(crate) async fn sandboxes(setup: &CodingSetup) -> Option<Sandboxes> {
    let helper = environment::executable().ok()?;
    let home = setup.places.home.clone().unwrap_or_else(|| setup.private.join("home"));
    let command_env = CommandEnv { home, env: setup.env.clone() };
    Some(Sandboxes::probe(&helper, &command_env, &setup.private).await)
}

async fn sandbox(setup: &CodingSetup) -> Finding {
    let Some(found) = sandboxes(setup).await else {
        return Finding::Bad("cannot locate the homing executable, which supervises commands".to_owned());
    };
    match found.best() {
        Some(Backend::Bubblewrap { program, .. }) => Finding::Good(format!("bubblewrap ({})", program.display())),
        Some(Backend::Landlock { version, network: OwnNetwork::Possible }) => {
            Finding::Good(format!("Landlock version {version}"))
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

fn providers(config: Option<&Layered>) -> Providers {
    Providers::new(config.map(|config| config.user.providers.clone()).unwrap_or_default(), environment::key)
}

/// Checks whether a provider's address accepts connections. Sends no request.
async fn provider(row: &ProviderRow) -> Option<Finding> {
    let (host, port) = address(&row.base_url)?;
    let connect = tokio::net::TcpStream::connect((host.as_str(), port));
    let reached = tokio::time::timeout(CONNECT, connect).await;
    let is_local = row.key_vars.is_empty();
    match reached {
        Ok(Ok(_)) => Some(Finding::Good(format!("connected to {host}:{port}"))),
        // Local providers need no key, so they are always tried; most users run none.
        Ok(Err(_)) | Err(_) if is_local => None,
        Ok(Err(error)) => {
            Some(Finding::Bad(format!("cannot connect to {host}:{port}: {error}. Check the network or a proxy")))
        }
        Err(_) => Some(Finding::Bad(format!("no answer from {host}:{port} within 3 s. Check the network or a proxy"))),
    }
}

fn address(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let default = if scheme == "http" { 80 } else { 443 };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        }
        _ => Some((authority.to_owned(), default)),
    }
}

/// Names the model of runs that name none. A server of the user is asked for its list, as a run would.
async fn model(providers: &Providers, config: Option<&Layered>) -> Finding {
    if let Some(model) = config.and_then(|config| config.user.model.clone()) {
        return Finding::Good(format!("{model}, as configured"));
    }
    let served = homing_models::names::served_model(providers).await;
    match served.or_else(|| homing_models::names::default_model(providers)) {
        Some((_, why)) => Finding::Good(why),
        None => {
            let vars = providers.rows().iter().filter_map(|row| row.key_vars.first()).take(4).cloned();
            Finding::Note(format!(
                "no provider API key is set: set {} or another, or use --model offline",
                vars.collect::<Vec<_>>().join(", ")
            ))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_urls() {
        assert_eq!(address("http://127.0.0.1:8080/v1"), Some(("127.0.0.1".into(), 8080)));
        assert_eq!(address("https://api.openai.com/v1"), Some(("api.openai.com".into(), 443)));
        assert_eq!(address("nonsense"), None);
    }
}
