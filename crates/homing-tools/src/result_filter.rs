//! Filters a tool's results (paths, hosts, names) by the permission rules of the call.

use homing_core::{
    authority::{Allow, Decision, Grant, Layer},
    rule::{Rule, Subject, Subjects},
    tool::{Effect, ToolContext},
};

/// The permission rules of one call, applied to each of its results.
pub(crate) struct ResultFilter<'a> {
    grant: &'a Grant,
    tool: &'static str,
    effect: Effect,
    /// The rule that required approval before the call, if any; results under the same rule need no second question.
    asked: Option<String>,
    /// False if no rule has a pattern, so that all results are allowed.
    has_patterns: bool,
}

impl<'a> ResultFilter<'a> {
    /// Creates the filter of a call. `named` is the subject in the call's own arguments, which was already decided.
    pub(crate) fn new(context: &'a ToolContext, tool: &'static str, effect: Effect, named: Subject) -> Self {
        let grant = &*context.authority.own;
        let asked = match grant.decide(tool, effect, &Subjects::Parts(vec![named])) {
            Decision::Ask { by } => Some(by),
            Decision::Allow { .. } | Decision::Deny { .. } => None,
        };
        Self { grant, tool, effect, asked, has_patterns: grant.layers.iter().any(|layer| has_pattern(layer, tool)) }
    }

    /// Returns true if `subject` may be shown. A subject that would need an approval of its own is not shown.
    pub(crate) fn allows(&self, subject: impl FnOnce() -> Subject) -> bool {
        if !self.has_patterns {
            return true;
        }
        match self.grant.decide(self.tool, self.effect, &Subjects::Parts(vec![subject()])) {
            Decision::Allow { .. } => true,
            Decision::Ask { by } => self.asked.as_ref() == Some(&by),
            Decision::Deny { .. } => false,
        }
    }
}

fn has_pattern(layer: &Layer, tool: &str) -> bool {
    let applies = |rule: &Rule| rule.pattern.is_some() && rule.guards(tool);
    let listed = match &layer.allow {
        Allow::All => false,
        Allow::Only(rules) => rules.iter().any(applies),
    };
    listed || layer.ask.iter().chain(&layer.deny).chain(&layer.settled).any(applies)
}
