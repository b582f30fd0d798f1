//! `homing resume`: resumes interrupted runs, and gives exhausted ones a larger budget.

use homing::{Claim, RunHandle};
use homing_core::envelope::Status;
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::Filter;
use homing_teams::Team;
use uuid::Uuid;

use crate::{
    cli::journal::ResumeArgs,
    exit::{Exit, Trouble},
    print_result,
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::{WatchResult, watch},
};

pub(crate) async fn run(args: &ResumeArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let (trees, teams) = chosen(args)?;
    if trees.is_empty() {
        terminal::say("there are no interrupted runs");
        return Ok(Exit::Done);
    }
    let request = SessionRequest { needs_journal: true, teams, telemetry, ..SessionRequest::default() };
    let session = Session::open(&args.with, request).await?;
    let mut runs = Vec::new();
    let mut worst = Exit::Done;
    for tree in trees {
        if let Some(result) = reattach(&session, tree, args, &mut signals).await? {
            print_result::print_result(&result.envelope, args.output.form(), true);
            if result.signal.is_some() {
                return Ok(result.exit());
            }
            worst = if result.exit().code() > worst.code() { result.exit() } else { worst };
            continue;
        }
        match resume(args, &session, tree).await {
            Ok(run) => runs.push(run),
            Err(trouble) if args.all => {
                terminal::say(&format!("error: {trouble}"));
                worst = Exit::Failed;
            }
            Err(trouble) => return Err(trouble.into()),
        }
    }
    for run in &runs {
        if run.status().is_over() {
            let status = run.status().name().replace('_', " ");
            terminal::say(&format!("this run has already ended ({status}); its result:"));
        }
        let result = watch(&session.homing, run, args.output.show(), &session.prompt, &mut signals).await;
        print_result::print_result(&result.envelope, args.output.form(), true);
        if result.signal.is_some() {
            return Ok(result.exit());
        }
        worst = if result.exit().code() > worst.code() { result.exit() } else { worst };
    }
    Ok(worst)
}

/// Returns the run trees to resume, and the teams in them.
fn chosen(args: &ResumeArgs) -> Result<(Vec<Uuid>, Vec<Team>), Trouble> {
    let journal = super::runs::open(&args.with.journal)?;
    let trees = match &args.id {
        Some(id) => vec![super::show::find(&journal, id)?.tree],
        None => {
            let filter = Filter { status: Some(Status::Interrupted), ..Filter::default() };
            journal.runs(&filter)?.into_iter().map(|row| row.tree).collect()
        }
    };
    let mut teams: Vec<Team> = Vec::new();
    for tree in &trees {
        for team in homing_teams::recorded_in(journal.follow(*tree, 0)?.iter().map(|record| &**record)) {
            if !teams.iter().any(|known| known.name == team.name) {
                teams.push(team);
            }
        }
    }
    Ok((trees, teams))
}

async fn resume(args: &ResumeArgs, session: &Session, tree: Uuid) -> Result<RunHandle, Trouble> {
    let claim = if args.force { Claim::Force } else { Claim::IfGone };
    Ok(session.resume(tree, claim, args.limits.limits()).await?)
}

/// Follows a tree that workers drive: they resume it by themselves.
async fn reattach(
    session: &Session,
    tree: Uuid,
    args: &ResumeArgs,
    signals: &mut Signals,
) -> anyhow::Result<Option<WatchResult>> {
    let Some(journal) = session.homing.journal() else { return Ok(None) };
    let Some(remote) = super::restate::RemoteTree::find(journal, tree).await? else { return Ok(None) };
    if args.limits.limits() != homing_core::limits::Limits::default() {
        return Err(Trouble::usage("the limits of a run on a worker cannot be raised").into());
    }
    let show = args.output.show();
    Ok(Some(super::run::on_restate::follow(&remote.server, tree, Some(&**journal), show, session, signals).await?))
}
