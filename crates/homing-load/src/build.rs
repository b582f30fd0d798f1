//! Builds one [`AgentDefinition`] from its keys and values, whatever their syntax and dialect.
//! It reads no files and decides no precedence.

mod field_reader;
mod identity;
mod limits;
mod model_settings;
mod opencode;
mod run_settings;
mod tool_access;
mod verdict;

pub(crate) use opencode::{MatchTarget, TOOLS as OPENCODE_TOOLS};
pub(crate) use tool_access::DEVELOPER_TOOLS;

use std::borrow::Cow;

use homing_core::{definition::AgentDefinition, limits::Limits, registry::distance};

pub(crate) use self::model_settings::{EFFORT_LEVELS, effort_level};
use self::{
    field_reader::FieldReader, identity::Identity, model_settings::ModelReader, run_settings::RunSettings,
    tool_access::ToolAccess,
};
use crate::{
    diagnostics::Diagnostics,
    dialect::Dialect,
    fields::{self, Field},
    fix::FixDraft,
    key_names,
    node::{NodeEntry, Position},
    restrictions,
    tools::Vocabulary,
};

/// The raw material of one definition.
pub(crate) struct PartialDefinition<'a> {
    /// The key of the agent, if it is a member of a map.
    pub(crate) key: Option<&'a str>,
    pub(crate) entries: &'a [NodeEntry<'a>],
    pub(crate) position: Position,
    /// The text below the front matter and its first line.
    pub(crate) body: Option<(&'a str, u32)>,
    /// The file name without its extensions.
    pub(crate) stem: Option<&'a str>,
    pub(crate) names: Vocabulary<'a>,
}

/// Builds the definition and reports problems to `diagnostics`. Returns `None` if there are errors or the definition disables
/// itself.
pub(crate) fn build(partial: &PartialDefinition<'_>, diagnostics: &mut Diagnostics) -> Option<AgentDefinition> {
    let mark = diagnostics.len();
    let mut builder = DefinitionBuilder {
        dialect: partial.names.dialect,
        diagnostics,
        seen: Vec::with_capacity(partial.entries.len()),
        identity: Identity::default(),
        tools: ToolAccess::new(partial.names),
        model: ModelReader::default(),
        limits: Limits::default(),
        run: RunSettings::default(),
        disabled: false,
    };
    for entry in partial.entries {
        builder.apply(entry);
    }
    if builder.disabled {
        return None;
    }
    let mut definition = AgentDefinition::default();
    builder.finish(partial, &mut definition);
    if diagnostics.has_error_since(mark) { None } else { Some(definition) }
}

/// Assigns each key to the part of the definition that reads it.
struct DefinitionBuilder<'a> {
    dialect: &'a Dialect,
    diagnostics: &'a mut Diagnostics,
    /// All keys so far, folded, with their fields.
    seen: Vec<(Cow<'a, str>, Option<Field>)>,
    identity: Identity,
    tools: ToolAccess<'a>,
    model: ModelReader,
    limits: Limits,
    run: RunSettings,
    disabled: bool,
}

impl<'a> DefinitionBuilder<'a> {
    fn apply(&mut self, entry: &'a NodeEntry<'a>) {
        let folded = fields::fold(&entry.key);
        let field = self.field(&folded, entry);
        let again = self.seen.iter().any(|(key, _)| *key == folded);
        let taken = field.is_some() && self.seen.iter().any(|(_, other)| *other == field);
        if again {
            let outcome = if field.is_some_and(narrows) {
                "both apply, so the narrower one wins"
            } else {
                "the first one is used"
            };
            self.warn(entry, format!("duplicate key `{}`: {outcome}", entry.key), "delete one");
            self.diagnostics.rule("duplicate-key");
            self.diagnostics.fix(FixDraft::delete(entry.position, &entry.key));
        }
        if field.is_none() && !again {
            self.unknown(&folded, entry);
        }
        self.seen.push((folded, field));
        match field {
            // Notes share a field but not a key.
            Some(field @ (Field::Note | Field::Inline | Field::Ignored(_))) => self.set(field, entry),
            Some(field) if !taken || narrows(field) => self.set(field, entry),
            Some(_) if again => (),
            Some(_) => self.ignore(entry, "another key sets the same value"),
            None => (),
        }
    }

    /// Keeps an unknown key and says which one was probably meant.
    fn unknown(&mut self, folded: &str, entry: &NodeEntry<'_>) {
        let near = key_names::near(folded, self.dialect);
        let near = near.map(|(near, field)| (key_names::written(near, &entry.key), field));
        let hint = near.as_ref().map(|(near, _)| format!("did you mean `{near}`?")).unwrap_or_default();
        self.warn(entry, format!("unknown key `{}`: kept, but ignored", entry.key), &hint);
        self.diagnostics.rule("unknown-key");
        // The key `agent` of other files of the same programs is not a misspelt `agents`, which would restrict this one.
        let is_typing_error =
            |near: &str| distance(&fields::fold(near), folded) <= if folded.len() > 7 { 2 } else { 1 };
        if let Some((near, field)) = near.filter(|(near, field)| *field != Field::Agents && is_typing_error(near)) {
            let fix = FixDraft::rename(entry.position, &entry.key, &near);
            let fix = fix.changing(&["unknown", "metadata"]).changing(fields::definition_fields(field));
            self.diagnostics.fix(fix);
        }
        self.identity.unknown.insert(entry.key.to_string(), entry.value.to_json());
    }

    /// The field that a key names in this dialect. Guesses are reported.
    fn field(&mut self, folded: &str, entry: &NodeEntry<'_>) -> Option<Field> {
        let own = self.dialect.fields.iter().find(|(key, _)| *key == folded).map(|(_, field)| *field);
        if let Some(field) = own.or_else(|| fields::lookup(folded)) {
            // A dialect's own keys are spelt as they must be.
            if own.is_none() {
                self.check_spelling(folded, entry);
            }
            return Some(field);
        }
        let (meant, field) = restrictions::meant(folded)?;
        let message = format!("unknown key `{}`: treated as `{meant}`, because it may be a restriction", entry.key);
        let meant = key_names::written(&fields::fold(meant), &entry.key);
        self.warn(entry, message, &format!("write `{meant}`"));
        self.diagnostics.rule("misspelt-restriction");
        self.diagnostics.fix(FixDraft::rename(entry.position, &entry.key, &meant));
        Some(field)
    }

    fn check_spelling(&mut self, folded: &str, entry: &NodeEntry<'_>) {
        if folded == "allowedtools" {
            let message = format!("`{}` read as `tools`; Claude Code ignores this key and allows all tools", entry.key);
            self.warn(entry, message, "write `tools`");
            self.diagnostics.rule("allowed-tools");
            self.diagnostics.fix(FixDraft::rename(entry.position, &entry.key, "tools"));
        } else if entry.key.starts_with(char::is_uppercase) {
            let message = format!("`{}` accepted despite its capital letter; other programs ignore it", entry.key);
            self.warn(entry, message, "write keys in lower case");
            self.diagnostics.rule("capital-key");
            let lower = key_names::written(folded, &entry.key);
            self.diagnostics.fix(FixDraft::rename(entry.position, &entry.key, &lower));
        }
    }

    fn warn(&mut self, entry: &NodeEntry<'_>, message: String, hint: &str) {
        self.diagnostics.warn(entry.position, &entry.key, message, hint);
    }

    /// Keeps a key without effect and says so.
    fn ignore(&mut self, entry: &NodeEntry<'_>, reason: &str) {
        let message = format!("`{}` is ignored: {reason}", entry.key);
        self.diagnostics.info(entry.position, &entry.key, message, "");
        self.identity.metadata.insert(entry.key.to_string(), entry.value.to_json());
    }

    /// Passes a value to the part that owns its field: first the fields that restrict, then those that describe.
    fn set(&mut self, field: Field, entry: &'a NodeEntry<'a>) {
        let reader = &mut FieldReader::new(&entry.key, &entry.value, self.diagnostics);
        match field {
            Field::Tools => self.tools.tools(reader),
            Field::Denied => self.tools.denied(reader),
            Field::Permission => self.tools.permission(reader),
            Field::Groups => self.tools.groups(reader),
            Field::Extensions => self.run.mcp_servers.extend(self.tools.extensions(reader)),
            Field::Agents => self.tools.agents(reader),
            Field::Delegates => self.tools.delegates(reader),
            Field::PermissionMode => self.tools.permission_mode(reader),
            Field::ReadOnly => self.tools.read_only(reader),
            Field::Limit(limit, unit) => limits::limit(&mut self.limits, reader, limit, unit),
            Field::MaxTokens => limits::max_tokens(&mut self.limits, reader),
            Field::Limits => limits::limits(&mut self.limits, reader),
            Field::Isolation => self.run.isolation(reader),
            Field::Mode => self.run.mode(reader),
            Field::NotForModels(when) => self.run.not_for_models(reader, when),
            Field::NotForUser(when) => self.run.not_for_user(reader, when),
            Field::Disable => self.disabled = entry.value.truth() != Some(false),
            Field::Kind => refuse_remote(reader),
            Field::Inline => entry.value.entries().unwrap_or_default().iter().for_each(|inner| self.apply(inner)),
            Field::Name => self.identity.name(reader),
            Field::Title => self.identity.title = reader.text(),
            Field::Aliases => self.identity.aliases = reader.list(),
            Field::Description => self.identity.description(reader),
            Field::Prompt => self.identity.prompt = reader.text().unwrap_or_default(),
            Field::PromptMore => self.identity.prompt_more = reader.text().unwrap_or_default(),
            Field::InitialPrompt => self.identity.initial_prompt = reader.text(),
            Field::Color => self.identity.color = reader.text(),
            Field::Metadata => self.identity.metadata(reader),
            Field::Note => _ = self.identity.metadata.insert(entry.key.to_string(), entry.value.to_json()),
            Field::SubRecipes => _ = self.identity.metadata.insert("sub_recipes".to_owned(), entry.value.to_json()),
            Field::Ignored(reason) => self.ignore(entry, reason),
            Field::Handoffs => self.tools.handoffs(reader),
            Field::CompactWindow => self.run.compact_window(reader),
            Field::Observer(key) => self.run.observers(key, reader),
            Field::Model => self.model.model(reader),
            Field::FallbackModels => self.model.fallback_models(reader),
            Field::Provider => self.model.provider = reader.text(),
            Field::Effort => self.model.effort(reader),
            Field::Sampling(setting) => self.model.sampling(setting, reader),
            Field::Skills => self.run.skills = reader.list(),
            Field::Resources => self.run.resources = reader.list(),
            Field::SharedContext => self.run.context.shared_context = reader.list(),
            Field::Parameters => self.run.parameters(reader),
            Field::Inherit => self.run.inherit(reader),
            Field::ProjectContext => self.run.project_context(reader),
            Field::NoProject(when) => self.run.no_project(reader, when),
            Field::Background => self.run.background = reader.flag(),
            Field::Memory => self.run.memory(reader),
            Field::McpServers => self.run.mcp_servers(reader),
            Field::Hooks => self.run.hooks(reader),
            Field::Schema => self.run.schema(reader),
            Field::SchemaOptional => self.run.task.schema_optional = reader.flag(),
            Field::Response => self.run.response(reader),
            Field::OnFailure => self.run.on_failure(reader),
            Field::Taint => self.run.taint(reader),
        }
    }

    /// Fills in what is missing and joins the parts.
    fn finish(self, partial: &PartialDefinition<'_>, definition: &mut AgentDefinition) {
        self.identity.finish(partial, self.diagnostics, definition);
        self.model.finish(self.dialect.absent_model, definition);
        self.tools.finish(definition);
        self.run.finish(definition);
        definition.limits = self.limits;
    }
}

fn refuse_remote(reader: &mut FieldReader<'_>) {
    if reader.value.text() == Some("remote") {
        let hint = "write a local agent that calls the remote one through a tool";
        reader.error("remote agents (A2A) are not supported", hint);
    }
}

/// Returns true for fields that may occur twice, because each occurrence only restricts further.
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
            | Field::MaxTokens
            | Field::PermissionMode
            | Field::ReadOnly
            | Field::Isolation
            | Field::Mode
            | Field::NotForModels(_)
            | Field::Disable
    )
}
