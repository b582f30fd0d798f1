//! Authority of a run: its own permissions and those it may pass on. Authority only shrinks: a child's is its parent's
//! grant with one more layer on top, and a call is allowed only if every layer allows it.

use std::{fmt::Write as _, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    definition::{AgentDefinition, PermissionMode},
    rule::{Rule, Subjects, matches_host},
    tool::Effect,
    tool_names,
};

/// Permissions of a run (`own`) and those that it may pass on to its children (`grant`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Permissions of the run itself.
    pub own: Arc<Grant>,
    /// Upper bound for the permissions of its children.
    pub grant: Arc<Grant>,
}

/// A set of permissions: rules, folders, network and sandbox.
///
/// # Examples
///
/// ```
/// # use homing_core::authority as homing;
/// use homing::{Grant, Layer};
///
/// let all = Grant::new(vec![Layer::everything("the host").into()]);
/// let narrower = all.under(Layer::everything("agent explore"));
/// assert!(narrower.is_within(&all));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// Rules, one layer per source. A call needs the consent of all of them.
    pub layers: Vec<Arc<Layer>>,
    /// Folders that file tools and commands may read.
    pub read: Vec<PathBuf>,
    /// Folders that file tools and commands may change.
    pub write: Vec<PathBuf>,
    /// Hosts that may be reached.
    pub network: Network,
    /// Confinement of commands.
    pub sandbox: Sandbox,
}

/// Rules from one source: an agent file, the user's configuration, the command line.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::{authority::{Allow, Layer}, rule::{Rule, RuleError}}; }
/// use homing::{Allow, Layer, Rule};
///
/// let rules = |texts: &[&str]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Rule>, _>>();
/// let layer = Layer::everything("tenant 42")
///     .allow(Allow::Only(rules(&["read", "bash(git log *)"])?))
///     .deny(rules(&["read(.env)"])?);
/// assert_eq!(layer.from, "tenant 42");
/// # Ok::<(), homing::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Layer {
    /// Source of the rules, as shown to users: `agent explore`, `user config`.
    pub from: String,
    /// Calls that are allowed.
    pub allow: Allow,
    /// Calls that need the user's approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<Rule>,
    /// Calls that are never allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
    /// Calls that the user approved in advance. They need no approval, no matter which layer asks for it, but these rules
    /// neither override a denial nor allow anything that another layer does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Rule>,
    /// Permission mode that applies to every tool by its effect. Layers in older journals list tool names in `allow` and
    /// `ask` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
}

/// Calls that a layer allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allow {
    /// Everything that the layers below allow.
    #[default]
    All,
    /// Only these; an empty list allows nothing.
    Only(Vec<Rule>),
}

/// Hosts that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// None.
    Off,
    /// Only these; `*.example.org` matches every host below `example.org`.
    Hosts(Vec<String>),
    /// All public hosts.
    On,
}

/// Confinement of commands, tightest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Commands cannot write anywhere.
    ReadOnly,
    /// Commands can write to the writable folders and to a private temporary folder.
    WorkspaceWrite,
    /// Commands run with the user's own permissions.
    Off,
}

/// Decision of the rules on one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call is allowed.
    Allow {
        /// The rule that allowed it and its layer, for the journal.
        by: String,
    },
    /// The call needs the user's approval.
    Ask {
        /// The rule that requires approval and its layer.
        by: String,
    },
    /// The call is denied.
    Deny {
        /// The reason, as shown to the model.
        why: String,
    },
}

impl Layer {
    /// Returns a layer that allows everything.
    pub fn everything(from: impl Into<String>) -> Self {
        let (ask, deny, settled) = (Vec::new(), Vec::new(), Vec::new());
        Self { from: from.into(), allow: Allow::All, ask, deny, settled, mode: None }
    }

    /// Returns whether the model is offered `tool`.
    fn shows(&self, tool: &str, effect: Effect) -> bool {
        let denied = self.deny.iter().any(|rule| rule.pattern.is_none() && rule.names(tool));
        let listed = match &self.allow {
            Allow::All => true,
            Allow::Only(rules) => rules.iter().any(|rule| rule.names(tool)),
        };
        listed && !denied && !self.mode_denies(effect)
    }

    /// Decides on a call by the permission mode and the rules.
    fn decide(&self, tool: &str, effect: Effect, subjects: &Subjects) -> Verdict<'_> {
        match self.decide_by_rules(tool, subjects) {
            Verdict::Allow(_) | Verdict::Ask(_) if self.mode_denies(effect) => Verdict::Deny(None),
            Verdict::Allow(_) if self.mode_asks(effect) => Verdict::Ask(None),
            verdict => verdict,
        }
    }

    /// Decides on a call by the rules. A denial wins over an approval request, which wins over permission.
    fn decide_by_rules(&self, tool: &str, subjects: &Subjects) -> Verdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.guards(tool) && touches(rule, subjects)) {
            return Verdict::Deny(Some(rule));
        }
        let allowed = match &self.allow {
            Allow::All => Some(None),
            Allow::Only(rules) => covers(rules, tool, subjects).map(Some),
        };
        let Some(by) = allowed else { return Verdict::Deny(None) };
        match self.ask.iter().find(|rule| rule.guards(tool) && touches(rule, subjects)) {
            Some(rule) => Verdict::Ask(Some(rule)),
            None => Verdict::Allow(by),
        }
    }

    /// Returns whether plan mode denies a tool. Commands are allowed, because a run in plan mode has a read-only sandbox.
    fn mode_denies(&self, effect: Effect) -> bool {
        self.mode == Some(PermissionMode::Plan)
            && match effect {
                Effect::Changes => true,
                Effect::Reads | Effect::Commands | Effect::Network | Effect::Delegates => false,
            }
    }

    /// Returns whether ask mode requires approval for a tool.
    fn mode_asks(&self, effect: Effect) -> bool {
        self.mode == Some(PermissionMode::Ask)
            && match effect {
                Effect::Changes | Effect::Commands | Effect::Network => true,
                Effect::Reads | Effect::Delegates => false,
            }
    }

    fn describe(&self, rule: Option<&Rule>) -> String {
        let Some(rule) = rule else { return self.from.clone() };
        let mut text = String::with_capacity(64);
        let _ = write!(text, "{rule}");
        text.push_str(" (");
        text.push_str(&self.from);
        text.push(')');
        text
    }

    fn refusal(&self, tool: &str, subjects: &Subjects) -> String {
        let Allow::Only(rules) = &self.allow else {
            return format!("`{tool}` may change something, which {} does not allow", self.from);
        };
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

/// Decision of one layer on a call, with the rule that decided.
enum Verdict<'a> {
    Allow(Option<&'a Rule>),
    /// `None` if the permission mode asks.
    Ask(Option<&'a Rule>),
    /// `None` if no rule allows the call, or the permission mode denies it.
    Deny(Option<&'a Rule>),
}

/// Returns whether a deny or ask rule applies: any part of the call matches it, or the call cannot be analysed.
fn touches(rule: &Rule, subjects: &Subjects) -> bool {
    match subjects {
        _ if rule.pattern.is_none() => true,
        Subjects::None => false,
        Subjects::Parts(parts) => parts.iter().any(|part| rule.catches(part)),
        Subjects::Unclear(_) => true,
    }
}

/// Finds the rule that allows the call: one for the whole tool, or the first of several that together match every part.
fn covers<'a>(rules: &'a [Rule], tool: &str, subjects: &Subjects) -> Option<&'a Rule> {
    let mut named = rules.iter().filter(|rule| rule.names(tool));
    if let Some(whole) = named.clone().find(|rule| rule.pattern.is_none()) {
        return Some(whole);
    }
    // `delegate(explore)` also allows the other delegation tools, because they reach only descendants of the run.
    if matches!(tool, tool_names::WAIT | tool_names::TELL | tool_names::CANCEL) {
        return named.next();
    }
    let Subjects::Parts(parts) = subjects else { return None };
    let matching: Option<Vec<&Rule>> = parts.iter().map(|part| named.clone().find(|rule| rule.matches(part))).collect();
    matching?.first().copied()
}

impl Grant {
    /// Returns whether the model is offered `tool`.
    pub fn shows(&self, tool: &str, effect: Effect) -> bool {
        self.layers.iter().all(|layer| layer.shows(tool, effect))
    }

    /// Decides on a call of a tool with this name and effect. The first layer that denies wins, then the first that asks for
    /// approval.
    pub fn decide(&self, tool: &str, effect: Effect, subjects: &Subjects) -> Decision {
        let (mut asks, mut allows) = (None, None);
        for layer in &self.layers {
            match layer.decide(tool, effect, subjects) {
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
                None => Decision::Ask { by: layer.describe(Some(rule.unwrap_or(&Rule::tool(tool)))) },
            },
            (None, Some((layer, rule))) => Decision::Allow { by: layer.describe(rule) },
            (None, None) => Decision::Allow { by: "no restriction".to_owned() },
        }
    }

    /// Returns why a rule denies the call, if one does. Unlike [`Self::decide`], a tool that is not listed is not denied.
    pub fn denied_by_rule(&self, tool: &str, subjects: &Subjects) -> Option<String> {
        self.layers.iter().find_map(|layer| match layer.decide_by_rules(tool, subjects) {
            Verdict::Deny(Some(rule)) => Some(format!("`{rule}` is denied by {}", layer.from)),
            Verdict::Deny(None) | Verdict::Ask(_) | Verdict::Allow(_) => None,
        })
    }

    /// Returns whether the user approved the call in advance.
    pub fn is_approved(&self, tool: &str, subjects: &Subjects) -> bool {
        self.settled(tool, subjects).is_some()
    }

    /// Finds the rule by which the user approved the call in advance.
    fn settled(&self, tool: &str, subjects: &Subjects) -> Option<String> {
        self.layers.iter().find_map(|layer| Some(layer.describe(Some(covers(&layer.settled, tool, subjects)?))))
    }

    /// Returns this grant with one more layer on top.
    #[must_use]
    pub fn under(&self, layer: Layer) -> Self {
        let layer = Arc::new(layer);
        let mut layers = self.layers.clone();
        if !layers.contains(&layer) {
            layers.push(layer);
        }
        Self { layers, ..self.clone() }
    }

    /// Returns what both grants allow.
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

    /// Returns whether `other` allows everything that `self` allows, judged by structure only.
    pub fn is_within(&self, other: &Self) -> bool {
        let inside = |inner: &[PathBuf], outer: &[PathBuf]| {
            inner.iter().all(|path| outer.iter().any(|root| path.starts_with(root)))
        };
        other.layers.iter().all(|layer| self.layers.contains(layer))
            && inside(&self.read, &other.read)
            && inside(&self.write, &other.write)
            && self.network.intersect(&other.network) == self.network
            && self.sandbox <= other.sandbox
    }
}

impl Authority {
    /// Returns the authority of a root run: the user's policy, narrowed by the agent definition.
    pub fn root(policy: Grant, definition: &AgentDefinition) -> Self {
        Self::of_policy(policy).child(definition)
    }

    /// Returns the authority whose children are roots.
    pub fn of_policy(policy: Grant) -> Self {
        let policy = Arc::new(policy);
        Self { own: policy.clone(), grant: policy }
    }

    /// Returns the authority of a child: what its definition asks for, within the parent's grant.
    ///
    /// A child may pass on its own permissions, or those in `delegates` if its definition has them. Hosts fill `delegates`
    /// from the user's configuration or a trusted file only, and the parent's grant bounds it.
    #[must_use]
    pub fn child(&self, definition: &AgentDefinition) -> Self {
        let base = apply_mode(&self.grant, definition);
        let own = narrow(&base, definition);
        let grant = match &definition.tools.delegates {
            None => own.clone(),
            Some(rules) => Arc::new(base.under(Layer {
                allow: Allow::Only(rules.clone()),
                ..Layer::everything(format!("delegates of agent {}", definition.name))
            })),
        };
        Self { own, grant }
    }
}

/// Adds the restrictions of the definition's permission mode. They bind its children too, whatever else it may pass on.
fn apply_mode(grant: &Arc<Grant>, definition: &AgentDefinition) -> Arc<Grant> {
    let mode = definition.execution.permission_mode;
    let layer = |source| Layer { mode, ..Layer::everything(format!("{source} mode of agent {}", definition.name)) };
    match mode {
        None | Some(PermissionMode::All | PermissionMode::Edit) => grant.clone(),
        Some(PermissionMode::Ask) => Arc::new(grant.under(layer("permission"))),
        Some(PermissionMode::Plan) => {
            let (sandbox, write) = (Sandbox::ReadOnly, Vec::new());
            Arc::new(Grant { sandbox, write, ..grant.under(layer("plan")) })
        }
    }
}

/// Adds the rules of the definition.
fn narrow(grant: &Arc<Grant>, definition: &AgentDefinition) -> Arc<Grant> {
    let rules = &definition.tools;
    if rules.allowed == Allow::All && rules.denied.is_empty() && rules.asked.is_empty() {
        return grant.clone();
    }
    Arc::new(grant.under(Layer {
        allow: rules.allowed.clone(),
        ask: rules.asked.clone(),
        deny: rules.denied.clone(),
        ..Layer::everything(format!("agent {}", definition.name))
    }))
}

impl Network {
    /// Returns what both allow.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Off, _) | (_, Self::Off) => Self::Off,
            (Self::On, other) | (other, Self::On) => other.clone(),
            (Self::Hosts(a), Self::Hosts(b)) => {
                let within = |host: &String, list: &[String]| list.iter().any(|outer| host_within(host, outer));
                let mut both: Vec<String> = a.iter().filter(|host| within(host, b)).cloned().collect();
                both.extend(b.iter().filter(|host| within(host, a) && !a.contains(host)).cloned());
                Self::Hosts(both)
            }
        }
    }

    /// Returns whether `host` may be reached.
    pub fn allows(&self, host: &str) -> bool {
        match self {
            Self::Off => false,
            Self::On => true,
            Self::Hosts(hosts) => hosts.iter().any(|pattern| matches_host(pattern, host)),
        }
    }
}

/// Returns whether `outer` matches every host that `inner` matches.
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
