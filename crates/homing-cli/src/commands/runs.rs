//! `homing runs`: lists recorded runs, newest first, or sums up their usage.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use homing::{Folders, environment};
use homing_core::{envelope::EnvelopeUsage, sanitize};
use homing_runtime::journal::sqlite::{Filter, RunRow, SqliteJournal, SqliteOptions, UsageSum, Which};
use serde_json::json;

use crate::{
    cli::{journal::RunsArgs, run::JournalArgs},
    config::Layered,
    exit::{Exit, Trouble, print},
    progress::figures,
    session, terminal,
};

pub(crate) fn run(args: &RunsArgs) -> anyhow::Result<Exit> {
    let journal = open(&args.journal)?;
    let since = args.since.map(before_now);
    if let Some(by) = &args.sum_by {
        let sums = journal.sum_by(by, since).map_err(Trouble::from)?;
        if args.json {
            print(&terminal::json(&serde_json::to_value(&sums)?))?;
        } else {
            print_sums(&sums)?;
        }
        return Ok(Exit::Done);
    }
    let filter = Filter {
        which: if args.all { Which::All } else { Which::Roots },
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
    } else {
        print_rows(&rows)?;
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

fn print_rows(rows: &[RunRow]) -> anyhow::Result<()> {
    if rows.is_empty() {
        terminal::say("no runs; start one with `homing run`");
        return Ok(());
    }
    let agents = rows.iter().map(|row| row.agent.chars().count()).max().unwrap_or(0).clamp(5, 24);
    let now = millis_now();
    for row in rows {
        let id: String = row.run.to_string().chars().take(13).collect();
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
        let task = format!("{place}{waiting}{}", sanitize::inert_line(&row.task));
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
