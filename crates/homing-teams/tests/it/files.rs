//! Team files: parsing, diagnostics with positions, and hostile files.

use std::{path::Path, sync::Arc, time::Instant};

use crate::support::{MemberRequest, agent_names, agents, parts, scripted};
use homing_core::{
    diagnostic::Severity, envelope::Status, limits::Limits, registry::Registry, scripted_model::say, tool::ToolSpec,
};
use homing_runtime::{
    Runtime, Task,
    journal::{Claim, MemoryJournal},
};
use homing_teams::{Pattern, load, recorded_in, schema};

const REPORT: &str = r#"
name: report
description: Writes reports
parameters:
  audience: beginners
  topic: null
memory: true
limits: { max_cost: 2.00, timeout: 10m }
agents:
  - name: researcher
    description: Finds out
    prompt: researcher of {{ topic }} and {{ nothing }}
    tools: [read, "bash(git log *)"]
  - name: writer
    description: Writes
    prompt: writer
crew:
  process: sequential
  tasks:
    - name: research
      agent: researcher
      description: Research {{ topic }}
      limits: { max_turns: 5 }
    - name: write
      agent: writer
      description: Write for {{ audience }} about {{ task }}
      context: [research]
      retries: 1
      on_failure: fail
"#;

/// One line per diagnostic: position and message.
fn diagnostics(text: &str) -> String {
    let loaded = load(text, Some(Path::new("team.yaml")));
    let found = loaded
        .diagnostics
        .iter()
        .chain(&loaded.check(&Registry::default(), &[]))
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    found.join("\n")
}

fn crew(tasks: &str) -> String {
    let agents = "agents: [{name: a, description: d, prompt: a}]";
    format!("name: t\n{agents}\ncrew:\n  process: parallel\n  tasks:\n{tasks}")
}

#[tokio::test(start_paused = true)]
async fn team_file_runs() {
    let mut loaded = load(REPORT, None);
    let warnings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("unknown parameter `nothing`: it stays in the prompt as it is written"),
        "{warnings:?}"
    );
    loaded.set("topic", "ants").unwrap();
    let team = loaded.ready().unwrap();
    let script = |member: MemberRequest<'_>| say(format!("<{}: {}>", member.name, member.task.replace('\n', " ")));
    let runtime = Runtime::new(parts(MemoryJournal::new(), Vec::new(), scripted(script), vec![team]));
    let result = runtime.spawn(Task::new("report", "a report")).unwrap().wait().await;
    assert_eq!((result.status, agent_names(&result)), (Status::Done, vec!["researcher", "writer"]));
    assert!(
        result.output.starts_with("<writer: Write for beginners about a report  Results of earlier"),
        "{}",
        result.output
    );
    assert!(result.output.contains("<researcher: Research ants>"));
    let records = runtime.get(result.run).unwrap().tree();
    let systems: Vec<&str> = records.runs().iter().map(|run| &*run.spawned.system).collect();
    assert!(systems[1].starts_with("researcher of ants and {{ nothing }}"), "{systems:?}");
    assert_eq!(systems[2], "writer", "who does not ask for a parameter does not get it");
}

#[tokio::test(start_paused = true)]
async fn team_can_be_installed_again_from_the_journal() {
    let mut loaded = load(REPORT, None);
    loaded.set("topic", "ants").unwrap();
    let script = |member: MemberRequest<'_>| say(format!("<{}>", member.name));
    let journal = MemoryJournal::new();
    let runtime = Runtime::new(parts(journal.clone(), Vec::new(), scripted(script), vec![loaded.ready().unwrap()]));
    let whole = runtime.spawn(Task::new("report", "a report")).unwrap().wait().await;
    let records = journal.records(whole.run);
    let teams = recorded_in(records.iter().map(|record| &**record));
    assert_eq!(teams.len(), 1);
    let journal = MemoryJournal::with(records[..6].iter().cloned());
    let runtime = Runtime::new(parts(journal, Vec::new(), scripted(script), teams));
    let again = runtime.resume(whole.run, Claim::IfGone, Limits::default()).await.unwrap().wait().await;
    assert_eq!((again.status, again.output), (Status::Done, whole.output));
}

#[test]
fn shipped_team_files_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/teams");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4);
    for path in files {
        let loaded = load(&std::fs::read_to_string(&path).unwrap(), Some(&path));
        assert!(loaded.diagnostics.is_empty(), "{:#?}", loaded.diagnostics);
        let problems = loaded.check(&Registry::default(), &[]);
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

#[test]
fn parameter_must_exist_and_have_a_value() {
    let mut loaded = load(REPORT, Some(Path::new("team.yaml")));
    let unknown = loaded.set("topik", "x").unwrap_err();
    assert_eq!(unknown.hint.as_deref(), Some("did you mean `topic`?"));
    let missing = loaded.ready().unwrap_err();
    assert_eq!(missing[0].to_string(), "team.yaml:6:10: error: the parameter `topic` has no value");
}

#[tokio::test(start_paused = true)]
async fn template_injection_does_nothing() {
    let mut loaded = load(REPORT, None);
    loaded.set("topic", "{{ audience }}{% for x in range(9) %}!{% endfor %}\nagents: []").unwrap();
    let script = |member: MemberRequest<'_>| say(member.task.clone());
    let runtime =
        Runtime::new(parts(MemoryJournal::new(), Vec::new(), scripted(script), vec![loaded.ready().unwrap()]));
    let result = runtime.spawn(Task::new("report", "{{ audience }} {{ 7 * 7 }}")).unwrap().wait().await;
    let expected = "Research {{ audience }}{% for x in range(9) %}!{% endfor %}\nagents: []";
    assert_eq!(result.children[0].output, expected);
    assert!(result.output.starts_with("Write for beginners about {{ audience }} {{ 7 * 7 }}"), "{}", result.output);
}

#[test]
fn cycles_and_unknown_references_are_errors_with_positions() {
    let tasks = "    - {name: x, agent: a, description: d, context: [z]}\n    - {name: y, agent: a, description: d, context: [x, q]}\n    - {name: z, agent: b, description: d, context: [y]}\n";
    insta::assert_snapshot!(diagnostics(&crew(tasks)), @r###"
    team.yaml:7:56: error: there is no task `q`
    team.yaml:6:52: error: tasks wait for each other: x → z → y → x
    team.yaml:8:24: error: there is no agent named `b` (did you mean `a`?); there are: a
    "###);
}

#[test]
fn parse_errors_have_positions() {
    let check = |text: &str| diagnostics(text).lines().next().unwrap_or_default().to_owned();
    insta::assert_snapshot!(check("name: t\ncrew:\n  tusks: []\n"), @"team.yaml:3:3: error: unknown field `tusks`, expected one of process, tasks, manager, members, max_rounds, output");
    insta::assert_snapshot!(check("name: t\nname: u\ncrew: {tasks: []}\n"), @"team.yaml:2:1: error: duplicate mapping key: name");
    insta::assert_snapshot!(check("name: t\ncrew: [1\n"), @"team.yaml:2:7: error: expected mapping start");
    insta::assert_snapshot!(check("just words"), @"team.yaml:1:1: error: expected mapping start");
}

#[test]
fn missing_keys_are_reported() {
    insta::assert_snapshot!(diagnostics("crew:\n  tasks:\n    - name: x\n"), @r###"
    team.yaml:1:1: error: `` is not a valid team name: use lower-case letters, digits and -
    team.yaml:3:7: error: the task `x` has no description
    team.yaml:3:7: error: the task `x` has no agent
    "###);
    insta::assert_snapshot!(diagnostics("name: t\n"), @"team.yaml:1:1: error: the team has no pattern: use one of crew, chat, graph, orchestrator, map");
    insta::assert_snapshot!(diagnostics("name: t\ngraph:\n  start: a\n  nodes:\n    - {name: a, task: x}\n  edges:\n    - {from: a, to: b}\n"), @r###"
    team.yaml:5:7: error: the node `a` needs one of agent, team, tool
    team.yaml:7:21: error: there is no node `b`; use `end` to end the graph
    "###);
    insta::assert_snapshot!(diagnostics("name: t\nchat: {members: [], next: model}\n"), @r###"
    team.yaml:2:17: error: the chat has no members
    team.yaml:2:7: error: `next: model` needs a `selector`
    "###);
}

#[test]
fn templates_are_checked_before_any_model_is_called() {
    let tasks = "    - {name: x, agent: a, description: 'use {{ foobar }}'}\n    - {name: y, agent: a, description: '{{ results.x.output }} {{ broken'}\n    - {name: z, agent: a, description: '{{ results.x.output }}'}\n";
    insta::assert_snapshot!(diagnostics(&crew(tasks)), @r###"
    team.yaml:6:40: error: unknown name `foobar`; known names: task, results
    team.yaml:7:40: error: syntax error: unexpected end of input, expected end of variable block (line 1 of the template)
    team.yaml:8:7: error: `results.x` is used, but `x` is not in the task's context
    "###);
}

#[test]
fn values_are_yaml_1_2() {
    let schema = "{type: object, properties: {ok: {enum: [yes, no, on, off, y]}}}";
    let text = format!(
        "name: t\nparameters: {{country: no, zip: 012, hex: 0x1F, real: true}}\nagents: [{{name: a, description: d, prompt: a}}]\ncrew: {{tasks: [{{name: x, agent: a, description: d, schema: {schema}}}]}}\n"
    );
    let loaded = load(&text, Some(Path::new("team.yaml")));
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    let team = loaded.team.unwrap();
    assert_eq!(team.parameters["country"], "no");
    assert_eq!((&team.parameters["zip"], &team.parameters["hex"]), (&"012".into(), &31.into()));
    let number = load("name: t\nlimits: {max_tokens: 0100}\nmap: {agent: a, each: x}", None);
    assert!(number.team.is_none() && number.diagnostics[0].line == 2, "{:?}", number.diagnostics);
    assert_eq!(team.parameters["real"], true);
    let Pattern::Crew(crew) = team.pattern else { panic!("a crew") };
    assert_eq!(
        crew.tasks[0].schema.as_ref().unwrap()["properties"]["ok"]["enum"],
        serde_json::json!(["yes", "no", "on", "off", "y"])
    );
}

fn graph_file(state: &str, nodes: &str, edges: &str) -> String {
    let agents = "agents: [{name: a, description: d, prompt: a}]";
    format!("name: t\n{agents}\ngraph:\n  start: x\n  state: {{{state}}}\n  nodes:\n{nodes}  edges:\n{edges}")
}

#[test]
fn mistakes_in_templates_schemas_and_members_are_found() {
    insta::assert_snapshot!(diagnostics(&crew("    - {name: x, agent: a, description: '{{ task | lenght }}'}\n")), @"team.yaml:6:40: error: unknown filter `lenght` (did you mean `length`?) (line 1 of the template)");
    insta::assert_snapshot!(diagnostics(&crew("    - {name: x, agent: a, description: d, schema: {type: object, properties: {n: {type: strin}}}}\n")), @r#"team.yaml:6:89: error: not a valid JSON schema: "strin" is not valid under any of the schemas listed in the 'anyOf' keyword"#);
    insta::assert_snapshot!(diagnostics("name: t\nagents: [{name: a, description: d, prompt: 'for {{ audeince }}', tools: [read, grpe, mcp__x__y]}]\nparameters: {audience: all}\nmap: {agent: a, each: x, items: [1]}\n"), @r"
    team.yaml:2:44: warning: unknown parameter `audeince`: it stays in the prompt as it is written; parameters of the team: audience
    team.yaml:2:80: error: there is no tool `grpe` (did you mean `grep`?)
    ");
    insta::assert_snapshot!(diagnostics("name: t\nagents: [{name: a, description: d, prompt: a}]\nchat: {members: [a], rules: [{when: 'true', speaker: a}]}\n"), @"team.yaml:3:29: error: `rules` have no effect without `next: rule`");
}

#[test]
fn mistakes_in_the_course_of_a_graph_are_found() {
    let node = |name: &str| format!("    - {{name: {name}, agent: a, task: d}}\n");
    let (x, y) = (node("x"), node("y"));
    insta::assert_snapshot!(diagnostics(&graph_file("", &format!("{x}{y}"), "    - {from: x, to: end}\n")), @"team.yaml:8:14: warning: the node `y` is never reached: no edge leads to it from the start");
    insta::assert_snapshot!(diagnostics(&graph_file("", &format!("{x}{y}"), "    - {from: x, to: y}\n    - {from: y, to: x}\n    - {from: y, to: end}\n")), @"team.yaml:7:14: error: endless loop: x → y → x; give one of its edges a condition or a limit");
    assert_eq!(
        diagnostics(&graph_file("", &format!("{x}{y}"), "    - {from: x, to: y}\n    - {from: y, to: x, limit: 2}\n")),
        ""
    );
    let join = "    - {name: z, agent: a, task: d, join: [x, y]}\n";
    insta::assert_snapshot!(diagnostics(&graph_file("", &format!("{x}{y}{join}"), "    - {from: x, to: z}\n    - {from: z, to: y}\n    - {from: y, to: z, limit: 1}\n")), @"team.yaml:9:46: error: the join cannot be complete: `y` comes only after `z`");
    insta::assert_snapshot!(diagnostics(&graph_file("s: {type: string, reducer: append}", &x, "    - {from: x, to: end}\n")), @"team.yaml:5:38: error: `s`: `append` needs a list, not a string");
}

#[test]
fn tools_and_teams_of_nodes_must_fit() {
    let bash = ToolSpec::new(
        "bash",
        "",
        serde_json::json!({
            "type": "object", "required": ["command"],
            "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
        }),
    );
    let check = |nodes: &str| {
        let text = graph_file("", nodes, "    - {from: x, to: end}\n");
        let loaded = load(&text, Some(Path::new("team.yaml")));
        assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
        let found = loaded.check(&Registry::default(), std::slice::from_ref(&bash));
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(check("    - {name: x, tool: bash, args: {cmd: ls, timeout: soon}}\n"), @r#"
    team.yaml:7:35: error: `bash` needs the argument `command`
    team.yaml:7:54: error: the argument `timeout` of `bash` cannot be "soon"
    "#);
    assert_eq!(check("    - {name: x, tool: bash, args: {command: 'ls {{ task }}', timeout: '{{ step }}'}}\n"), "");
    insta::assert_snapshot!(check("    - {name: x, tool: bsah, args: {command: ls}}\n"), @"team.yaml:7:23: error: there is no tool `bsah` (did you mean `bash`?)");
    let chat = "name: t\nagents: [{name: a, description: d, prompt: a}]\nteams: [{name: talk, chat: {members: [a]}}]\ngraph:\n  start: x\n  nodes:\n    - {name: x, team: talk, task: d, schema: {type: object}}\n";
    insta::assert_snapshot!(diagnostics(chat), @"team.yaml:7:46: error: `schema` cannot be met: `talk` is a chat, whose data is the conversation");
}

#[tokio::test(start_paused = true)]
async fn error_of_a_program_names_file_line_and_node() {
    let text = graph_file(
        "n: {type: number}",
        "    - {name: x, agent: a, task: d, writes: n}\n",
        "    - {from: x, to: end}\n",
    );
    let team = load(&text, Some(Path::new("team.yaml"))).ready().unwrap();
    let make = |journal, teams| parts(journal, Vec::new(), scripted(|_: MemberRequest<'_>| say("many")), teams);
    let journal = MemoryJournal::new();
    let runtime = Runtime::new(make(journal.clone(), vec![team]));
    let failed = runtime.spawn(Task::new("t", "go")).unwrap().wait().await;
    let error = failed.error.unwrap();
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("team", "team.yaml:7:7: node `x`: `n` must be a number, not \"many\"")
    );
    assert_eq!(failed.data, Some(serde_json::json!({"n": null}).into()), "the state is kept as data");
    let records = journal.records(failed.run);
    let teams = recorded_in(records.iter().map(|record| &**record));
    let runtime = Runtime::new(make(MemoryJournal::with(records[..6].iter().cloned()), teams));
    let again = runtime.resume(failed.run, Claim::IfGone, Limits::default()).await.unwrap().wait().await;
    assert_eq!(again.error.unwrap().message, error.message, "also from the journal");
}

#[test]
fn team_that_contains_itself_is_an_error() {
    let inner = "{name: inner, map: {agent: outer, each: x, items: [1]}}";
    let text = format!("name: outer\nteams: [{inner}]\nmap: {{agent: inner, each: x, items: [1]}}\n");
    insta::assert_snapshot!(diagnostics(&text), @r###"
    team.yaml:1:7: error: the team contains itself: outer → inner → outer
    team.yaml:2:16: error: the team contains itself: inner → outer → inner
    "###);
    insta::assert_snapshot!(diagnostics("name: me\nmap: {agent: me, each: x, items: [1]}\n"), @"team.yaml:1:7: error: the team contains itself: me → me");
}

#[test]
fn ten_thousand_nodes_and_mistakes_are_read_in_time() {
    let begun = Instant::now();
    let mut text = crew("");
    for at in 0..10_000 {
        text.push_str(&format!("    - {{name: t{at}, agent: b, description: d, context: [t{}]}}\n", (at + 1) % 10_000));
    }
    let loaded = load(&text, None);
    assert!(loaded.diagnostics[0].message.starts_with("tasks wait for each other: t0 → t1"));
    let wrong = loaded.check(&Registry::default(), &[]);
    assert_eq!(wrong.len(), 10_000);

    let mut graph = "name: g\ngraph:\n  start: n0\n  nodes:\n".to_owned();
    (0..10_000).for_each(|at| graph.push_str(&format!("    - {{name: n{at}, agent: a, task: d}}\n")));
    graph.push_str("  edges:\n");
    (0..9_999).for_each(|at| graph.push_str(&format!("    - {{from: n{at}, to: n{}}}\n", at + 1)));
    let loaded = load(&graph, None);
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics.first());
    let Some(Pattern::Graph(graph)) = loaded.team.map(|team| team.pattern) else { panic!("a graph") };
    assert_eq!(graph.nodes.len(), 10_000);
    assert!(begun.elapsed().as_secs() < 50, "{:?}", begun.elapsed());
}

#[test]
fn hostile_yaml_is_refused() {
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n";
    let deep = format!("name: {}", "[".repeat(100_000));
    let nested = "{a: ".repeat(50_000);
    for text in [laughs, &deep, &nested, &"x".repeat(9 << 20)] {
        let begun = Instant::now();
        let loaded = load(text, None);
        assert!(loaded.team.is_none() && loaded.diagnostics[0].severity == Severity::Error);
        assert!(begun.elapsed().as_secs() < 10);
    }
}

#[test]
fn published_schema_matches_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/team.schema.json");
    let ours = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &ours).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == ours, "run this test once with UPDATE_SCHEMAS=1");
}

#[test]
fn unknown_agents_are_found_at_installation() {
    let team = load(&crew("    - {name: x, agent: unknown-agent, description: d}\n"), None).ready().unwrap();
    let mut parts = parts(MemoryJournal::new(), agents(["a"]), scripted(|_: MemberRequest<'_>| say("")), Vec::new());
    let problems = homing_teams::install(&mut parts, [team]).unwrap_err();
    assert!(problems[0].message.contains("no agent named `unknown-agent`"), "{problems:#?}");
    assert!(Arc::strong_count(&parts.registry) > 0);
}
