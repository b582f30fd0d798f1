//! `homing serve`: the web interface and the HTTP API for the runs of the journal.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use homing::{Folders, Homing, Limits, Rule, SpawnError, Task, Team, crates::core::BoxFuture};
use homing_otel::Telemetry;
use homing_web::{HostError, HostErrorKind, OpenProject, ServeError, TlsFiles, TokenFile, WebHost, WebOptions};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    cli::{
        PublicArgs,
        run::{LimitArgs, OnQuestionArg, WithArgs},
    },
    commands::restate::{Raising, RemoteTree, refresh},
    exit::{Exit, Trouble, TroubleKind},
    session::{Session, SessionRequest, working_folder},
    signals::Signals,
    terminal,
};

/// Maximum time for the runs of MCP clients to end when the server stops.
const GRACE: Duration = Duration::from_secs(3);

/// Maximum time until the copy of a run on workers shows that the run continues.
const COPIED: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(
    after_help = "The link logs a browser in; programs send the token as `Authorization: Bearer …`. The token is in a
private file and stays the same until --rotate-token. Runs that are started here park their questions until they are answered.
When the server stops, its runs are interrupted, and can be resumed."
)]
pub(crate) struct ServeArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7433")]
    listen: SocketAddr,
    /// Open the interface in the browser.
    #[arg(long)]
    open: bool,
    /// Print the link of a server that is running at this address, and exit.
    #[arg(long, conflicts_with_all = ["open", "rotate_token", "resume"])]
    link: bool,
    /// Resume interrupted runs.
    #[arg(long)]
    resume: bool,
    /// File of the access token (default: `serve-token` beside the journal).
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    token_file: Option<PathBuf>,
    /// Replace the access token: links, cookies and programs with the old one are logged out.
    #[arg(long, help_heading = "Access")]
    rotate_token: bool,
    /// Certificate chain in PEM form, to encrypt the traffic.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Access")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Access")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    public: PublicArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    with: WithArgs,
}

/// Serves until a signal arrives.
pub(crate) async fn run(args: &ServeArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let token = token_file(args)?;
    if args.link {
        let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
        let token = token.read_or_create().map_err(trouble)?;
        anstream::println!("link: {scheme}://{}/login?token={token}", args.listen);
        return Ok(Exit::Done);
    }
    if args.rotate_token {
        token.rotate().map_err(trouble)?;
    }
    let mut with = args.with.clone();
    with.approval.on_question.get_or_insert(OnQuestionArg::Park);
    let project = working_folder(with.cwd.as_deref())?;
    let mut options = WebOptions::new(args.listen, token, project);
    (options.public, options.hosts) = (args.public.bind_public, args.public.host.clone());
    options.tls =
        args.tls_cert.clone().zip(args.tls_key.clone()).map(|(certificate, key)| TlsFiles { certificate, key });
    let mcp = Arc::new(super::mcp::endpoint(args.with.clone(), args.limits.clone(), telemetry.clone()).await?);
    let endpoint = mcp.clone();
    options.mcp = Some(Arc::new(move |request| {
        let endpoint = endpoint.clone();
        Box::pin(async move { endpoint.handle(request).await })
    }));
    let host = Arc::new(CliHost { with, limits: args.limits.limits(), telemetry });
    let server = homing_web::serve(host, options).await.map_err(trouble)?;
    anstream::println!("url: {}\nlink: {}", server.url(), server.login_url());
    if args.resume {
        let (resumed, problems) = server.resume_interrupted().await;
        terminal::say(&format!("resumed {resumed} interrupted runs"));
        problems.iter().for_each(|problem| terminal::say(&format!("warning: {problem}")));
    }
    if args.open {
        // Other users can see the arguments of programs, so the browser gets a link that works once.
        open_browser(&server.single_use_url());
    }
    let copies = super::runs::open(&args.with.journal).ok().map(|journal| tokio::spawn(refresh::attend(journal)));
    let signal = signals.next().await;
    if let Some(copies) = copies {
        copies.abort();
    }
    let left = server.stop();
    mcp.stop(GRACE).await;
    if left > 0 {
        let runs = if left == 1 { "1 run was".to_owned() } else { format!("{left} runs were") };
        terminal::say(&format!("{runs} interrupted; continue with `homing serve --resume` or `homing resume`"));
    }
    Ok(Exit::Signal(signal))
}

/// Returns the file of the token: the given one, or one beside the journal.
fn token_file(args: &ServeArgs) -> Result<TokenFile, Trouble> {
    let default = || Some(Folders::from_env().data?.join("serve-token"));
    let path = args.token_file.clone().or_else(default);
    let path = path.ok_or_else(|| {
        Trouble::config("HOME is not set, so there is no place for the token").hint("name a file with --token-file")
    })?;
    Ok(TokenFile::new(path))
}

fn open_browser(link: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = std::process::Stdio::null;
    let opened = std::process::Command::new(program).arg(link).stdout(quiet()).stderr(quiet()).stdin(quiet()).spawn();
    if opened.is_err() {
        terminal::say(&format!("warning: cannot open a browser: {program} is not available; open the link yourself"));
    }
}

fn trouble(error: impl Into<ServeError>) -> Trouble {
    match error.into() {
        ServeError::Public(address) => Trouble::usage(format!("{address} can be reached from other machines")).hint(
            "use 127.0.0.1, encrypt with --tls-cert and --tls-key, or pass --bind-public to allow it unencrypted",
        ),
        ServeError::Token(error @ homing_web::TokenError::Exposed(..)) => {
            Trouble::config(error.to_string()).hint("make it private (chmod 600), then replace it with --rotate-token")
        }
        ServeError::Host(HostError { message, hint, .. }) => Trouble { hint, ..Trouble::config(message) },
        ServeError::NoPort(address, error) if error.kind() == std::io::ErrorKind::AddrInUse => Trouble::config(
            format!("{address} is already in use"),
        )
        .hint(
            "if `homing serve` is running there, --link prints its link; otherwise choose another port with --listen",
        ),
        ServeError::NoJournal => crate::session::no_journal(),
        other => Trouble::config(other.to_string()),
    }
}

/// Opens projects as the command line does.
struct CliHost {
    with: WithArgs,
    limits: Limits,
    telemetry: Option<Telemetry>,
}

impl WebHost for CliHost {
    fn open<'a>(
        &'a self,
        folder: &'a Path,
        teams: Vec<Team>,
    ) -> BoxFuture<'a, Result<Arc<dyn OpenProject>, HostError>> {
        Box::pin(async move {
            let with = WithArgs { cwd: Some(folder.to_owned()), ..self.with.clone() };
            let telemetry = self.telemetry.clone();
            let request = SessionRequest { needs_journal: true, teams, telemetry, ..SessionRequest::default() };
            let session = Session::open(&with, request).await.map_err(|error| host_error(&error))?;
            session.choose_default_model().await;
            let (limits, account) = (self.limits, with.account);
            Ok(Arc::new(CliProject { session, folder: folder.to_owned(), limits, account }) as Arc<dyn OpenProject>)
        })
    }

    fn stamp(&self, folder: &Path) -> u64 {
        super::mcp::stamp(folder)
    }
}

/// A project that the command line opened.
struct CliProject {
    session: Session,
    folder: PathBuf,
    limits: Limits,
    account: Option<String>,
}

impl OpenProject for CliProject {
    fn homing(&self) -> &Homing {
        &self.session.homing
    }

    fn prepare(&self, task: Task, limits: Limits) -> Task {
        let mut task = self.session.bounded(task, limits.or(self.limits));
        let agent = self.session.homing.registry().get(&task.agent).ok();
        // The model of a team is its program, which no other model can replace.
        let is_team = agent.is_some_and(|agent| homing_teams::is_team_agent(agent));
        task.model = task.model.or_else(|| self.session.model.clone()).filter(|_| !is_team);
        task.account = task.account.or_else(|| self.account.clone());
        task
    }

    fn plan(&self, task: Task) -> Result<Value, HostError> {
        super::run::plan::plan_json(&self.session, task).map_err(|trouble| host_error(&trouble.into()))
    }

    fn agents(&self) -> Value {
        super::agents::agents_json(&self.session)
    }

    fn agent(&self, name: &str) -> Result<Value, HostError> {
        // A path would make the server read a file.
        if self.session.homing.registry().get(name).is_err() {
            let message = format!("there is no agent `{name}`");
            return Err(HostError { kind: HostErrorKind::NotFound, message, hint: None });
        }
        super::agents::agent_json(&self.session, name).map_err(|error| host_error(&error))
    }

    fn models(&self) -> (Option<String>, Vec<String>) {
        let default = self.session.model.clone().or_else(|| self.session.catalog.default_model().map(|(name, _)| name));
        (default, self.session.config.user.aliases.keys().cloned().collect())
    }

    fn accounts(&self) -> BTreeMap<String, Option<u64>> {
        let accounts = self.session.config.user.accounts().unwrap_or_default();
        accounts.into_iter().map(|(name, account)| (name, account.per_day_micros)).collect()
    }

    fn allow_always(&self, rules: &[Rule]) -> Result<String, HostError> {
        super::answer::allow_always(&self.folder, rules).map_err(|trouble| host_error(&trouble.into()))
    }

    fn redacted(&self, text: &str) -> String {
        (self.session.redactor())(text)
    }

    fn raise_elsewhere(&self, tree: Uuid, run: Uuid, more: Limits) -> BoxFuture<'_, Result<Option<String>, HostError>> {
        Box::pin(async move {
            let raised = raise_on_workers(&self.session, tree, run, more).await;
            raised.map_err(|trouble| host_error(&trouble.into()))
        })
    }

    fn spawn_error(&self, error: SpawnError) -> HostError {
        host_error(&Trouble::from(error).into())
    }
}

/// Raises the limits of a run on workers; `None` if its tree is not on workers.
async fn raise_on_workers(session: &Session, tree: Uuid, run: Uuid, more: Limits) -> Result<Option<String>, Trouble> {
    let Some(journal) = session.homing.journal() else { return Ok(None) };
    let Some(remote) = RemoteTree::find(journal, tree).await? else { return Ok(None) };
    if more == Limits::default() {
        return Err(Trouble::usage("workers resume this run by themselves; name a limit to raise it"));
    }
    let raising = remote.raise(journal, run, more).await?;
    // The copy must show that the run goes on, before the reader looks at it again.
    remote.refresh_until(journal, COPIED, |fold| fold.root().is_some_and(|root| root.ended.is_none())).await?;
    match raising {
        Raising::Posted => Ok(Some("the worker of the run raises the limits".to_owned())),
        Raising::Continues => Ok(Some("the limits were raised, and a worker continues the run".to_owned())),
        Raising::Ended => Err(Trouble::usage("the run has already ended, and not by a limit that could be raised")),
    }
}

fn host_error(error: &anyhow::Error) -> HostError {
    let trouble = error.downcast_ref::<Trouble>();
    let kind = match trouble.map(|trouble| trouble.kind) {
        Some(TroubleKind::Usage | TroubleKind::Config | TroubleKind::Limit) => HostErrorKind::Usage,
        Some(TroubleKind::Refused) => HostErrorKind::Refused,
        Some(TroubleKind::Auth) | None => HostErrorKind::Unavailable,
    };
    HostError { kind, message: error.to_string(), hint: trouble.and_then(|trouble| trouble.hint.clone()) }
}
