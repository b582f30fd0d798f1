//! `homing tell`: sends a message to a run. A finished run is continued with its history.

use homing::Task;
use homing_core::{envelope::Status, short_id::short_id};
use homing_otel::Telemetry;
use homing_runtime::{
    journal::{InboxRequest, sqlite::Posted},
    placement::SegmentRequest,
};

use super::restate::RemoteTree;
use crate::{
    cli::journal::TellArgs,
    commands::which_run,
    exit::{Exit, Trouble},
    print_result,
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::watch,
};

pub(crate) async fn run(args: &TellArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let text = args.message.join(" ");
    let journal = super::runs::open(&args.with.journal)?;
    let found = which_run::find_anywhere(&journal, &args.id, args.scope.project(args.with.cwd.as_deref())).await?;
    let described = which_run::described(&found);
    if let Some(remote) = RemoteTree::find(&journal, found.tree).await? {
        if remote.post(SegmentRequest::Tell { run: found.run, from: None, message: text.clone() }).await? {
            terminal::say(&format!("message delivered to {described} (on a worker)"));
            return Ok(Exit::Done);
        }
        // A run of this process continues the conversation.
        remote.refresh(&journal).await?;
    }
    let request = InboxRequest::Tell { tree: found.tree, run: found.run, message: text.clone() };
    match journal.post(request).await.map_err(Trouble::from)? {
        Posted::ToOwner { pid, .. } => {
            terminal::say(&format!("message delivered to {described} (process {pid})"));
            return Ok(Exit::Done);
        }
        Posted::NoOwner => (),
    }
    if super::show::envelope(&journal, &found)?.status == Status::Interrupted {
        return Err(Trouble::usage(format!("{described} was interrupted"))
            .hint(format!("resume it first: homing resume {}", short_id(found.tree)))
            .into());
    }
    let records = journal.follow(found.tree, 0).map_err(Trouble::from)?;
    let teams = homing_teams::recorded_in(records.iter().map(|record| &**record));
    let tree = journal.tree(found.tree).map_err(Trouble::from)?;
    drop(journal);
    let earlier = tree.get(found.run).ok_or_else(|| Trouble::usage("there is no such run"))?;
    let root = tree.root().unwrap_or(earlier);
    let with = which_run::in_recorded_folder(&args.with, &root.spawned)?;
    let request = SessionRequest { needs_journal: true, telemetry, teams, ..SessionRequest::default() };
    let session = Session::open(&with, request).await?;
    terminal::inform(&format!("continuing {described}"));
    let agent = earlier.spawned.agent.name.clone();
    let mut task = session.bounded(Task::new(agent, text), args.limits.limits());
    task.history = earlier.messages().iter().map(|entry| entry.message.clone()).collect();
    // The model of a team is its program, which no other model can replace.
    let model = session.model.clone().filter(|_| homing_teams::recorded(&earlier.spawned).is_none());
    task.model = model.or_else(|| earlier.spawned.models.first().cloned());
    task.context.clone_from(&earlier.spawned.context);
    task.tags = [("continues".to_owned(), found.run.to_string())].into();
    crate::telemetry::add_trace(&mut task);
    let run = session.homing.spawn(task).map_err(Trouble::from)?;
    let result = watch(&session.homing, &run, args.output.show(), &session.prompt, &mut signals).await;
    print_result::print_watched(&result, args.output.form(), true);
    Ok(result.exit())
}
