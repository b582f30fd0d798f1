//! `homing trust`: which of a project's files carry authority, and whether the user vouches for them.

use std::io::{BufRead, IsTerminal, stdin};

use homing::Folders;
use homing_load::Places;
use homing_tools::trust::{AuthorityFiles, Standing, TrustStore};

use crate::{
    cli::TrustArgs,
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
    if !args.yes && !confirmed() {
        terminal::say("not trusted");
        return Ok(Exit::Failed);
    }
    store.trust(&project, &files).map_err(unreadable)?;
    terminal::say(&format!("{} is trusted as it is now", project.display()));
    Ok(Exit::Done)
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

fn confirmed() -> bool {
    if !stdin().is_terminal() {
        terminal::say("nobody is there to ask; pass --yes, or run with --trust HASH");
        return false;
    }
    terminal::prompt("Trust them? Their hooks and servers will run as you. [y/N] ");
    let mut line = String::new();
    stdin().lock().read_line(&mut line).is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}
