//! OpenCode's permission maps mean here what they mean there, or less. The verdicts were given by the real OpenCode
//! (`tests/oracles/opencode-permissions`), for the same calls of each of the maps.

mod show;

use std::{collections::BTreeMap, path::Path};

use homing_core::{
    authority::{Authority, Decision, Grant, Layer, Network, Sandbox},
    definition::AgentDefinition,
    diagnostic::Severity,
    rule::{Subject, Subjects},
};
use serde_json::Value;
use show::parsed;

struct Case {
    name: String,
    /// The part of the front matter that is tested.
    front: String,
    /// What OpenCode says about each call.
    verdicts: BTreeMap<String, Verdict>,
    /// What we say where that is narrower, because our rules cannot express it or because a written denial holds here.
    narrower: BTreeMap<String, Verdict>,
}

/// From narrow to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Deny,
    Ask,
    Allow,
}

fn agent(front: &str) -> (AgentDefinition, Vec<String>) {
    let text = format!("---\ndescription: A test\nmode: subagent\n{front}---\nWork.\n");
    let mut parsed = parsed(".opencode/agent/case.md", &text);
    assert!(parsed.diagnostics.iter().all(|it| it.severity < Severity::Error), "{:?}", parsed.diagnostics);
    (parsed.definitions.remove(0), parsed.diagnostics.iter().map(|it| it.message.clone()).collect())
}

/// Our tools that do what OpenCode's permission `name` is about, and what a call of them has as its subject.
fn calls(name: &str, call: &str) -> Vec<(String, Subjects)> {
    let parts = |it: Subject| Subjects::Parts(vec![it]);
    let path = || parts(Subject::Path(call.to_owned()));
    let text = call.to_owned();
    let one = |tool: &str, subjects: Subjects| vec![(tool.to_owned(), subjects)];
    match name {
        "bash" => one("bash", parts(Subject::Command { text, classes: vec![] })),
        "edit" => [one("edit", path()), one("write", path())].concat(),
        "read" => one("read", path()),
        "grep" | "glob" => one(name, parts(Subject::Path(".".to_owned()))),
        "webfetch" => {
            let host = call.split('/').nth(2).expect("a host").to_owned();
            one("fetch", parts(Subject::Host(host)))
        }
        "websearch" => one("websearch", Subjects::None),
        "todowrite" => one("todo", Subjects::None),
        "task" => one("delegate", parts(Subject::Name(text))),
        "skill" => one("skill", parts(Subject::Name(text))),
        mcp => one(&format!("mcp__{}", mcp.replacen('_', "__", 1)), Subjects::None),
    }
}

/// What we say about a call; where several tools of ours do it, the narrowest.
fn verdict(agent: &AgentDefinition, probe: &str) -> Verdict {
    let policy = Grant {
        layers: vec![Layer::everything("user").into()],
        read: vec![],
        write: vec![],
        network: Network::On,
        sandbox: Sandbox::WorkspaceWrite,
    };
    let own = Authority::root(policy, agent).own;
    let (name, call) = probe.split_once(' ').expect("a permission and a call");
    let all = calls(name, call).into_iter().map(|(tool, subjects)| match own.decide(&tool, &subjects) {
        Decision::Allow { .. } => Verdict::Allow,
        Decision::Ask { .. } => Verdict::Ask,
        Decision::Deny { .. } => Verdict::Deny,
    });
    all.min().expect("a tool")
}

fn recorded() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracles/opencode-permissions.json");
    let text = std::fs::read_to_string(path).expect("the recorded verdicts");
    let recorded: Value = serde_json::from_str(&text).expect("JSON");
    let verdict = |(probe, it): (&String, &Value)| {
        let verdict = match it.as_str() {
            Some("deny") => Verdict::Deny,
            Some("ask") => Verdict::Ask,
            Some("allow") => Verdict::Allow,
            other => panic!("{other:?} is not a verdict"),
        };
        (probe.clone(), verdict)
    };
    let verdicts = |it: &Value| it.as_object().into_iter().flatten().map(verdict).collect();
    let case = |it: &Value| Case {
        name: it["name"].as_str().expect("a name").to_owned(),
        front: it["front"].as_str().expect("front matter").to_owned(),
        verdicts: verdicts(&it["verdicts"]),
        narrower: verdicts(&it["narrower"]),
    };
    recorded["cases"].as_array().expect("cases").iter().map(case).collect()
}

#[test]
fn permission_maps_mean_what_the_real_opencode_takes_them_for() {
    let cases = recorded();
    assert!(cases.len() >= 30 && cases.iter().all(|it| it.verdicts.len() >= 20));
    let mut wrong = Vec::new();
    for case in &cases {
        let (agent, _) = agent(&case.front);
        for (probe, theirs) in &case.verdicts {
            let ours = verdict(&agent, probe);
            let expected = case.narrower.get(probe).unwrap_or(theirs);
            if ours > *theirs || ours != *expected {
                wrong.push(format!("{}: `{probe}` is {ours:?} here, {theirs:?} in OpenCode", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn whatever_is_narrower_than_in_opencode_is_remarked_on() {
    for case in recorded().iter().filter(|it| !it.narrower.is_empty()) {
        let (_, remarks) = agent(&case.front);
        // A switch or a denial that holds by its own name is what its author wrote.
        let as_written = case.front.contains("write: ");
        assert!(as_written || !remarks.is_empty(), "{}", case.name);
    }
}

#[test]
fn a_line_that_a_later_one_overrules_is_remarked_on() {
    let (_, remarks) = agent("permission:\n  read: allow\n  \"*\": deny\n");
    assert_eq!(
        remarks,
        [
            "`read: allow` has no effect: the later `*: deny` overrules it, because the last match wins",
            "`permission` leaves the agent no tools at all"
        ]
    );
    let (_, remarks) = agent("permission:\n  \"*\": deny\n  read: allow\n");
    assert!(remarks.is_empty(), "{remarks:?}");
}

#[test]
fn a_misspelt_tool_is_denied_and_never_allowed() {
    let (wrong, remarks) = agent("permission:\n  bsh: deny\n  edti: ask\n");
    assert_eq!(verdict(&wrong, "bash ls"), Verdict::Deny);
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    let (wrong, _) = agent("permission:\n  \"*\": deny\n  bsh: allow\n");
    assert_eq!(verdict(&wrong, "bash ls"), Verdict::Deny);
    let (wrong, remarks) = agent("permission:\n  bash: maybe\n");
    assert_eq!(verdict(&wrong, "bash ls"), Verdict::Deny);
    assert_eq!(remarks, ["`maybe` is not a permission; it was taken for deny"]);
}

#[test]
fn a_hostile_map_ends_closed() {
    let lines: String = (0..500).map(|it| format!("    \"{}{it}\": allow\n", "*a".repeat(40))).collect();
    let (agent, remarks) = agent(&format!("permission:\n  bash:\n    \"*\": deny\n{lines}"));
    assert_eq!(verdict(&agent, "bash ls"), Verdict::Deny);
    assert!(remarks[0].contains("more than 128 permissions"), "{remarks:?}");
}

#[test]
fn patterns_on_addresses_become_hosts_or_close() {
    // OpenCode itself accepts only words here.
    let (agent, remarks) = agent("permission:\n  webfetch:\n    \"*\": deny\n    \"https://docs.rs/*\": allow\n");
    assert_eq!(verdict(&agent, "webfetch https://docs.rs/tokio"), Verdict::Allow);
    assert_eq!(verdict(&agent, "webfetch https://example.org/"), Verdict::Deny);
    assert!(remarks.is_empty(), "{remarks:?}");
    let (agent, remarks) =
        self::agent("permission:\n  webfetch:\n    \"*\": deny\n    \"https://docs.rs/x/*\": allow\n");
    assert_eq!(verdict(&agent, "webfetch https://docs.rs/x/y"), Verdict::Deny);
    assert!(remarks[0].contains("cannot be expressed here"), "{remarks:?}");
    let (agent, _) = self::agent("permission:\n  webfetch:\n    \"*evil*\": deny\n");
    assert_eq!(verdict(&agent, "webfetch https://docs.rs/x/y"), Verdict::Deny);
}

#[test]
fn the_runs_own_tools_are_not_asked_about() {
    let (agent, _) = agent("permission:\n  \"*\": ask\n  task: allow\n");
    for tool in ["delegate", "wait", "tell", "cancel", "think", "answer"] {
        assert!(agent.asked.iter().all(|it| !it.names(tool)), "{tool}");
    }
    assert_eq!(verdict(&agent, "read src/a.rs"), Verdict::Ask);
}
