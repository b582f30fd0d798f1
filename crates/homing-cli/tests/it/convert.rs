//! `homing convert`: files in the forms of other programs, and the report.

use std::fs;

use crate::world::{World, code, err, json, out};

const READER: &str =
    "---\nname: reader\ndescription: Reads\ntools: Read, Grep, Glob\nmodel: sonnet\nmaxTurns: 12\n---\nYou read.\n";

fn world() -> World {
    let world = World::saying("hello");
    world.write(".claude/agents/reader.md", READER);
    world
}

#[test]
fn converted_file_goes_to_stdout_and_the_report_to_stderr() {
    let world = world();
    let done = world.homing(&["convert", "reader", "--to", "opencode"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let text = out(&done);
    assert!(text.starts_with("---\ndescription: Reads\n"), "{text}");
    assert!(text.contains("model: anthropic/claude-sonnet-5-5\nsteps: 12\n"), "{text}");
    assert!(text.contains("  \"*\": deny\n  read: allow\n") && text.ends_with("---\n\nYou read.\n"), "{text}");
    let report = err(&done);
    assert!(report.contains("reader as .opencode/agent/reader.md:"), "{report}");
    assert!(report.contains("mapped    model: `sonnet` is written as `anthropic/claude-sonnet-5-5`"), "{report}");
    assert!(report.contains("kept      name, description, prompt"), "{report}");
}

#[test]
fn conversion_that_allows_more_is_refused() {
    let world = world();
    let refused = world.homing(&["convert", "reader", "--to", "codex", "--out", "."]);
    assert_eq!(code(&refused), 4);
    let said = err(&refused);
    assert!(said.contains("refused: reader would be allowed more as .codex/agents/reader.toml:"), "{said}");
    assert!(said.contains("wider     tools: Codex cannot limit an agent to `read`, `grep`, `glob`"), "{said}");
    assert!(said.contains("--allow-wider"), "{said}");
    assert!(!world.project.path().join(".codex").exists());
    let done = world.homing(&["convert", "reader", "--to", "codex", "--out", ".", "--allow-wider"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let text = fs::read_to_string(world.project.path().join(".codex/agents/reader.toml")).unwrap();
    assert!(text.contains("sandbox_mode = \"read-only\""), "the nearest restriction is kept: {text}");
}

#[test]
fn existing_files_are_kept_unless_forced() {
    let world = world();
    let path = world.project.path().join(".gemini/agents/reader.md");
    let args = ["convert", ".claude/agents", "--to", "gemini", "--out", "."];
    let dry = world.homing(&[&args[..], &["--dry-run"]].concat());
    assert_eq!(code(&dry), 0);
    assert!(err(&dry).contains("would write ./.gemini/agents/reader.md") && !path.exists(), "{}", err(&dry));
    assert_eq!(code(&world.homing(&args)), 0);
    fs::write(&path, "mine").unwrap();
    let again = world.homing(&args);
    assert_eq!(code(&again), 2);
    assert!(err(&again).contains("already exists; nothing was written"), "{}", err(&again));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert_eq!(code(&world.homing(&[&args[..], &["--force"]].concat())), 0);
    assert!(fs::read_to_string(&path).unwrap().contains("tools: [read_file, grep_search, glob]"));
}

#[test]
fn report_is_json_and_the_file_loads_as_the_same_agent() {
    let world = world();
    let agent = |world: &World| {
        let shown = json(&world.homing(&["agents", "reader", "--json"]));
        (shown["description"].clone(), shown["tools"].clone(), shown["limits"].clone())
    };
    let before = agent(&world);
    let done = json(&world.homing(&["convert", ".claude/agents/reader.md", "--to", "qwen", "--out", ".", "--json"]));
    let converted = &done["agents"][0];
    assert_eq!(
        (&done["to"], &converted["written"], &converted["refused"]),
        (&"qwen".into(), &true.into(), &false.into())
    );
    let changes = converted["report"].as_array().unwrap();
    let outcome = |field: &str| changes.iter().find(|change| change["field"] == field).unwrap()["outcome"].clone();
    assert_eq!((outcome("tools"), outcome("model")), ("kept".into(), "dropped".into()), "{done}");
    fs::remove_file(world.project.path().join(".claude/agents/reader.md")).unwrap();
    assert_eq!(agent(&world), before);
}

#[test]
fn wrong_arguments_say_what_is_possible() {
    let world = world();
    let unknown = world.homing(&["convert", "nothing", "--to", "claude"]);
    assert_eq!(code(&unknown), 2);
    assert!(err(&unknown).contains("`homing agents` lists the available agents"), "{}", err(&unknown));
    let form = world.homing(&["convert", "reader", "--to", "word"]);
    assert_eq!(code(&form), 2);
    assert!(err(&form).contains("opencode") && err(&form).contains("claude"), "{}", err(&form));
    world.write("broken.md", "---\nname: broken\ndescription: d\nmaxTurns: many\n---\nP\n");
    let broken = world.homing(&["convert", "broken.md", "--to", "claude"]);
    assert_eq!(code(&broken), 1);
    assert!(err(&broken).contains("`maxTurns`"), "{}", err(&broken));
}
