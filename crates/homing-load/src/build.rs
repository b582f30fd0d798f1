//! Keys and values to one [`AgentDefinition`], whatever syntax and dialect they came in.
//! It reads no files and decides no precedence.

mod finish;
mod opencode;
mod permission;
mod values;
mod verdict;

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, ModelChoice, PermissionMode, Source},
    rule::Rule,
};

use crate::{
    diagnostics::Diagnostics,
    dialect::Dialect,
    fields::{self, Field},
    node::{Node, NodeEntry, NodeKind, Position},
    restrictions,
    tools::{self, Vocabulary},
};

/// The raw material of one definition.
pub(crate) struct PartialDefinition<'a> {
    /// The key under which it stood, where it was a member of a map.
    pub(crate) key: Option<&'a str>,
    pub(crate) entries: &'a [NodeEntry],
    pub(crate) spot: Position,
    /// The text below the front matter and its first line.
    pub(crate) body: Option<(&'a str, u32)>,
    /// The file's name without its endings.
    pub(crate) stem: Option<&'a str>,
    pub(crate) names: Vocabulary<'a>,
    pub(crate) source: Source,
}

/// What became of a draft.
pub(crate) enum Built {
    Definition(Box<AgentDefinition>),
    /// It is well-formed but takes itself away.
    Disabled,
    /// The remarks say why.
    Refused,
}

/// Builds the definition; everything worth saying goes to `remarks`.
pub(crate) fn build(draft: &PartialDefinition<'_>, remarks: &mut Diagnostics) -> Built {
    let mark = remarks.len();
    let definition = AgentDefinition { source: draft.source.clone(), ..AgentDefinition::default() };
    let mut builder = DefinitionBuilder {
        definition,
        names: draft.names,
        remarks,
        seen: Vec::new(),
        models: Vec::new(),
        model_choice: None,
        provider: None,
        name: None,
        more: String::new(),
        disabled: false,
    };
    for entry in draft.entries {
        builder.apply(entry);
    }
    if builder.disabled {
        return Built::Disabled;
    }
    let definition = builder.finish(draft);
    match remarks.has_error_since(mark) {
        true => Built::Refused,
        false => Built::Definition(Box::new(definition)),
    }
}

/// A definition in the making.
struct DefinitionBuilder<'a> {
    definition: AgentDefinition,
    names: Vocabulary<'a>,
    remarks: &'a mut Diagnostics,
    /// Every key so far, folded, with its field.
    seen: Vec<(String, Option<Field>)>,
    models: Vec<String>,
    model_choice: Option<ModelChoice>,
    provider: Option<String>,
    name: Option<(String, Position)>,
    more: String,
    disabled: bool,
}

impl DefinitionBuilder<'_> {
    fn dialect(&self) -> &Dialect {
        self.names.dialect
    }

    fn warn(&mut self, spot: Position, field: &str, message: impl Into<String>, hint: &str) {
        self.remarks.warn(spot, field, message, hint);
    }

    fn apply(&mut self, entry: &NodeEntry) {
        let folded = fields::fold(&entry.key);
        let field = self.field(&folded, entry);
        let again = self.seen.iter().any(|(key, _)| *key == folded);
        let taken = field.is_some() && self.seen.iter().any(|(_, it)| *it == field);
        if again {
            let outcome = match field.is_some_and(narrows) {
                true => "both hold, so that the narrower counts",
                false => "the first counts",
            };
            self.warn(entry.spot, &entry.key, format!("`{}` stands here twice; {outcome}", entry.key), "delete one");
        }
        self.seen.push((folded, field));
        match field {
            // Notes share a field but not a key.
            Some(Field::Note | Field::Inline) => self.set(field.unwrap_or(Field::Note), entry),
            Some(field) if !taken || narrows(field) => self.set(field, entry),
            Some(_) => (),
            None if again => (),
            None => self.unknown(entry),
        }
    }

    /// The field that a key names here; remarks where it took some guessing.
    fn field(&mut self, folded: &str, entry: &NodeEntry) -> Option<Field> {
        let own = self.dialect().fields.iter().find(|(key, _)| *key == folded).map(|(_, field)| *field);
        if let Some(field) = own.or_else(|| fields::lookup(folded)) {
            self.remark_on_spelling(folded, entry);
            return Some(field);
        }
        let (meant, field) = restrictions::meant(folded)?;
        let message = format!("unknown key `{}`: treated as `{meant}`, because it may be a restriction", entry.key);
        self.warn(entry.spot, &entry.key, message, "correct the spelling");
        Some(field)
    }

    fn remark_on_spelling(&mut self, folded: &str, entry: &NodeEntry) {
        if folded == "allowedtools" {
            let message = format!("`{}` was read as `tools`; Claude Code ignores it and allows everything", entry.key);
            self.warn(entry.spot, &entry.key, message, "write `tools`");
        } else if entry.key.starts_with(char::is_uppercase) {
            let message = format!("`{}` was read in spite of its capital letter; other programs ignore it", entry.key);
            self.warn(entry.spot, &entry.key, message, "write keys in lower case");
        }
    }

    fn unknown(&mut self, entry: &NodeEntry) {
        let message = format!("nobody here knows the key `{}`; it is kept, without effect", entry.key);
        self.warn(entry.spot, &entry.key, message, "");
        self.definition.unknown.insert(entry.key.clone(), entry.value.to_json());
    }

    /// Fields that restrict, then fields that describe.
    fn set(&mut self, field: Field, entry: &NodeEntry) {
        let (key, value) = (entry.key.as_str(), &entry.value);
        match field {
            Field::Tools => self.tools(key, value),
            Field::Denied => self.denied(key, value),
            Field::Permission => self.permission(key, value),
            Field::Groups => self.groups(key, value),
            Field::Extensions => self.extensions(key, value),
            Field::Agents => self.agents(key, value),
            Field::Delegates => self.delegates(key, value),
            Field::Limit(limit, unit) => self.limit(key, value, limit, unit),
            Field::Limits => self.limits(key, value),
            Field::PermissionMode => self.permission_mode(key, value),
            Field::ReadOnly => self.read_only(key, value),
            Field::Isolation => self.isolation(key, value),
            Field::Disable => self.disabled = value.truth() != Some(false),
            Field::Kind => self.kind(key, value),
            Field::Inline => value.entries().unwrap_or_default().iter().for_each(|it| self.apply(it)),
            Field::Name => self.name = self.text(key, value).map(|it| (it, value.spot)),
            Field::Title => self.definition.title = self.text(key, value),
            Field::Aliases => self.definition.aliases = self.list(key, value),
            Field::Description => self.description(key, value),
            Field::Prompt => self.definition.prompt = self.text(key, value).unwrap_or_default(),
            Field::PromptMore => self.more = self.text(key, value).unwrap_or_default(),
            Field::Model => self.model(key, value),
            Field::FallbackModels => self.fallback_models(key, value),
            Field::Provider => self.provider = self.text(key, value),
            Field::Effort => self.effort(key, value),
            Field::Temperature => self.temperature(key, value),
            Field::Skills => self.definition.skills = self.list(key, value),
            Field::Resources => self.definition.resources = self.list(key, value),
            Field::SharedContext => self.definition.shared_context = self.list(key, value),
            Field::Parameters => self.parameters(value),
            Field::Inherit => self.inherit(key, value),
            Field::Surroundings => self.surroundings(key, value),
            Field::InheritProject => self.inherit_project(key, value),
            Field::Background => self.definition.background = self.flag(key, value),
            Field::Memory => self.memory(key, value),
            Field::McpServers => self.mcp_servers(key, value),
            Field::Hooks => self.definition.hooks = value.to_json(),
            Field::Schema => self.schema(key, value),
            Field::Response => value.get("json_schema").into_iter().for_each(|it| self.schema(key, it)),
            Field::OnFailure => self.on_failure(key, value),
            Field::Retry => self.retry(key, value),
            Field::InitialPrompt => self.definition.initial_prompt = self.text(key, value),
            Field::Color => self.definition.color = self.text(key, value),
            Field::Metadata => self.metadata(key, value),
            Field::Note => _ = self.definition.metadata.insert(key.to_owned(), value.to_json()),
        }
    }

    fn tools(&mut self, key: &str, value: &Node) {
        if value.entries().is_some() {
            return self.tool_switches(key, value);
        }
        let none = value.text() == Some("none") || matches!(&value.kind, NodeKind::List(list) if list.is_empty());
        let items = if none { Vec::new() } else { tools::items(value, key, self.remarks) };
        let rules = tools::allowed(items, self.names, key, self.remarks);
        self.closed(key, value.spot, rules.as_deref(), none);
        self.narrow(rules);
    }

    /// Says so, loudly, where a restriction leaves nothing.
    fn closed(&mut self, key: &str, spot: Position, rules: Option<&[Rule]>, on_purpose: bool) {
        if rules.is_some_and(<[Rule]>::is_empty) && !on_purpose {
            let message = format!("`{key}` names no tool that exists, so the agent has no tools at all");
            let hint = "name tools such as `read, grep`; write `[]` for no tools, `\"*\"` for all, or delete the key to inherit";
            self.warn(spot, key, message, hint);
        }
    }

    /// Lays one more restriction on the tools: of two lists what both allow holds.
    fn narrow(&mut self, rules: Option<Vec<Rule>>) {
        let Some(rules) = rules else { return };
        let covers = |rule: &Rule, other: &Rule| rule == other || (rule.pattern.is_none() && rule.names(&other.tool));
        let tools = match &self.definition.tools {
            Allow::All => rules,
            Allow::Only(before) => {
                let ours = before.iter().filter(|it| rules.iter().any(|rule| covers(rule, it)));
                let theirs = rules.iter().filter(|it| before.iter().any(|rule| covers(rule, it)));
                let mut both: Vec<Rule> = Vec::new();
                for rule in ours.chain(theirs) {
                    if !both.contains(rule) {
                        both.push(rule.clone());
                    }
                }
                both
            }
        };
        self.definition.tools = Allow::Only(tools);
    }

    /// Narrows how freely the agent may act.
    fn narrow_mode(&mut self, mode: PermissionMode) {
        let rank = |it: PermissionMode| match it {
            PermissionMode::Plan => 0,
            PermissionMode::Ask => 1,
            PermissionMode::Edit => 2,
            PermissionMode::All => 3,
        };
        let before = self.definition.permission_mode;
        self.definition.permission_mode = before.into_iter().chain([mode]).min_by_key(|it| rank(*it));
    }
}

/// Fields that may stand twice, because each time they take something away.
fn narrows(field: Field) -> bool {
    matches!(
        field,
        Field::Tools
            | Field::Denied
            | Field::Permission
            | Field::Groups
            | Field::Extensions
            | Field::Agents
            | Field::Limit(..)
            | Field::Limits
            | Field::PermissionMode
            | Field::ReadOnly
            | Field::Isolation
            | Field::Disable
    )
}
