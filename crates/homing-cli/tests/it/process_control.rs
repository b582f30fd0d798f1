//! Signals, background processes and output that a script or a user controls.

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

fn slow() -> World {
    World::new(|_, _| FakeResponse::chat_text("late").after(Duration::from_secs(600)))
}

#[test]
fn two_signals_within_a_second_are_one_and_the_result_is_printed() {
    let world = slow();
    let child = world.command(&run(&["--json", "x"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    // As `timeout` does: one signal to the process, one to its group.
    signal(&child, "TERM");
    signal(&child, "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &json(&output)["status"]), (143, &"cancelled".into()), "{}", err(&output));
}

#[test]
fn timeout_gets_the_result() {
    if Command::new("timeout").arg("--version").output().is_err() {
        eprintln!("skipped: there is no timeout here");
        return;
    }
    let world = slow();
    let inner = world.command(&run(&["--json", "x"]));
    let mut command = Command::new("timeout");
    command.arg("2").arg(inner.get_program()).args(inner.get_args()).current_dir(world.project.path()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!((code(&output), &json(&output)["status"]), (124, &"cancelled".into()), "{}", err(&output));
}

#[test]
fn detached_run_ends_without_its_starter() {
    let world = World::new(|_, _| FakeResponse::chat_text("it is there").after(Duration::from_millis(500)));
    let marker = world.home.path().join("notified");
    world.configure(&format!(
        "[notify]\ncommand = 'echo \"$HOMING_EVENT $HOMING_STATUS $HOMING_RUN\" > {}.new && mv {}.new {}'",
        marker.display(),
        marker.display(),
        marker.display()
    ));
    let started = Instant::now();
    let output = world.homing(&run(&["--detach", "find it"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(started.elapsed() < Duration::from_secs(30));
    let id = out(&output).trim().to_owned();
    assert_eq!(id.len(), 8, "{id}");
    assert!(err(&output).contains(&format!("started run {id} (general) in /")), "{}", err(&output));
    wait_until("it ends", || json(&world.homing(&["show", &id, "--json"]))["status"] == "done");
    assert_eq!(json(&world.homing(&["show", &id, "--json"]))["output"], "it is there");
    wait_until("the command runs", || marker.exists());
    assert_eq!(fs::read_to_string(&marker).unwrap(), format!("end done {id}\n"));
    let failed = world.homing(&["run", "--detach", "--agent", "missing", "x"]);
    assert_eq!((code(&failed), out(&failed).as_str()), (2, ""), "{}", err(&failed));
    assert!(err(&failed).contains("missing"), "the second process says why: {}", err(&failed));
}

#[test]
fn question_of_a_detached_run_waits() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("thanks")
        } else {
            FakeResponse::chat_calls(&[("ask", r#"{"question":"which one?"}"#)])
        }
    });
    let output = world.homing(&run(&["--detach", "--json", "ask me"]));
    let started = json(&output);
    let id = started["run"].as_str().unwrap().to_owned();
    assert!(started["pid"].as_u64().is_some() && started["project"].is_string(), "{started}");
    wait_until("it asks", || !json(&world.homing(&["questions", "--json"])).as_array().unwrap().is_empty());
    wait_until("it waits", || json(&world.homing(&["show", &id, "--json"]))["status"] == "waiting");
}

#[test]
fn quiet_prints_the_answer_only_and_verbose_every_call() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("the answer")
        } else {
            FakeResponse::chat_calls(&[("read", r#"{"path":"a.txt"}"#), ("read", r#"{"path":"missing.txt"}"#)])
        }
    });
    world.write("a.txt", "first line of a");
    let quiet = world.homing(&run(&["-q", "x"]));
    assert_eq!((out(&quiet).as_str(), err(&quiet).as_str()), ("the answer\n", ""));
    let failed = world.homing(&["run", "-q", "--agent", "missing", "x"]);
    assert!(code(&failed) == 2 && err(&failed).contains("error: "), "{}", err(&failed));
    let verbose = err(&world.homing(&run(&["-v", "x"])));
    for part in ["asks openai/gpt-4.1", "read returned: ", "first line of a", "replied: ", "read failed: "] {
        assert!(verbose.contains(part), "{part}: {verbose}");
    }
    let plain = err(&world.homing(&run(&["x"])));
    assert!(plain.contains("read failed: ") && !plain.contains("asks openai"), "failed calls look failed: {plain}");
}

#[test]
fn pruned_run_shows_its_result_and_is_listed_on_request_only() {
    let world = World::saying("the answer");
    world.homing(&run(&["x"]));
    let id = json(&world.homing(&["runs", "--json"]))[0]["run"].as_str().unwrap().to_owned();
    let tiny = world.homing(&["prune", "--max-size", "1K"]);
    assert!(
        err(&tiny).contains("--max-size cannot be reached") && err(&tiny).contains("0 runs deleted"),
        "{}",
        err(&tiny)
    );
    let dry = world.homing(&["prune", "--older-than", "0s", "--dry-run"]);
    assert!(out(&dry).contains(&format!("run {} (general, \"x\") in /", &id[28..])), "{}", out(&dry));
    assert!(err(&dry).contains("1 run would be deleted"), "{}", err(&dry));
    assert_eq!(json(&world.homing(&["runs", "--json"])).as_array().unwrap().len(), 1, "nothing was deleted");
    let pruned = world.homing(&["prune", "--older-than", "0s"]);
    assert!(err(&pruned).contains("1 run deleted"), "{}", err(&pruned));
    assert_eq!(json(&world.homing(&["runs", "--json"])), serde_json::json!([]));
    assert_eq!(json(&world.homing(&["runs", "--pruned", "--json"])).as_array().unwrap().len(), 1);
    let shown = world.homing(&["show", &id]);
    assert_eq!((code(&shown), out(&shown).as_str()), (0, "the answer\n"), "{}", err(&shown));
    assert!(err(&shown).contains("the transcript was pruned"), "{}", err(&shown));
    let exported = world.homing(&["export", &id]);
    assert!(err(&exported).contains("were pruned") && !err(&exported).contains("version"), "{}", err(&exported));
}

#[test]
fn config_is_set_and_edited_and_stays_readable() {
    let world = World::saying("x");
    let path = world.home.path().join(".config/homing/config.toml");
    assert_eq!(code(&world.homing(&["config", "set", "limits.cost", "2.50"])), 0);
    assert_eq!(code(&world.homing(&["config", "set", "sandbox.network", "off"])), 0);
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("cost = 2.50") && text.contains("network = \"off\"") && text.contains("patience = 60"),
        "{text}"
    );
    assert!(out(&world.homing(&["config", "show"])).contains("limits.cost"));
    let wrong = world.homing(&["config", "set", "limits.cots", "1"]);
    assert!(code(&wrong) == 2 && err(&wrong).contains("cots"), "{}", err(&wrong));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is written that cannot be read");
    assert_eq!(code(&world.homing(&["config", "unset", "limits.cost"])), 0);
    assert!(!fs::read_to_string(&path).unwrap().contains("cost"));
    assert_eq!(code(&world.homing(&["config", "unset", "limits.cost"])), 2);
    let mut edit = world.command(&["config", "edit"]);
    let output = edit.env("EDITOR", "printf 'parallel = 3' >").output().unwrap();
    assert_eq!((code(&output), fs::read_to_string(&path).unwrap().as_str()), (0, "parallel = 3"), "{}", err(&output));
    let mut edit = world.command(&["config", "edit"]);
    let output = edit.env("EDITOR", "printf 'paralel = 3' >").output().unwrap();
    assert!(code(&output) == 2 && err(&output).contains("paralel"), "{}", err(&output));
}

#[test]
fn interrupted_map_prints_finished_items_at_once() {
    let world = World::new(|_, seen| {
        let wait = if task_of(seen).contains("two") { 600 } else { 0 };
        FakeResponse::chat_text("done").after(Duration::from_secs(wait))
    });
    let args = ["map", MODEL[0], MODEL[1], "--each", "*.txt", "go"];
    world.write("one.txt", "");
    world.write("two.txt", "");
    let mut first = world.command(&args).spawn().unwrap();
    wait_until("both ask", || world.provider.requests().len() == 2);
    let status = |place: &str| {
        let runs: Value = json(&world.homing(&["runs", "--children", "--json"]));
        runs.as_array().unwrap().iter().any(|run| run["place"] == place && run["status"] == "done")
    };
    wait_until("one is done", || status("1.1") || status("1.2"));
    first.kill().unwrap();
    first.wait().unwrap();
    let mut again = world.command(&args).spawn().unwrap();
    let mut line = [0; 20];
    again.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert!(String::from_utf8_lossy(&line).contains("one.txt"), "{line:?}");
    assert!(again.try_wait().unwrap().is_none(), "it still works on the second item");
    again.kill().unwrap();
    again.wait().unwrap();
}

#[test]
fn recording_is_replayed_without_a_key() {
    let world = World::saying("from the recording");
    world.write(
        ".homing/agents/named.md",
        "---\nname: named\ndescription: Has a model\nmodel: openai/gpt-4.1\n---\nAnswer.\n",
    );
    let recorded = world.homing(&run(&["--record", "tape.json", "x"]));
    assert_eq!(code(&recorded), 0, "{}", err(&recorded));
    let named = world.homing(&["run", "--agent", "named", "--record", "named.json", "x"]);
    assert_eq!(code(&named), 0, "{}", err(&named));
    let id = json(&world.homing(&["runs", "--json"]))[0]["run"].as_str().unwrap().to_owned();
    let asked = world.provider.requests().len();
    for args in [
        run(&["--replay", "tape.json", "x"]),
        vec!["run", "--replay", "tape.json", "x"],
        vec!["run", "--agent", "named", "--replay", "named.json", "x"],
        vec!["replay", &id],
    ] {
        let mut command = world.command(&args);
        let output = command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL").output().unwrap();
        assert_eq!((code(&output), out(&output).trim()), (0, "from the recording"), "{args:?}: {}", err(&output));
    }
    assert_eq!(world.provider.requests().len(), asked, "a replay asks no one");
}
