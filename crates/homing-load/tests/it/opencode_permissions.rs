//! OpenCode's permission maps allow the same calls as in OpenCode, or fewer. The expected verdicts were recorded with
//! OpenCode itself (`tests/oracles/opencode-permissions`).

use std::{collections::BTreeMap, path::Path};

use crate::show::parsed;
use homing_core::{
    authority::{Authority, Decision, Grant, Layer, Network, Sandbox},
    definition::AgentDefinition,
    diagnostic::Severity,
    rule::{Subject, Subjects},
    tool::Effect,
};
use serde_json::Value;

struct Case {
    name: String,
    /// The part of the front matter that is tested.
    front: String,
    /// OpenCode's verdict on each call.
    verdicts: BTreeMap<String, CallVerdict>,
    /// Narrower verdicts, for maps that rules cannot express and for denials that always hold here.
    narrower: BTreeMap<String, CallVerdict>,
}

/// Verdicts, the narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CallVerdict {
    Deny,
    Ask,
    Allow,
}

fn agent(front: &str) -> (AgentDefinition, Vec<String>) {
    let text = format!("---\ndescription: A test\nmode: subagent\n{front}---\nWork.\n");
    let mut parsed = parsed(".opencode/agent/case.md", &text);
    assert!(
        parsed.diagnostics.iter().all(|diagnostic| diagnostic.severity < Severity::Error),
        "{:?}",
        parsed.diagnostics
    );
    (parsed.definitions.remove(0), parsed.diagnostics.iter().map(|diagnostic| diagnostic.message.clone()).collect())
}

/// The tools to which OpenCode's permission `name` applies, with the subjects of a call.
fn calls(name: &str, call: &str) -> Vec<(String, Subjects)> {
    let parts = |subject: Subject| Subjects::Parts(vec![subject]);
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

/// The verdict on a call; if it applies to several tools, the narrowest one.
fn verdict(agent: &AgentDefinition, probe: &str) -> CallVerdict {
    let policy =
        Grant::new(vec![Layer::everything("user").into()]).network(Network::On).sandbox(Sandbox::WorkspaceWrite);
    let own = Authority::root(policy, agent).own;
    let (name, call) = probe.split_once(' ').expect("a permission and a call");
    let all =
        calls(name, call).into_iter().map(|(tool, subjects)| match own.decide(&tool, Effect::Changes, &subjects) {
            Decision::Allow { .. } => CallVerdict::Allow,
            Decision::Ask { .. } => CallVerdict::Ask,
            Decision::Deny { .. } => CallVerdict::Deny,
        });
    all.min().expect("a tool")
}

fn recorded() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracles/opencode-permissions.json");
    let text = std::fs::read_to_string(path).expect("the recorded verdicts");
    let recorded: Value = serde_json::from_str(&text).expect("JSON");
    let verdict = |(probe, value): (&String, &Value)| {
        let verdict = match value.as_str() {
            Some("deny") => CallVerdict::Deny,
            Some("ask") => CallVerdict::Ask,
            Some("allow") => CallVerdict::Allow,
            other => panic!("{other:?} is not a verdict"),
        };
        (probe.clone(), verdict)
    };
    let verdicts = |value: &Value| value.as_object().into_iter().flatten().map(verdict).collect();
    let case = |value: &Value| Case {
        name: value["name"].as_str().expect("a name").to_owned(),
        front: value["front"].as_str().expect("front matter").to_owned(),
        verdicts: verdicts(&value["verdicts"]),
        narrower: verdicts(&value["narrower"]),
    };
    recorded["cases"].as_array().expect("cases").iter().map(case).collect()
}

#[test]
fn permission_maps_match_recorded_opencode_verdicts() {
    let cases = recorded();
    assert!(cases.len() >= 30 && cases.iter().all(|case| case.verdicts.len() >= 20));
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
fn narrower_results_than_opencode_are_reported() {
    for case in recorded().iter().filter(|case| !case.narrower.is_empty()) {
        let (_, diagnostics) = agent(&case.front);
        // A switch or denial that applies by its own name is what the author wrote, so it is not reported.
        let as_written = case.front.contains("write: ");
        assert!(as_written || !diagnostics.is_empty(), "{}", case.name);
    }
}

#[test]
fn overridden_lines_are_reported() {
    let (_, diagnostics) = agent("permission:\n  read: allow\n  \"*\": deny\n");
    assert_eq!(
        diagnostics,
        [
            "`read: allow` has no effect: the later `*: deny` overrides it, because the last match wins",
            "`permission` leaves the agent without tools"
        ]
    );
    let (_, diagnostics) = agent("permission:\n  \"*\": deny\n  read: allow\n");
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
}

#[test]
fn misspelt_tool_is_denied_and_never_allowed() {
    let (wrong, diagnostics) = agent("permission:\n  bsh: deny\n  edti: ask\n");
    assert_eq!(verdict(&wrong, "bash ls"), CallVerdict::Deny);
    assert_eq!(diagnostics.len(), 2, "{diagnostics:?}");
    let (wrong, _) = agent("permission:\n  \"*\": deny\n  bsh: allow\n");
    assert_eq!(verdict(&wrong, "bash ls"), CallVerdict::Deny);
    let (wrong, diagnostics) = agent("permission:\n  bash: maybe\n");
    assert_eq!(verdict(&wrong, "bash ls"), CallVerdict::Deny);
    assert_eq!(diagnostics, ["`maybe` is not a permission: treated as `deny`"]);
}

#[test]
fn oversized_permission_map_denies_everything() {
    let lines: String = (0..500).map(|index| format!("    \"{}{index}\": allow\n", "*a".repeat(40))).collect();
    let (agent, diagnostics) = agent(&format!("permission:\n  bash:\n    \"*\": deny\n{lines}"));
    assert_eq!(verdict(&agent, "bash ls"), CallVerdict::Deny);
    assert!(diagnostics[0].contains("more than 128 permissions"), "{diagnostics:?}");
}

#[test]
fn address_patterns_become_hosts_or_deny() {
    // OpenCode itself accepts only words here.
    let (agent, diagnostics) = agent("permission:\n  webfetch:\n    \"*\": deny\n    \"https://docs.rs/*\": allow\n");
    assert_eq!(verdict(&agent, "webfetch https://docs.rs/tokio"), CallVerdict::Allow);
    assert_eq!(verdict(&agent, "webfetch https://example.org/"), CallVerdict::Deny);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    let (agent, diagnostics) =
        self::agent("permission:\n  webfetch:\n    \"*\": deny\n    \"https://docs.rs/x/*\": allow\n");
    assert_eq!(verdict(&agent, "webfetch https://docs.rs/x/y"), CallVerdict::Deny);
    assert!(diagnostics[0].contains("cannot be expressed here"), "{diagnostics:?}");
    let (agent, _) = self::agent("permission:\n  webfetch:\n    \"*evil*\": deny\n");
    assert_eq!(verdict(&agent, "webfetch https://docs.rs/x/y"), CallVerdict::Deny);
}

#[test]
fn tools_of_the_run_itself_need_no_approval() {
    let (agent, _) = agent("permission:\n  \"*\": ask\n  task: allow\n");
    for tool in ["delegate", "wait", "tell", "cancel", "think", "answer"] {
        assert!(agent.tools.asked.iter().all(|rule| !rule.names(tool)), "{tool}");
    }
    assert_eq!(verdict(&agent, "read src/a.rs"), CallVerdict::Ask);
}

#[test]
fn permissions_of_the_configuration_come_before_those_of_agents() {
    let root = tempfile::TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let config = r#"{"permission": {"bash": "deny", "edit": "ask"}, "tools": {"webfetch": false}, "agent": {
        "x": {"description": "d", "prompt": "P"},
        "y": {"description": "d", "prompt": "P", "permission": {"bash": {"*": "deny", "git *": "allow"}}, "tools": {"webfetch": true}},
        "z": {"permission": {"grep": "deny"}}}}"#;
    write("repo/opencode.json", config);
    write("repo/.opencode/agent/z.md", "---\ndescription: d\n---\nP\n");
    write("home/.config/opencode/opencode.json", r#"{"permission": "deny"}"#);
    write("home/.config/opencode/agent/own.md", "---\ndescription: d\npermission: {read: allow}\n---\nP\n");
    write("repo/.claude/agents/other.md", "---\nname: other\ndescription: d\n---\nP\n");
    let mut places = homing_load::Places::new(root.path().join("repo"));
    places.config = Some(root.path().join("home/.config"));
    places.skip_built_in = true;
    let found = homing_load::discover(&places, &homing_load::ParseOptions::default());
    let decided = |agent: &str| {
        let policy = Grant::new(vec![Layer::everything("host").into()])
            .read(vec!["/".into()])
            .write(vec!["/".into()])
            .network(Network::On)
            .sandbox(Sandbox::WorkspaceWrite);
        let authority = Authority::root(policy, found.registry.get(agent).unwrap());
        let verdict = |(tool, effect, subject): (&str, Effect, Subject)| match authority.own.decide(
            tool,
            effect,
            &Subjects::Parts(vec![subject]),
        ) {
            Decision::Allow { .. } => "allow",
            Decision::Ask { .. } => "ask",
            Decision::Deny { .. } => "deny",
        };
        let git = Subject::Command { text: "git log".into(), classes: Vec::new() };
        [
            ("bash", Effect::Commands, git),
            ("edit", Effect::Changes, Subject::Path("a".into())),
            ("fetch", Effect::Network, Subject::Host("a.test".into())),
            ("grep", Effect::Reads, Subject::Path("a".into())),
            ("read", Effect::Reads, Subject::Path("a".into())),
        ]
        .map(verdict)
        .join(" ")
    };
    assert_eq!(decided("x"), "deny ask deny allow allow");
    assert_eq!(decided("y"), "allow ask allow allow allow", "an agent's own permissions win");
    assert_eq!(decided("z"), "deny ask deny deny allow", "also in a file of its own");
    assert_eq!(decided("own"), "deny deny deny deny allow", "the user's configuration is for the user's agents");
    assert_eq!(decided("other"), "allow allow allow allow allow", "not for other programs' agents");
}
