//! `homing resume`: resumes interrupted runs, and gives exhausted ones a larger budget.

use std::{path::Path, sync::Arc};

use homing::{Claim, RunHandle};
use homing_core::{envelope::Status, fact::Spawned, limits::Limits};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::Filter;
use homing_teams::Team;
use uuid::Uuid;

use crate::{
    cli::journal::ResumeArgs,
    commands::{
        restate::{Raising, follow::follow},
        which_run,
    },
    exit::{Exit, Trouble},
    print_result,
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::{WatchResult, watch},
};

pub(crate) async fn run(args: &ResumeArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let project = (!args.all).then(|| which_run::this_project(args.with.cwd.as_deref()));
    let chosen = chosen(args, project.as_deref()).await?;
    if chosen.is_empty() {
        terminal::say(&format!("there are no interrupted runs{}", which_run::in_project(project.as_deref())));
        return Ok(Exit::Done);
    }
    let mut worst = Exit::Done;
    // Each run continues in its own folder, with the agents, the rules and the trust of that folder.
    for group in by_folder(chosen) {
        let result = resume_group(args, telemetry.clone(), group, &mut signals).await;
        match result {
            Ok((exit, Continue::Stop)) => return Ok(exit),
            Ok((exit, Continue::Next)) => worst = worse(worst, exit),
            Err(error) if args.id.is_none() => {
                terminal::say(&format!("error: {error}"));
                worst = worse(worst, Exit::Failed);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(worst)
}

/// A run tree to resume.
struct Chosen {
    tree: Uuid,
    described: String,
    root: Arc<Spawned>,
    teams: Vec<Team>,
}

/// Selects whether further groups are resumed. A signal stops all.
enum Continue {
    Next,
    Stop,
}

fn worse(one: Exit, other: Exit) -> Exit {
    if other.code() > one.code() { other } else { one }
}

/// Returns the run trees to resume.
async fn chosen(args: &ResumeArgs, project: Option<&Path>) -> Result<Vec<Chosen>, Trouble> {
    let journal = super::runs::open(&args.with.journal)?;
    let trees = match &args.id {
        Some(id) => vec![which_run::find_anywhere(&journal, id, project.map(Path::to_owned)).await?.tree],
        None => {
            let (status, project) = (Some(Status::Interrupted), project.map(Path::to_owned));
            let filter = Filter { status, project, ..Filter::default() };
            journal.runs(&filter)?.into_iter().map(|row| row.tree).collect()
        }
    };
    let chosen = trees.into_iter().map(|tree| {
        let records = journal.follow(tree, 0)?;
        let root = which_run::root_of(&records).ok_or_else(|| Trouble::usage("there is no such run"))?.clone();
        let teams = homing_teams::recorded_in(records.iter().map(|record| &**record));
        let described = which_run::described_by_id(&journal, tree);
        Ok(Chosen { tree, described, root, teams })
    });
    chosen.collect()
}

/// Groups run trees by their folders, in their order.
fn by_folder(chosen: Vec<Chosen>) -> Vec<Vec<Chosen>> {
    let mut groups: Vec<Vec<Chosen>> = Vec::new();
    for one in chosen {
        match groups.iter_mut().find(|group| group[0].root.workdir == one.root.workdir) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Resumes the run trees of one folder at once, and prints their results in order.
async fn resume_group(
    args: &ResumeArgs,
    telemetry: Option<Telemetry>,
    group: Vec<Chosen>,
    signals: &mut Signals,
) -> anyhow::Result<(Exit, Continue)> {
    let with = which_run::in_recorded_folder(&args.with, &group[0].root)?;
    let mut teams: Vec<Team> = Vec::new();
    for team in group.iter().flat_map(|one| &one.teams) {
        if !teams.iter().any(|known| known.name == team.name) {
            teams.push(team.clone());
        }
    }
    let request = SessionRequest { needs_journal: true, teams, telemetry, ..SessionRequest::default() };
    let session = Session::open(&with, request).await?;
    let mut worst = Exit::Done;
    let mut runs = Vec::new();
    for one in &group {
        if let Some(result) = reattach(&session, one.tree, args, signals).await? {
            print_result::print_watched(&result, args.output.form(), true);
            if result.signal.is_some() {
                return Ok((result.exit(), Continue::Stop));
            }
            worst = worse(worst, result.exit());
            continue;
        }
        match resume(args, &session, one.tree).await {
            Ok(run) => runs.push((run, one)),
            Err(trouble) if args.id.is_none() => {
                terminal::say(&format!("error: {}: {trouble}", one.described));
                worst = Exit::Failed;
            }
            Err(trouble) => return Err(trouble.into()),
        }
    }
    for (run, one) in &runs {
        if run.status().is_over() {
            let status = run.status().name().replace('_', " ");
            terminal::say(&format!("{} has already ended ({status}); its result:", one.described));
        } else {
            terminal::inform(&format!("resuming {}", one.described));
        }
        let result = watch(&session.homing, run, args.output.show(), &session.prompt, signals).await;
        print_result::print_watched(&result, args.output.form(), true);
        if result.signal.is_some() {
            return Ok((result.exit(), Continue::Stop));
        }
        worst = worse(worst, result.exit());
    }
    Ok((worst, Continue::Next))
}

async fn resume(args: &ResumeArgs, session: &Session, tree: Uuid) -> Result<RunHandle, Trouble> {
    let claim = if args.force { Claim::Force } else { Claim::IfGone };
    Ok(session.resume(tree, claim, args.limits.limits()).await?)
}

/// Follows a tree that workers drive: they resume it by themselves. With more budget, they continue one that a limit had ended.
async fn reattach(
    session: &Session,
    tree: Uuid,
    args: &ResumeArgs,
    signals: &mut Signals,
) -> anyhow::Result<Option<WatchResult>> {
    let Some(journal) = session.homing.journal() else { return Ok(None) };
    let Some(remote) = super::restate::RemoteTree::find(journal, tree).await? else { return Ok(None) };
    let more = args.limits.limits();
    if more != Limits::default() {
        match remote.raise(journal, tree, more).await? {
            Raising::Posted | Raising::Continues => (),
            Raising::Ended => {
                let status = journal.envelope(tree).map_err(Trouble::from)?.status.name().replace('_', " ");
                let described = which_run::described_by_id(journal, tree);
                terminal::say(&format!("{described} has already ended ({status}); its result:"));
            }
        }
    }
    let show = args.output.show();
    Ok(Some(Box::pin(follow(&remote.server, tree, session, show, signals, &mut |_, _| None)).await?))
}
