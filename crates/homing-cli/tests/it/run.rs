//! `homing run` and the commands about recorded runs, against a provider on the loopback.

use std::{
    fs,
    io::Write,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::Value;

use crate::world::*;

#[test]
fn answer_is_on_stdout_and_progress_on_stderr() {
    let world = World::saying("the answer");
    let output = world.homing(&run(&["what", "is", "it?"]));
    assert_eq!((code(&output), out(&output).as_str()), (0, "the answer\n"), "{}", err(&output));
    let talk = err(&output);
    assert!(talk.contains("done · 1 turn · 15 tokens") && talk.contains("run "), "{talk}");
    assert!(world.provider.requests()[0].body.contains("what is it?"));
}

#[test]
fn arguments_and_piped_input_become_one_task() {
    let world = World::saying("ok");
    for (args, input) in
        [(vec!["review this"], "the diff"), (vec!["-"], "review this\n\nthe diff"), (vec![], "review this\n\nthe diff")]
    {
        let mut child = world.command(&run(&args)).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.body.contains("review this\\n\\nthe diff")));
}

#[test]
fn envelope_has_every_documented_field() {
    let world = World::saying("fine");
    let envelope = json(&world.homing(&run(&["--json", "x"])));
    for key in [
        "v",
        "run",
        "place",
        "agent",
        "model",
        "status",
        "output",
        "data",
        "partial",
        "error",
        "limit",
        "usage",
        "subtree",
        "verified",
        "warnings",
        "denied",
        "resumable",
        "children",
    ] {
        assert!(envelope.get(key).is_some(), "{key}");
    }
    assert_eq!((&envelope["status"], &envelope["output"]), (&"done".into(), &"fine".into()));
    assert_eq!(envelope["usage"]["input"], 10);
}

#[test]
fn events_are_json_lines_without_gaps() {
    let world = World::saying("fine");
    let output = world.homing(&run(&["--events", "x"]));
    let events: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
    let kinds: Vec<&str> =
        events.iter().filter(|event| event.get("seq").is_some()).filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, ["spawned", "asked", "replied", "ended"]);
}

#[test]
fn exit_codes_distinguish_outcomes() {
    let denied = World::new(|_, _| FakeResponse::json(401, r#"{"error":{"message":"bad key"}}"#));
    let output = denied.homing(&run(&["x"]));
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("hint: ") && !err(&output).contains("sk-secret"));
    let wrong = World::new(|_, _| FakeResponse::json(400, r#"{"error":{"message":"no such thing"}}"#));
    assert_eq!(code(&wrong.homing(&run(&["x"]))), 1);
    let looping = World::new(|_, seen| {
        if seen.body.contains("\"tools\"") && !seen.body.contains("\"tool_choice\":\"none\"") {
            FakeResponse::chat_calls(&[("ls", "{}")])
        } else {
            FakeResponse::chat_text("what I have")
        }
    });
    let output = looping.homing(&run(&["--max-turns", "2", "x"]));
    assert_eq!((code(&output), out(&output).as_str()), (3, "what I have\n"), "{}", err(&output));
    assert!(err(&output).contains("stopped at its turns limit") && err(&output).contains("homing resume"));
}

#[test]
fn unreachable_provider_exits_5() {
    let world = World::saying("x");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output =
        world.command(&run(&["--json", "--timeout", "120s", "x"])).env("OPENAI_BASE_URL", url).output().unwrap();
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["error"]["retryable"]), (5, &true.into()), "{envelope}");
}

/// A lead that delegates to three workers: one finishes, one fails, one never stops by itself.
fn lead(seen: &ReceivedRequest) -> FakeResponse {
    match task_of(seen).as_str() {
        task if task.contains("go well") => FakeResponse::chat_text("it went well"),
        task if task.contains("go wrong") => FakeResponse::json(400, r#"{"error":{"message":"cannot be served"}}"#),
        task if task.contains("go on and on") => {
            if seen.body.contains("\"tool_choice\":\"none\"") || !seen.body.contains("\"tools\"") {
                FakeResponse::chat_text("half of it")
            } else {
                FakeResponse::chat_calls(&[("ls", "{}")])
            }
        }
        _ if has_results(seen) => FakeResponse::chat_text("all came back"),
        _ => FakeResponse::chat_calls(&[
            ("delegate", r#"{"agent":"worker","task":"go well"}"#),
            ("delegate", r#"{"agent":"worker","task":"go wrong"}"#),
            ("delegate", r#"{"agent":"worker","task":"go on and on"}"#),
        ]),
    }
}

const WORKER: &str = "---\nname: worker\ndescription: Works.\nlimits: {turns: 2}\ntools: ls\n---\nWork.\n";

#[test]
fn lead_and_three_children_end_in_different_ways() {
    let world = World::new(|_, seen| lead(seen));
    world.write(".homing/agents/worker.md", WORKER);
    let output = world.homing(&run(&["--json", "lead them"]));
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["output"]), (0, &"all came back".into()), "{envelope}");
    let children: Vec<(&str, &str)> = envelope["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| (child["place"].as_str().unwrap(), child["status"].as_str().unwrap()))
        .collect();
    assert_eq!(children, [("1.1", "done"), ("1.2", "failed"), ("1.3", "exhausted")]);
    assert_eq!(envelope["children"][1]["error"]["kind"], "model");
    assert_eq!(
        (&envelope["children"][2]["limit"]["name"], &envelope["children"][2]["output"]),
        (&"turns".into(), &"half of it".into())
    );
    let paid: u64 = world.provider.requests().len() as u64 - 1;
    assert_eq!(envelope["subtree"]["turns"], paid, "one request failed, the others were turns");
    let tree = out(&world.homing(&["show", "--tree"]));
    assert!(tree.contains("✓ general") && tree.contains("✗ worker") && tree.contains("◐ worker"), "{tree}");
}

#[test]
fn killed_run_is_resumed_and_nothing_is_paid_twice() {
    let may_go_on = Arc::new(AtomicBool::new(false));
    let go_on = may_go_on.clone();
    let world = World::new(move |_, seen| match (has_results(seen), go_on.load(Ordering::SeqCst)) {
        (true, false) => FakeResponse::chat_text("too late").after(Duration::from_secs(600)),
        (true, true) | (false, _) => lead(seen),
    });
    world.write(".homing/agents/worker.md", "---\nname: worker\ndescription: Works.\ntools: ls\n---\nWork.\n");
    let mut child = world.command(&run(&["lead them"])).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The endless worker has its first result and waits for the provider.
    wait_until("the workers are at work", || world.provider.requests().iter().any(has_results));
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "KILL");
    child.wait().unwrap();
    let runs = json(&world.homing(&["runs", "--json"]));
    assert_eq!(runs[0]["status"], "interrupted", "a dead process never shows as running");
    let before: Vec<String> = world.provider.requests().iter().map(|it| it.body.clone()).collect();
    may_go_on.store(true, Ordering::SeqCst);
    let id = runs[0]["run"].as_str().unwrap();
    let output = world.homing(&["resume", id, "--json", "--max-turns", "+1"]);
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["output"]), (0, &"all came back".into()), "{envelope}");
    let after = &world.provider.requests()[before.len()..];
    let again = after.iter().filter(|request| !has_results(request)).count();
    assert_eq!(again, 0, "what was answered before is not asked again");
    let second = json(&world.homing(&["resume", id, "--json"]));
    assert_eq!(second["output"], "all came back");
    assert_eq!(world.provider.requests().len(), before.len() + after.len(), "a finished run costs nothing");
}

#[test]
fn signal_stops_the_run_and_prints_the_envelope() {
    for (name, expected) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let world = World::new(|_, _| FakeResponse::chat_text("late").after(Duration::from_secs(600)));
        let child = world.command(&run(&["--json", "x"])).spawn().unwrap();
        wait_until("it asks", || !world.provider.requests().is_empty());
        let begun = Instant::now();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!((code(&output), &json(&output)["status"]), (expected, &"cancelled".into()), "{name}");
    }
}

#[test]
fn same_key_is_the_same_run() {
    let world = World::saying("once");
    let first = json(&world.homing(&run(&["--json", "--key", "k", "x"])));
    let second = json(&world.homing(&run(&["--json", "--key", "k", "x"])));
    assert_eq!((&first["run"], world.provider.requests().len()), (&second["run"], 1));
    let other = world.homing(&run(&["--json", "--key", "k", "something else"]));
    assert_eq!((code(&other), &json(&other)["error"]["kind"]), (2, &"usage".into()));
}

#[test]
fn runs_are_found_shown_exported_continued_and_deleted() {
    let world = World::saying("<b>the answer</b>");
    assert_eq!(code(&world.homing(&run(&["--tag", "case=1", "first question"]))), 0);
    let rows = json(&world.homing(&["runs", "--json", "--tag", "case=1"]));
    let id = rows[0]["run"].as_str().unwrap().to_owned();
    for key in ["run", "place", "agent", "task", "status", "started", "usage"] {
        assert!(rows[0].get(key).is_some(), "{key}");
    }
    assert!(out(&world.homing(&["runs", "--sum-by", "model"])).contains("openai/gpt-4.1"));
    assert!(out(&world.homing(&["show", &id])).contains("> first question"));
    let page = out(&world.homing(&["export", &id, "--format", "html"]));
    assert!(page.contains("&lt;b&gt;the answer") && !page.contains("<b>the") && !page.contains("<script"));
    assert!(out(&world.homing(&["export", &id, "--format", "md"])).contains("first question"));
    let told = world.homing(&["tell", &id, "--json", "and", "then?"]);
    assert_eq!(json(&told)["status"], "done", "{}", err(&told));
    assert!(
        world.provider.requests()[1].body.contains("first question")
            && world.provider.requests()[1].body.contains("and then?")
    );
    let replayed = world.homing(&["replay", &id]);
    assert_eq!((code(&replayed), world.provider.requests().len()), (0, 2), "{}", err(&replayed));
    let cancelled = world.homing(&["cancel", &id]);
    let line = format!("run {} (general, \"first question\") in ", &id[28..]);
    let said = err(&cancelled);
    assert!(said.starts_with(&line) && said.ends_with(" is not running: it already finished\n"), "{said}");
    assert_eq!(code(&cancelled), 1);
    assert_eq!(code(&world.homing(&["show", "nonsense"])), 2);
    assert_eq!(code(&world.homing(&["prune", "--older-than", "0s"])), 0);
}

#[test]
fn cancel_and_tell_reach_another_process() {
    let world = World::new(|_, _| FakeResponse::chat_text("late").after(Duration::from_secs(600)));
    let child = world.command(&run(&["--json", "x"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    let told = world.homing(&["tell", "1", "hurry up"]);
    assert_eq!(code(&told), 0, "{}", err(&told));
    assert!(
        err(&told).contains("message delivered to run ") && err(&told).contains(" (general, \"x\") in /"),
        "{}",
        err(&told)
    );
    assert!(err(&told).contains(&format!(" (process {})", child.id())), "{}", err(&told));
    let cancelled = world.homing(&["cancel", "1"]);
    assert_eq!(code(&cancelled), 0, "{}", err(&cancelled));
    assert!(
        err(&cancelled).contains("cancelled run ") && err(&cancelled).contains("(general, \"x\")"),
        "{}",
        err(&cancelled)
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &json(&output)["status"]), (1, &"cancelled".into()));
}

#[test]
fn recording_is_replayed_without_a_key() {
    let world = World::saying("recorded");
    assert_eq!(code(&world.homing(&run(&["--record", "tape.json", "x"]))), 0);
    let tape = fs::read_to_string(world.project.path().join("tape.json")).unwrap();
    assert!(!tape.contains("sk-secret-of-the-test"));
    let output = world
        .command(&["run", "--replay", "tape.json", "x"])
        .env_remove("OPENAI_API_KEY")
        .env_remove("OPENAI_BASE_URL")
        .output()
        .unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "recorded\n"), "{}", err(&output));
    assert_eq!(world.provider.requests().len(), 1);
    let other = world.homing(&["run", "--replay", "tape.json", "another task"]);
    assert!(err(&other).contains("differs from the recording"), "{}", err(&other));
}

#[test]
fn plan_spends_nothing() {
    let world = World::saying("x");
    let output = world.homing(&run(&["--plan", "--json", "--max-cost", "0.50", "x"]));
    let plan = json(&output);
    assert_eq!((&plan["model"], &plan["worst_case_micros"]), (&"openai/gpt-4.1".into(), &500_000.into()));
    assert_eq!((&plan["card"]["context_window"], &plan["card"]["max_output"]), (&1_047_576.into(), &32_768.into()));
    assert!(plan["first_ask_micros"].as_u64().unwrap() > 0 && !plan["tools"].as_array().unwrap().is_empty());
    assert!(out(&world.homing(&run(&["--plan", "x"]))).contains("worst case"));
    assert_eq!(world.provider.requests().len(), 0);
}

#[test]
fn closed_pipe_does_not_fail_a_run() {
    let world = World::new(|_, _| FakeResponse::chat_text(&"line\n".repeat(20_000)));
    let mut child = world.command(&run(&["x"])).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(!err(&output).contains("panic"));
}

#[test]
fn hint_names_the_rules_of_calls_that_no_one_could_approve() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("ok")
        } else {
            FakeResponse::chat_calls(&[("bash", r#"{"command": "echo one && pwd"}"#)])
        }
    });
    world.write(".homing/config.toml", "[rules]\nask = ['bash']\n");
    let output = world.homing(&run(&["x"]));
    let shown = err(&output);
    assert!(shown.contains("denied: general: bash `echo one && pwd`: it needs approval"), "{shown}");
    let flags = "--allow 'bash(echo one)' --allow 'bash(pwd)'";
    assert!(shown.contains(&format!("hint: no one was there to approve a call; allow it with {flags}")), "{shown}");
    world.write(".homing/config.toml", "[rules]\ndeny = ['bash(pwd)']\n");
    let output = world.homing(&run(&["x"]));
    let shown = err(&output);
    assert!(shown.contains("denied: ") && !shown.contains("--allow"), "{shown}");
}

#[test]
fn project_configuration_only_narrows() {
    let world = World::new(|_, seen| {
        if has_results(seen) { FakeResponse::chat_text("ok") } else { FakeResponse::chat_calls(&[("ls", "{}")]) }
    });
    world.write(".homing/config.toml", "model = 'openai/evil'\n[rules]\ndeny = ['ls']\n[limits]\nturns = 7\n");
    let output = world.homing(&run(&["--json", "x"]));
    assert!(err(&output).contains("`model` is ignored"), "{}", err(&output));
    assert!(!world.provider.requests()[0].body.contains("\"name\":\"ls\""), "a denied tool is not offered");
    let shown = out(&world.homing(&["config", "show"]));
    assert!(shown.contains("limits.turns") && shown.contains("narrowed by"), "{shown}");
}

#[test]
fn offline_model_answers_with_files_and_lines() {
    let world = World::saying("x");
    world.write("src/retry.rs", "/// Retries model calls.\npub fn retry_model_calls() {}\n");
    let output = world.homing(&["run", "--model", "offline", "where are model calls retried?"]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).contains("src/retry.rs:2"), "{}", out(&output));
    assert!(err(&output).contains("explore: done"), "explorers were sent: {}", err(&output));
    assert_eq!(world.provider.requests().len(), 0);
}

#[test]
fn missing_or_unwritable_folder_is_named() {
    let world = World::saying("x");
    let output = world.homing(&run(&["--cwd", "nowhere", "x"]));
    assert!(code(&output) == 2 && err(&output).contains("nowhere"), "{}", err(&output));
    let output = world.homing(&run(&["--journal", "/proc/nowhere/journal.db", "x"]));
    assert!(code(&output) == 2 && err(&output).contains("--journal off"), "{}", err(&output));
    assert!(Path::new("/proc").exists() && world.provider.requests().is_empty());
}

const TEAM: &str = r#"
name: pair
parameters: {audience: engineers}
agents:
  - {name: finder, description: Finds out, prompt: You find out., tools: []}
  - {name: writer, description: Writes, prompt: "You write for {{audience}}.", tools: []}
crew:
  process: sequential
  tasks:
    - {name: find, agent: finder, description: "Find out about {{ task }}."}
    - {name: write, agent: writer, description: Write it down.}
"#;

#[test]
fn team_is_planned_and_run() {
    let world = World::new(|_, seen| {
        if seen.body.contains("You write for beginners") {
            FakeResponse::chat_text("the page")
        } else {
            FakeResponse::chat_text("a fact")
        }
    });
    world.write("team.yaml", TEAM);
    let plan = world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--plan", "x"]);
    assert!(code(&plan) == 0 && out(&plan).contains("worst case"), "{}{}", out(&plan), err(&plan));
    assert!(world.provider.requests().is_empty());
    let args = ["team", "team.yaml", "--model", "openai/gpt-4.1", "--set", "audience=beginners", "--json", "retries"];
    let envelope = json(&world.homing(&args));
    assert_eq!((&envelope["status"], &envelope["output"]), (&"done".into(), &"the page".into()), "{envelope}");
    assert_eq!(envelope["children"].as_array().map(Vec::len), Some(2));
    world.write("bad.yaml", "name: pair\ncrwe: {}\n");
    let bad = world.homing(&["team", "bad.yaml", "--json", "x"]);
    assert_eq!((code(&bad), &json(&bad)["error"]["kind"]), (2, &"config".into()));
    assert_eq!(code(&world.homing(&["team", "missing.yaml", "x"])), 2);
}

#[test]
fn r47_cached_answer_is_not_paid_twice() {
    let world = World::saying("the answer");
    let ask = |task: &str| out(&world.homing(&run(&["--cache", task])));
    assert_eq!(
        (ask("x").as_str(), ask("x").as_str(), world.provider.requests().len()),
        ("the answer\n", "the answer\n", 1)
    );
    ask("y");
    assert_eq!(world.provider.requests().len(), 2, "another task is another question");
    world.homing(&run(&["x"]));
    assert_eq!(world.provider.requests().len(), 3, "without the flag it is asked again");
}

fn check_schema(value: &Value, schema: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(schema);
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|it| it.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?} in {value}");
}

#[test]
fn json_matches_the_published_schemas() {
    let world = World::new(|_, seen| lead(seen));
    world.write(".homing/agents/worker.md", WORKER);
    check_schema(&json(&world.homing(&run(&["--json", "lead them"]))), "envelope.json");
    check_schema(&json(&world.homing(&["run", "--json", "--agent", "missing", "x"])), "envelope.json");
    for args in [vec!["runs", "--json"], vec!["runs", "--json", "--children", "--all"]] {
        check_schema(&json(&world.homing(&args)), "runs.json");
    }
    for line in out(&world.homing(&run(&["--events", "lead them again"]))).lines() {
        check_schema(&serde_json::from_str(line).unwrap(), "event.json");
    }
    world.write("a.txt", "x");
    for line in out(&world.homing(&["map", "--model", "openai/gpt-4.1", "--each", "*.txt", "go well"])).lines() {
        check_schema(&serde_json::from_str(line).unwrap(), "map.json");
    }
}

#[test]
fn until_continues_with_the_output_of_the_check() {
    let world = World::new(|count, seen| match (count, has_results(seen)) {
        (0, _) => FakeResponse::chat_text("I believe it is done"),
        (_, false) => FakeResponse::chat_calls(&[("write", r#"{"path":"made.txt","content":"x"}"#)]),
        (_, true) => FakeResponse::chat_text("now it is there"),
    });
    let check = "test -f made.txt || { echo made.txt is missing; exit 1; }";
    let output = world.homing(&run(&["--sandbox", "off", "--until", check, "--json", "make it"]));
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["verified"]), (0, &true.into()), "{envelope}");
    assert_eq!(envelope["output"], "now it is there");
    assert!(world.provider.requests()[1].body.contains("made.txt is missing"));
}

#[test]
fn refusal_of_the_provider_exits_4() {
    let refusal =
        r#"{"error":{"message":"declined","code":"content_policy_violation","type":"invalid_request_error"}}"#;
    let world = World::new(move |_, _| FakeResponse::json(400, refusal));
    let output = world.homing(&run(&["--json", "x"]));
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["error"]["kind"]), (4, &"refused".into()), "{envelope}");
}

#[test]
fn key_of_another_process_is_waited_for() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let answer_now = may_answer.clone();
    let world = World::new(move |_, _| {
        let begun = Instant::now();
        while !answer_now.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        FakeResponse::chat_text("for both")
    });
    let first = world.command(&run(&["--json", "--key", "k", "x"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    let second = world.command(&run(&["--json", "--key", "k", "x"])).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    may_answer.store(true, Ordering::SeqCst);
    let (first, second) = (first.wait_with_output().unwrap(), second.wait_with_output().unwrap());
    assert_eq!((code(&first), code(&second)), (0, 0), "{}", err(&second));
    assert_eq!(json(&first)["run"], json(&second)["run"]);
    assert_eq!((&json(&second)["output"], world.provider.requests().len()), (&"for both".into(), 1));
}
