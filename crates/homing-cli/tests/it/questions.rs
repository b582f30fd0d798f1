//! Questions that wait: `--on-question park`, `homing questions` and `homing answer`, between processes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use homing_testing::FakeResponse;
use serde_json::{Value, json};

use crate::world::*;

const PARK: [&str; 5] = ["--sandbox", "off", "--on-question", "park", "--json"];

/// A world whose agents run a command that needs approval and makes a file longer by a byte, and then answer. With `wait_for_log`, a second
/// child works until that has happened.
fn world(wait_for_log: bool) -> (World, PathBuf) {
    let log = tempfile::NamedTempFile::new().unwrap().into_temp_path().keep().unwrap();
    let (command, watched) = (format!("truncate -s +1 {}", log.display()), log.clone());
    let world = World::new(move |number, seen| {
        let task = task_of(seen);
        match task.trim() {
            // Keeps its process busy until that has happened, or that process is killed.
            "slow" if wait_for_log && written(&watched) == 0 => {
                let args = json!({"path": format!("missing-{number}")}).to_string();
                FakeResponse::chat_calls(&[("read", &args)]).after(Duration::from_millis(300))
            }
            _ if has_results(seen) || task.trim() == "slow" => FakeResponse::chat_text("finished"),
            "lead" => {
                let to = |task: &str| json!({"agent": "general", "task": task}).to_string();
                FakeResponse::chat_calls(&[("delegate", &to("push")), ("delegate", &to("slow"))])
            }
            _ => FakeResponse::chat_calls(&[("bash", &json!({ "command": command }).to_string())]),
        }
    });
    world.configure("[rules]\nask = [\"bash\"]\n");
    (world, log)
}

fn written(log: &Path) -> usize {
    usize::try_from(fs::metadata(log).map_or(0, |file| file.len())).unwrap()
}

fn questions(world: &World) -> Vec<Value> {
    json(&world.homing(&["questions", "--json"])).as_array().cloned().unwrap_or_default()
}

fn id(question: &Value) -> String {
    question["id"].as_str().unwrap()[..8].to_owned()
}

#[test]
fn r63_parked_run_exits_6_and_continues_once_another_process_has_answered() {
    let (world, log) = world(false);
    let parked = world.homing(&run(&[&PARK[..], &["push"]].concat()));
    let envelope = json(&parked);
    assert_eq!((code(&parked), &envelope["status"]), (6, &"waiting".into()), "{}", err(&parked));
    assert_eq!(envelope["questions"][0]["kind"], "permission", "{envelope}");
    let run_id = envelope["run"].as_str().unwrap();
    let open = questions(&world);
    assert_eq!((open.len(), &open[0]["id"]), (1, &envelope["questions"][0]["id"]));
    let listed = out(&world.homing(&["questions"]));
    assert!(listed.contains("allow general to run this command (bash)?\n      truncate -s +1"), "{listed}");
    assert_eq!(json(&world.homing(&["runs", "--json"]))[0]["status"], "waiting");
    assert_eq!(json(&world.homing(&["show", run_id, "--json"]))["status"], "waiting");

    // Resuming without an answer parks again, and is not a crash.
    for _ in 0..4 {
        let again = world.homing(&["resume", run_id, "--sandbox", "off", "--on-question", "park", "--json"]);
        assert_eq!((code(&again), written(&log)), (6, 0), "{}", err(&again));
    }
    let unclear = world.homing(&["answer", &id(&open[0]), "perhaps"]);
    assert_eq!(code(&unclear), 2);
    assert!(err(&unclear).contains("use `yes`, `no`, or `no, REASON`"), "{}", err(&unclear));
    let answered = world.homing(&["answer", &id(&open[0]), "yes"]);
    assert!(err(&answered).contains("; continue with: homing resume"), "{}", err(&answered));
    assert_eq!((code(&answered), questions(&world).len(), written(&log)), (0, 0, 0));
    let late = world.homing(&["answer", &id(&open[0]), "no"]);
    assert_eq!(code(&late), 2, "{}", err(&late));
    let done = world.homing(&["resume", run_id, "--sandbox", "off", "--json"]);
    assert_eq!((code(&done), &json(&done)["status"]), (0, &"done".into()), "{}", err(&done));
    assert_eq!((written(&log), world.provider.requests().len()), (1, 2));
    let replayed = world.homing(&["replay", run_id, "--sandbox", "off"]);
    assert!(err(&replayed).contains("identical to the recording"), "{}", err(&replayed));
    assert_eq!((code(&replayed), written(&log)), (0, 1), "a replay asks no one and changes nothing");
}

#[test]
fn answer_with_resume_continues_and_a_denial_reaches_the_model() {
    let (world, log) = world(false);
    let parked = world.homing(&run(&["--sandbox", "off", "--on-question", "park", "push"]));
    assert!(err(&parked).contains("answer with: homing answer --resume"), "{}", err(&parked));
    let open = questions(&world);
    let done = world.homing(&["answer", "--resume", "--json", &id(&open[0]), "no,", "not", "today"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let denied = json(&done)["denied"][0].as_str().unwrap().to_owned();
    assert!(denied.starts_with("denied: bash `") && denied.ends_with(": the user declined: not today"), "{denied}");
    let run_id = json(&done)["run"].as_str().unwrap().to_owned();
    let replayed = world.homing(&["replay", &run_id, "--sandbox", "off"]);
    assert!(err(&replayed).contains("identical to the recording"), "{}", err(&replayed));
    assert_eq!(written(&log), 0);
    let last = world.provider.requests().pop().unwrap();
    assert!(last.body.contains("the user declined: not today"));
}

#[test]
fn always_allows_the_call_in_this_project_from_then_on() {
    let (world, log) = world(false);
    world.homing(&run(&[&PARK[..], &["push"]].concat()));
    let open = questions(&world);
    let done = world.homing(&["answer", "--resume", "--sandbox", "off", &id(&open[0]), "always"]);
    assert_eq!((code(&done), written(&log)), (0, 1), "{}", err(&done));
    let again = world.homing(&run(&[&PARK[..], &["push"]].concat()));
    assert_eq!((code(&again), written(&log)), (0, 2), "{}", err(&again));
}

#[test]
fn living_process_takes_an_answer_of_another_process() {
    let (world, log) = world(true);
    let child = world.command(&run(&[&PARK[..], &["lead"]].concat())).spawn().unwrap();
    wait_until("a question", || !questions(&world).is_empty());
    let answered = world.homing(&["answer", &id(&questions(&world)[0]), "yes"]);
    assert!(err(&answered).contains(&format!("process {} continues", child.id())), "{}", err(&answered));
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &json(&output)["status"], written(&log)), (0, &"done".into(), 1), "{}", err(&output));
}

#[test]
fn killed_with_an_open_question_and_answered_the_call_is_made_once() {
    let (world, log) = world(true);
    let mut child = world.command(&run(&[&PARK[..], &["lead"]].concat())).spawn().unwrap();
    wait_until("a question", || !questions(&world).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(written(&log), 0);
    let done = world.homing(&["answer", "--resume", "--sandbox", "off", "--json", &id(&questions(&world)[0]), "yes"]);
    assert_eq!((code(&done), &json(&done)["status"], written(&log)), (0, &"done".into(), 1), "{}", err(&done));
    let asked = |task: &str| {
        world.provider.requests().iter().filter(|seen| task_of(seen).trim() == task && !has_results(seen)).count()
    };
    assert_eq!((asked("lead"), asked("push")), (1, 1), "replies that were paid for are not requested again");
}

#[test]
fn plain_run_without_a_terminal_denies_and_asks_no_question() {
    let (world, log) = world(false);
    let output = world.homing(&run(&["--sandbox", "off", "--json", "push"]));
    assert_eq!((code(&output), written(&log), questions(&world).len()), (0, 0, 0));
    assert_eq!(json(&output)["denied"].as_array().unwrap().len(), 1);
    let off = world.homing(&run(&["--journal", "off", "--on-question", "park", "push"]));
    assert_eq!(code(&off), 2, "a question that waits needs a journal: {}", err(&off));
}

#[test]
fn parked_run_is_cancelled_although_no_process_drives_it() {
    let (world, log) = world(false);
    let parked = json(&world.homing(&run(&[&PARK[..], &["lead"]].concat())));
    let (run_id, asked) = (parked["run"].as_str().unwrap(), world.provider.requests().len());
    let cancelled = world.homing(&["cancel", run_id]);
    assert_eq!(code(&cancelled), 0, "{}", err(&cancelled));
    assert!(err(&cancelled).starts_with("cancelled run "), "{}", err(&cancelled));
    let shown = json(&world.homing(&["show", run_id, "--json"]));
    assert_eq!((&shown["status"], &shown["children"][0]["status"]), (&"cancelled".into(), &"cancelled".into()));
    assert_eq!((questions(&world).len(), written(&log), world.provider.requests().len()), (0, 0, asked));
    let again = world.homing(&["cancel", run_id]);
    assert!(code(&again) != 0 && err(&again).contains("it already finished"), "{}", err(&again));
}
