//! Agent and skill files as they are run, listed and checked.

use std::process::Command;

use homing_testing::FakeResponse;

use crate::world::{World, code, err, has_results, json, out, run, task_of};

#[test]
fn unknown_agent_error_names_the_files_that_are_not_agents() {
    let world = World::saying("hello");
    world.write(".claude/agents/reviewer.md", "You review code.\n");
    world.write(".claude/agents/broken.md", "---\nname: broken\ndescription: d\nmaxTurns: many\n---\nP\n");
    world.write(".claude/agents/README.md", "About these agents.\n");
    for args in [run(&["--agent", "reviewer", "x"]), vec!["agents", "reviewer"]] {
        let failed = world.homing(&args);
        assert_eq!(code(&failed), 2);
        let said = err(&failed);
        assert!(said.contains("reviewer.md: no front matter"), "{said}");
        assert!(said.contains("broken.md: line 4: `maxTurns`") && !said.contains("README"), "{said}");
    }
    assert_eq!(world.provider.requests().len(), 0);
    for args in [&["check", "--json"][..], &["check", "--json", "--strict"], &["check", "--json", ".claude"]] {
        let checked = json(&world.homing(args));
        let ignored = checked["ignored_files"].as_array().unwrap();
        let reviewer = ignored.iter().find(|file| file["path"].as_str().unwrap().ends_with("reviewer.md"));
        assert_eq!(reviewer.unwrap()["reason"], "no front matter", "{checked}");
    }
    let shown = out(&world.homing(&["check"]));
    assert!(shown.contains("not an agent: no front matter") && shown.contains("reviewer.md"), "{shown}");
}

#[test]
fn user_starts_a_skill_by_its_name() {
    let world = World::saying("deployed");
    let skill = "---\nname: deploy\ndescription: Deploys.\ndisable-model-invocation: true\nagent: code\n---\nDeploy $ARGUMENTS.\n";
    world.write(".claude/skills/deploy/SKILL.md", skill);
    let done = json(&world.homing(&run(&["--json", "/deploy", "the site"])));
    assert_eq!((done["status"].as_str(), done["agent"].as_str()), (Some("done"), Some("code")));
    let requests = world.provider.requests();
    assert!(task_of(&requests[0]).contains("Deploy the site."), "{}", requests[0].body);
    assert!(!requests[0].body.contains("- deploy:"), "models are not offered the skill");
    let other = json(&world.homing(&run(&["--json", "/nothing like a skill"])));
    assert_eq!(other["status"], "done");
    assert_eq!(task_of(&world.provider.requests()[1]), "/nothing like a skill");
}

#[test]
fn agent_of_the_user_alone_runs_when_named_and_is_not_offered() {
    let world = World::saying("hello");
    world.write(".opencode/agent/boss.md", "---\ndescription: Leads all\nmode: primary\n---\nYou lead.\n");
    assert_eq!(code(&world.homing(&run(&["--agent", "boss", "go"]))), 0);
    assert_eq!(code(&world.homing(&run(&["go"]))), 0);
    let requests = world.provider.requests();
    assert!(requests[0].body.contains("You lead."), "{}", requests[0].body);
    assert!(requests[1].body.contains("- explore:") && !requests[1].body.contains("Leads all"));
}

#[test]
fn ignored_effort_is_reported() {
    let world = World::saying("hello");
    world.write(
        ".claude/agents/deep.md",
        "---\nname: deep\ndescription: d\neffort: high\ntools: Read, TaskOutput\n---\nP\n",
    );
    let shown = json(&world.homing(&run(&["--plan", "--json", "--agent", "deep", "x"])));
    let warnings = shown["warnings"].to_string();
    assert!(warnings.contains("asks for effort high, which openai/gpt-4.1 does not take"), "{warnings}");
    assert!(!warnings.contains("wait"), "{warnings}");
    let args = ["run", "--model", "openai/gpt-5", "--plan", "--json", "--agent", "deep", "x"];
    assert_eq!(json(&world.homing(&args))["warnings"], serde_json::json!([]));
}

#[test]
fn first_agent_works_in_its_own_worktree() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            return FakeResponse::chat_text("done");
        }
        FakeResponse::chat_calls(&[("write", r#"{"path": "made.txt", "content": "by the agent"}"#)])
    });
    world.write(".claude/agents/alone.md", "---\nname: alone\ndescription: d\nisolation: worktree\n---\nP\n");
    let args = run(&["--agent", "alone", "--yes", "--json", "make it"]);
    let refused = json(&world.homing(&args));
    assert_eq!((refused["status"].as_str(), world.provider.requests().len()), (Some("failed"), 0), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("is not a git repository"), "{refused}");

    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let status = Command::new("git").args(identity).args(args).current_dir(world.project.path()).output().unwrap();
        assert!(status.status.success(), "{status:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    let output = world.homing(&args);
    let done = json(&output);
    assert_eq!(done["status"], "done", "{done} {}", err(&output));
    assert!(!world.project.path().join("made.txt").exists(), "the user's checkout is unchanged");
    let worktrees = world.home.path().join(".local/state/homing/worktrees");
    let run = worktrees.join(done["run"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(run.join("made.txt")).unwrap(), "by the agent");
    assert!(err(&output).contains("files kept in"), "{}", err(&output));
    let system = world.provider.requests()[0].body.clone();
    assert!(system.contains(&format!("folder: {}", run.display())), "the prompt names the worktree: {system}");
}

#[test]
fn project_instructions_of_several_programs_reach_the_model() {
    let world = World::saying("hello");
    world.write("AGENTS.md", "shared rules");
    world.write("CLAUDE.md", "claude rules, and @docs/more.md");
    world.write("docs/more.md", "imported rules");
    assert_eq!(code(&world.homing(&run(&["go"]))), 0);
    let body = world.provider.requests()[0].body.clone();
    for rules in ["shared rules", "claude rules", "imported rules"] {
        assert!(body.contains(rules), "{rules}: {body}");
    }
}
