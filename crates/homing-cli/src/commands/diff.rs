//! `homing diff`: shows what a run and the runs below it changed.

use std::sync::Arc;

use homing::Folders;
use homing_core::{
    changes::{FileChange, FileContents, NetChange, TreeChanges, UnrecordedChange, net_changes, tree_changes},
    sanitize,
};
use homing_runtime::journal::sqlite::{RunRef, SqliteJournal};
use homing_tools::files::{
    change_diff::unified,
    contents::{ContentStore, sha256},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    cli::changes::DiffArgs,
    columns,
    exit::{Exit, Trouble, print},
    progress::figures,
    terminal,
};

/// Maximum size of the diff of one file.
const MAX_DIFF: usize = 4 << 20;

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open_to_read(&args.journal)?;
    let found = super::which_run::find(&journal, &args.id, Some(super::which_run::this_project(None)))?;
    let changes = RunChanges::read(&journal, &found)?;
    let store = store()?;
    if args.json {
        let files: Vec<Value> = changes.files.iter().map(|file| file_json(file, &store)).collect();
        let unrecorded: Vec<Value> = changes.unrecorded.iter().map(unrecorded_json).collect();
        print(&terminal::json(&json!({"run": found.run, "files": files, "unrecorded": unrecorded})))?;
        return Ok(Exit::Done);
    }
    for file in &changes.files {
        let text = if args.stat { stat_line(file, &store) } else { file_text(file, &store) };
        print(&coloured(&sanitize::inert(&text)))?;
    }
    if changes.files.is_empty() {
        terminal::say("no recorded changes of files");
    }
    changes.say_unrecorded();
    Ok(Exit::Done)
}

/// Returns the store with the contents of changed files.
pub(crate) fn store() -> Result<Arc<ContentStore>, Trouble> {
    let folder = Folders::from_env().contents();
    let folder = folder.ok_or_else(|| Trouble::config("HOME is not set, so no contents of files are kept"))?;
    Ok(Arc::new(ContentStore::new(folder)))
}

/// Returns the differences of all files that a tree has changed, one text per file.
pub(crate) fn tree_diffs(journal: &SqliteJournal, tree: Uuid) -> Result<Vec<String>, Trouble> {
    let records = journal.follow(tree, 0)?;
    let TreeChanges { files, .. } = tree_changes(records.iter().map(|record| &**record));
    let store = store()?;
    Ok(net_changes(&files, |_| true).iter().map(|file| file_text(file, &store)).collect())
}

/// The changes of a run and the runs below it.
pub(crate) struct RunChanges {
    pub(crate) files: Vec<NetChange>,
    pub(crate) unrecorded: Vec<UnrecordedChange>,
}

impl RunChanges {
    pub(crate) fn read(journal: &SqliteJournal, found: &RunRef) -> Result<Self, Trouble> {
        let records = journal.follow(found.tree, 0)?;
        let TreeChanges { files, mut unrecorded } = tree_changes(records.iter().map(|record| &**record));
        unrecorded.retain(|change| change.place.is_within(&found.place));
        let files = net_changes(&files, |change| change.place.is_within(&found.place));
        Ok(Self { files, unrecorded })
    }

    /// Names the calls whose changes are not known.
    pub(crate) fn say_unrecorded(&self) {
        const SHOWN: usize = 10;
        for UnrecordedChange { place, what, why, .. } in self.unrecorded.iter().take(SHOWN) {
            let what = columns::cut(&sanitize::inert_line(what), 80);
            terminal::say(&format!("note: {place} ran `{what}`: {why}"));
        }
        if self.unrecorded.len() > SHOWN {
            terminal::say(&format!(
                "note: … and {} more",
                figures::count((self.unrecorded.len() - SHOWN) as u64, "command")
            ));
        }
    }
}

/// The contents of a file before or after a change, as far as they are kept.
enum Contents {
    Missing,
    Text(String),
    Binary,
    NotKept,
}

impl Contents {
    fn read(contents: &FileContents, store: &ContentStore) -> Self {
        match contents {
            FileContents::Missing => Self::Missing,
            FileContents::Unknown => Self::NotKept,
            FileContents::Hash(hash) => match store.get(hash) {
                None => Self::NotKept,
                Some(bytes) if bytes.contains(&0) => Self::Binary,
                Some(bytes) => String::from_utf8(bytes).map_or(Self::Binary, Self::Text),
            },
        }
    }
}

/// Returns the diff of a file, or the reason why there is none.
fn file_diff(file: &NetChange, store: &ContentStore) -> Result<String, &'static str> {
    let old_name = if file.first.before == FileContents::Missing {
        "/dev/null".to_owned()
    } else {
        format!("a/{}", file.first.path)
    };
    let new_name =
        if file.last.after == FileContents::Missing { "/dev/null".to_owned() } else { format!("b/{}", file.last.path) };
    let (before, after) = (Contents::read(&file.first.before, store), Contents::read(&file.last.after, store));
    let text = |contents: Contents| match contents {
        Contents::Missing => Ok(String::new()),
        Contents::Text(text) => Ok(text),
        Contents::Binary => Err("its contents are not text"),
        Contents::NotKept => Err("its contents are not kept"),
    };
    Ok(unified(&text(before)?, &text(after)?, (&old_name, &new_name), MAX_DIFF))
}

fn file_text(file: &NetChange, store: &ContentStore) -> String {
    let head = format!("{} {}{}", verb(file), file.first.path, note(file));
    match file_diff(file, store) {
        Ok(diff) => format!("{head}\n{}", diff.trim_end_matches('\n')),
        Err(why) => format!("{head}\n  {why}"),
    }
}

fn stat_line(file: &NetChange, store: &ContentStore) -> String {
    let figures = file_diff(file, store).map_or_else(str::to_owned, |diff| {
        let count = |sign: char| diff.lines().skip(2).filter(|line| line.starts_with(sign)).count();
        format!("+{} -{}", count('+'), count('-'))
    });
    format!("{:<8} {}  {figures}{}", verb(file), file.first.path, note(file))
}

/// Returns what happened to the file.
fn verb(file: &NetChange) -> &'static str {
    match (&file.first.before, &file.last.after) {
        (FileContents::Missing, _) => "created",
        (_, FileContents::Missing) => "deleted",
        (FileContents::Hash(_) | FileContents::Unknown, FileContents::Hash(_) | FileContents::Unknown) => "changed",
    }
}

/// Returns a note if the file is not as the run left it, or if other runs changed it, too.
fn note(file: &NetChange) -> String {
    match &file.mixed_with {
        Some(place) => format!(" (also changed by {place})"),
        None if !is_as_left(&file.last) => " (changed since)".to_owned(),
        None => String::new(),
    }
}

/// Returns whether a file still is as a change left it.
pub(crate) fn is_as_left(change: &FileChange) -> bool {
    let now = std::fs::read(change.absolute());
    match &change.after {
        FileContents::Missing => now.is_err(),
        FileContents::Hash(hash) => now.is_ok_and(|bytes| sha256(&bytes) == *hash),
        FileContents::Unknown => false,
    }
}

fn file_json(file: &NetChange, store: &ContentStore) -> Value {
    let hash = |contents: &FileContents| match contents {
        FileContents::Hash(hash) => Some(hash.clone()),
        FileContents::Missing | FileContents::Unknown => None,
    };
    json!({
        "path": file.first.path,
        "folder": file.first.workdir,
        "change": verb(file),
        "place": file.last.place.to_string(),
        "before": hash(&file.first.before),
        "after": hash(&file.last.after),
        "changed_since": !is_as_left(&file.last),
        "mixed_with": file.mixed_with.as_ref().map(ToString::to_string),
        "diff": file_diff(file, store).ok(),
    })
}

fn unrecorded_json(change: &UnrecordedChange) -> Value {
    json!({"place": change.place.to_string(), "what": change.what, "why": change.why})
}

/// Adds colours to a diff. They are removed again if stdout is not a terminal.
fn coloured(text: &str) -> String {
    let lines = text.lines().enumerate().map(|(at, line)| match line.as_bytes().first() {
        _ if at == 0 => format!("\x1b[1m{line}\x1b[0m"),
        Some(b'+') if !line.starts_with("+++") => format!("\x1b[32m{line}\x1b[0m"),
        Some(b'-') if !line.starts_with("---") => format!("\x1b[31m{line}\x1b[0m"),
        Some(b'@') => format!("\x1b[36m{line}\x1b[0m"),
        Some(_) | None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
