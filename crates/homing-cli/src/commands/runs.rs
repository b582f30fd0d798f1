//! `homing runs`: lists recorded runs, newest first, or sums up their usage.

use std::{
    fs, io,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use homing::{Folders, environment};
use homing_core::{envelope::EnvelopeUsage, sanitize, short_id::short_id};
use homing_runtime::journal::{
    JournalError,
    sqlite::{Filter, RunRow, SqliteJournal, SqliteOptions, UsageSum, Which},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    cli::{journal::RunsArgs, restate::On, run::JournalArgs},
    columns::{self, UnicodeWidthStr},
    commands::{
        restate::{list::Copies, refresh},
        which_run::in_project,
    },
    config::Layered,
    exit::{Exit, Trouble, print},
    progress::figures,
    session, terminal,
};

pub(crate) fn run(args: &RunsArgs) -> anyhow::Result<Exit> {
    if args.on == Some(On::Restate) {
        let copies = super::wait_for(async { Ok(Copies::new(args).await?) })?;
        return list(&copies.journal, args);
    }
    let journal = open_to_read(&args.journal)?;
    if refresh::has_open(&journal)? {
        super::wait_for(async { Ok(refresh::refresh_open(&journal).await?) })?;
    }
    list(&journal, args)
}

fn list(journal: &SqliteJournal, args: &RunsArgs) -> anyhow::Result<Exit> {
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
        print_none(journal, &filter)?;
    } else {
        print_rows(&rows, args.scope.all)?;
    }
    Ok(Exit::Done)
}

/// Opens the journal that flags, environment or configuration name.
pub(crate) fn open(args: &JournalArgs) -> Result<Arc<SqliteJournal>, Trouble> {
    Ok(SqliteJournal::open(path(args)?, SqliteOptions::default())?)
}

fn path(args: &JournalArgs) -> Result<PathBuf, Trouble> {
    let folders = Folders::from_env();
    let folder = environment::current_folder().unwrap_or_default();
    let config = Layered::read(folders.config.as_deref(), &folder)?;
    session::journal_path(args, &config, &folders).ok_or_else(session::no_journal)
}

/// A journal for commands that only read.
pub(crate) struct ReadJournal {
    journal: Arc<SqliteJournal>,
    /// The folder of the copy, which is removed at the end.
    _copy: Option<TempDir>,
}

impl Deref for ReadJournal {
    type Target = Arc<SqliteJournal>;

    fn deref(&self) -> &Self::Target {
        &self.journal
    }
}

/// Opens the journal to read it. SQLite needs to write beside a journal even to read it, so one that this user may only read is copied.
pub(crate) fn open_to_read(args: &JournalArgs) -> Result<ReadJournal, Trouble> {
    let path = path(args)?;
    match SqliteJournal::open(&path, SqliteOptions::default()) {
        Ok(journal) => Ok(ReadJournal { journal, _copy: None }),
        Err(error @ JournalError::Unwritable(_)) => {
            let (journal, copy) = open_copy(&path).ok_or(error)?;
            terminal::inform("the journal is read-only: this shows a copy of it");
            Ok(ReadJournal { journal, _copy: Some(copy) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a private copy of the journal and of its write-ahead log. `None` if it cannot be read either.
fn open_copy(path: &Path) -> Option<(Arc<SqliteJournal>, TempDir)> {
    let folder = TempDir::new().ok()?;
    let copy = folder.path().join("journal.db");
    let log = |file: &Path| PathBuf::from(format!("{}-wal", file.display()));
    for (from, to) in [(path.to_owned(), copy.clone()), (log(path), log(&copy))] {
        match fs::read(&from).and_then(|bytes| fs::write(&to, bytes)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound || from == path => return None,
            Ok(()) | Err(_) => (),
        }
    }
    Some((SqliteJournal::open(copy, SqliteOptions::default()).ok()?, folder))
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
    let agents = columns::widest(rows.iter().map(|row| row.agent.as_str())).clamp(5, 24);
    let now = millis_now();
    for row in rows {
        let id = short_id(row.run);
        let project = if is_all { project_name(row) } else { String::new() };
        let place = if row.place.depth() == 0 { String::new() } else { format!("{} ", row.place) };
        let agent = columns::cell(&sanitize::inert_line(&row.agent), agents);
        let head = format!(
            "{id}  {:<11}  {agent}  {:>9}  {:>8}  {:>7}  ",
            row.status.name(),
            format!("{} tok", figures::tokens(row.usage.input + row.usage.output)),
            figures::short_cost(&row.usage),
            format!("{} ago", ago(now.saturating_sub(row.started))),
        );
        let waiting = waiting_for_budget(row);
        let task = format!("{project}{place}{waiting}{}", sanitize::inert_line(&row.task));
        let width = terminal::width().map_or(60, |width| width.saturating_sub(head.width()).max(10));
        print(&format!("{head}{}", columns::cut(&task, width)))?;
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
    let names = columns::widest(sums.iter().map(|sum| sum.name.as_str())).clamp(5, 40);
    for sum in sums {
        let EnvelopeUsage { input, output, turns, .. } = sum.usage;
        print(&format!(
            "{}  {:>10}  {:>10}  {:>9} tok  {:>10}",
            columns::cell(&sanitize::inert_line(&sum.name), names),
            figures::count(sum.runs, "run"),
            figures::count(turns, "turn"),
            figures::tokens(input + output),
            figures::short_cost(&sum.usage),
        ))?;
    }
    Ok(())
}
