//! Which of the things a call comes upon it may show: rules on paths and hosts hold for each of them, not only for the
//! one that the call named.

use homing_core::{
    authority::{Allow, Decision, Grant, Layer},
    rule::{Rule, Subject, Subjects},
    tool::ToolContext,
};

/// The rules of one call, held against what it comes upon.
pub(crate) struct ResultFilter<'a> {
    grant: &'a Grant,
    tool: &'static str,
    /// The question that was asked and answered before the call was made, if any.
    asked: Option<String>,
    /// Whether any rule can tell one subject from another.
    matters: bool,
}

impl<'a> ResultFilter<'a> {
    /// `named` is what the call itself named, which was decided upon already.
    pub(crate) fn new(context: &'a ToolContext, tool: &'static str, named: Subject) -> Self {
        let grant = &*context.authority.own;
        let asked = match grant.decide(tool, &Subjects::Parts(vec![named])) {
            Decision::Ask { by } => Some(by),
            Decision::Allow { .. } | Decision::Deny { .. } => None,
        };
        Self { grant, tool, asked, matters: grant.layers.iter().any(|layer| has_pattern(layer, tool)) }
    }

    /// Whether `subject` may be shown. What would need a question of its own is not shown.
    pub(crate) fn allows(&self, subject: impl FnOnce() -> Subject) -> bool {
        if !self.matters {
            return true;
        }
        match self.grant.decide(self.tool, &Subjects::Parts(vec![subject()])) {
            Decision::Allow { .. } => true,
            Decision::Ask { by } => self.asked.as_ref() == Some(&by),
            Decision::Deny { .. } => false,
        }
    }
}

fn has_pattern(layer: &Layer, tool: &str) -> bool {
    let speaks = |rule: &Rule| rule.pattern.is_some() && rule.guards(tool);
    let listed = match &layer.allow {
        Allow::All => false,
        Allow::Only(rules) => rules.iter().any(speaks),
    };
    listed || layer.ask.iter().chain(&layer.deny).any(speaks)
}
