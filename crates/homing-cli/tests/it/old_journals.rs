//! Journals of earlier versions stay readable.

use std::{fs, path::Path, process::Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::world::*;

/// A world with a copy of the journal that version 0.1.0 wrote.
struct OldJournal {
    world: World,
    folder: TempDir,
}

impl OldJournal {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journal-0.1.0.sqlite");
        fs::copy(data, folder.path().join("journal.db")).unwrap();
        Self { world: World::saying("new"), folder }
    }

    fn homing(&self, args: &[&str]) -> Output {
        let mut command = self.world.command(args);
        command.arg("--journal").arg(self.folder.path().join("journal.db"));
        command.output().unwrap()
    }

    fn runs(&self) -> Vec<Value> {
        let output = self.homing(&["runs", "--all", "--children", "--json"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        json(&output).as_array().unwrap().clone()
    }

    /// Returns the ID and the agent of the first root run that is done.
    fn finished_root(&self) -> (String, String) {
        let runs = self.runs();
        let run = runs.iter().find(|run| run["place"] == "1" && run["status"] == "done").unwrap();
        (run["run"].as_str().unwrap().to_owned(), run["agent"].as_str().unwrap().to_owned())
    }
}

#[test]
fn runs_of_an_old_journal_are_listed() {
    let runs = OldJournal::new().runs();
    let count = |status: &str| runs.iter().filter(|run| run["status"] == status).count();
    assert_eq!((runs.len(), count("done"), count("exhausted")), (9, 8, 1), "{runs:?}");
}

#[test]
fn run_of_an_old_journal_is_shown() {
    let journal = OldJournal::new();
    let (id, agent) = journal.finished_root();
    let output = journal.homing(&["show", &id, "--json"]);
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["status"]), (0, &"done".into()), "{}", err(&output));
    assert_eq!(envelope["agent"], agent.as_str());
    let text = journal.homing(&["show", &id]);
    assert!(out(&text).contains(&agent) && out(&text).contains("> "), "{}", out(&text));
}

#[test]
fn run_of_an_old_journal_is_replayed() {
    let journal = OldJournal::new();
    let recorded = json(&journal.homing(&["show", "k1", "--json"]));
    // The prompt contains the folder and the date, so the replay differs from the recording in these and exits with 1.
    let output = journal.homing(&["replay", "k1", "--json"]);
    let replayed = json(&output);
    assert_eq!((&replayed["status"], &replayed["agent"]), (&"done".into(), &"explore".into()), "{}", err(&output));
    assert_eq!((&replayed["data"], &replayed["output"]), (&recorded["data"], &recorded["output"]));
    assert!(journal.world.provider.requests().is_empty(), "a replay calls no provider");
}

#[test]
fn key_of_an_old_journal_gives_the_recorded_result() {
    let journal = OldJournal::new();
    let args = ["run", "--agent", "explore", "--model", "offline", "--key", "k1", "--json", "find retry"];
    let output = journal.homing(&args);
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["status"]), (0, &"done".into()), "{}", err(&output));
    let ids: Vec<Value> = journal.runs().iter().map(|run| run["run"].clone()).collect();
    assert!(ids.contains(&envelope["run"]) && ids.len() == 9, "the earlier run is returned: {envelope}");
}

#[test]
fn runs_of_an_old_journal_belong_to_the_folder_they_worked_in() {
    let journal = OldJournal::new();
    let runs = journal.runs();
    let project = runs[0]["project"].as_str().expect("the folder was recorded").to_owned();
    assert!(runs.iter().all(|run| run["project"] == project.as_str()), "{runs:?}");
    let here = journal.homing(&["runs", "--json"]);
    assert_eq!(json(&here), serde_json::json!([]), "they are not this project's");
    let again = journal.runs();
    assert_eq!(again, runs, "a second opening changes nothing");
    let added = journal.homing(&["run", "--model", "offline", "--json", "find retry"]);
    assert_eq!(code(&added), 0, "{}", err(&added));
    assert_eq!(json(&journal.homing(&["runs", "--json"])).as_array().unwrap().len(), 1);
}
