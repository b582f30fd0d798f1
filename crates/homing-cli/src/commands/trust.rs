//! `homing trust`: which of a project's files carry authority, and whether the user vouches for them.

use std::{
    io::{BufRead, IsTerminal, stdin},
    sync::Arc,
};

use homing::{CodingSetup, Folders, KnownServer, server_folders};
use homing_core::sanitize;
use homing_load::Places;
use homing_sandbox::CommandEnv;
use homing_tools::{
    mcp::{McpScope, PinState, Pins, ServerConfig},
    shell::commands::Commands,
    trust::{AuthorityFiles, TrustState, TrustStore},
};

use crate::{
    cli::TrustArgs,
    config::Layered,
    exit::{Exit, Trouble, print},
    session, terminal,
};

pub(crate) fn run(args: &TrustArgs) -> anyhow::Result<Exit> {
    let folder = session::working_folder(args.folder.as_deref())?;
    let folders = Folders::from_env();
    let path = folders.trust().ok_or_else(|| Trouble::config("HOME is not set, so nothing can be trusted for good"))?;
    let unreadable = |error: std::io::Error| Trouble::config(format!("{}: {error}", path.display()));
    let mut store = TrustStore::load(path.clone()).map_err(unreadable)?;
    if args.list {
        for (project, hash) in store.projects() {
            print(&format!("{hash}  {}", project.display()))?;
        }
        return Ok(Exit::Done);
    }
    let mut places = Places::new(folder.clone());
    places.home = folders.home;
    let folders = places.project_folders();
    if args.revoke {
        let mut was = false;
        for folder in &folders {
            was |= store.revoke(folder).map_err(unreadable)?;
        }
        terminal::say(if was { "trusted no longer" } else { "it was not trusted" });
        return Ok(Exit::Done);
    }
    let files = AuthorityFiles::of_project(&folders);
    let project = files.project();
    let standing = store.standing(project, &files);
    describe(&files, &standing)?;
    if args.show || matches!(standing, TrustState::Trusted | TrustState::Nothing) {
        return Ok(Exit::Done);
    }
    if !args.yes && !confirmed("Trust them? Their hooks and servers will run as you. [y/N] ") {
        terminal::say("not trusted");
        return Ok(Exit::Failed);
    }
    store.trust(project, &files).map_err(unreadable)?;
    terminal::say(&format!("{} is trusted as it is now", project.display()));
    let mut standard = CodingSetup::from_env(&folder);
    standard.trust = Some(store);
    let pins = standard.pins.as_deref().and_then(|path| Pins::load(path).ok()).unwrap_or_default();
    let waits = |it: &KnownServer| !matches!(pins.state(&it.config), PinState::Approved(_));
    for KnownServer { config, from, .. } in standard.known_servers().into_iter().filter(waits) {
        let (name, from) = (sanitize::inert_line(&config.name), sanitize::inert_line(&from));
        terminal::say(&format!(
            "MCP server `{name}` ({from}): its tools are approved with `homing trust --server {name}`"
        ));
    }
    Ok(Exit::Done)
}

/// Asks a server what it offers, and approves just that.
pub(crate) async fn server(args: &TrustArgs, name: &str) -> anyhow::Result<Exit> {
    let folder = session::working_folder(args.folder.as_deref())?;
    let folders = Folders::from_env();
    let path = folders.pins().ok_or_else(|| Trouble::config("HOME is not set, so nothing can be approved for good"))?;
    let unwritable = |error: std::io::Error| Trouble::config(format!("{}: {error}", path.display()));
    let mut pins = Pins::load(&path).map_err(unwritable)?;
    if args.revoke {
        pins.forget(name);
        pins.save(&path).map_err(unwritable)?;
        terminal::say("approved no longer");
        return Ok(Exit::Done);
    }
    let config = Layered::read(folders.config.as_deref(), &folder)?;
    let mut standard = CodingSetup::from_env(&folder);
    standard.servers.clone_from(&config.user.mcp);
    let named = named(standard.known_servers(), name);
    if named.is_empty() {
        if let Some(value) = config.user.mcp.get(name) {
            ServerConfig::parse(name, value).map_err(|error| Trouble::config(error.to_string()))?;
        }
        return Err(Trouble::usage(format!("nobody you trust has an MCP server `{name}`"))
            .hint("write it as [mcp.NAME] in your configuration; a project's servers count after `homing trust`")
            .into());
    }
    let scope = scope(standard, &config)?;
    for server in named {
        if !approve(args, &scope, &server, &mut pins).await? {
            terminal::say("not approved");
            return Ok(Exit::Failed);
        }
        pins.save(&path).map_err(unwritable)?;
    }
    Ok(Exit::Done)
}

/// The servers of this name, each way of starting one once.
fn named(known: Vec<KnownServer>, name: &str) -> Vec<KnownServer> {
    let mut named: Vec<KnownServer> = Vec::new();
    for server in known.into_iter().filter(|it| it.config.name == name) {
        if !named.iter().any(|it| it.config == server.config) {
            named.push(server);
        }
    }
    named
}

/// Starts a server, shows what it offers, and asks whether that is approved.
async fn approve(args: &TrustArgs, scope: &McpScope, server: &KnownServer, pins: &mut Pins) -> anyhow::Result<bool> {
    let KnownServer { config, from, .. } = server;
    let how = sanitize::inert_line(&config.place.to_string());
    terminal::say(&format!(
        "starting `{}` of {} to ask what it offers: {how}",
        config.name,
        sanitize::inert_line(from)
    ));
    let offer = scope.discover(config).await.map_err(|error| Trouble::config(error.to_string()))?;
    for tool in &offer.tools {
        print(&sanitize::inert_line(&format!("{}  {}", tool.name, terminal::cut(&tool.description, 100))))?;
    }
    for refused in &offer.refused {
        terminal::say(&format!("not taken: {refused}"));
    }
    if !args.yes && !confirmed("Approve these tools? [y/N] ") {
        return Ok(false);
    }
    pins.approve(&offer);
    terminal::say(&format!("{} tools approved", offer.tools.len()));
    Ok(true)
}

fn scope(standard: CodingSetup, config: &Layered) -> Result<McpScope, Trouble> {
    let helper = std::env::current_exe()
        .map_err(|error| Trouble::config(format!("this program cannot find itself: {error}")))?;
    let home = standard.places.home.clone().unwrap_or_else(|| standard.private.join("home"));
    let surroundings = CommandEnv { home, env: standard.env };
    let commands = Commands::new(helper, surroundings, config.user.sandbox.options(), standard.private);
    Ok(McpScope::new(Arc::new(commands), server_folders(&standard.places)))
}

fn describe(files: &AuthorityFiles, standing: &TrustState) -> anyhow::Result<()> {
    for path in files.paths() {
        terminal::say(&format!("  {}", path.display()));
    }
    for skipped in &files.skipped {
        terminal::say(&format!("warning: {skipped}"));
    }
    match standing {
        TrustState::Nothing => terminal::say("there is nothing here that asks for trust"),
        TrustState::Trusted => terminal::say("these files are trusted"),
        TrustState::Untrusted => terminal::say("nobody has vouched for these files"),
        TrustState::Changed { files } => {
            let names: Vec<String> = files.iter().map(|it| it.display().to_string()).collect();
            terminal::say(&format!("changed since they were trusted: {}", names.join(", ")));
        }
    }
    if !matches!(standing, TrustState::Nothing) {
        print(files.hash().as_str())?;
    }
    Ok(())
}

fn confirmed(question: &str) -> bool {
    if !stdin().is_terminal() {
        terminal::say("nobody is there to ask; pass --yes, or for a project run with --trust HASH");
        return false;
    }
    terminal::prompt(question);
    let mut line = String::new();
    stdin().lock().read_line(&mut line).is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}
