//! `homing trust`: shows the project files that can grant authority, and saves whether the user trusts them.

mod effects;

use std::{
    io::{IsTerminal, stdin},
    sync::Arc,
};

use homing::{CodingSetup, Folders, KnownServer, environment, server_folders};
use homing_core::sanitize;
use homing_load::Places;
use homing_sandbox::CommandEnv;
use homing_tools::{
    mcp::{ApprovalState, McpApprovals, McpError, McpScope, OauthTokens, ServerConfig},
    shell::commands::Commands,
    trust::{AuthorityFiles, TrustState, TrustStore},
};

use self::effects::Effects;
use crate::{
    cli::TrustArgs,
    columns,
    config::Layered,
    exit::{Exit, Trouble, TroubleKind, print},
    progress::figures,
    session, terminal,
};

/// Maximum number of changed files that are named.
const MAX_CHANGES: usize = 20;

pub(crate) fn run(args: &TrustArgs) -> anyhow::Result<Exit> {
    let folder = session::working_folder(args.folder.as_deref())?;
    let folders = Folders::from_env();
    let path = folders.trust().ok_or_else(|| Trouble::config("HOME is not set, so trust cannot be saved"))?;
    let unreadable = |error: std::io::Error| Trouble::config(format!("{}: {error}", path.display()));
    let mut store = TrustStore::load(path.clone()).map_err(unreadable)?;
    if args.list {
        for (project, hash) in store.projects() {
            print(&format!("{hash}  {}", project.display()))?;
        }
        return Ok(Exit::Done);
    }
    let places = CodingSetup::from_env(&folder).places;
    let folders = places.project_folders();
    if args.revoke {
        let mut was_trusted = false;
        for folder in &folders {
            was_trusted |= store.revoke(folder).map_err(unreadable)?;
        }
        terminal::say(if was_trusted { "trust revoked" } else { "this project was not trusted" });
        return Ok(Exit::Done);
    }
    let files = AuthorityFiles::of_project(&folders);
    let project = files.project();
    let state = store.state(project, &files);
    describe(&files, &state, &places, args)?;
    if args.show || matches!(state, TrustState::Trusted | TrustState::Nothing) {
        return Ok(Exit::Done);
    }
    if !args.yes && !confirmed("Trust them? Their hooks and servers will run as you. [y/N] ") {
        terminal::say("not trusted");
        return Ok(Exit::Failed);
    }
    store.trust(project, &files).map_err(unreadable)?;
    terminal::say(&format!("{} is now trusted", project.display()));
    let mut setup = CodingSetup::from_env(&folder);
    setup.trust = Some(store);
    let approvals = setup.approvals.as_deref().and_then(|path| McpApprovals::load(path).ok()).unwrap_or_default();
    let is_pending = |server: &KnownServer| !matches!(approvals.state(&server.config), ApprovalState::Approved(_));
    for KnownServer { config, from, .. } in setup.known_servers().into_iter().filter(is_pending) {
        let (name, from) = (sanitize::inert_line(&config.name), sanitize::inert_line(&from));
        terminal::say(&format!("MCP server `{name}` ({from}): approve its tools with `homing trust --server {name}`"));
    }
    Ok(Exit::Done)
}

/// Lists the tools of a server and approves them.
pub(crate) async fn server(args: &TrustArgs, name: &str) -> anyhow::Result<Exit> {
    let folder = session::working_folder(args.folder.as_deref())?;
    let folders = Folders::from_env();
    let path = folders.approvals().ok_or_else(|| Trouble::config("HOME is not set, so approvals cannot be saved"))?;
    let unwritable = |error: std::io::Error| Trouble::config(format!("{}: {error}", path.display()));
    let mut approvals = McpApprovals::load(&path).map_err(unwritable)?;
    if args.revoke {
        approvals.forget(name);
        approvals.save(&path).map_err(unwritable)?;
        terminal::say("approval removed");
        return Ok(Exit::Done);
    }
    let config = Layered::read(folders.config.as_deref(), &folder)?;
    let mut setup = CodingSetup::from_env(&folder);
    setup.servers.clone_from(&config.user.mcp);
    let named = named(setup.known_servers(), name);
    if named.is_empty() {
        if let Some(value) = config.user.mcp.get(name) {
            ServerConfig::parse(name, value).map_err(|error| Trouble::config(error.to_string()))?;
        }
        return Err(Trouble::usage(format!("there is no trusted MCP server `{name}`"))
            .hint("define it as [mcp.NAME] in your configuration; trust a project's servers with `homing trust`")
            .into());
    }
    let scope = scope(setup, &config)?;
    for server in named {
        if !approve(args, &scope, &server, &mut approvals).await? {
            terminal::say("not approved");
            return Ok(Exit::Failed);
        }
        approvals.save(&path).map_err(unwritable)?;
    }
    Ok(Exit::Done)
}

/// Returns the servers with this name, without duplicates.
fn named(known: Vec<KnownServer>, name: &str) -> Vec<KnownServer> {
    let mut named: Vec<KnownServer> = Vec::new();
    for server in known.into_iter().filter(|server| server.config.name == name) {
        if !named.iter().any(|other| other.config == server.config) {
            named.push(server);
        }
    }
    named
}

/// Starts a server, shows its tools, and asks the user to approve them.
async fn approve(
    args: &TrustArgs,
    scope: &McpScope,
    server: &KnownServer,
    approvals: &mut McpApprovals,
) -> anyhow::Result<bool> {
    let KnownServer { config, from, .. } = server;
    let place = sanitize::inert_line(&config.place.to_string());
    terminal::say(&format!("starting `{}` ({}) to list its tools: {place}", config.name, sanitize::inert_line(from)));
    let offer = scope.discover(config).await.map_err(|error| match error {
        McpError::Unauthorized(_) => Trouble::new(TroubleKind::Auth, error.to_string())
            .hint(format!("sign in with `homing mcp login {}`, or set a header with a token", config.name)),
        McpError::NotApproved(_) | McpError::Changed { .. } | McpError::Failed { .. } => {
            Trouble::config(error.to_string())
        }
    })?;
    for tool in &offer.tools {
        print(&sanitize::inert_line(&format!("{}  {}", tool.name, columns::cut(&tool.description, 100))))?;
    }
    for refused in &offer.refused {
        terminal::say(&format!("ignored: {refused}"));
    }
    if !args.yes && !confirmed("Approve these tools? [y/N] ") {
        return Ok(false);
    }
    approvals.approve(&offer);
    terminal::say(&format!("{} tools approved", offer.tools.len()));
    Ok(true)
}

fn scope(setup: CodingSetup, config: &Layered) -> Result<McpScope, Trouble> {
    let helper = environment::executable()
        .map_err(|error| Trouble::config(format!("cannot locate the homing executable: {error}")))?;
    let home = setup.places.home.clone().unwrap_or_else(|| setup.private.join("home"));
    let command_env = CommandEnv { home, env: setup.env };
    let commands = Commands::new(helper, command_env, config.user.sandbox.options(), setup.private);
    let tokens = Folders::from_env().mcp_tokens().map(OauthTokens::new);
    Ok(McpScope::new(Arc::new(commands), server_folders(&setup.places)).with_tokens(tokens))
}

/// Shows what trust would put into effect, and what changed since it was given.
fn describe(files: &AuthorityFiles, state: &TrustState, places: &Places, args: &TrustArgs) -> anyhow::Result<()> {
    for skipped in &files.skipped {
        terminal::say(&format!("warning: {skipped}"));
    }
    if *state == TrustState::Nothing {
        terminal::say("this project needs no trust");
        return Ok(());
    }
    Effects::of(files, places).print(state);
    terminal::say(&format!("{} of {}:", figures::count(files.paths().count() as u64, "file"), files.root().display()));
    effects::print_files(files, args.files);
    match state {
        TrustState::Nothing => (),
        TrustState::Trusted => terminal::say("these files are trusted"),
        TrustState::Untrusted => terminal::say("these files are not trusted yet"),
        TrustState::Changed { added, changed, removed } => {
            terminal::say("changed since they were trusted:");
            for (what, paths) in [("new", added), ("changed", changed), ("removed", removed)] {
                for path in paths.iter().take(MAX_CHANGES) {
                    terminal::say(&format!("  {what}: {}", path.display()));
                }
                if paths.len() > MAX_CHANGES {
                    terminal::say(&format!("  {what}: … and {} more", paths.len() - MAX_CHANGES));
                }
            }
        }
    }
    Ok(print(files.hash().as_str())?)
}

fn confirmed(question: &str) -> bool {
    if !stdin().is_terminal() {
        terminal::say("cannot ask without a terminal; pass --yes, or for a project run with --trust HASH");
        return false;
    }
    terminal::confirmed(question)
}
