//! `homing fork`: starts a new run tree from the middle of a recorded one.

use std::collections::BTreeMap;

use homing_core::{
    fact::{Fact, Record, Spawned},
    tree::RunTree,
};
use homing_otel::Telemetry;
use homing_runtime::Fork;
use homing_teams::Team;
use serde_json::Value;

use super::restate::RemoteTree;
use crate::{
    cli::journal::ForkArgs,
    commands::which_run,
    exit::{Exit, Trouble},
    print_result,
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::watch,
};

pub(crate) async fn run(args: &ForkArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let journal = super::runs::open(&args.with.journal)?;
    let found = which_run::find_anywhere(&journal, &args.id, args.scope.project(args.with.cwd.as_deref())).await?;
    let mut records = journal.follow(found.tree, 0).map_err(Trouble::from)?;
    if records.last().is_none_or(|last| last.seq < args.at)
        && let Some(remote) = RemoteTree::find(&journal, found.tree).await?
    {
        remote.refresh(&journal).await?;
        records = journal.follow(found.tree, 0).map_err(Trouble::from)?;
    }
    let no_run = || Trouble::usage("there is no such run");
    let with = which_run::in_recorded_folder(&args.with, which_run::root_of(&records).ok_or_else(no_run)?)?;
    drop(journal);
    let records: Vec<&Record> = records.iter().map(|record| &**record).filter(|record| record.seq <= args.at).collect();
    let (fork, teams) = planned(args, &records)?;
    let request = SessionRequest { needs_journal: true, telemetry, teams, ..SessionRequest::default() };
    let session = Session::open(&with, request).await?;
    terminal::inform(&format!("forking {} at position {}", which_run::described(&found), args.at));
    let run = session.homing.fork(found.tree, fork).await.map_err(Trouble::from)?;
    let result = watch(&session.homing, &run, args.output.show(), &session.prompt, &mut signals).await;
    print_result::print_watched(&result, args.output.form(), true);
    Ok(result.exit())
}

/// Returns the fork, and the teams that it needs.
fn planned(args: &ForkArgs, records: &[&Record]) -> Result<(Fork, Vec<Team>), Trouble> {
    let mut tree = RunTree::default();
    for record in records {
        tree.apply(record).map_err(|error| Trouble::usage(error.to_string()))?;
    }
    let parsed = |value: &String| serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
    let values: BTreeMap<String, Value> = args.set.iter().map(|(key, value)| (key.clone(), parsed(value))).collect();
    let mut fork = Fork::at(args.at);
    fork.more = args.limits.limits();
    fork.task.clone_from(&args.task);
    fork.agent = homing_teams::with_values(&tree, &values).map_err(Trouble::usage)?;
    let mut teams = homing_teams::recorded_in(records.iter().copied());
    match (&fork.agent, records.first().map(|record| &record.fact)) {
        (Some(agent), Some(Fact::Spawned(spawned))) => {
            let changed = Spawned { agent: agent.clone().into(), ..Spawned::clone(spawned) };
            let changed = homing_teams::recorded(&changed);
            teams.retain(|team| team.name != agent.name);
            teams.extend(changed);
        }
        _ => {
            fork.set = values;
            fork.model.clone_from(&args.with.model);
        }
    }
    Ok((fork, teams))
}
