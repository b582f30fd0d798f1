//! Changes of runs to files: `diff`, `undo` and worktrees.

use std::{fs, os::unix::fs::PermissionsExt};

use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

/// A world whose agent makes these calls in its first turn.
fn changing(calls: &'static [(&'static str, &'static str)]) -> World {
    World::new(move |number, _| match number {
        0 => FakeResponse::chat_calls(calls),
        _ => FakeResponse::chat_text("done"),
    })
}

/// Runs the agent, and returns the ID of its run.
fn run_id(world: &World) -> String {
    let output = world.homing(&run(&["--json", "x"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    json(&output)["run"].as_str().unwrap().to_owned()
}

fn text(world: &World, path: &str) -> Option<String> {
    fs::read_to_string(world.project.path().join(path)).ok()
}

const CALLS: &[(&str, &str)] = &[
    ("edit", r#"{"path": "a.txt", "old": "one", "new": "two"}"#),
    ("write", r#"{"path": "new/b.txt", "content": "b\n"}"#),
];

#[test]
fn undo_restores_files_and_can_itself_be_undone() {
    let world = changing(CALLS);
    world.write("a.txt", "one\nmore\n");
    fs::set_permissions(world.project.path().join("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let id = run_id(&world);
    let shown = out(&world.homing(&["diff", &id]));
    for part in ["changed a.txt", "-one", "+two", " more", "created new/b.txt", "--- /dev/null", "+b"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let planned = world.homing(&["undo", &id, "--dry-run"]);
    assert_eq!(
        (code(&planned), out(&planned).as_str()),
        (0, "would be restored: a.txt\nwould be deleted: new/b.txt\n")
    );
    assert_eq!(text(&world, "a.txt").unwrap(), "two\nmore\n", "a dry run changes nothing");

    let undone = world.homing(&["undo", &id, "--json"]);
    assert_eq!(code(&undone), 0, "{}{}", out(&undone), err(&undone));
    assert_eq!((text(&world, "a.txt").as_deref(), text(&world, "new/b.txt")), (Some("one\nmore\n"), None));
    let mode = fs::metadata(world.project.path().join("a.txt")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640, "the mode is kept");

    let undo: Value = json(&undone);
    let again = world.homing(&["undo", undo["run"].as_str().unwrap()]);
    assert_eq!(code(&again), 0, "{}{}", out(&again), err(&again));
    let now = (text(&world, "a.txt").unwrap(), text(&world, "new/b.txt").unwrap());
    assert_eq!(now, ("two\nmore\n".to_owned(), "b\n".to_owned()), "the undo was undone");
    assert_eq!(world.provider.requests().len(), 2, "an undo asks no model");
}

#[test]
fn undo_never_overwrites_a_later_change() {
    let world = changing(CALLS);
    world.write("a.txt", "one\n");
    let id = run_id(&world);
    world.write("a.txt", "mine\n");
    let undone = world.homing(&["undo", &id]);
    assert_eq!(code(&undone), 1);
    assert!(out(&undone).contains("conflict: a.txt: it has changed since"), "{}", out(&undone));
    assert_eq!((text(&world, "a.txt").unwrap(), text(&world, "new/b.txt").unwrap()), ("mine\n".into(), "b\n".into()));
    let undone = world.homing(&["undo", &id, "--skip-conflicts"]);
    assert_eq!(code(&undone), 1, "a conflict is left: {}", err(&undone));
    assert!(err(&undone).contains("recorded as run"), "{}", err(&undone));
    assert_eq!((text(&world, "a.txt").unwrap(), text(&world, "new/b.txt")), ("mine\n".into(), None));
}

#[test]
fn undo_obeys_deny_rules_and_protected_paths() {
    let world = changing(CALLS);
    world.write("a.txt", "one\n");
    let id = run_id(&world);
    world.configure("[rules]\ndeny = [\"write(/a.txt)\"]");
    let undone = world.homing(&["undo", &id]);
    assert_eq!(code(&undone), 1, "{}", err(&undone));
    assert!(err(&undone).contains("not allowed"), "{}", err(&undone));
    assert_eq!(text(&world, "a.txt").unwrap(), "two\n");
    // A link to the outside in place of the folder: the file behind it is not touched.
    let world = changing(CALLS);
    world.write("a.txt", "one\n");
    let id = run_id(&world);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("b.txt"), "b\n").unwrap();
    fs::remove_dir_all(world.project.path().join("new")).unwrap();
    std::os::unix::fs::symlink(outside.path(), world.project.path().join("new")).unwrap();
    let undone = world.homing(&["undo", &id]);
    assert_eq!(code(&undone), 1);
    assert!(err(&undone).contains("outside the folders"), "{}", err(&undone));
    assert_eq!(fs::read_to_string(outside.path().join("b.txt")).unwrap(), "b\n");
}

#[test]
fn changes_by_commands_are_shown_and_undone() {
    let world = changing(&[(
        "bash",
        r#"{"command": "echo two > a.txt; rm gone.sh; mkdir d; echo n > d/n.txt; echo x > out.log"}"#,
    )]);
    world.write("a.txt", "one\n");
    world.write("gone.sh", "#!/bin/sh\n");
    world.write(".gitignore", "*.log\n");
    fs::set_permissions(world.project.path().join("gone.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = world.homing(&run(&["--json", "--sandbox", "off", "x"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let id = json(&output)["run"].as_str().unwrap().to_owned();
    let stat = out(&world.homing(&["diff", &id, "--stat"]));
    assert_eq!(stat, "changed  a.txt  +1 -1\ncreated  d/n.txt  +1 -0\ndeleted  gone.sh  +0 -1\n");
    let undone = world.homing(&["undo", &id]);
    assert_eq!(code(&undone), 0, "{}{}", out(&undone), err(&undone));
    let now = ["a.txt", "gone.sh", "d/n.txt", "out.log"].map(|path| text(&world, path));
    let expected = [Some("one\n"), Some("#!/bin/sh\n"), None, Some("x\n")].map(|text| text.map(str::to_owned));
    assert_eq!(now, expected);
    let mode = fs::metadata(world.project.path().join("gone.sh")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755, "a deleted script is executable again");
}

fn git(world: &World, args: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let mut command = std::process::Command::new("git");
    let output = command.args(identity).args(args).current_dir(world.project.path()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    out(&output)
}

#[test]
fn work_of_isolated_runs_is_committed_merged_and_removed() {
    let agent = "---\nname: isolated\ndescription: x\ntools: [edit]\nisolation: worktree\n---\nWork.\n";
    let world = changing(&[("edit", r#"{"path": "a.txt", "old": "one", "new": "two"}"#)]);
    world.write("a.txt", "one\n");
    world.write(".homing/agents/isolated.md", agent);
    git(&world, &["init", "-q", "-b", "main"]);
    git(&world, &["config", "user.name", "a"]);
    git(&world, &["config", "user.email", "a@b"]);
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "a"]);
    let output = world.homing(&run(&["--agent", "isolated", "--sandbox", "off", "x"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let id = json(&world.homing(&["worktrees", "list", "--json"]))[0]["run"].as_str().unwrap()[28..].to_owned();
    let told = format!("run 1 (isolated) left its work on a branch: homing worktrees diff|merge|remove {id}");
    assert!(err(&output).contains(&told), "{}", err(&output));
    assert_eq!(text(&world, "a.txt").unwrap(), "one\n", "the checkout is untouched");
    let listed = out(&world.homing(&["worktrees"]));
    assert!(listed.contains(&id) && listed.contains("not merged") && listed.contains("1 file changed"), "{listed}");
    assert!(out(&world.homing(&["worktrees", "diff", &id])).contains("+two"));
    assert_eq!(code(&world.homing(&["worktrees", "remove", &id])), 2, "work that is not merged is not removed");

    world.write("a.txt", "mine\n");
    git(&world, &["commit", "-qam", "b"]);
    let merged = world.homing(&["worktrees", "merge", &id]);
    assert_eq!((code(&merged), out(&merged).as_str()), (1, "conflict: a.txt\n"), "{}", err(&merged));
    assert_eq!(
        (text(&world, "a.txt").unwrap().as_str(), git(&world, &["status", "--porcelain"]).as_str()),
        ("mine\n", "")
    );
    git(&world, &["reset", "-q", "--hard", "HEAD~1"]);
    let merged = world.homing(&["worktrees", "merge", &id]);
    assert_eq!(code(&merged), 0, "{}", err(&merged));
    assert_eq!(text(&world, "a.txt").unwrap(), "two\n");
    assert_eq!(code(&world.homing(&["worktrees", "remove", &id])), 0);
    assert_eq!(git(&world, &["branch", "--list", "homing/*"]), "");
    assert_eq!(json(&world.homing(&["worktrees", "list", "--json"])), serde_json::json!([]));
}
