//! `homing runs`: lists recorded runs, newest first, or sums up their usage.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use homing::{Folders, environment};
use homing_core::{envelope::EnvelopeUsage, sanitize, short_id::short_id};
use homing_runtime::journal::sqlite::{Filter, RunRow, SqliteJournal, SqliteOptions, UsageSum, Which};
use serde_json::json;

use crate::{
    cli::{journal::RunsArgs, run::JournalArgs},
    commands::which_run::in_project,
    config::Layered,
    exit::{Exit, Trouble, print},
    progress::figures,
    session, terminal,
};

pub(crate) fn run(args: &RunsArgs) -> anyhow::Result<Exit> {
    let journal = open(&args.journal)?;
    let since = args.since.map(before_now);
    let project = args.scope.project(None);
    if let Some(by) = &args.sum_by {
        let sums = journal.sum_by(by, since, project.as_deref()).map_err(Trouble::from)?;
        if args.json {
            print(&terminal::json(&serde_json::to_value(&sums)?))?;
        } else {
            print_sums(&sums)?;
        }
        return Ok(Exit::Done);
    }
    let filter = Filter {
        which: if args.children { Which::All } else { Which::Roots },
        project,
        with_pruned: args.pruned,
        since,
        status: args.status,
        agent: args.agent.clone(),
        tag: args.tag.as_ref().map(|tag| match tag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (tag.clone(), None),
        }),
        limit: Some(args.limit),
        ..Filter::default()
    };
    let rows = journal.runs(&filter).map_err(Trouble::from)?;
    if args.json {
        print(&terminal::json(&json!(rows)))?;
    } else if rows.is_empty() {
        print_none(&journal, &filter)?;
    } else {
        print_rows(&rows, args.scope.all)?;
    }
    Ok(Exit::Done)
}

/// Opens the journal that flags, environment or configuration name.
pub(crate) fn open(args: &JournalArgs) -> Result<Arc<SqliteJournal>, Trouble> {
    let folders = Folders::from_env();
    let folder = environment::current_folder().unwrap_or_default();
    let config = Layered::read(folders.config.as_deref(), &folder)?;
    let path = session::journal_path(args, &config, &folders).ok_or_else(session::no_journal)?;
    Ok(SqliteJournal::open(path, SqliteOptions::default())?)
}

fn before_now(time: Duration) -> u64 {
    millis_now().saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn millis_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Says that nothing matches, and whether other projects have runs.
fn print_none(journal: &SqliteJournal, filter: &Filter) -> Result<(), Trouble> {
    let place = in_project(filter.project.as_deref());
    let any = Filter { limit: Some(1), ..Filter::default() };
    terminal::say(&match (&filter.project, journal.runs(&any)?.is_empty()) {
        (Some(_), false) => format!("no runs{place}; `homing runs --all` lists those of all projects"),
        (Some(_) | None, _) => format!("no runs{place}; start one with `homing run`"),
    });
    Ok(())
}

/// Returns the name of the project of a row, as shown before its task.
fn project_name(row: &RunRow) -> String {
    let name = row.project.as_deref().and_then(|project| project.file_name());
    name.map(|name| format!("{}: ", sanitize::inert_line(&name.to_string_lossy()))).unwrap_or_default()
}

fn print_rows(rows: &[RunRow], is_all: bool) -> anyhow::Result<()> {
    let agents = rows.iter().map(|row| row.agent.chars().count()).max().unwrap_or(0).clamp(5, 24);
    let now = millis_now();
    for row in rows {
        let id = short_id(row.run);
        let project = if is_all { project_name(row) } else { String::new() };
        let place = if row.place.depth() == 0 { String::new() } else { format!("{} ", row.place) };
        let agent = terminal::cut(&sanitize::inert_line(&row.agent), agents);
        let head = format!(
            "{id}  {:<11}  {agent:<agents$}  {:>9}  {:>8}  {:>7}  ",
            row.status.name(),
            format!("{} tok", figures::tokens(row.usage.input + row.usage.output)),
            figures::cost(&row.usage),
            format!("{} ago", ago(now.saturating_sub(row.started))),
        );
        let waiting = waiting_for_budget(row);
        let task = format!("{project}{place}{waiting}{}", sanitize::inert_line(&row.task));
        let width = terminal::width().map_or(60, |width| width.saturating_sub(head.chars().count()).max(10));
        print(&format!("{head}{}", terminal::cut(&task, width)))?;
    }
    Ok(())
}

/// The runs of a row that wait for budget, as shown before its task.
fn waiting_for_budget(row: &RunRow) -> String {
    match row.waiting_for_budget {
        0 => String::new(),
        1 if row.place.depth() > 0 => "(waiting for budget) ".to_owned(),
        many => format!("({many} waiting for budget) "),
    }
}

fn ago(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn print_sums(sums: &[UsageSum]) -> anyhow::Result<()> {
    let names = sums.iter().map(|sum| sum.name.chars().count()).max().unwrap_or(0).clamp(5, 40);
    for sum in sums {
        let EnvelopeUsage { input, output, turns, .. } = sum.usage;
        print(&format!(
            "{:<names$}  {:>10}  {:>10}  {:>9} tok  {:>10}",
            terminal::cut(&sanitize::inert_line(&sum.name), names),
            figures::count(sum.runs, "run"),
            figures::count(turns, "turn"),
            figures::tokens(input + output),
            figures::cost(&sum.usage),
        ))?;
    }
    Ok(())
}
