//! `homing team` with members that fail: exit codes and envelopes, against a provider on the loopback.

use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

const AGENTS: &str = "name: t\nagents:\n  - {name: ada, description: d, prompt: You are Ada., tools: []}\n  - {name: bob, description: d, prompt: You are \
                      Bob., tools: []}\n  - {name: mute, \
                      description: d, prompt: You are Mute., tools: []}\n";

/// A provider that refuses every request of `mute`, and every one about poison.
fn world() -> World {
    World::new(|_, seen| {
        if seen.body.contains("You are Mute.") || task_of(seen).contains("poison") {
            FakeResponse::json(400, r#"{"error": {"message": "no voice"}}"#)
        } else {
            FakeResponse::chat_text("fine")
        }
    })
}

/// Returns the exit code and the envelope of a team with this pattern, and its text output.
fn team(pattern: &str) -> (i32, Value, String) {
    let world = world();
    world.write("team.yaml", &format!("{AGENTS}{pattern}\n"));
    let json_output = world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "go"]);
    let words = world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "go"]);
    assert_eq!(code(&json_output), code(&words), "{}", err(&words));
    (code(&json_output), json(&json_output), format!("{}{}", out(&words), err(&words)))
}

/// Checks that the pattern fails with this part, and succeeds if the part may fail.
fn fails(pattern: &str, part: &str) -> Value {
    let (exit, envelope, words) = team(&pattern.replace("POLICY", "report"));
    let error = &envelope["error"];
    assert_eq!((exit, &envelope["status"], &error["kind"]), (1, &"failed".into(), &"team".into()), "{envelope}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(part) && message.contains("no voice"), "{message}");
    assert!(words.contains(&format!("error: {message}")) && !words.contains("another model"), "{words}");
    let (exit, skipped, _) = team(&pattern.replace("POLICY", "skip"));
    assert_eq!((exit, &skipped["status"], &skipped["error"]), (0, &"done".into(), &Value::Null), "{skipped}");
    envelope
}

#[test]
fn r61_graph_whose_last_node_failed_exits_1() {
    let graph = "graph:\n  start: only\n  nodes: [{name: only, agent: mute, task: x, on_failure: POLICY}]";
    fails(graph, "node `only` (run 1.1): failed (model)");
    let graph = "graph:\n  start: a\n  state: {draft: {type: string}}\n  nodes:\n    - {name: a, agent: ada, task: x, \
                 writes: draft}\n    - {name: b, agent: mute, task: y, on_failure: POLICY}\n  edges: [{from: a, to: b}]";
    let envelope = fails(graph, "node `b` (run 1.2): failed (model)");
    assert!(envelope["output"].as_str().unwrap().contains("fine"), "the state is kept: {envelope}");
}

#[test]
fn map_file_with_failed_items_exits_1_and_prints_every_result() {
    let lines = |envelope: &Value| -> Vec<String> {
        let lines = envelope["output"].as_str().unwrap().lines();
        let status = |line: &str| serde_json::from_str::<Value>(line).unwrap()["status"].as_str().unwrap().to_owned();
        lines.map(status).collect()
    };
    let map = "map: {agent: ada, each: '{{ item }}', items: [ants, poison], on_failure: POLICY}";
    let envelope = fails(map, "1 of 2 items failed: item 1, \"poison\" (run 1.2): failed (model)");
    assert_eq!(lines(&envelope), ["done", "failed"]);
    let all = "map: {agent: mute, each: '{{ item }}', items: [a, b], on_failure: POLICY}";
    assert_eq!(lines(&fails(all, "2 of 2 items failed: item 0, \"a\" (run 1.1)")), ["failed", "failed"]);
}

#[test]
fn chat_whose_last_speaker_or_selector_failed_exits_1() {
    let envelope =
        fails("chat: {members: [ada, mute], max_rounds: 2, on_failure: POLICY}", "`mute` in round 1 (run 1.2)");
    assert_eq!(envelope["output"].as_str().unwrap().lines().next(), Some("[ada] fine"), "{envelope}");
    let selected = "chat: {members: [ada, bob], next: model, selector: mute, max_rounds: 1, on_failure: POLICY}";
    fails(selected, "the selector `mute` in round 0 (run 1.1)");
}

#[test]
fn crew_and_team_within_a_team_that_failed_exit_1() {
    let crew = "crew:\n  tasks:\n    - {name: find, agent: mute, description: x, on_failure: POLICY}\n    - {name: write, \
                agent: ada, description: y}";
    let envelope = fails(crew, "task `find` (run 1.1): failed (model)");
    assert!(envelope["output"].as_str().unwrap().contains("## write\nfine"), "{envelope}");
    let schema = "schema: {type: object, properties: {n: {type: integer}}, required: [n]}";
    let nested = format!(
        "teams:\n  - name: inner\n    crew: {{tasks: [{{name: a, agent: mute, description: x, {schema}}}]}}\ngraph:\n  start: \
         sub\n  nodes: [{{name: sub, team: inner, task: x, {schema}, on_failure: POLICY}}]"
    );
    fails(&nested, "node `sub` (run 1.1): failed (team): task `a` (run 1.1.1): failed (model)");
}

#[test]
fn member_of_a_team_file_may_fail_by_its_own_word() {
    let world = world();
    let agents = AGENTS.replace("prompt: You are Mute.", "on_failure: skip, prompt: You are Mute.");
    world.write("team.yaml", &format!("{agents}chat: {{members: [ada, mute], max_rounds: 2}}\n"));
    let output = world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "go"]);
    assert_eq!((code(&output), &json(&output)["output"]), (0, &"fine".into()), "{}", out(&output));
}

#[test]
fn failed_team_is_failed_when_it_is_shown_later() {
    let world = world();
    world.write("team.yaml", &format!("{AGENTS}map: {{agent: ada, each: '{{{{ item }}}}', items: [ants, poison]}}\n"));
    let ended = json(&world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "go"]));
    let shown = json(&world.homing(&["show", ended["run"].as_str().unwrap(), "--json"]));
    assert_eq!(
        (&shown["status"], &shown["error"], &shown["output"]),
        (&ended["status"], &ended["error"], &ended["output"])
    );
}
