//! Authority only shrinks: in random trees, no child has more than its parent may pass on.

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use homing_core::{
    authority::{Allow, Authority, Decision, Grant, Layer, Network, Sandbox},
    definition::{AgentDefinition, PermissionMode},
    rule::{Rule, Subject, Subjects},
    tool::Effect,
};

const TOOLS: [&str; 8] = ["read", "write", "edit", "bash", "grep", "fetch", "delegate", "mcp__git__log"];
const RULES: [&str; 16] = [
    "read",
    "write",
    "edit",
    "bash",
    "grep",
    "fetch",
    "delegate",
    "mcp__git",
    "bash(git log *)",
    "bash(git *)",
    "edit(src/**)",
    "read(docs/**)",
    "fetch(domain:*.example.org)",
    "delegate(scout)",
    "*",
    "mcp__git__*",
];

struct Dice(u64);

impl Dice {
    fn of(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn rules(&mut self, most: usize) -> Vec<Rule> {
        static PARSED: LazyLock<Vec<Rule>> = LazyLock::new(|| RULES.iter().map(|rule| rule.parse().unwrap()).collect());
        (0..self.of(most + 1)).map(|_| PARSED[self.of(RULES.len())].clone()).collect()
    }

    fn allow(&mut self) -> Allow {
        if self.of(3) == 0 { Allow::All } else { Allow::Only(self.rules(5)) }
    }

    fn agent(&mut self) -> AgentDefinition {
        let mode = [None, None, Some(PermissionMode::Plan), Some(PermissionMode::Ask), Some(PermissionMode::All)];
        let mut agent = AgentDefinition::default();
        agent.name = format!("a{}", self.of(4));
        agent.tools.allowed = self.allow();
        agent.tools.denied = self.rules(2);
        agent.tools.delegates = (self.of(4) == 0).then(|| self.rules(6));
        agent.execution.permission_mode = mode[self.of(mode.len())];
        agent
    }

    fn roots(&mut self) -> Vec<PathBuf> {
        let all = ["/work", "/work/src", "/home/u", "/opt"];
        (0..self.of(3)).map(|_| PathBuf::from(all[self.of(all.len())])).collect()
    }

    fn grant(&mut self) -> Grant {
        let hosts = ["*.example.org", "a.example.org", "b.example.org", "x.test"];
        let network = match self.of(3) {
            0 => Network::Off,
            1 => Network::On,
            _ => Network::Hosts((0..self.of(3)).map(|_| hosts[self.of(hosts.len())].to_owned()).collect()),
        };
        let layer = Layer::everything("user").allow(self.allow()).ask(self.rules(1)).deny(self.rules(2));
        Grant::new(vec![Arc::new(layer)])
            .read(self.roots())
            .write(self.roots())
            .network(network)
            .sandbox([Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::Off][self.of(3)])
    }
}

fn effect(tool: &str) -> Effect {
    match tool {
        "read" | "grep" => Effect::Reads,
        "bash" => Effect::Commands,
        "fetch" => Effect::Network,
        "delegate" => Effect::Delegates,
        _ => Effect::Changes,
    }
}

fn calls() -> Vec<(&'static str, Subjects)> {
    let command = |text: &str| Subject::Command { text: text.into(), classes: vec![] };
    let parts = |subjects: Vec<Subject>| Subjects::Parts(subjects);
    let mut calls: Vec<(&str, Subjects)> = TOOLS.iter().map(|tool| (*tool, Subjects::None)).collect();
    calls.extend([
        ("bash", parts(vec![command("git log -1")])),
        ("bash", parts(vec![command("git log"), command("rm -rf /")])),
        ("bash", Subjects::Unclear("eval".into())),
        ("edit", parts(vec![Subject::Path("src/a.rs".into())])),
        ("write", parts(vec![Subject::Path("src/a.rs".into())])),
        ("read", parts(vec![Subject::Path("docs/x.md".into())])),
        ("fetch", parts(vec![Subject::Host("a.example.org".into())])),
        ("delegate", parts(vec![Subject::Name("scout".into())])),
    ]);
    calls
}

/// Asserts that `outer` denies nothing that `inner` allows.
fn no_more_than(inner: &Grant, outer: &Grant, calls: &[(&str, Subjects)], seed: u64) {
    assert!(inner.is_within(outer), "seed {seed}");
    for (tool, subjects) in calls {
        if !matches!(inner.decide(tool, effect(tool), subjects), Decision::Deny { .. }) {
            assert!(
                !matches!(outer.decide(tool, effect(tool), subjects), Decision::Deny { .. }),
                "seed {seed}: {tool} {subjects:?}"
            );
        }
    }
    for host in ["a.example.org", "b.example.org", "x.test", "evil.com"] {
        assert!(!inner.network.allows(host) || outer.network.allows(host), "seed {seed}: {host}");
    }
}

/// Asserts that every tool that the model is not offered is denied.
fn shown_is_enforced(grant: &Grant, calls: &[(&str, Subjects)], seed: u64) {
    for (tool, subjects) in calls {
        if !grant.shows(tool, effect(tool)) {
            assert!(
                matches!(grant.decide(tool, effect(tool), subjects), Decision::Deny { .. }),
                "seed {seed}: {tool} {subjects:?}"
            );
        }
    }
}

#[test]
fn inv34_child_never_has_more_than_its_parent_passes_on() {
    let calls = calls();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for first in 0..threads {
            let calls = &calls;
            scope.spawn(move || {
                for seed in (0..100_000).skip(first).step_by(threads) {
                    passes_on_no_more_than_it_has(seed, calls);
                }
            });
        }
    });
}

/// Checks a random line of descent.
fn passes_on_no_more_than_it_has(seed: u64, calls: &[(&str, Subjects)]) {
    let mut dice = Dice(seed);
    let mut parent = Authority::root(dice.grant(), &dice.agent());
    for _ in 0..=dice.of(4) {
        let child = parent.child(&dice.agent());
        no_more_than(&child.own, &parent.grant, calls, seed);
        no_more_than(&child.grant, &parent.grant, calls, seed);
        shown_is_enforced(&child.own, calls, seed);
        parent = child;
    }
}

#[test]
fn coordinator_may_delegate_tools_it_lacks_if_trusted() {
    let floor = Grant::new(vec![])
        .read(vec!["/work".into()])
        .write(vec!["/work".into()])
        .network(Network::Off)
        .sandbox(Sandbox::WorkspaceWrite);
    let mut agent = AgentDefinition::new("lead", "", "");
    agent.tools.allowed = Allow::Only(vec![Rule::tool("delegate")]);
    let worker = AgentDefinition::new("worker", "", "");
    let narrow = Authority::root(floor.clone(), &agent).child(&worker);
    assert!(!narrow.own.shows("edit", Effect::Changes));
    agent.tools.delegates = Some(vec![Rule::tool("edit"), Rule::tool("delegate")]);
    let lead = Authority::root(floor.clone(), &agent);
    assert!(
        !lead.own.shows("edit", Effect::Changes)
            && lead.child(&worker).own.shows("edit", Effect::Changes)
            && !lead.child(&worker).own.shows("bash", Effect::Commands)
    );
    agent.execution.permission_mode = Some(PermissionMode::Plan);
    let planner = Authority::root(floor, &agent).child(&worker);
    assert!(!planner.own.shows("edit", Effect::Changes), "a planner passes on nothing that changes files");
    assert_eq!(planner.own.sandbox, Sandbox::ReadOnly);
}

fn workspace() -> Grant {
    Grant::new(vec![])
        .read(vec!["/work".into()])
        .write(vec!["/work".into()])
        .network(Network::On)
        .sandbox(Sandbox::WorkspaceWrite)
}

fn agent(name: &str, mode: PermissionMode) -> AgentDefinition {
    let mut agent = AgentDefinition::new(name, "", "");
    agent.execution.permission_mode = Some(mode);
    agent
}

#[test]
fn plan_mode_changes_nothing_nor_do_its_children() {
    let planner = Authority::root(workspace(), &agent("p", PermissionMode::Plan));
    let child = planner.child(&agent("w", PermissionMode::All));
    for own in [&planner.own, &child.own] {
        for tool in ["edit", "write", "mcp__git__commit", "deploy"] {
            assert!(!own.shows(tool, Effect::Changes), "{tool}");
            let why = format!("`{tool}` may change something, which plan mode of agent p does not allow");
            assert_eq!(own.decide(tool, Effect::Changes, &Subjects::None), Decision::Deny { why });
        }
        let harmless = [
            ("read", Effect::Reads),
            ("mcp__git__log", Effect::Reads),
            ("bash", Effect::Commands),
            ("websearch", Effect::Network),
            ("delegate", Effect::Delegates),
            ("wait", Effect::Delegates),
        ];
        for (tool, effect) in harmless {
            assert!(own.shows(tool, effect), "{tool}");
            assert!(matches!(own.decide(tool, effect, &Subjects::None), Decision::Allow { .. }), "{tool}");
        }
        assert_eq!((own.sandbox, own.write.len()), (Sandbox::ReadOnly, 0));
    }
}

#[test]
fn ask_mode_asks_by_effect_and_so_do_its_children() {
    let careful = Authority::root(workspace(), &agent("c", PermissionMode::Ask));
    let child = careful.child(&agent("w", PermissionMode::All));
    for own in [&careful.own, &child.own] {
        let decide = |tool: &str, effect: Effect| own.decide(tool, effect, &Subjects::None);
        let asked = [
            ("write", Effect::Changes),
            ("mcp__git__commit", Effect::Changes),
            ("bash", Effect::Commands),
            ("websearch", Effect::Network),
        ];
        for (tool, effect) in asked {
            let by = format!("{tool} (permission mode of agent c)");
            assert_eq!(decide(tool, effect), Decision::Ask { by });
        }
        for (tool, effect) in [("mcp__git__log", Effect::Reads), ("delegate", Effect::Delegates)] {
            assert!(matches!(decide(tool, effect), Decision::Allow { .. }), "{tool}");
        }
    }
    let settled = Layer::everything("flags").settled(vec![Rule::tool("mcp__git")]);
    let own = careful.own.under(settled);
    let by = "mcp__git (flags)".to_owned();
    assert_eq!(own.decide("mcp__git__commit", Effect::Changes, &Subjects::None), Decision::Allow { by });
}

#[test]
fn layers_of_older_journals_still_decide_by_name() {
    let plan = r#"{"from":"plan mode of agent p","allow":{"only":["read","bash","delegate","answer"]}}"#;
    let ask = r#"{"from":"permission mode of agent c","allow":"all","ask":["write","bash"]}"#;
    let layers = [plan, ask].map(|text| Arc::new(serde_json::from_str::<Layer>(text).unwrap()));
    for (layer, text) in layers.iter().zip([plan, ask]) {
        assert_eq!(serde_json::to_string(layer).unwrap(), text);
    }
    let [plan, ask] = layers.map(|layer| workspace().layers(vec![layer]));
    assert!(!plan.shows("write", Effect::Changes) && !plan.shows("mcp__git__log", Effect::Reads));
    assert!(plan.shows("bash", Effect::Commands) && plan.shows("wait", Effect::Delegates));
    assert!(matches!(ask.decide("write", Effect::Changes, &Subjects::None), Decision::Ask { .. }));
    assert!(matches!(ask.decide("read", Effect::Reads, &Subjects::None), Decision::Allow { .. }));
}

#[test]
fn advance_approval_skips_asking_but_overrides_no_denial() {
    let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
    let asks = Layer::everything("mode").ask(rules(&["bash"])).deny(rules(&["bash(rm *)"]));
    let flags = Layer::everything("flags").settled(rules(&["bash(git push *)", "bash(rm *)", "write"]));
    let narrow = Layer::everything("agent").allow(Allow::Only(rules(&["bash"])));
    let layers = [asks, flags, narrow].map(std::sync::Arc::new).to_vec();
    let grant = Grant::new(layers).network(Network::Off).sandbox(Sandbox::ReadOnly);
    let decide = |tool: &str, command: &str| {
        let subject = Subject::Command { text: command.to_owned(), classes: vec![] };
        grant.decide(tool, effect(tool), &Subjects::Parts(vec![subject]))
    };
    assert_eq!(decide("bash", "git push origin"), Decision::Allow { by: "bash(git push *) (flags)".into() });
    assert!(matches!(decide("bash", "git pull"), Decision::Ask { .. }));
    assert!(matches!(decide("bash", "rm -rf x"), Decision::Deny { .. }));
    assert!(
        matches!(decide("write", "x"), Decision::Deny { .. }),
        "advance approval allows nothing that another layer does not"
    );
    let unclear = grant.decide("bash", Effect::Commands, &Subjects::Unclear("a substitution".into()));
    assert!(matches!(unclear, Decision::Deny { .. } | Decision::Ask { .. }), "no pattern allows an unclear call");
}
