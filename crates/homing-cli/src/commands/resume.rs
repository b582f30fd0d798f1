//! `homing resume`: goes on with runs whose process is gone, and gives exhausted ones more.

use homing::{Claim, RunHandle};
use homing_core::{envelope::Status, limits::Limits};
use homing_runtime::sqlite::{Filter, RunRow};

use crate::{
    cli::journal::ResumeArgs,
    exit::{Exit, Trouble},
    outcome,
    session::{Session, Wanted, no_journal},
    signals::Signals,
    terminal,
    watch::{Show, watch},
};

pub(crate) async fn run(args: &ResumeArgs) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let session = Session::open(&args.with, Wanted { needs_journal: true, ..Wanted::default() }).await?;
    let Some(id) = &args.id else { return all(args, &session, &mut signals).await };
    let journal = session.homing.journal().ok_or_else(no_journal)?;
    let found = super::show::find(journal, id)?;
    let run = resume(args, &session, found.tree).await?;
    if run.status().is_over() {
        terminal::say("it is over; its result was recorded:");
    }
    let seen = watch(&session.homing, &run, Show::choose(args.events), &session.asker, &mut signals).await;
    match (args.json, args.events) {
        (true, _) => outcome::json(&seen.envelope),
        (false, true) => (),
        (false, false) => outcome::words(&seen.envelope, true),
    }
    Ok(seen.exit())
}

async fn resume(args: &ResumeArgs, session: &Session, tree: uuid::Uuid) -> Result<RunHandle, Trouble> {
    let claim = if args.force { Claim::Force } else { Claim::IfGone };
    Ok(session.homing.resume(tree, claim, args.limits.limits()).await?)
}

/// Every interrupted tree, side by side; the worst ending decides the exit code.
async fn all(args: &ResumeArgs, session: &Session, signals: &mut Signals) -> anyhow::Result<Exit> {
    let journal = session.homing.journal().ok_or_else(no_journal)?;
    let filter = Filter { status: Some(Status::Interrupted), ..Filter::default() };
    let rows = journal.runs(&filter).map_err(Trouble::from)?;
    if rows.is_empty() {
        terminal::say("nothing was interrupted");
        return Ok(Exit::Done);
    }
    let mut runs = Vec::new();
    let mut worst = Exit::Done;
    for RunRow { tree, .. } in rows {
        match session
            .homing
            .resume(tree, if args.force { Claim::Force } else { Claim::IfGone }, Limits::default())
            .await
        {
            Ok(run) => runs.push(run),
            Err(error) => {
                terminal::say(&format!("error: {error}"));
                worst = Exit::Failed;
            }
        }
    }
    for run in &runs {
        let seen = watch(&session.homing, run, Show::choose(args.events), &session.asker, signals).await;
        match (args.json, args.events) {
            (true, _) => outcome::json(&seen.envelope),
            (false, true) => (),
            (false, false) => outcome::words(&seen.envelope, true),
        }
        if seen.signal.is_some() {
            return Ok(seen.exit());
        }
        worst = if seen.exit().code() > worst.code() { seen.exit() } else { worst };
    }
    Ok(worst)
}
