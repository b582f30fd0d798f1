//! What an agent's file withholds is withheld from the model, and what a file asks for without trust is not given.

use serde_json::Value;

use crate::world::*;

/// The tools that the first request offers to the model.
fn offered(world: &World) -> Vec<String> {
    let request: Value = serde_json::from_str(&world.provider.requests()[0].body).expect("JSON");
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|it| it["function"]["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn an_agent_that_only_observes_commands_is_offered_no_shell() {
    let world = World::saying("looked");
    let tools = "Glob, Grep, LS, Read, NotebookRead, WebFetch, TodoWrite, WebSearch, KillShell, BashOutput";
    let file = format!("---\nname: code-explorer\ndescription: Analyzes code\ntools: {tools}\n---\nYou look.\n");
    world.write(".claude/agents/code-explorer.md", &file);
    let output = world.homing(&run(&["--agent", "code-explorer", "look"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let tools = offered(&world);
    for wanted in ["glob", "grep", "ls", "read"] {
        assert!(tools.iter().any(|it| it == wanted), "{wanted} in {tools:?}");
    }
    for unwanted in ["bash", "edit", "write"] {
        assert!(!tools.iter().any(|it| it == unwanted), "{unwanted} in {tools:?}");
    }
    assert!(!err(&output).contains("remark"), "{}", err(&output));

    let report = world.homing(&["check", "--strict", "--json", ".claude/agents"]);
    assert_eq!(code(&report), 0);
    let report = json(&report);
    assert_eq!((report["warnings"].as_array().unwrap().len(), report["infos"].as_array().unwrap().len()), (0, 3));
}

#[test]
fn forbidding_a_notebook_tool_or_the_output_of_commands_leaves_shell_and_editor() {
    let world = World::saying("done");
    let file = "---\nname: a\ndescription: d\ndisallowedTools: BashOutput, KillShell, NotebookEdit\n---\nWork.\n";
    world.write(".claude/agents/a.md", file);
    let output = world.homing(&run(&["--agent", "a", "work"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let tools = offered(&world);
    for wanted in ["bash", "edit", "write"] {
        assert!(tools.iter().any(|it| it == wanted), "{wanted} in {tools:?}");
    }
}
