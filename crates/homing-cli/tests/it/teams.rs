//! `homing check` on team files, values in their commands, and teams that are continued.

use std::{path::Path, process::Command};

use homing_testing::FakeResponse;

use crate::world::*;

fn check(path: &Path) -> (Option<i32>, String) {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("check").arg(path).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").current_dir(home.path());
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn check_locates_an_unknown_agent_in_a_team_file() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../homing-teams/examples/teams");
    let (code, said) = check(&examples);
    assert_eq!((code, said.contains("4 team files, 0 ignored (4 files)")), (Some(0), true), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(examples.join("report.yaml")).unwrap();
    let bad = folder.path().join("bad.yaml");
    std::fs::write(&bad, text.replace("agent: writer", "agent: wrtier")).unwrap();
    let (code, said) = check(&bad);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("there is no agent named `wrtier` (did you mean `writer`?)") && said.contains("bad.yaml:"),
        "{said}"
    );
}

const COMMAND: &str = "name: say
description: d
graph:
  start: say
  state: {}
  nodes:
    - name: say
      tool: bash
      args: {command: 'printf %s \"{{ task }}\" > said.txt'}
  edges: [{from: say, to: end}]
";

#[test]
fn value_in_a_teams_command_does_not_become_shell_code() {
    let world = World::saying("x");
    world.write("say.yaml", COMMAND);
    let task = "\"; touch pwned; echo \"$(touch pwned)";
    let output = world.homing(&["team", "--sandbox", "off", MODEL[0], MODEL[1], "say.yaml", task]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(!world.project.path().join("pwned").exists());
    assert_eq!(std::fs::read_to_string(world.project.path().join("said.txt")).unwrap(), task);

    world.write("raw.yaml", &COMMAND.replace("{{ task }}", "{{ task | safe }}"));
    let (code, said) = check(&world.project.path().join("raw.yaml"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("warning: `task | safe` is inserted as shell code") && said.contains("raw.yaml:"), "{said}");
    world.write("unclear.yaml", &COMMAND.replace("printf %s", "cat <<X"));
    let (code, said) = check(&world.project.path().join("unclear.yaml"));
    assert_eq!((code, said.contains("cannot be quoted safely")), (Some(1), true), "{said}");
}

#[test]
fn check_reports_a_team_file_without_a_pattern_as_a_team() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("team.yaml");
    std::fs::write(&file, "name: t\nagents:\n  - {name: a, description: d, prompt: p}\n").unwrap();
    let (code, said) = check(&file);
    assert_eq!(code, Some(1));
    assert!(said.contains("the team has no pattern: use one of crew, chat, graph, orchestrator, map"), "{said}");
}

#[test]
fn check_finds_wrong_arguments_of_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("team.yaml");
    let text = "name: t\ngraph:\n  start: x\n  nodes: [{name: x, tool: bash, args: {cmd: ls}}]\n";
    std::fs::write(&file, text).unwrap();
    let (code, said) = check(&file);
    assert_eq!((code, said.contains("`bash` needs the argument `command`")), (Some(1), true), "{said}");
}

#[test]
fn output_of_a_command_reaches_the_next_node() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("read: {}", task_of(seen))));
    let agents = "agents: [{name: ada, description: d, prompt: You are Ada., tools: []}]";
    let nodes = "    - {name: count, tool: bash, args: {command: echo 41}, writes: n}\n    - {name: tell, agent: ada, task: 'it is \
                 {{ state.n + 1 }}'}\n";
    let graph = format!(
        "graph:\n  start: count\n  state: {{n: {{type: number}}}}\n  nodes:\n{nodes}  edges: [{{from: count, to: tell}}]\n"
    );
    world.write("team.yaml", &format!("name: t\n{agents}\n{graph}"));
    let output =
        world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "--allow", "bash(echo *)", "go"]);
    assert_eq!(
        (code(&output), &json(&output)["output"]),
        (0, &"read: it is 42".into()),
        "{}{}",
        out(&output),
        err(&output)
    );
    assert_eq!(json(&output)["data"]["n"], 41);
}

#[test]
fn finished_team_is_continued_by_a_message() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen).replace('\n', " "))));
    let agents = "agents: [{name: ada, description: d, prompt: You are Ada., tools: []}]";
    let crew = "crew: {tasks: [{name: write, agent: ada, description: 'Write {{ task }}'}]}";
    world.write("team.yaml", &format!("name: t\n{agents}\n{crew}\n"));
    let first = json(&world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "about ants"]));
    let told =
        world.homing(&["tell", first["run"].as_str().unwrap(), "--model", "openai/gpt-4.1", "--json", "now bees"]);
    let (text, errors) = (out(&told), err(&told));
    assert_eq!(code(&told), 0, "{text}{errors}");
    let answer = json(&told)["output"].as_str().unwrap().to_owned();
    assert!(answer.starts_with("<Write now bees  This continues earlier work."), "{answer}");
    assert!(answer.contains("about ants") && answer.contains("Its result: <Write about ants>"), "{answer}");
}

#[test]
fn replay_of_a_team_is_identical_to_the_recording() {
    let agents = "agents:\n  - {name: ada, description: d, prompt: You are Ada., tools: []}\n  - {name: bob, description: d, prompt: You are Bob., \
                  tools: []}\n";
    let tasks = "[{name: a, agent: ada, description: x}, {name: b, agent: bob, description: y}, {name: c, agent: ada, \
                 description: z, context: [a, b]}]";
    for pattern in [
        format!("crew: {{tasks: {tasks}}}"),
        format!("crew: {{process: parallel, tasks: {tasks}}}"),
        "chat: {members: [ada, bob], max_rounds: 3}".to_owned(),
        "graph: {start: x, nodes: [{name: x, agent: ada, task: x}, {name: y, agent: bob, task: y}], edges: [{from: x, to: y}]}".to_owned(),
        "map: {agent: ada, each: '{{ item }}', items: [1, 2, 3]}".to_owned(),
    ] {
        let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen).lines().next().unwrap_or(""))));
        world.write("team.yaml", &format!("name: t\n{agents}{pattern}\n"));
        let first = json(&world.homing(&["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "go"]));
        let asked = world.provider.requests().len();
        let replayed = world.homing(&["replay", first["run"].as_str().unwrap(), "--json"]);
        assert_eq!(code(&replayed), 0, "{pattern}: {}", err(&replayed));
        assert!(err(&replayed).contains("identical to the recording"), "{pattern}: {}", err(&replayed));
        assert_eq!((&json(&replayed)["output"], world.provider.requests().len()), (&first["output"], asked), "{pattern}");
    }
}

#[test]
fn r61_team_file_of_the_user_is_an_agent() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen))));
    let member = "agents: [{name: explore, description: d, prompt: You are Ada., tools: []}]";
    let crew = "crew: {tasks: [{name: write, agent: explore, description: 'Write {{ task }}'}]}";
    let folder = world.home.path().join(".homing/teams");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("name: report\ndescription: Writes reports\n{member}\n{crew}\n");
    std::fs::write(folder.join("report.yaml"), text).unwrap();
    std::fs::write(folder.join("broken.yaml"), "name: broken\ncrew: {tasks: []}\n").unwrap();
    let listed = out(&world.homing(&["agents"]));
    let line = listed.lines().find(|line| line.starts_with("report ")).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.contains("user") && line.contains("Writes reports"), "{listed}");
    let output = world.homing(&["run", "--agent", "report", "--model", "openai/gpt-4.1", "--json", "about ants"]);
    assert_eq!(
        (code(&output), &json(&output)["output"]),
        (0, &"<Write about ants>".into()),
        "{}{}",
        out(&output),
        err(&output)
    );
    assert_eq!(json(&output)["children"][0]["agent"], "report-explore", "the built-in `explore` is not hidden");
    assert!(listed.lines().any(|line| line.starts_with("explore ") && line.contains("built-in")), "{listed}");
}

#[test]
fn team_file_of_a_project_needs_trust() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&task_of(seen)));
    let agents = "agents: [{name: ada, description: d, prompt: You are Ada., tools: []}]";
    world.write(
        ".homing/teams/each.yaml",
        &format!("name: each\n{agents}\nmap: {{agent: ada, each: '{{{{ item }}}}'}}\n"),
    );
    let run = || world.homing(&["run", "--agent", "each", "--model", "openai/gpt-4.1", "--json", "one"]);
    let refused = run();
    assert_ne!(code(&refused), 0);
    assert!(world.provider.requests().is_empty());
    let trusted = world.homing(&["trust", "--yes"]);
    assert_eq!(code(&trusted), 0, "{}{}", out(&trusted), err(&trusted));
    let output = run();
    assert_eq!((code(&output), &json(&output)["data"]["items"][0]["output"]), (0, &"one".into()), "{}", err(&output));
}

const SCRIPT: &str = "export const meta = { name: 'Find flaws', description: 'Finds flaws' }
phase('Find')
const found = await parallel(args.names.map(name => () => agent(`find ${name}`, { label: name })))
return { found, last: await agent('sum') }
";

#[test]
fn workflow_script_of_a_project_is_an_agent_once_it_is_trusted() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen))));
    world.write(".claude/workflows/find.js", SCRIPT);
    let run = || {
        let task = "{\"names\": [\"a\", \"b\"]}";
        world.homing(&["run", "--agent", "find-flaws", "--model", "openai/gpt-4.1", "--json", task])
    };
    assert_ne!(code(&run()), 0);
    assert!(world.provider.requests().is_empty());
    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    let listed = out(&world.homing(&["agents"]));
    assert!(listed.lines().any(|line| line.starts_with("find-flaws ") && line.contains("Finds flaws")), "{listed}");
    let output = run();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let result = &json(&output)["data"]["result"];
    assert_eq!(result, &serde_json::json!({"found": ["<find a>", "<find b>"], "last": "<sum>"}));
    let asked = world.provider.requests().len();
    let replayed = world.homing(&["replay", json(&output)["run"].as_str().unwrap(), "--json"]);
    assert_eq!((code(&replayed), world.provider.requests().len()), (0, asked), "{}", err(&replayed));
    assert!(err(&replayed).contains("identical to the recording"), "{}", err(&replayed));
}

#[test]
fn workflow_script_file_is_checked_and_run() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen))));
    world.write("flow.js", "export const meta = { name: 'flow', description: 'd' }\nlet x: number = 1\n");
    let checked = world.homing(&["check", "flow.js"]);
    assert_ne!(code(&checked), 0);
    assert!(out(&checked).contains("SyntaxError") || err(&checked).contains("SyntaxError"), "{}", out(&checked));
    world.write(
        "flow.js",
        "export const meta = { name: 'flow', description: 'd' }\nreturn [args.n, await agent('a'), budget.total]\n",
    );
    assert_eq!(code(&world.homing(&["check", "flow.js"])), 0);
    let run = ["team", "flow.js", "--set", "n=3", "--max-tokens", "90000", "--model", "openai/gpt-4.1", "--json", "go"];
    let output = world.homing(&run);
    assert_eq!(json(&output)["data"]["result"], serde_json::json!([3, "<a>", 90000]), "{}", err(&output));
}

#[test]
fn r62_fork_continues_from_a_position_and_pays_nothing_again() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen))));
    let agents = "agents: [{name: ada, description: d, prompt: You are Ada., tools: []}]";
    let graph = "graph:\n  start: look\n  state: {found: {type: string}}\n  nodes:\n    \
        - {name: look, agent: ada, task: look, writes: found}\n    \
        - {name: write, agent: ada, task: 'write {{ state.found }}'}\n  edges:\n    - {from: look, to: write}\n";
    world.write("route.yaml", &format!("name: route\n{agents}\n{graph}"));
    let first = world.homing(&["team", "route.yaml", "--model", "openai/gpt-4.1", "--json", "go"]);
    assert_eq!(json(&first)["output"], "<write <look>>", "{}", err(&first));
    let run = json(&first)["run"].as_str().unwrap().to_owned();
    let positions = out(&world.homing(&["show", &run, "--positions"]));
    let returned =
        positions.lines().find(|line| line.contains("route: returned")).unwrap_or_else(|| panic!("{positions}"));
    let at = returned.split_whitespace().next().unwrap();
    let asked = world.provider.requests().len();
    let forked =
        world.homing(&["fork", &run, "--at", at, "--set", "found=other", "--model", "openai/gpt-4.1", "--json"]);
    assert_eq!((code(&forked), &json(&forked)["output"]), (0, &"<write other>".into()), "{}", err(&forked));
    assert_eq!(world.provider.requests().len(), asked + 1, "only the second node is asked");
    let (before, after) = (json(&first), json(&forked));
    assert!(after["inherited"]["cost_micros"].as_u64().unwrap() > 0, "{after}");
    let cost = |envelope: &serde_json::Value| envelope["subtree"]["cost_micros"].as_u64().unwrap();
    assert_eq!(cost(&after) + after["inherited"]["cost_micros"].as_u64().unwrap(), cost(&before));
    let listed = out(&world.homing(&["runs", "--json"]));
    let rows: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let rows = rows.as_array().unwrap_or_else(|| panic!("{listed}"));
    let of_fork = rows.iter().find(|row| row["run"] == after["run"]).unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(of_fork["usage"]["cost_micros"], after["subtree"]["cost_micros"], "{listed}");
    let wrong = world.homing(&["fork", &run, "--at", "9999"]);
    assert_eq!(code(&wrong), 2, "{}", err(&wrong));
    assert!(
        err(&wrong).contains("there is no position 9999") && err(&wrong).contains("--positions"),
        "{}",
        err(&wrong)
    );
}

#[test]
fn members_share_notes_that_outlive_the_run() {
    let world = World::new(|_, seen| {
        if has_results(seen) || !seen.body.contains("You are Ada.") {
            return FakeResponse::chat_text("done");
        }
        let folder = seen.body.split("<memory folder=\\\"").nth(1).and_then(|rest| rest.split('\\').next());
        let path = format!("{}/MEMORY.md", folder.unwrap_or("none"));
        let args = serde_json::json!({"path": path, "content": "ants have six legs"}).to_string();
        FakeResponse::chat_calls(&[("write", &args)])
    });
    let agents = "agents:\n  - {name: ada, description: d, prompt: You are Ada., tools: [write]}\n  - {name: bob, description: d, prompt: You are \
                  Bob., tools: []}";
    let crew = "crew: {tasks: [{name: a, agent: ada, description: Look.}, {name: b, agent: bob, description: Write.}]}";
    world.write("team.yaml", &format!("name: lab\nmemory: user\n{agents}\n{crew}\n"));
    let args = ["team", "team.yaml", "--model", "openai/gpt-4.1", "--yes", "--json", "go"];
    let output = world.homing(&args);
    assert_eq!((code(&output), &json(&output)["status"]), (0, &"done".into()), "{}", err(&output));
    let notes = world.home.path().join(".claude/agent-memory/lab/MEMORY.md");
    assert_eq!(std::fs::read_to_string(notes).unwrap(), "ants have six legs", "{}", out(&output));
    let before = world.provider.requests().len();
    assert_eq!(code(&world.homing(&args)), 0);
    let later = world.provider.requests().split_off(before);
    let of_bob = later.iter().find(|seen| seen.body.contains("You are Bob.")).unwrap();
    assert!(of_bob.body.contains("ants have six legs"), "every member reads the notes: {}", of_bob.body);
}

#[test]
fn model_delegates_to_a_team_file() {
    let world = World::new(|_, seen| match task_of(seen).as_str() {
        "ask the team" if !has_results(seen) => {
            FakeResponse::chat_calls(&[("delegate", r#"{"agent": "report", "task": "ants"}"#)])
        }
        "ask the team" => FakeResponse::chat_text("the team answered"),
        task => FakeResponse::chat_text(&format!("<{task}>")),
    });
    let folder = world.home.path().join(".homing/teams");
    std::fs::create_dir_all(&folder).unwrap();
    let text = "name: report\ndescription: Writes reports\nagents: [{name: ada, description: d, prompt: You are Ada., tools: []}]\n\
                crew: {tasks: [{name: write, agent: ada, description: 'Write {{ task }}'}]}\n";
    std::fs::write(folder.join("report.yaml"), text).unwrap();
    let output = world.homing(&run(&["--json", "ask the team"]));
    let envelope = json(&output);
    assert_eq!((code(&output), &envelope["output"]), (0, &"the team answered".into()), "{}", err(&output));
    let team = &envelope["children"][0];
    assert_eq!((&team["agent"], &team["output"]), (&"report".into(), &"<Write ants>".into()));
    let last = world.provider.requests().pop().unwrap();
    assert!(last.body.contains("<Write ants>"), "the model reads the team's answer");
}

#[test]
fn person_of_a_team_answers_days_later() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen).replace('\n', " "))));
    let agents = "agents: [{name: ada, description: d, prompt: You are Ada., tools: []}]";
    let crew = "crew:\n  tasks:\n    - {name: facts, agent: person, description: 'What about {{ task }}?'}\n    - {name: page, agent: ada, \
                description: Write.}";
    world.write("team.yaml", &format!("name: lab\n{agents}\n{crew}\n"));
    assert_eq!(code(&world.homing(&["check", "team.yaml"])), 0);
    let with = ["--model", "openai/gpt-4.1", "--on-question", "park"];
    let parked = world.homing(&[&["team", "team.yaml", "--json"], &with[..], &["ants"]].concat());
    let envelope = json(&parked);
    assert_eq!((code(&parked), &envelope["status"]), (6, &"waiting".into()), "{}", err(&parked));
    assert_eq!(
        (&envelope["questions"][0]["text"], &envelope["questions"][0]["place"]),
        (&"What about ants?".into(), &"1.1".into())
    );
    std::fs::remove_file(world.project.path().join("team.yaml")).unwrap();
    let id = envelope["questions"][0]["id"].as_str().unwrap();
    let done = world.homing(&[&["answer", "--resume", "--json"], &with[..], &[id, "six legs"]].concat());
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert!(json(&done)["output"].as_str().unwrap().contains("six legs"), "{}", out(&done));
    let denied = world.homing(&["team", "--json", "missing.yaml", "x"]);
    assert_eq!(code(&denied), 2);
}

#[test]
fn task_writes_its_result_to_a_file_by_the_write_rules() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&format!("<{}>", task_of(seen))));
    let team = |path: &str| {
        format!(
            "name: lab\nagents: [{{name: ada, description: d, prompt: p, tools: []}}]\ncrew: {{tasks: [{{name: page, agent: ada, description: Write., \
             output_file: {path}}}]}}\n"
        )
    };
    world.write("team.yaml", &team("'out/{{ task }}.md'"));
    let args = ["team", "team.yaml", "--model", "openai/gpt-4.1", "--json", "ants"];
    let output = world.homing(&args);
    assert_eq!((code(&output), &json(&output)["output"]), (0, &"<Write.>".into()), "{}", out(&output));
    assert_eq!(std::fs::read_to_string(world.project.path().join("out/ants.md")).unwrap(), "<Write.>");
    world.write("team.yaml", &team("/etc/ants.md"));
    let outside = json(&world.homing(&args));
    let message = outside["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("task `page`") && message.contains("could not be written"), "{outside}");
    world.write("team.yaml", &team("denied.md"));
    let denied = world.homing(&[&args[..], &["--deny", "write"]].concat());
    assert_eq!(code(&denied), 1, "{}", out(&denied));
    assert!(!world.project.path().join("denied.md").exists());
}
