//! The private folders of commands, which other users of the machine must not reach.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

/// An agent that runs one command, which prints its home folder.
fn asking_for_home() -> World {
    World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("done")
        } else {
            FakeResponse::chat_calls(&[("bash", r#"{"command":"echo home=$HOME"}"#)])
        }
    })
}

/// Creates a runtime folder like a login manager.
fn runtime_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Returns the result of the command as the model gets it, with these variables set.
fn command_result(env: &[(&str, &Path)]) -> (World, String) {
    let world = asking_for_home();
    let output = world.command(&run(&["--yes", "where are you?"])).envs(env.iter().copied()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let requests = world.provider.requests();
    let body: Value =
        serde_json::from_str(&requests.iter().find(|request| has_results(request)).unwrap().body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let result = messages.iter().find(|message| message["role"] == "tool").unwrap();
    let text = result["content"].to_string();
    (world, text)
}

#[test]
fn fixed_name_in_the_temporary_folder_is_not_used() {
    let (shared, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(victim.path(), shared.path().join("homing")).unwrap();
    let (world, text) = command_result(&[("TMPDIR", shared.path())]);
    let state = world.home.path().canonicalize().unwrap().join(".local/state/homing");
    assert!(text.contains(&format!("home={}", state.display())), "{text}");
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn runtime_folder_is_used_if_it_is_the_users_alone() {
    let runtime = runtime_folder();
    let (_world, text) = command_result(&[("XDG_RUNTIME_DIR", runtime.path())]);
    assert!(text.contains(&format!("home={}/homing/", runtime.path().display())), "{text}");
    fs::set_permissions(runtime.path(), Permissions::from_mode(0o755)).unwrap();
    let (_world, text) = command_result(&[("XDG_RUNTIME_DIR", runtime.path())]);
    assert!(text.contains(".local/state/homing"), "{text}");
}

#[test]
fn private_folder_that_is_a_link_is_reported() {
    let (runtime, victim) = (runtime_folder(), tempfile::tempdir().unwrap());
    symlink(victim.path(), runtime.path().join("homing")).unwrap();
    let (world, text) = command_result(&[("XDG_RUNTIME_DIR", runtime.path())]);
    let expected = format!("cannot use the private folder {}/homing: it is a link", runtime.path().display());
    assert!(text.contains(&expected), "{text}");
    let doctor = world.command(&["doctor"]).env("XDG_RUNTIME_DIR", runtime.path()).output().unwrap();
    assert!(out(&doctor).contains(&expected), "{}", out(&doctor));
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
}

#[test]
fn user_without_a_home_gets_an_unpredictable_folder() {
    let (shared, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(victim.path(), shared.path().join("homing")).unwrap();
    let world = asking_for_home();
    let mut command = world.command(&run(&["--yes", "where are you?"]));
    let output = command.env_remove("HOME").env("TMPDIR", shared.path()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let requests = world.provider.requests();
    let found =
        requests.iter().any(|request| request.body.contains(&format!("home={}/homing-", shared.path().display())));
    assert!(found, "{}", requests.last().unwrap().body);
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
}
