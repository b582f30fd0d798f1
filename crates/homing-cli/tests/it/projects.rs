//! Runs belong to a project: commands mean this project's runs, and a continued run works in the folder it was recorded with.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
    process::{Command, Output},
};

use homing_testing::FakeResponse;
use serde_json::Value;
use tempfile::TempDir;

use crate::world::*;

/// A world with a second project, which is a repository with a folder `inner`.
struct TwoProjects {
    world: World,
    other: TempDir,
}

impl TwoProjects {
    fn new(world: World) -> Self {
        let other = TempDir::new().unwrap();
        fs::create_dir_all(other.path().join(".git")).unwrap();
        fs::create_dir_all(other.path().join("inner")).unwrap();
        Self { world, other }
    }

    fn in_other(&self, folder: &str, args: &[&str]) -> Output {
        self.world.command(args).current_dir(self.other.path().join(folder)).output().unwrap()
    }

    fn other_root(&self) -> PathBuf {
        fs::canonicalize(self.other.path()).unwrap()
    }
}

fn rows(output: &Output) -> Vec<Value> {
    json(output).as_array().expect("an array").clone()
}

#[test]
fn r64_runs_are_listed_by_project() {
    let two = TwoProjects::new(World::saying("done"));
    two.world.homing(&run(&["first"]));
    let other = two.in_other("inner", &run(&["second"]));
    assert_eq!(code(&other), 0, "{}", err(&other));
    let here = rows(&two.world.homing(&["runs", "--json"]));
    assert_eq!(here.len(), 1, "{here:?}");
    assert_eq!(here[0]["task"], "first");
    let there = rows(&two.in_other("", &["runs", "--json"]));
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(there[0]["project"], two.other_root().display().to_string(), "the root of the repository");
    assert_eq!(rows(&two.world.homing(&["runs", "--all", "--json"])).len(), 2);
    let name = two.other_root().file_name().unwrap().to_string_lossy().into_owned();
    let all = out(&two.world.homing(&["runs", "--all"]));
    assert!(all.contains(&format!("{name}: second")), "{all}");
    let empty = TempDir::new().unwrap();
    let none = two.world.command(&["runs"]).current_dir(empty.path()).output().unwrap();
    assert!(err(&none).contains("no runs in ") && err(&none).contains("homing runs --all"), "{}", err(&none));
    let sums = rows(&two.world.homing(&["runs", "--sum-by", "agent", "--json"]));
    assert_eq!(sums[0]["runs"], 1, "{sums:?}");
    assert_eq!(rows(&two.world.homing(&["runs", "--sum-by", "project", "--all", "--json"])).len(), 2);
}

#[test]
fn r64_place_means_the_newest_tree_of_this_project() {
    let two = TwoProjects::new(World::saying("done"));
    two.world.homing(&run(&["first"]));
    two.in_other("", &run(&["second"]));
    assert!(out(&two.world.homing(&["show", "1"])).contains("> first"));
    assert!(out(&two.in_other("inner", &["show"])).contains("> second"));
    assert!(out(&two.world.homing(&["show", "1", "--all"])).contains("> second"), "the newest of all projects");
    let other = rows(&two.in_other("", &["runs", "--json"]));
    let id = other[0]["run"].as_str().unwrap();
    assert!(out(&two.world.homing(&["show", id])).contains("> second"), "an ID reaches other projects");
    assert!(out(&two.world.homing(&["show", &id[28..]])).contains("> second"), "a short ID, too");
    let empty = TempDir::new().unwrap();
    for command in ["show", "cancel", "export"] {
        let none = two.world.command(&[command, "1"]).current_dir(empty.path()).output().unwrap();
        assert_eq!(code(&none), 2, "{command}");
        assert!(err(&none).contains("there is no run `1` in /") && err(&none).contains("--all"), "{}", err(&none));
    }
}

#[test]
fn r64_told_run_continues_in_its_own_folder() {
    let world = World::new(|_, seen| match (seen.body.contains("write it down"), has_results(seen)) {
        (true, false) => FakeResponse::chat_calls(&[("write", r#"{"path":"made.txt","content":"x"}"#)]),
        _ => FakeResponse::chat_text("done"),
    });
    let two = TwoProjects::new(world);
    two.world.homing(&run(&["first"]));
    let id = rows(&two.world.homing(&["runs", "--json"]))[0]["run"].as_str().unwrap().to_owned();
    let told = two.in_other("", &["tell", &id, "write it down", "--yes", MODEL[0], MODEL[1]]);
    assert_eq!(code(&told), 0, "{}", err(&told));
    let project = fs::canonicalize(two.world.project.path()).unwrap();
    assert!(two.world.project.path().join("made.txt").exists(), "{}", err(&told));
    assert!(!two.other.path().join("made.txt").exists());
    let line = format!("continuing run {} (general, \"first\") in {}", &id[28..], project.display());
    assert!(err(&told).contains(&line), "{}", err(&told));
    assert_eq!(rows(&two.world.homing(&["runs", "--json"])).len(), 2, "the continued run belongs to the same project");
    fs::remove_dir_all(two.world.project.path()).unwrap();
    let gone = two.in_other("", &["tell", &id, "again", MODEL[0], MODEL[1]]);
    assert_eq!(code(&gone), 2);
    assert!(err(&gone).contains("the folder of this run is gone"), "{}", err(&gone));
}

#[test]
fn r64_interrupted_runs_are_resumed_by_project() {
    let world = World::new(|count, _| match count {
        0 | 1 => FakeResponse::chat_text("late").after(std::time::Duration::from_secs(600)),
        _ => FakeResponse::chat_text("resumed"),
    });
    let two = TwoProjects::new(world);
    let mut here = two.world.command(&run(&["first"])).spawn().unwrap();
    let mut there = two.world.command(&run(&["second"])).current_dir(two.other.path()).spawn().unwrap();
    wait_until("both ask", || two.world.provider.requests().len() == 2);
    for child in [&mut here, &mut there] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let resumed = two.in_other("inner", &["resume", MODEL[0], MODEL[1]]);
    assert_eq!((code(&resumed), out(&resumed).trim()), (0, "resumed"), "{}", err(&resumed));
    let place = format!("(general, \"second\") in {}", two.other_root().display());
    assert!(err(&resumed).contains("resuming run ") && err(&resumed).contains(&place), "{}", err(&resumed));
    let none = two.in_other("", &["resume"]);
    assert!(err(&none).contains("there are no interrupted runs in "), "{}", err(&none));
    let all = two.in_other("", &["resume", "--all", "--json", MODEL[0], MODEL[1]]);
    assert_eq!(code(&all), 0, "{}", err(&all));
    let workdir = fs::canonicalize(two.world.project.path()).unwrap().display().to_string();
    assert!(err(&all).contains(&format!("(general, \"first\") in {workdir}")), "{}", err(&all));
}

#[test]
fn journal_of_another_user_is_read_from_a_copy() {
    let world = World::saying("the answer");
    assert_eq!(code(&world.homing(&run(&["--journal", "journal.db", "a question"]))), 0);
    let shared = tempfile::tempdir().unwrap();
    let journal = shared.path().join("journal.db");
    // The process that wrote it is gone, so everything is in this file.
    fs::copy(world.project.path().join("journal.db"), &journal).unwrap();
    let program = shared.path().join("homing");
    // By another process: a command that another test starts meanwhile would keep a file of this one open for writing, and such a
    // file cannot be executed.
    assert!(Command::new("cp").arg(snapbox::cmd::cargo_bin!("homing")).arg(&program).status().unwrap().success());
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let read = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args).args(["--journal", journal.to_str().unwrap()]).env_clear().env("HOME", "/nonexistent");
        command.current_dir("/");
        // Root may write everywhere.
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        command.output().unwrap()
    };
    let (runs, show) = (read(&["runs", "--all"]), read(&["show", "--all", "1"]));
    let tell = read(&["tell", "--all", "1", "more"]);
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(code(&runs) == 0 && out(&runs).contains("a question"), "{}{}", out(&runs), err(&runs));
    assert!(err(&runs).contains("the journal is read-only: this shows a copy of it"), "{}", err(&runs));
    assert!(code(&show) == 0 && out(&show).contains("the answer"), "{}{}", out(&show), err(&show));
    assert!(code(&tell) != 0 && err(&tell).contains("the journal cannot be written"), "{}", err(&tell));
}
