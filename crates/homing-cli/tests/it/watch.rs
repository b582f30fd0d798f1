//! `homing watch` in a real terminal: runs of other processes are followed, told, answered and cancelled.

use std::process::{Child, Stdio};

use homing_testing::{FakeResponse, ResponseStep};
use serde_json::json;

use crate::{terminal::Screen, world::*};

/// A lead with a child that asks, and one that works until it is told something.
fn script(seen: &homing_testing::ReceivedRequest) -> FakeResponse {
    let body = &seen.body;
    match () {
        () if body.contains("enough now") => FakeResponse::chat_text("I stop"),
        () if task_of(seen).contains("push it") && !has_results(seen) => {
            FakeResponse::chat_calls(&[("bash", r#"{"command":"true"}"#)])
        }
        () if task_of(seen).contains("push it") => FakeResponse::chat_text("pushed"),
        () if task_of(seen).contains("stay") => {
            let args = json!({"path": format!("missing-{}", body.len())}).to_string();
            FakeResponse::chat_calls(&[("read", &args)]).after(std::time::Duration::from_millis(300))
        }
        () if has_results(seen) => FakeResponse::open_stream(vec![ResponseStep::Stall]),
        () => FakeResponse::chat_calls(&[
            ("delegate", r#"{"agent":"general","task":"push it"}"#),
            ("delegate", r#"{"agent":"general","task":"stay"}"#),
        ]),
    }
}

/// Starts a run of another process in the folder of the screen.
fn start(screen: &Screen, task: &str) -> Child {
    let folder = screen.folder.path();
    let mut command = std::process::Command::new(snapbox::cmd::cargo_bin!("homing"));
    command.args(["run", "--sandbox", "off", "--on-question", "park", "--model", "openai/gpt-4.1", task]);
    command.current_dir(folder).env_clear().env("HOME", folder).env("PATH", std::env::var_os("PATH").unwrap());
    command.env("OPENAI_BASE_URL", screen.provider.url());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn runs_of_other_processes_are_followed_answered_told_and_cancelled() {
    let Some(screen) = Screen::open(100, 30, |_, seen| script(seen)) else { return };
    screen.configure("[rules]\nask = ['bash']\n");
    screen.homing("watch");
    screen.wait_for("no run is live here");
    let mut run = start(&screen, "lead them");
    let shown = screen.wait_for("1 question");
    assert!(shown.contains("1 live run tree") && shown.contains("lead them") && shown.contains(" of $5.00"), "{shown}");
    assert!(shown.contains("1.1 general  waiting for an answer") && shown.contains("process "), "{shown}");
    screen.tmux(&["send-keys", "a"]);
    screen.wait_for("? allow general (run 1.1) to run this command (bash)?");
    screen.send("y");
    screen.wait_for("✓ 1.1 general  pushed");
    // The child that works on is chosen and told to stop.
    screen.tmux(&["send-keys", "Enter"]);
    screen.tmux(&["send-keys", "Down", "Down", "t"]);
    screen.wait_for("message to run 1.2");
    screen.send("enough now");
    screen.wait_for("✓ 1.2 general  I stop");
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    screen.tmux(&["send-keys", "Escape"]);
    screen.wait_for("Enter: runs");
    screen.tmux(&["send-keys", "c"]);
    screen.wait_for("cancel run 1 and the runs below it?");
    screen.tmux(&["send-keys", "y"]);
    let shown = screen.wait_for("0 live run trees");
    assert!(shown.contains("– general"), "{shown}");
    assert!(!run.wait().unwrap().success());
    screen.tmux(&["send-keys", "q"]);
    screen.wait_for("left with 0");
}

#[test]
fn parked_run_continues_when_it_is_answered() {
    let Some(screen) = Screen::open(100, 30, |_, seen| script(seen)) else { return };
    screen.configure("[rules]\nask = ['bash']\n");
    let parked = start(&screen, "push it").wait().unwrap();
    assert_eq!(parked.code(), Some(6));
    screen.homing("watch");
    let shown = screen.wait_for("1 question");
    assert!(shown.contains("no process"), "{shown}");
    screen.tmux(&["send-keys", "a"]);
    screen.wait_for("? allow general to run this command (bash)?");
    screen.send("y");
    screen.wait_for("answered; process ");
    screen.wait_for("✓ 1 general  pushed");
    screen.tmux(&["send-keys", "q"]);
    screen.wait_for("left with 0");
}
