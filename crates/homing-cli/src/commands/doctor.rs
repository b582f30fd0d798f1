//! `homing doctor`: tries everything for real, spends nothing, and says what to do.

use std::{path::Path, time::Duration};

use homing::{CodingSetup, Folders};
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

/// How long a provider has to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// What was found out about one thing.
enum Finding {
    Good(String),
    /// It works without, but something is worth knowing.
    Note(String),
    Bad(String),
}

pub(crate) async fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let folder = session::working_folder(None)?;
    let folders = Folders::from_env();
    let standard = CodingSetup::from_env(&folder);
    let project = standard.places.project_folders().into_iter().next().unwrap_or_else(|| folder.clone());
    let config = Layered::read(folders.config.as_deref(), &project);
    let mut is_well = true;
    let mut tell = |what: &str, finding: Finding| -> anyhow::Result<()> {
        let (sign, words) = match finding {
            Finding::Good(words) => ("ok  ", words),
            Finding::Note(words) => ("note", words),
            Finding::Bad(words) => {
                is_well = false;
                ("BAD ", words)
            }
        };
        Ok(print(&format!("{sign}  {what:<10}  {}", homing_core::sanitize::inert(&words)))?)
    };
    tell("homing", Finding::Good(format!("version {}", env!("CARGO_PKG_VERSION"))))?;
    tell("config", configuration(&config))?;
    tell("sandbox", sandbox(&standard).await)?;
    tell("git", git().await)?;
    let config = config.ok();
    let providers = providers(config.as_ref());
    for row in providers.rows().iter().filter(|row| providers.is_usable(&row.name)) {
        if let Some(finding) = provider(row).await {
            tell(&row.name, finding)?;
        }
    }
    tell("model", model(&providers, config.as_ref()))?;
    tell("journal", journal(config.as_ref(), &folders, args.journal))?;
    tell("trust", trust(&standard))?;
    tell("terminal", screen())?;
    Ok(if is_well { Exit::Done } else { Exit::Failed })
}

fn configuration(config: &Result<Layered, Trouble>) -> Finding {
    match config {
        Err(trouble) => Finding::Bad(trouble.to_string()),
        Ok(config) => match config.ignored().first() {
            Some(remark) => Finding::Note(remark.clone()),
            None => Finding::Good("readable".to_owned()),
        },
    }
}

/// Tries the sandbox with a command that does nothing.
pub(crate) async fn sandboxes(standard: &CodingSetup) -> Option<Sandboxes> {
    let helper = std::env::current_exe().ok()?;
    let home = standard.places.home.clone().unwrap_or_else(|| standard.private.join("home"));
    let surroundings = CommandEnv { home, env: standard.env.clone() };
    Some(Sandboxes::probe(&helper, &surroundings, &standard.private).await)
}

async fn sandbox(standard: &CodingSetup) -> Finding {
    let Some(found) = sandboxes(standard).await else {
        return Finding::Bad("this program cannot find itself, so commands cannot be watched over".to_owned());
    };
    match found.best() {
        Some(Backend::Bubblewrap { program, .. }) => Finding::Good(format!("bubblewrap ({})", program.display())),
        Some(Backend::Landlock { version, network: OwnNetwork::Possible }) => {
            Finding::Good(format!("Landlock version {version}"))
        }
        Some(Backend::Landlock { version, network: OwnNetwork::Impossible }) => Finding::Good(format!(
            "Landlock version {version}; commands have no loopback, and cannot reach listed hosts"
        )),
        None => Finding::Bad(format!(
            "none works here, so commands are refused: {}. Install bubblewrap, use a kernel with Landlock, or accept \
             unconfined commands with --sandbox off",
            found.why_not()
        )),
    }
}

async fn git() -> Finding {
    let asked = tokio::process::Command::new("git").arg("--version").output();
    match tokio::time::timeout(CONNECT, asked).await {
        Ok(Ok(output)) if output.status.success() => {
            Finding::Good(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Finding::Bad("not found: worktrees and diffs need it. Install git, or put it on the PATH".to_owned()),
    }
}

fn providers(config: Option<&Layered>) -> Providers {
    let lookup = |name: &str| std::env::var(name).ok().filter(|it| !it.trim().is_empty()).map(Into::into);
    Providers::new(config.map(|it| it.user.providers.clone()).unwrap_or_default(), lookup)
}

/// Whether a provider's address takes connections. Nothing is asked of it, so nothing is spent.
async fn provider(row: &ProviderRow) -> Option<Finding> {
    let (host, port) = address(&row.base_url)?;
    let connect = tokio::net::TcpStream::connect((host.as_str(), port));
    let reached = tokio::time::timeout(CONNECT, connect).await;
    let is_local = row.key_vars.is_empty();
    match reached {
        Ok(Ok(_)) => Some(Finding::Good(format!("{host}:{port} can be reached"))),
        // Local providers need no key, so they are always there to be tried; most people run none.
        Ok(Err(_)) | Err(_) if is_local => None,
        Ok(Err(error)) => {
            Some(Finding::Bad(format!("{host}:{port} cannot be reached: {error}. Check the network or a proxy")))
        }
        Err(_) => Some(Finding::Bad(format!("{host}:{port} does not answer within 3 s. Check the network or a proxy"))),
    }
}

fn address(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let default = if scheme == "http" { 80 } else { 443 };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) => {
            Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        }
        _ => Some((authority.to_owned(), default)),
    }
}

fn model(providers: &Providers, config: Option<&Layered>) -> Finding {
    if let Some(model) = config.and_then(|it| it.user.model.clone()) {
        return Finding::Good(format!("{model}, as configured"));
    }
    match homing_models::names::default_model(providers) {
        Some((_, why)) => Finding::Good(why),
        None => {
            let vars = providers.rows().iter().filter_map(|row| row.key_vars.first()).take(4).cloned();
            Finding::Note(format!(
                "no provider's key is set: set {} or another, or use --model offline",
                vars.collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

fn journal(config: Option<&Layered>, folders: &Folders, all: bool) -> Finding {
    let args = JournalArgs { journal: std::env::var("HOMING_JOURNAL").ok() };
    let path = match config {
        Some(config) => session::journal_path(&args, config, folders),
        None => folders.journal(),
    };
    let Some(path) = path else {
        return Finding::Note(
            "switched off, or HOME is not set: runs are not recorded. Name a file with --journal".into(),
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
        Ok(report) if report.problems.is_empty() => {
            Finding::Good(format!("{}: {} trees, {} records, all sound", path.display(), report.trees, report.records))
        }
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

fn trust(standard: &CodingSetup) -> Finding {
    let files = AuthorityFiles::of_project(&standard.places.project_folders());
    match standard.trust.as_ref().map(|store| store.standing(files.project(), &files)) {
        Some(TrustState::Nothing) => Finding::Good("nothing in this project asks for it".to_owned()),
        Some(TrustState::Trusted) => Finding::Good("this project's files are trusted".to_owned()),
        Some(TrustState::Changed { .. }) => {
            Finding::Note("this project's files have changed since: `homing trust`".to_owned())
        }
        Some(TrustState::Untrusted) => Finding::Note(
            "this project's files are not trusted: their hooks and servers do not run. `homing trust`".to_owned(),
        ),
        None => Finding::Note("HOME is not set, so nothing is trusted".to_owned()),
    }
}

fn screen() -> Finding {
    if !terminal::is_watched() {
        return Finding::Good("none: progress comes as plain lines".to_owned());
    }
    let (width, height) = terminal::size();
    let colours = if terminal::has_colours() { "colours" } else { "no colours" };
    let letters = if terminal::is_unicode() { "UTF-8" } else { "ASCII only: set LANG to a UTF-8 locale" };
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
