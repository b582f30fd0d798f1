//! Agent and skill files as they are run, listed and checked.

use crate::world::{World, code, err, json, out, run, task_of};

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
