//! One agent, explained: where it came from, what it hides, what it may do and spend, and why.

use std::io::{self, Write};

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, ModelChoice, PermissionMode, Scope},
    limits::{Cap, Limit, Limits, usd},
    registry::RegistryEntry,
    rule::Rule,
    sanitize,
};
use homing_load::{Discovered, without_authority};

use super::{remarks, scope};

pub(super) fn explain(registered: &RegistryEntry, loaded: &Discovered, out: &mut dyn Write) -> io::Result<()> {
    let definition = &registered.definition;
    let mut page = Page { out };
    page.line("agent", &definition.name)?;
    for title in definition.title.iter().chain(&definition.aliases) {
        page.line("also", title)?;
    }
    page.line("what", &definition.description)?;
    page.line("from", &from(definition))?;
    for hidden in &registered.shadows {
        page.line("hides", &from(hidden))?;
    }
    page.line("model", &model(&definition.model))?;
    page.line("tools", &tools(definition))?;
    if !definition.denied.is_empty() {
        page.line("never", &rules(&definition.denied))?;
    }
    if !definition.asked.is_empty() {
        page.line("asks", &rules(&definition.asked))?;
    }
    if let Some(mode) = definition.permission_mode {
        page.line("mode", permission(mode))?;
    }
    if !definition.skills.is_empty() {
        page.line("skills", &definition.skills.join(", "))?;
    }
    for limit in Limit::SETTABLE {
        page.limit(limit, &definition.limits)?;
    }
    page.line("prompt", &format!("{} characters", definition.prompt.chars().count()))?;
    for remark in remarks(definition, loaded) {
        page.line("remark", &format!("line {}: {}", remark.line, remark.message))?;
    }
    page.trust(definition)
}

struct Page<'a> {
    out: &'a mut dyn Write,
}

impl Page<'_> {
    fn line(&mut self, label: &str, value: &str) -> io::Result<()> {
        writeln!(self.out, "{label:<10} {}", sanitize::inert_line(value))
    }

    /// A limit as it holds for a run that a person starts.
    fn limit(&mut self, limit: Limit, limits: &Limits) -> io::Result<()> {
        let (said, default) = (limits.cap(limit), Limits::root().cap(limit));
        let (cap, why) = match said {
            Cap::Default => (default, "default"),
            Cap::Unlimited | Cap::At(_) => (said, "from the file"),
        };
        let value = match (cap, limit) {
            (Cap::Default | Cap::Unlimited, _) if said == Cap::Default => return Ok(()),
            (Cap::Default | Cap::Unlimited, _) => "none of its own".to_owned(),
            (Cap::At(value), Limit::Cost) => usd(value),
            (Cap::At(value), Limit::Wall | Limit::Work) => format!("{} s", value as f64 / 1_000.0),
            (Cap::At(value), _) => value.to_string(),
        };
        writeln!(self.out, "limit      {}: {value} ({why})", limit.name())
    }

    /// A project's file is data until somebody trusts it.
    fn trust(&mut self, definition: &AgentDefinition) -> io::Result<()> {
        if definition.source.kind != Scope::Project {
            return Ok(());
        }
        for remark in without_authority(&mut definition.clone(), Limits::default()) {
            self.line("trust", &remark.message)?;
        }
        Ok(())
    }
}

fn from(definition: &AgentDefinition) -> String {
    let source = &definition.source;
    match &source.path {
        None => scope(source.kind).to_owned(),
        Some(path) => format!("{}: {} ({})", scope(source.kind), path.display(), source.dialect),
    }
}

fn model(model: &ModelChoice) -> String {
    match model {
        ModelChoice::Inherit => "its parent's; the default where it has no parent".to_owned(),
        ModelChoice::Default => "the default".to_owned(),
        ModelChoice::Named(names) => names.join(", else "),
    }
}

fn tools(definition: &AgentDefinition) -> String {
    match &definition.tools {
        Allow::All => "all that its parent may hand on (its file does not restrict them)".to_owned(),
        Allow::Only(list) if list.is_empty() => "none (its file names none that exist)".to_owned(),
        Allow::Only(list) => rules(list),
    }
}

fn rules(rules: &[Rule]) -> String {
    rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn permission(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Plan => "changes nothing",
        PermissionMode::Ask => "asks before it changes anything",
        PermissionMode::Edit => "edits files without asking",
        PermissionMode::All => "does whatever its authority allows",
    }
}
