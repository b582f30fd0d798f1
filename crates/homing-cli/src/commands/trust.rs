//! `homing trust`: which of a project's files carry authority, and whether the user vouches for them.

use std::{
    io::{BufRead, IsTerminal, stdin},
    path::Path,
    sync::Arc,
};

use homing::{Folders, Standard};
use homing_core::text;
use homing_load::Places;
use homing_tools::{
    commands::Commands,
    mcp::{McpScope, Pins, ServerConfig},
    sandbox::Surroundings,
    trust::{AuthorityFiles, Standing, TrustStore},
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
    let project = places.project_folders().into_iter().next().unwrap_or(folder);
    if args.revoke {
        let was = store.revoke(&project).map_err(unreadable)?;
        terminal::say(if was { "trusted no longer" } else { "it was not trusted" });
        return Ok(Exit::Done);
    }
    let files = AuthorityFiles::read(&project);
    let standing = store.standing(&project, &files);
    describe(&files, &standing)?;
    if args.show || matches!(standing, Standing::Trusted | Standing::Nothing) {
        return Ok(Exit::Done);
    }
    if !args.yes && !confirmed("Trust them? Their hooks and servers will run as you. [y/N] ") {
        terminal::say("not trusted");
        return Ok(Exit::Failed);
    }
    store.trust(&project, &files).map_err(unreadable)?;
    terminal::say(&format!("{} is trusted as it is now", project.display()));
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
    let value = config.user.mcp.get(name).ok_or_else(|| {
        Trouble::usage(format!("your configuration has no MCP server `{name}`")).hint("write it as [mcp.NAME]")
    })?;
    let wrong = |error: &dyn std::error::Error| Trouble::config(error.to_string());
    let server = ServerConfig::parse(name, value).map_err(|error| wrong(&error))?;
    terminal::say(&format!("starting `{name}` to ask what it offers…"));
    let offer = scope(&folder, &config)?.discover(&server).await.map_err(|error| wrong(&error))?;
    for tool in &offer.tools {
        print(&text::inert_line(&format!("{}  {}", tool.name, terminal::cut(&tool.description, 100))))?;
    }
    for refused in &offer.refused {
        terminal::say(&format!("not taken: {refused}"));
    }
    if !args.yes && !confirmed("Approve these tools? [y/N] ") {
        terminal::say("not approved");
        return Ok(Exit::Failed);
    }
    pins.approve(&offer);
    pins.save(&path).map_err(unwritable)?;
    terminal::say(&format!("{} tools approved", offer.tools.len()));
    Ok(Exit::Done)
}

fn scope(folder: &Path, config: &Layered) -> Result<McpScope, Trouble> {
    let standard = Standard::from_env(folder);
    let helper = std::env::current_exe()
        .map_err(|error| Trouble::config(format!("this program cannot find itself: {error}")))?;
    let home = standard.places.home.clone().unwrap_or_else(|| standard.private.join("home"));
    let surroundings = Surroundings { home, env: standard.env };
    let commands = Commands::new(helper, surroundings, config.user.sandbox.options(), standard.private);
    Ok(McpScope::new(Arc::new(commands), vec![folder.to_owned()]))
}

fn describe(files: &AuthorityFiles, standing: &Standing) -> anyhow::Result<()> {
    for path in files.paths() {
        terminal::say(&format!("  {}", path.display()));
    }
    for skipped in &files.skipped {
        terminal::say(&format!("warning: {skipped}"));
    }
    match standing {
        Standing::Nothing => terminal::say("there is nothing here that asks for trust"),
        Standing::Trusted => terminal::say("these files are trusted"),
        Standing::Untrusted => terminal::say("nobody has vouched for these files"),
        Standing::Changed { files } => {
            let names: Vec<String> = files.iter().map(|it| it.display().to_string()).collect();
            terminal::say(&format!("changed since they were trusted: {}", names.join(", ")));
        }
    }
    if !matches!(standing, Standing::Nothing) {
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
