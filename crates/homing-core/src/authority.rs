//! What a run may do, and what it may hand on. Authority only shrinks: a child's is its parent's grant with one more
//! layer laid over it, and a call is allowed when every layer allows it.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    definition::{AgentDefinition, PermissionMode},
    rule::{Rule, Subjects, matches_host},
};

/// What a run may do (`own`) and what it may hand on to its children (`grant`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// What the run itself may do.
    pub own: Arc<Grant>,
    /// The most that a child of it may get.
    pub grant: Arc<Grant>,
}

/// A bundle of permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Rules, one layer per party that had a say. All must agree.
    pub layers: Vec<Arc<Layer>>,
    /// Folders that file tools and commands may read.
    pub read: Vec<PathBuf>,
    /// Folders that file tools and commands may change.
    pub write: Vec<PathBuf>,
    /// What the network may be used for.
    pub network: Network,
    /// How commands are confined.
    pub sandbox: Sandbox,
}

/// One party's say: its definition file, the user's configuration, a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Who said it, for people: `agent explore`, `--deny`, `user config`.
    pub from: String,
    /// What is allowed at all.
    pub allow: Allow,
    /// What a person is asked about first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<Rule>,
    /// What is never allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
    /// What a person has said yes to beforehand: calls that these cover are not asked about, whoever wants to ask. They
    /// lift no deny and allow nothing that another layer does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Rule>,
}

/// What a layer allows at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allow {
    /// Whatever the layers below allow.
    #[default]
    All,
    /// These and no others; an empty list is nothing at all.
    Only(Vec<Rule>),
}

/// What the network may be used for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    Off,
    /// These hosts; `*.example.org` is every host below it.
    Hosts(Vec<String>),
    /// Everything public.
    On,
}

/// How commands are confined, tightest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// They can change nothing.
    ReadOnly,
    /// They can change the writable folders and a private temporary one.
    WorkspaceWrite,
    /// They run as the user does.
    Off,
}

/// What the rules say about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on; `by` names the rule that decided, for the record.
    Allow {
        /// The deciding rule and its layer.
        by: String,
    },
    /// A person must be asked first.
    Ask {
        /// The rule that asks, and its layer.
        by: String,
    },
    /// No.
    Deny {
        /// Why, in words the model can act on.
        why: String,
    },
}

impl Layer {
    /// A layer that allows everything; the floor of a tree's authority.
    pub fn everything(from: impl Into<String>) -> Self {
        Self { from: from.into(), allow: Allow::All, ask: Vec::new(), deny: Vec::new(), settled: Vec::new() }
    }

    /// Whether the model is shown `tool` at all.
    fn shows(&self, tool: &str) -> bool {
        let denied = self.deny.iter().any(|rule| rule.pattern.is_none() && rule.names(tool));
        let listed = match &self.allow {
            Allow::All => true,
            Allow::Only(rules) => rules.iter().any(|rule| rule.names(tool)),
        };
        listed && !denied
    }

    /// Deny over ask over allow.
    fn decide(&self, tool: &str, subjects: &Subjects) -> Verdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.guards(tool) && touches(rule, subjects)) {
            return Verdict::Deny(Some(rule));
        }
        let allowed = match &self.allow {
            Allow::All => Some(None),
            Allow::Only(rules) => covers(rules, tool, subjects).map(Some),
        };
        let Some(by) = allowed else { return Verdict::Deny(None) };
        match self.ask.iter().find(|rule| rule.guards(tool) && touches(rule, subjects)) {
            Some(rule) => Verdict::Ask(rule),
            None => Verdict::Allow(by),
        }
    }

    fn words(&self, rule: Option<&Rule>) -> String {
        rule.map_or_else(|| self.from.clone(), |rule| format!("{rule} ({})", self.from))
    }

    fn refusal(&self, tool: &str, subjects: &Subjects) -> String {
        let Allow::Only(rules) = &self.allow else { return format!("`{tool}` is not allowed by {}", self.from) };
        let patterns: Vec<String> = rules.iter().filter(|rule| rule.names(tool)).map(Rule::to_string).collect();
        match (patterns.is_empty(), subjects) {
            (true, _) => format!("`{tool}` is not among the tools of {}", self.from),
            (false, Subjects::Unclear(why)) => {
                format!("{} allows only {}, and this call cannot be checked: {why}", self.from, patterns.join(", "))
            }
            (false, Subjects::None | Subjects::Parts(_)) => {
                format!("{} allows only {}", self.from, patterns.join(", "))
            }
        }
    }
}

/// What one layer says about a call, with the rule that decided.
enum Verdict<'a> {
    Allow(Option<&'a Rule>),
    Ask(&'a Rule),
    Deny(Option<&'a Rule>),
}

/// A guard bites when any part of the call matches it, or when the call cannot be taken apart.
fn touches(rule: &Rule, subjects: &Subjects) -> bool {
    match subjects {
        _ if rule.pattern.is_none() => true,
        Subjects::None => false,
        Subjects::Parts(parts) => parts.iter().any(|part| rule.catches(part)),
        Subjects::Unclear(_) => true,
    }
}

/// The rule that vouches for the call: one for the whole tool, or rules that together match every part.
fn covers<'a>(rules: &'a [Rule], tool: &str, subjects: &Subjects) -> Option<&'a Rule> {
    let mut named = rules.iter().filter(|rule| rule.names(tool));
    if let Some(whole) = named.clone().find(|rule| rule.pattern.is_none()) {
        return Some(whole);
    }
    // `delegate(explore)` lets the family's other members through: they reach own descendants only.
    if matches!(tool, "wait" | "tell" | "cancel") {
        return named.next();
    }
    let Subjects::Parts(parts) = subjects else { return None };
    let vouchers: Option<Vec<&Rule>> = parts.iter().map(|part| named.clone().find(|rule| rule.matches(part))).collect();
    vouchers?.first().copied()
}

impl Grant {
    /// Whether the model is shown `tool`.
    pub fn shows(&self, tool: &str) -> bool {
        self.layers.iter().all(|layer| layer.shows(tool))
    }

    /// What the rules say about a call. The first layer that denies wins, then the first that asks.
    pub fn decide(&self, tool: &str, subjects: &Subjects) -> Decision {
        let (mut asks, mut allows) = (None, None);
        for layer in &self.layers {
            match layer.decide(tool, subjects) {
                Verdict::Deny(Some(rule)) => {
                    return Decision::Deny { why: format!("`{rule}` is denied by {}", layer.from) };
                }
                Verdict::Deny(None) => return Decision::Deny { why: layer.refusal(tool, subjects) },
                Verdict::Ask(rule) => {
                    asks.get_or_insert((layer, rule));
                }
                Verdict::Allow(rule) => allows = Some((layer, rule)),
            }
        }
        match (asks, allows) {
            (Some((layer, rule)), _) => match self.settled(tool, subjects) {
                Some(by) => Decision::Allow { by },
                None => Decision::Ask { by: layer.words(Some(rule)) },
            },
            (None, Some((layer, rule))) => Decision::Allow { by: layer.words(rule) },
            (None, None) => Decision::Allow { by: "no restriction".to_owned() },
        }
    }

    /// The rule by which a person has said yes beforehand.
    fn settled(&self, tool: &str, subjects: &Subjects) -> Option<String> {
        self.layers.iter().find_map(|layer| Some(layer.words(Some(covers(&layer.settled, tool, subjects)?))))
    }

    /// This grant with one more layer over it.
    #[must_use]
    pub fn under(&self, layer: Layer) -> Self {
        let layer = Arc::new(layer);
        let mut layers = self.layers.clone();
        if !layers.contains(&layer) {
            layers.push(layer);
        }
        Self { layers, ..self.clone() }
    }

    /// What both grants allow.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let mut layers = self.layers.clone();
        layers.extend(other.layers.iter().filter(|layer| !self.layers.contains(layer)).cloned());
        Self {
            layers,
            read: intersect_roots(&self.read, &other.read),
            write: intersect_roots(&self.write, &other.write),
            network: self.network.intersect(&other.network),
            sandbox: self.sandbox.min(other.sandbox),
        }
    }

    /// Whether everything that `self` allows is allowed by `other`, as far as the structure shows it.
    pub fn is_within(&self, other: &Self) -> bool {
        let inside =
            |roots: &[PathBuf], of: &[PathBuf]| roots.iter().all(|it| of.iter().any(|root| it.starts_with(root)));
        other.layers.iter().all(|layer| self.layers.contains(layer))
            && inside(&self.read, &other.read)
            && inside(&self.write, &other.write)
            && self.network.intersect(&other.network) == self.network
            && self.sandbox <= other.sandbox
    }
}

impl Authority {
    /// The authority of a root run: the user's policy, narrowed by the agent's own file.
    pub fn root(policy: Grant, definition: &AgentDefinition) -> Self {
        let policy = Arc::new(policy);
        Self { own: policy.clone(), grant: policy }.child(definition)
    }

    /// The authority of a child: its file's wishes within the parent's grant.
    ///
    /// It may hand on what it has itself, unless its definition carries `delegates` — which a host fills in from the
    /// user's configuration or a trusted file only. Even then it is the parent's grant that bounds it.
    #[must_use]
    pub fn child(&self, definition: &AgentDefinition) -> Self {
        let own = narrow(&self.grant, definition);
        let grant = match &definition.delegates {
            None => own.clone(),
            Some(rules) => Arc::new(self.grant.under(Layer {
                from: format!("delegates of agent {}", definition.name),
                allow: Allow::Only(rules.clone()),
                ask: Vec::new(),
                deny: Vec::new(),
                settled: Vec::new(),
            })),
        };
        Self { own, grant }
    }
}

fn narrow(grant: &Arc<Grant>, definition: &AgentDefinition) -> Arc<Grant> {
    let mut own = Grant::clone(grant);
    if definition.tools != Allow::All || !definition.denied.is_empty() || !definition.asked.is_empty() {
        own = own.under(Layer {
            from: format!("agent {}", definition.name),
            allow: definition.tools.clone(),
            ask: definition.asked.clone(),
            deny: definition.denied.clone(),
            settled: Vec::new(),
        });
    }
    match definition.permission_mode {
        None | Some(PermissionMode::All | PermissionMode::Edit) => (),
        Some(PermissionMode::Ask) => {
            let ask = ["write", "edit", "bash", "fetch"].map(Rule::tool).to_vec();
            own =
                own.under(Layer { ask, ..Layer::everything(format!("permission mode of agent {}", definition.name)) });
        }
        Some(PermissionMode::Plan) => {
            let allow = Allow::Only(READ_ONLY_TOOLS.iter().map(|tool| Rule::tool(*tool)).collect());
            let from = format!("plan mode of agent {}", definition.name);
            own = own.under(Layer { allow, ..Layer::everything(from) });
            own.sandbox = Sandbox::ReadOnly;
            own.write.clear();
        }
    }
    if own == **grant { grant.clone() } else { Arc::new(own) }
}

/// What plan mode leaves: tools that change nothing, and commands in a read-only sandbox.
const READ_ONLY_TOOLS: [&str; 15] = [
    "read",
    "glob",
    "grep",
    "ls",
    "tree",
    "diff",
    "bash",
    "fetch",
    "websearch",
    "think",
    "todo",
    "skill",
    "ask",
    "delegate",
    "answer",
];

impl Network {
    /// What both allow.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Off, _) | (_, Self::Off) => Self::Off,
            (Self::On, it) | (it, Self::On) => it.clone(),
            (Self::Hosts(a), Self::Hosts(b)) => {
                let within = |host: &String, list: &[String]| list.iter().any(|it| host_within(host, it));
                let mut both: Vec<String> = a.iter().filter(|it| within(it, b)).cloned().collect();
                both.extend(b.iter().filter(|it| within(it, a) && !a.contains(it)).cloned());
                Self::Hosts(both)
            }
        }
    }

    /// Whether `host` may be reached.
    pub fn allows(&self, host: &str) -> bool {
        match self {
            Self::Off => false,
            Self::On => true,
            Self::Hosts(hosts) => hosts.iter().any(|it| matches_host(it, host)),
        }
    }
}

/// Whether every host that `inner` stands for is one that `outer` stands for.
fn host_within(inner: &str, outer: &str) -> bool {
    match (inner.strip_prefix("*."), outer.strip_prefix("*.")) {
        _ if outer == "*" || inner == outer => true,
        (None, _) => matches_host(outer, inner),
        (Some(inner), Some(outer)) => inner.strip_suffix(outer).is_some_and(|rest| rest.ends_with('.')),
        (Some(_), None) => false,
    }
}

fn intersect_roots(a: &[PathBuf], b: &[PathBuf]) -> Vec<PathBuf> {
    let mut both: Vec<PathBuf> = Vec::new();
    for (x, y) in a.iter().flat_map(|x| b.iter().map(move |y| (x, y))) {
        let inner = if x.starts_with(y) {
            x
        } else if y.starts_with(x) {
            y
        } else {
            continue;
        };
        if !both.contains(inner) {
            both.push(inner.clone());
        }
    }
    both
}
