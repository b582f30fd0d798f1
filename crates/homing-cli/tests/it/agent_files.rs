//! Agent and skill files as they are run, listed and checked.

use std::{fs, process::Command};

use homing_testing::FakeResponse;
use serde_json::Value;

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
fn settings_of_an_agent_are_sent_and_ignored_ones_reported() {
    let world = World::saying("hello");
    let agent = "---\nname: exact\ndescription: d\nseed: 7\ntop_p: 0.25\nservice_tier: flex\n---\nP\n";
    fs::create_dir_all(world.home.path().join(".homing/agents")).unwrap();
    fs::write(world.home.path().join(".homing/agents/exact.md"), agent).unwrap();
    world.write(".homing/agents/stranger.md", &agent.replace("exact", "stranger"));
    let output = world.homing(&run(&["--agent", "exact", "--json", "go"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(json(&output)["warnings"], serde_json::json!([]));
    let body: Value = serde_json::from_str(&world.provider.requests()[0].body).unwrap();
    assert_eq!((&body["seed"], &body["top_p"], &body["service_tier"]), (&7.into(), &0.25.into(), &"flex".into()));
    // An untrusted file must not choose a class of service that costs more.
    world.homing(&run(&["--agent", "stranger", "go"]));
    let body: Value = serde_json::from_str(&world.provider.requests()[1].body).unwrap();
    assert_eq!((&body["seed"], body.get("service_tier")), (&7.into(), None));
    let mut plan =
        world.command(&["run", "--model", "anthropic/claude-sonnet-4-5", "--plan", "--json", "--agent", "exact", "x"]);
    let shown = json(&plan.env("ANTHROPIC_API_KEY", "sk-ant-test").output().unwrap());
    let expected = "the setting `seed` has no effect on anthropic/claude-sonnet-4-5";
    assert_eq!(shown["warnings"], serde_json::json!([expected]));
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

#[test]
fn r59_agent_runs_by_its_path_with_the_rules_for_untrusted_files() {
    let world = World::saying("hello");
    let text = "---\nname: reviewer\ndescription: d\npermissionMode: bypassPermissions\nhooks: {Stop: []}\n---\nYou review by path.\n";
    world.write("drafts/reviewer.md", text);
    world.write(".claude/agents/reviewer.md", "---\nname: reviewer\ndescription: other\n---\nYou are another.\n");
    assert_eq!(code(&world.homing(&run(&["--agent", "./drafts/reviewer.md", "go"]))), 0);
    assert!(world.provider.requests()[0].body.contains("You review by path."));
    let shown = json(&world.homing(&["agents", "drafts/reviewer.md", "--json"]));
    assert_eq!(shown["definition"]["permission_mode"], serde_json::Value::Null, "{shown}");
    assert!(shown["diagnostics"].to_string().contains("needs trust"), "{shown}");
    for (name, part) in [("./none.md", "cannot open"), ("drafts", "there is no agent"), ("./drafts", "is not a file")] {
        let failed = world.homing(&run(&["--agent", name, "go"]));
        assert_eq!(code(&failed), 2);
        assert!(err(&failed).contains(part), "{name}: {}", err(&failed));
    }
    world.write("drafts/text.md", "just text");
    let failed = err(&world.homing(&run(&["--agent", "drafts/text.md", "go"])));
    assert!(failed.contains("no front matter"), "{failed}");
}

#[test]
fn plugin_folder_on_the_command_line_brings_its_agents() {
    let world = World::saying("hello");
    world.write("kit/agents/tool.md", "---\nname: tool\ndescription: d\n---\nYou are of the kit.\n");
    assert_eq!(code(&world.homing(&run(&["--plugin", "kit", "--agent", "kit:tool", "go"]))), 0);
    assert!(world.provider.requests()[0].body.contains("You are of the kit."));
}

#[test]
fn installed_and_enabled_plugins_of_the_user_bring_their_agents() {
    let world = World::saying("hello");
    let home = world.home.path();
    let (kit, claude) = (home.join(".claude/plugins/cache/market/kit/1.0"), home.join(".claude"));
    std::fs::create_dir_all(kit.join("agents")).unwrap();
    std::fs::create_dir_all(kit.join(".claude-plugin")).unwrap();
    std::fs::write(kit.join(".claude-plugin/plugin.json"), r#"{"name": "kit"}"#).unwrap();
    std::fs::write(kit.join("agents/tool.md"), "---\nname: tool\ndescription: d\n---\nYou are of the kit.\n").unwrap();
    let list = serde_json::json!({"version": 2, "plugins": {"kit@market": [{"scope": "user", "installPath": kit}]}});
    std::fs::write(claude.join("plugins/installed_plugins.json"), list.to_string()).unwrap();
    assert_eq!(code(&world.homing(&run(&["--agent", "kit:tool", "go"]))), 2, "a plugin must be enabled");
    // A project cannot enable what the user has installed.
    world.write(".claude/settings.json", r#"{"enabledPlugins": {"kit@market": true}}"#);
    assert_eq!(code(&world.homing(&run(&["--agent", "kit:tool", "go"]))), 2);
    std::fs::write(claude.join("settings.json"), r#"{"enabledPlugins": {"kit@market": true}}"#).unwrap();
    assert_eq!(code(&world.homing(&run(&["--agent", "kit:tool", "go"]))), 0);
    assert!(world.provider.requests()[0].body.contains("You are of the kit."));
}

#[test]
fn agent_is_explained_completely() {
    let world = World::saying("hello");
    let text = "---\nname: a\ndescription: d\neffort: high\nbackground: true\nmcpServers: {s: {command: x}}\n---\nYou are A.\n";
    world.write(".claude/agents/a.md", text);
    world.write("AGENTS.md", "project rules");
    let shown = json(&world.homing(&["agents", "a", "--json"]));
    let definition = &shown["definition"];
    assert_eq!((definition["prompt"].as_str(), definition["effort"].as_str()), (Some("You are A."), Some("high")));
    assert_eq!((definition["background"].as_bool(), definition["isolation"].as_str()), (Some(true), Some("none")));
    for (field, line) in [("name", 2), ("description", 3), ("effort", 4), ("background", 5), ("prompt", 8)] {
        let from = shown["from"][field].as_str().unwrap();
        assert!(from.ends_with(&format!(".claude/agents/a.md:{line}")), "{field}: {from}");
    }
    for field in ["isolation", "memory", "hooks", "permission_mode", "schema", "denied"] {
        assert_eq!(shown["from"][field], "default", "{field}");
        assert!(shown["definition"].get(field).is_some(), "{field} is shown although it has its default");
    }
    let prompt = out(&world.homing(&["agents", "a", "--prompt"]));
    assert!(prompt.starts_with("You are A.\n") && prompt.contains("project rules"), "{prompt}");
}

#[test]
fn r60_memory_is_kept_between_runs_of_a_trusted_agent() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            return FakeResponse::chat_text("done");
        }
        let path = ".claude/agent-memory/keeper/MEMORY.md";
        let args = serde_json::json!({"path": path, "content": "the build needs cmake"}).to_string();
        FakeResponse::chat_calls(&[("write", args.as_str())])
    });
    world
        .write(".claude/agents/keeper.md", "---\nname: keeper\ndescription: d\ntools: Read\nmemory: project\n---\nP\n");
    let args = run(&["--agent", "keeper", "--yes", "--json", "look"]);
    let notes = world.project.path().join(".claude/agent-memory/keeper/MEMORY.md");
    assert_eq!(json(&world.homing(&args))["status"], "done");
    assert!(!notes.exists(), "an untrusted file has no memory");
    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    let output = world.homing(&args);
    assert_eq!(json(&output)["status"], "done", "{}", err(&output));
    assert_eq!(
        std::fs::read_to_string(&notes).unwrap(),
        "the build needs cmake",
        "{:?}",
        world.provider.requests().last()
    );
    let requests = world.provider.requests();
    assert!(requests[2].body.contains("<memory folder="), "{}", requests[2].body);
    assert_eq!(json(&world.homing(&args))["status"], "done", "writing notes does not revoke trust");
    assert!(world.provider.requests()[4].body.contains("the build needs cmake"));
    let elsewhere = err(&world.homing(&["agents", "keeper"]));
    assert!(!elsewhere.contains("needs trust"), "{elsewhere}");
}

#[test]
fn recipe_uses_its_parameters_and_sub_recipes() {
    let world = World::saying("hello");
    let recipe = "title: Greeter\ndescription: d\ninstructions: Speak {{ language }}.\nprompt: Greet {{ name }}.\n\
                  parameters:\n  - {key: language, input_type: string, requirement: optional, default: French}\n  \
                  - {key: name, input_type: string, requirement: required}\n\
                  extensions: []\nsub_recipes:\n  - {name: polish, path: sub/polish.yaml, values: {style: dry}}\n";
    world.write(".goose/recipes/greeter.yaml", recipe);
    let sub = "title: Polisher\ndescription: Polishes\ninstructions: Be {{ style }}.\nparameters: [{key: style, requirement: required}]\n";
    world.write(".goose/recipes/sub/polish.yaml", sub);
    let missing = world.homing(&run(&["--agent", "greeter"]));
    assert_eq!(code(&missing), 2);
    assert!(err(&missing).contains("--set name=VALUE"), "{}", err(&missing));
    assert_eq!(code(&world.homing(&run(&["--agent", "greeter", "--set", "name=Ann"]))), 0);
    let request = &world.provider.requests()[0];
    assert_eq!(task_of(request), "Greet Ann.");
    assert!(request.body.contains("Speak French.") && request.body.contains("- polish: Polishes"), "{}", request.body);
    let shown = out(&world.homing(&["agents", "polish", "--prompt"]));
    assert!(shown.starts_with("Be dry."), "{shown}");
}

#[test]
fn check_prints_a_repeated_diagnostic_once_with_its_places() {
    let world = World::saying("hello");
    for name in 'a'..='i' {
        let text = format!("---\nname: {name}\ndescription: d\nshoesize: 9\n---\nP\n");
        world.write(&format!(".claude/agents/{name}.md"), &text);
    }
    let shown = out(&world.homing(&["check"]));
    assert_eq!(shown.matches("unknown key `shoesize`").count(), 1, "{shown}");
    assert!(shown.contains("also in") && shown.contains("b.md:4") && shown.contains("and 3 more"), "{shown}");
    assert!(shown.contains("9 warnings"), "{shown}");
    let all = json(&world.homing(&["check", "--json"]));
    assert_eq!(all["warnings"].as_array().unwrap().len(), 9);
}
