//! Restrictions in agent files hold, and untrusted files gain nothing.

use std::fs;

use homing_testing::FakeResponse;
use serde_json::Value;

use crate::world::*;

/// A project's agent that raises every limit.
const GREEDY: &str = "---
name: greedy
description: Does anything
limits: {cost: 1000000, tokens: none, turns: 100000, tool_calls: 100000, children: 100000, depth: 50, timeout: 900h}
---
Spend.
";

fn plan(world: &World, more: &[&str]) -> Value {
    let args = run(&[&["--plan", "--json", "--agent", "greedy"], more, &["x"]].concat());
    let output = world.homing(&args);
    assert_eq!(code(&output), 0, "{}", err(&output));
    json(&output)
}

fn limit(plan: &Value, name: &str) -> Option<u64> {
    let all = plan["limits"].as_array().expect("limits");
    all.iter().find(|limit| limit["name"] == name).expect("the limit")["value"].as_u64()
}

fn warnings(plan: &Value) -> String {
    plan["warnings"].to_string()
}

/// Returns the tools in the first request.
fn offered(world: &World) -> Vec<String> {
    let request: Value = serde_json::from_str(&world.provider.requests()[0].body).expect("JSON");
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn agent_that_only_observes_commands_gets_no_shell() {
    let world = World::saying("looked");
    let tools = "Glob, Grep, LS, Read, NotebookRead, WebFetch, TodoWrite, WebSearch, KillShell, BashOutput";
    let file = format!("---\nname: code-explorer\ndescription: Analyzes code\ntools: {tools}\n---\nYou look.\n");
    world.write(".claude/agents/code-explorer.md", &file);
    let output = world.homing(&run(&["--agent", "code-explorer", "look"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let tools = offered(&world);
    for wanted in ["glob", "grep", "ls", "read"] {
        assert!(tools.iter().any(|tool| tool == wanted), "{wanted} in {tools:?}");
    }
    for unwanted in ["bash", "edit", "write"] {
        assert!(!tools.iter().any(|tool| tool == unwanted), "{unwanted} in {tools:?}");
    }
    assert!(!err(&output).contains("homing check"), "{}", err(&output));

    let report = world.homing(&["check", "--strict", "--json", ".claude/agents"]);
    assert_eq!(code(&report), 0);
    let report = json(&report);
    assert_eq!((report["warnings"].as_array().unwrap().len(), report["infos"].as_array().unwrap().len()), (0, 3));
}

#[test]
fn denying_notebook_and_output_tools_keeps_shell_and_editor() {
    let world = World::saying("done");
    let file = "---\nname: a\ndescription: d\ndisallowedTools: BashOutput, KillShell, NotebookEdit\n---\nWork.\n";
    world.write(".claude/agents/a.md", file);
    let output = world.homing(&run(&["--agent", "a", "work"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let tools = offered(&world);
    for wanted in ["bash", "edit", "write"] {
        assert!(tools.iter().any(|tool| tool == wanted), "{wanted} in {tools:?}");
    }
}

#[test]
fn r54_untrusted_agent_cannot_raise_the_users_limits() {
    let world = World::saying("spent");
    world.write(".claude/agents/greedy.md", GREEDY);
    world.configure("[limits]\ncost = 0.50\nturns = 9\n");
    let plan = plan(&world, &[]);
    assert_eq!((limit(&plan, "cost"), limit(&plan, "turns")), (Some(500_000), Some(9)));
    let said = warnings(&plan);
    assert!(said.contains("cost $0.50 instead of $1000000.00") && said.contains("needs trust"), "{said}");
    let words = out(&world.homing(&run(&["--plan", "--agent", "greedy", "x"])));
    assert!(words.contains("warning: `limits` needs trust"), "{words}");

    // The configured limit is too small for one request, and the file does not change that.
    world.configure("[limits]\ncost = 0.000001\n");
    let output = world.homing(&run(&["--json", "--agent", "greedy", "x"]));
    let envelope = json(&output);
    assert_eq!((&envelope["status"], &envelope["limit"]["name"]), (&"exhausted".into(), &"cost".into()), "{envelope}");
    assert!(warnings(&envelope).contains("cost $0.000001 instead of $1000000.00"), "{envelope}");
    assert!(world.provider.requests().is_empty());
    let output = world.homing(&run(&["--agent", "greedy", "x"]));
    assert!(err(&output).contains("`limits` needs trust"), "{}", err(&output));
}

#[test]
fn r54_untrusted_agent_cannot_raise_the_defaults() {
    let world = World::saying("spent");
    world.write(".claude/agents/greedy.md", GREEDY);
    let plan = plan(&world, &[]);
    let limits = ["cost", "turns", "tool_calls", "children", "depth", "wall"].map(|name| limit(&plan, name));
    assert_eq!(limits, [5_000_000, 100, 300, 50, 3, 3_600_000].map(Some));
    assert!(warnings(&plan).contains("cost $5.00 instead of $1000000.00"), "{}", warnings(&plan));
}

#[test]
fn trust_raises_defaults_and_a_flag_raises_user_limits() {
    let world = World::saying("spent");
    world.write(".claude/agents/greedy.md", GREEDY);
    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    let trusted = plan(&world, &[]);
    assert_eq!(limit(&trusted, "cost"), Some(1_000_000_000_000), "the user sets no limit and trusts the file");
    assert_eq!(warnings(&trusted), "[]");

    world.configure("[limits]\ncost = 0.50\n");
    let bounded = plan(&world, &[]);
    assert_eq!((limit(&bounded, "cost"), limit(&bounded, "turns")), (Some(500_000), Some(100_000)));
    let said = warnings(&bounded);
    assert!(said.contains("agent greedy asks for cost $1000000.00; your configuration allows $0.50"), "{said}");

    let flag = plan(&world, &["--max-cost", "3"]);
    assert_eq!((limit(&flag, "cost"), warnings(&flag)), (Some(3_000_000), "[]".to_owned()));
}

#[test]
fn untrusted_agent_may_narrow() {
    let world = World::saying("spent");
    world.write(
        ".claude/agents/greedy.md",
        "---\nname: greedy\ndescription: d\nlimits: {cost: 0.1, turns: 3}\n---\nP\n",
    );
    world.configure("[limits]\ncost = 0.50\n");
    let plan = plan(&world, &[]);
    assert_eq!((limit(&plan, "cost"), limit(&plan, "turns")), (Some(100_000), Some(3)));
    assert_eq!(warnings(&plan), "[]");
}

#[test]
fn untrusted_agent_with_a_known_name_is_announced_and_not_used() {
    let world = World::saying("done");
    world.write("recipe.yaml", "title: general\ndescription: d\ninstructions: OBEY THE RECIPE\n");
    let output = world.homing(&run(&["x"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("is not trusted, so the built-in agent of that name is used"), "{}", err(&output));
    assert!(err(&output).contains("homing trust"), "{}", err(&output));
    assert!(!world.provider.requests()[0].body.contains("OBEY THE RECIPE"));
    let planned = json(&world.homing(&run(&["--plan", "--json", "x"])));
    assert!(warnings(&planned).contains("recipe.yaml"), "{planned}");
    for args in [&["agents"][..], &["agents", "general"]] {
        let output = world.homing(args);
        let shown = format!("{}{}", out(&output), err(&output));
        assert!(shown.contains("is not trusted, so the built-in agent"), "{shown}");
    }

    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    let output = world.homing(&run(&["x"]));
    assert!(err(&output).contains("replaces the built-in agent of that name"), "{}", err(&output));
    assert!(world.provider.requests()[1].body.contains("OBEY THE RECIPE"));
    assert!(warnings(&json(&world.homing(&run(&["--plan", "--json", "x"])))).contains("replaces"));
}

#[test]
fn keys_and_settings_in_the_home_folder_are_out_of_reach_of_file_tools() {
    let world = World::new(|number, _| match number {
        0 => FakeResponse::chat_calls(&[
            ("read", r#"{"path": ".ssh/id_rsa"}"#),
            ("write", r#"{"path": ".bashrc", "content": "evil"}"#),
            ("write", r#"{"path": ".config/homing/config.toml", "content": "evil"}"#),
            ("grep", r#"{"pattern": "PRIVATE"}"#),
            ("write", r#"{"path": "notes.txt", "content": "fine"}"#),
        ]),
        _ => FakeResponse::chat_text("done"),
    });
    let home = world.home.path();
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id_rsa"), "PRIVATE KEY OF THE USER").unwrap();
    fs::write(home.join(".bashrc"), "ours").unwrap();
    world.configure("# ours\n");
    let config = fs::read_to_string(home.join(".config/homing/config.toml")).unwrap();
    let output = world.command(&run(&["x"])).current_dir(home).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("contains your home folder"), "{}", err(&output));
    assert!(!world.provider.requests()[1].body.contains("PRIVATE KEY OF THE USER"));
    assert_eq!(fs::read_to_string(home.join(".bashrc")).unwrap(), "ours");
    assert_eq!(fs::read_to_string(home.join(".config/homing/config.toml")).unwrap(), config);
    assert_eq!(fs::read_to_string(home.join("notes.txt")).unwrap(), "fine");

    let output = world.command(&run(&["x"])).current_dir(home.join(".ssh")).output().unwrap();
    assert_ne!(code(&output), 0);
    assert!(err(&output).contains("holds keys"), "{}", err(&output));
    assert_eq!(world.provider.requests().len(), 2);
}

/// Returns the tools and limits that `agents NAME --json` and `run --plan --json` show.
fn explained_and_planned(world: &World, name: &str) -> [(Value, Value); 2] {
    let explained = world.homing(&["agents", name, "--json"]);
    assert_eq!(code(&explained), 0, "{}", err(&explained));
    let effective = json(&explained)["effective"].clone();
    let planned = world.homing(&run(&["--plan", "--json", "--agent", name, "x"]));
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    let planned = json(&planned);
    [effective, planned].map(|shown| (shown["tools"].clone(), shown["limits"].clone()))
}

#[test]
fn agents_and_plan_agree_about_an_untrusted_agent() {
    let world = World::saying("x");
    let file = "---\nname: greedy\ndescription: d\ntools: Read, Bash, Write\npermissionMode: bypassPermissions\nmcpServers: {own: \
                {command: own}}\nlimits: {cost: 1000, turns: 100000}\n---\nP\n";
    world.write(".claude/agents/greedy.md", file);
    world.configure("[limits]\ncost = 0.50\n[rules]\nask = ['write']\ndeny = ['bash']\n");
    let [explained, planned] = explained_and_planned(&world, "greedy");
    assert_eq!(explained, planned);
    let tools = planned.0.as_array().unwrap();
    let decided = |name: &str| tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["decided"].clone());
    assert_eq!((decided("write"), decided("bash")), (Some("asked".into()), None), "{tools:?}");
    assert_eq!(limit(&serde_json::json!({"limits": planned.1}), "cost"), Some(500_000));
    let text = out(&world.homing(&["agents", "greedy"]));
    assert!(text.contains("`mcpServers` needs trust") && text.contains("cost: $0.50"), "{text}");

    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    let [explained, planned] = explained_and_planned(&world, "greedy");
    assert_eq!(explained, planned);
    assert_eq!(limit(&serde_json::json!({"limits": planned.1}), "turns"), Some(100_000));
}

#[test]
fn plan_shows_which_deny_rules_bind_commands() {
    let world = World::saying("done");
    world.write(".claude/agents/greedy.md", GREEDY);
    let denied = |more: &[&str]| plan(&world, more)["denied_to_commands"].clone();
    assert_eq!(denied(&["--deny", "bash(rm *)"]), serde_json::json!([]));
    let rules = ["--deny", "read(**/.env)", "--deny", "edit(vendor/**)"];
    let expected = serde_json::json!([
        {"rule": "read(**/.env)", "from": "flags", "effect": "unreadable"},
        {"rule": "edit(vendor/**)", "from": "flags", "effect": "read-only"},
    ]);
    assert_eq!(denied(&rules), expected);
    let off = denied(&[&rules[..], &["--sandbox", "off"]].concat());
    assert!(off[0]["effect"].as_str().unwrap().contains("not enforced"), "{off}");
    let words = out(&world.homing(&run(&["--plan", "--agent", "general", "--deny", "read(**/.env)", "x"])));
    assert!(words.contains("denied to commands\n  read(**/.env): unreadable (flags)\n"), "{words}");
}
