//! Skills as they are used by runs, judged by the requests that the provider received.

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::Value;

use crate::world::{World, code, err, json, run, task_of};

/// The results of tool calls in a request, in order.
fn results(seen: &ReceivedRequest) -> Vec<String> {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().map_or_else(String::new, str::to_owned)).collect()
}

fn model_of(seen: &ReceivedRequest) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    body["model"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn forked_skill_is_carried_out_by_a_child_of_its_agent() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::chat_calls(&[("skill", r#"{"name": "audit", "arguments": "the parser 'and more'"}"#)]),
        1 => FakeResponse::chat_text("two findings"),
        _ => FakeResponse::chat_text("done"),
    });
    world.write(
        ".claude/skills/audit/SKILL.md",
        "---\nname: audit\ndescription: Audits.\nargument-hint: [part]\ncontext: fork\nagent: auditor\nmodel: openai/gpt-4.1-mini\n\
         ---\nAudit $ARGUMENTS, then $1.\n",
    );
    world.write(".claude/agents/auditor.md", "---\nname: auditor\ndescription: d\ntools: Read\n---\nYou audit.\n");
    let done = json(&world.homing(&run(&["--json", "go"])));
    assert_eq!(done["status"], "done", "{done}");
    assert_eq!(done["children"][0]["agent"], "auditor", "{done}");
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[0].body.contains("- audit: Audits. (arguments: [part])"), "{}", requests[0].body);
    assert!(requests[1].body.contains("You audit.") && !requests[1].body.contains("\"name\":\"write\""));
    assert!(task_of(&requests[1]).contains("Audit the parser 'and more', then parser."), "{}", task_of(&requests[1]));
    let models: Vec<String> = requests.iter().map(model_of).collect();
    assert_eq!(models, ["gpt-4.1", "gpt-4.1-mini", "gpt-4.1"]);
    let result = &results(&requests[2])[0];
    assert!(result.contains("two findings") && !result.contains("Audit the parser"), "{result}");
}

#[test]
fn forked_skill_is_loaded_if_the_run_may_not_delegate() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::chat_calls(&[("skill", r#"{"name": "audit"}"#)]),
        _ => FakeResponse::chat_text("done"),
    });
    world.write(".claude/skills/audit/SKILL.md", "---\nname: audit\ndescription: d\ncontext: fork\n---\nAudit it.\n");
    world.write(".claude/agents/alone.md", "---\nname: alone\ndescription: d\ntools: Skill, Read\n---\nP\n");
    let done = json(&world.homing(&run(&["--json", "--agent", "alone", "go"])));
    assert_eq!(done["status"], "done", "{done}");
    assert_eq!(done["children"], serde_json::json!([]), "{done}");
    assert!(results(&world.provider.requests()[1])[0].contains("Audit it."));
}

/// Writes a note before and after it loads the skill `notes`, then another file.
fn writer() -> World {
    let world = World::new(|count, _| match count % 5 {
        0 => FakeResponse::chat_calls(&[("write", r#"{"path": "notes/a.md", "content": "a"}"#)]),
        1 => FakeResponse::chat_calls(&[("skill", r#"{"name": "notes"}"#)]),
        2 => FakeResponse::chat_calls(&[("write", r#"{"path": "notes/b.md", "content": "b"}"#)]),
        3 => FakeResponse::chat_calls(&[("write", r#"{"path": "other.md", "content": "c"}"#)]),
        _ => FakeResponse::chat_text("done"),
    });
    world.configure("[rules]\nask = [\"write\"]\n");
    world
}

fn written(world: &World) -> [bool; 3] {
    ["notes/a.md", "notes/b.md", "other.md"].map(|path| world.project.path().join(path).exists())
}

const NOTES: &str = "---\nname: notes\ndescription: d\nallowed-tools: Write(notes/**)\n---\nWrite notes.\n";

#[test]
fn trusted_skill_approves_its_calls_while_it_is_in_use() {
    let world = writer();
    world.write(".claude/skills/notes/SKILL.md", NOTES);
    let output = world.homing(&run(&["go"]));
    assert_eq!(written(&world), [false, false, false], "a project's skill approves nothing before it is trusted");
    assert!(err(&output).contains("warning"), "{}", err(&output));
    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    world.homing(&run(&["go"]));
    assert_eq!(written(&world), [false, true, false]);
    let denied = &results(world.provider.requests().last().unwrap())[3];
    assert!(denied.contains("needs approval"), "{denied}");
}

#[test]
fn skill_of_the_user_approves_in_the_run_that_it_starts() {
    let world = writer();
    let folder = world.home.path().join(".claude/skills/notes");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), NOTES).unwrap();
    world.homing(&run(&["/notes"]));
    assert_eq!(written(&world), [true, true, false], "the run carries out the skill from its start");
}

#[test]
fn skill_never_allows_what_is_denied_and_denies_what_it_names() {
    let world = writer();
    world.write(".claude/agents/reader.md", "---\nname: reader\ndescription: d\ntools: Read, Skill\n---\nP\n");
    world.write(".claude/skills/notes/SKILL.md", NOTES);
    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    world.homing(&run(&["--agent", "reader", "go"]));
    assert_eq!(written(&world), [false; 3], "the agent has no tool `write`");
    world.configure("");
    world.write(
        ".claude/skills/notes/SKILL.md",
        "---\nname: notes\ndescription: d\ndisallowed-tools: Write(notes/**)\n---\nLook.\n",
    );
    world.homing(&run(&["go"]));
    assert_eq!(written(&world), [true, false, true], "a restriction needs no trust");
    let denied = &results(world.provider.requests().last().unwrap())[2];
    assert!(denied.contains("is denied by skill notes"), "{denied}");
}
