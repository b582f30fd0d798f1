//! Changes to files in a run tree, in the order in which they happened, taken from the facts. [`net_changes`] sums them up for
//! some of the runs, which is what a diff shows and what an undo takes back.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use serde_json::Value;
use uuid::Uuid;

use crate::{
    fact::{Fact, Record, Spawned},
    json_text::JsonText,
    message::{Args, ToolResult},
    place::Place,
    receipts::FileReceipt,
    tool::CallKey,
    tool_names,
};

/// The contents of a file at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContents {
    /// The file did not exist.
    Missing,
    /// The SHA-256 hash of its contents, in hexadecimal digits.
    Hash(String),
    /// It existed; its contents were not recorded.
    Unknown,
}

/// One change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The run that made it.
    pub run: Uuid,
    /// The run's place.
    pub place: Place,
    /// The working folder of the run.
    pub workdir: PathBuf,
    /// The path as the run wrote it: relative to the working folder if inside it.
    pub path: String,
    /// The contents before.
    pub before: FileContents,
    /// The contents after.
    pub after: FileContents,
    /// The permission bits, if the file was deleted.
    pub mode: Option<u32>,
}

impl FileChange {
    fn new(run: &ChangingRun, receipt: FileReceipt) -> Self {
        let before = match (receipt.created, receipt.before) {
            (true, _) => FileContents::Missing,
            (false, Some(hash)) => FileContents::Hash(hash),
            (false, None) => FileContents::Unknown,
        };
        let after = if receipt.deleted { FileContents::Missing } else { FileContents::Hash(receipt.sha256) };
        let (workdir, place) = (run.workdir.clone(), run.place.clone());
        Self { run: run.id, place, workdir, path: receipt.path, before, after, mode: receipt.mode }
    }

    /// Returns the absolute path.
    pub fn absolute(&self) -> PathBuf {
        self.workdir.join(&self.path)
    }
}

/// Everything that is known about changes in a run tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeChanges {
    /// Changes of files, in order.
    pub files: Vec<FileChange>,
    /// Calls that may have changed files without a record of it.
    pub unrecorded: Vec<UnrecordedChange>,
}

/// A call that may have changed files without a record of which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedChange {
    /// The run.
    pub run: Uuid,
    /// The run's place.
    pub place: Place,
    /// The command, or the tool and its path.
    pub what: String,
    /// The reason why its changes are not known.
    pub why: String,
}

/// The difference that some runs made to one file, from before their first change to after their last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetChange {
    /// The first change, with the contents before.
    pub first: FileChange,
    /// The last change, with the contents after.
    pub last: FileChange,
    /// A change by another run that came between or after, if there is one: the runs' own part cannot be told apart.
    pub mixed_with: Option<Place>,
}

/// A run while its facts are folded.
struct ChangingRun {
    id: Uuid,
    place: Place,
    workdir: PathBuf,
}

/// Collects the changes of a tree from its records.
pub fn tree_changes<'a>(records: impl IntoIterator<Item = &'a Record>) -> TreeChanges {
    let mut runs: HashMap<Uuid, ChangingRun> = HashMap::new();
    let mut open: BTreeMap<CallKey, UnrecordedChange> = BTreeMap::new();
    let mut changes = TreeChanges::default();
    for record in records {
        match &record.fact {
            Fact::Spawned(spawned) => {
                runs.insert(record.run, changing_run(record, spawned));
            }
            Fact::Called(called) => {
                let Args::Json(args) = &called.call.args else { continue };
                if let Some(what) = may_change(&called.call.name, args) {
                    let why = "its outcome is not known".to_owned();
                    let place = record.place.clone();
                    open.insert(called.key, UnrecordedChange { run: record.run, place, what, why });
                }
            }
            Fact::Returned { key, result, refused: None, .. } => {
                let Some(run) = runs.get(&record.run) else { continue };
                let began = open.remove(key);
                changes.files.extend(receipts(result).into_iter().map(|receipt| FileChange::new(run, receipt)));
                let why = not_recorded(result);
                changes.unrecorded.extend(began.zip(why).map(|(began, why)| UnrecordedChange { why, ..began }));
            }
            _ => (),
        }
    }
    changes.unrecorded.extend(open.into_values());
    changes
}

/// Sums up the changes of the runs that `is_one` selects, by file, in the order of paths.
pub fn net_changes(changes: &[FileChange], is_one: impl Fn(&FileChange) -> bool) -> Vec<NetChange> {
    let mut all: Vec<NetChange> = Vec::new();
    for change in changes {
        let known = all.iter_mut().find(|net| net.first.absolute() == change.absolute());
        match (known, is_one(change)) {
            (Some(net), true) => net.last = change.clone(),
            (Some(net), false) => net.mixed_with = Some(change.place.clone()),
            (None, true) => {
                all.push(NetChange { first: change.clone(), last: change.clone(), mixed_with: None });
            }
            (None, false) => (),
        }
    }
    // Calls of one turn run at the same time; the order of paths is always the same.
    all.sort_by_key(|net| net.first.absolute());
    all.retain(|net| net.first.before != net.last.after || net.first.before == FileContents::Unknown);
    all
}

fn changing_run(record: &Record, spawned: &Spawned) -> ChangingRun {
    ChangingRun { id: record.run, place: record.place.clone(), workdir: spawned.workdir.clone() }
}

/// Describes a call of a tool that changes files.
fn may_change(tool: &str, args: &Value) -> Option<String> {
    let text = |keys: &[&str]| keys.iter().find_map(|key| args.get(key)?.as_str()).unwrap_or_default().to_owned();
    match tool {
        tool_names::BASH => Some(text(&["command"])),
        tool_names::WRITE | tool_names::EDIT | tool_names::RESTORE => {
            Some(format!("{tool} {}", text(&["path", "file_path"])))
        }
        _ => None,
    }
}

/// The receipts in a result: one of a file tool, or the list of a command.
fn receipts(result: &ToolResult) -> Vec<FileReceipt> {
    let data = result.data.as_ref().map(JsonText::value).unwrap_or_default();
    match result.name.as_str() {
        tool_names::WRITE | tool_names::EDIT | tool_names::RESTORE => {
            serde_json::from_value(data).ok().into_iter().collect()
        }
        tool_names::BASH => {
            data.get("files").cloned().and_then(|files| serde_json::from_value(files).ok()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Returns why the changes of a command are not, or not all, recorded.
fn not_recorded(result: &ToolResult) -> Option<String> {
    if result.name != tool_names::BASH {
        return None;
    }
    let data = result.data.as_ref()?.value();
    // A command that was not started has no outcome.
    let started = ["exit_code", "signal"].iter().any(|key| data.get(key).is_some_and(|value| !value.is_null()))
        || data.get("timed_out") == Some(&Value::Bool(true));
    match (data.get("files"), data.get("files_not_recorded").and_then(Value::as_str)) {
        (_, Some(why)) => Some(why.to_owned()),
        (Some(_), None) => None,
        (None, None) => started.then(|| "changes by commands were not recorded".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(place: &str, before: &str, after: &str) -> FileChange {
        let contents = |text: &str| match text {
            "" => FileContents::Missing,
            hash => FileContents::Hash(hash.to_owned()),
        };
        FileChange {
            run: Uuid::nil(),
            place: place.parse().unwrap(),
            workdir: "/w".into(),
            path: "a".to_owned(),
            before: contents(before),
            after: contents(after),
            mode: None,
        }
    }

    #[track_caller]
    fn check(changes: &[FileChange], place: &str, expect: &[(&str, &str, Option<&str>)]) {
        let place: Place = place.parse().unwrap();
        let shown = |contents: &FileContents| match contents {
            FileContents::Missing => String::new(),
            FileContents::Hash(hash) => hash.clone(),
            FileContents::Unknown => "?".to_owned(),
        };
        let net = net_changes(changes, |change| change.place.is_within(&place));
        let found: Vec<(String, String, Option<String>)> = net
            .iter()
            .map(|net| {
                (shown(&net.first.before), shown(&net.last.after), net.mixed_with.as_ref().map(Place::to_string))
            })
            .collect();
        let expect: Vec<(String, String, Option<String>)> = expect
            .iter()
            .map(|(before, after, mixed)| ((*before).to_owned(), (*after).to_owned(), mixed.map(str::to_owned)))
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn changes_of_a_subtree_are_summed_up_and_mixing_is_noticed() {
        let changes = [change("1", "", "x"), change("1.1", "x", "y"), change("1.1", "y", "z")];
        check(&changes, "1", &[("", "z", None)]);
        check(&changes, "1.1", &[("x", "z", None)]);
        let changes = [change("1.1", "x", "y"), change("1.2", "y", "z"), change("1.1", "z", "w")];
        check(&changes, "1", &[("x", "w", None)]);
        check(&changes, "1.1", &[("x", "w", Some("1.2"))]);
        check(&changes, "1.2", &[("y", "z", Some("1.1"))]);
        check(&changes, "1.3", &[]);
        let back = [change("1", "x", "y"), change("1", "y", "x")];
        check(&back, "1", &[]);
    }
}
