//! Writes the fields of a definition under the keys of a target.

use homing_core::{
    definition::{AgentDefinition, Inherit, Isolation, MemoryScope, ModelChoice, OfferedTo, OnFailure, ProjectContext},
    limits::{Cap, Limit},
    taint::TaintMode,
};
use serde_json::{Map, Number, Value, json};

use super::{
    Change, ModelNames, Outcome,
    access::{self, AccessPlan},
    file_name,
    models::{self, WrittenModel},
    servers,
    targets::{Colors, Target},
};
use crate::{
    fields::{self, Field, ObserverKey, Setting, Unit},
    naming,
};

/// Writes one definition and collects the changes.
pub(super) struct Writer<'a> {
    definition: &'a AgentDefinition,
    target: &'static Target,
    access: AccessPlan,
    model: WrittenModel,
    pub(super) changes: Vec<Change>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(definition: &'a AgentDefinition, target: &'static Target, names: ModelNames<'_>) -> Self {
        let mut access = access::plan(definition, target);
        let changes = std::mem::take(&mut access.changes);
        let choice = &definition.model.choice;
        let model = models::write(choice, target.models, target.program, names);
        Self { definition, target, access, model, changes }
    }

    /// The keys and values, in the order of the target's keys.
    pub(super) fn write(&mut self) -> Map<String, Value> {
        let mut front = Map::new();
        for (field, key) in self.target.keys {
            if let Some(value) = self.value(*field) {
                insert(&mut front, key, value);
            }
        }
        if self.target.keeps_notes {
            self.write_notes(&mut front);
        }
        self.note_lost();
        front
    }

    fn note(&mut self, field: &str, outcome: Outcome, note: impl Into<String>) {
        self.changes.push(Change { field: field.to_owned(), outcome, note: note.into() });
    }

    /// The value of a field; `None` if it need not be written.
    fn value(&mut self, field: Field) -> Option<Value> {
        let definition = self.definition;
        match field {
            Field::Name => Some(json!(file_name(&definition.name))),
            Field::Description => Some(json!(definition.description)),
            Field::Prompt => Some(json!(definition.prompt.trim())),
            Field::Title => self.title(),
            Field::Aliases => list(&definition.aliases),
            Field::Tools
            | Field::Denied
            | Field::Permission
            | Field::Groups
            | Field::Extensions
            | Field::PermissionMode
            | Field::ReadOnly => {
                let found = self.access.values.iter().find(|(other, _)| *other == field);
                found.map(|(_, value)| value.clone())
            }
            Field::Delegates => {
                let rules = definition.tools.delegates.as_ref()?;
                Some(json!(rules.iter().map(ToString::to_string).collect::<Vec<_>>()))
            }
            Field::Model | Field::FallbackModels | Field::Provider => self.model(field),
            Field::Effort => self.effort(),
            Field::Sampling(setting) => self.sampling(setting),
            Field::Limit(limit, unit) => self.limit(limit, unit),
            Field::Limits => self.limits(),
            Field::McpServers => self.servers(),
            Field::Mode => self.mode(),
            Field::NotForModels(when) => (definition.execution.offered_to == OfferedTo::User).then(|| json!(when)),
            Field::NotForUser(when) => (definition.execution.offered_to == OfferedTo::Models).then(|| json!(when)),
            Field::Color => self.color(),
            Field::Metadata => {
                let metadata = &definition.extra.metadata;
                (!metadata.is_empty()).then(|| json!(metadata))
            }
            _ => self.run_setting(field),
        }
    }

    fn sampling(&self, setting: Setting) -> Option<Value> {
        let model = &self.definition.model;
        let thousandths = |milli: u32| Number::from_f64(f64::from(milli) / 1_000.0).map(Value::Number);
        match setting {
            Setting::Temperature => model.temperature_milli.and_then(thousandths),
            Setting::TopP => model.sampling.top_p_milli.and_then(thousandths),
            Setting::Seed => model.sampling.seed.map(|seed| json!(seed)),
            Setting::ServiceTier => model.sampling.service_tier.as_ref().map(|tier| json!(tier)),
        }
    }

    /// The values of fields that describe runs.
    fn run_setting(&self, field: Field) -> Option<Value> {
        let AgentDefinition { context, execution, task, attachments, integrations, .. } = self.definition;
        match field {
            Field::Skills => list(&attachments.skills),
            Field::Resources => list(&attachments.resources),
            Field::SharedContext => list(&context.shared_context),
            Field::Inherit => inherit(context.inherit, self.target),
            Field::ProjectContext => match context.project_context {
                ProjectContext::Full => None,
                ProjectContext::Environment => Some(json!("environment")),
                ProjectContext::None => Some(json!("none")),
            },
            Field::NoProject(when) => (context.project_context == ProjectContext::Environment).then(|| json!(when)),
            Field::CompactWindow => context.compact_window.map(|tokens| json!(tokens)),
            Field::Observer(key) => execution.observers.as_ref().and_then(|observers| match key {
                ObserverKey::Agents => Some(json!(observers.agents)),
                ObserverKey::Message => observers.message.as_ref().map(|message| json!(message)),
                ObserverKey::Subagents => (!observers.subagents).then(|| json!(false)),
            }),
            Field::Background => execution.background.then(|| json!(true)),
            Field::Isolation => (execution.isolation == Isolation::Worktree).then(|| json!("worktree")),
            Field::Memory => execution.memory.map(|scope| match scope {
                MemoryScope::User => json!("user"),
                MemoryScope::Project => json!("project"),
                MemoryScope::Local => json!("local"),
            }),
            Field::Taint => execution.taint.map(|mode| match mode {
                TaintMode::Off => json!("off"),
                TaintMode::Ask => json!("ask"),
                TaintMode::Deny => json!("deny"),
            }),
            Field::Hooks => (!integrations.hooks.is_null()).then(|| integrations.hooks.clone()),
            Field::Schema | Field::Response => task.schema.clone(),
            Field::SchemaOptional => task.schema_optional.then(|| json!(true)),
            Field::OnFailure => match task.on_failure {
                OnFailure::Retry(times) => Some(json!({"retry": times})),
                OnFailure::Skip => Some(json!("skip")),
                OnFailure::FailParent => Some(json!("fail_parent")),
                _ => None,
            },
            Field::InitialPrompt => task.initial_prompt.as_ref().map(|prompt| json!(prompt)),
            Field::Parameters => self.parameters(),
            _ => None,
        }
    }

    /// The display name. Where it is the name itself, the loader makes the same name of it or it is left out.
    fn title(&self) -> Option<Value> {
        let title = self.definition.title.as_deref();
        let is_required = self.target.dialect == "roo";
        title.map(|title| json!(title)).or_else(|| is_required.then(|| json!(file_name(&self.definition.name))))
    }

    fn model(&mut self, field: Field) -> Option<Value> {
        let was = self.definition.model.choice.names().join(", ");
        let choice = &self.definition.model.choice;
        let is_default = *choice == ModelChoice::Default && field == Field::Model && self.target.dialect == "homing";
        match (&self.model, field) {
            (WrittenModel::Absent, _) => is_default.then(|| json!("default")),
            (WrittenModel::Names(names), Field::Model) => {
                let names = names.clone();
                let keeps_all = self.target.key(Field::FallbackModels).is_some() || self.target.dialect == "homing";
                if names.len() > 1 && !keeps_all {
                    let note = format!("only the first of several models is written: `{}`", names[0]);
                    self.note("model", Outcome::Mapped, note);
                } else if names.join(", ") != was {
                    self.note("model", Outcome::Mapped, format!("`{was}` is written as `{}`", names.join(", ")));
                }
                if names.len() > 1 && self.target.dialect == "homing" {
                    Some(json!(names))
                } else {
                    Some(json!(names[0]))
                }
            }
            (WrittenModel::Names(names), Field::FallbackModels) => list(names.get(1..).unwrap_or_default()),
            (WrittenModel::Split(provider, _), Field::Provider) => Some(json!(provider)),
            (WrittenModel::Split(_, id), Field::Model) => Some(json!(id)),
            (WrittenModel::Names(_) | WrittenModel::Split(..) | WrittenModel::Lost(_), _) => None,
        }
    }

    fn effort(&mut self) -> Option<Value> {
        let effort = self.definition.model.effort?;
        let word = self.target.efforts.iter().find(|(other, _)| *other == effort).map(|(_, word)| *word);
        if word.is_none() {
            let note = format!("{} has no such effort: its default applies", self.target.program);
            self.note("effort", Outcome::Dropped, note);
        }
        word.map(|word| json!(word))
    }

    fn limit(&mut self, limit: Limit, unit: Unit) -> Option<Value> {
        let Cap::At(value) = self.definition.limits.cap(limit) else { return None };
        let found = match unit {
            Unit::Count | Unit::Millis => Some(json!(value)),
            Unit::Seconds => Some(json!(value / 1_000)),
            Unit::Minutes => Some(json!(value / 60_000)),
            Unit::Dollars => Number::from_f64(value as f64 / 1_000_000.0).map(Value::Number),
        };
        let found = found.filter(|found| *found != json!(0) || value == 0);
        if found.is_none() {
            let note = format!(
                "{} is less than the least that can be written: the limit is lost",
                limit.shown(Cap::At(value))
            );
            self.note(&format!("limits.{limit}"), Outcome::Dropped, note);
        }
        found
    }

    fn limits(&self) -> Option<Value> {
        let mut map = Map::new();
        for limit in Limit::SETTABLE {
            let key = match limit {
                Limit::Wall => "timeout",
                Limit::Output => "max_output",
                other => other.name(),
            };
            let value = match (self.definition.limits.cap(limit), limit) {
                (Cap::Default, _) => continue,
                (Cap::Unlimited, _) => json!("none"),
                (Cap::At(value), Limit::Wall | Limit::Work) => decimal(value, 1_000),
                (Cap::At(value), Limit::Cost) => decimal(value, 1_000_000),
                (Cap::At(value), _) => json!(value),
            };
            map.insert(key.to_owned(), value);
        }
        (!map.is_empty()).then_some(Value::Object(map))
    }

    fn servers(&mut self) -> Option<Value> {
        let servers = &self.definition.integrations.mcp_servers;
        if servers.is_empty() {
            return None;
        }
        let written = servers::write(servers, self.target.servers);
        if !written.left_out.is_empty() {
            let note = format!("configure `{}` in {} itself", written.left_out.join("`, `"), self.target.program);
            self.note("mcp_servers", Outcome::Dropped, note);
        }
        written.value
    }

    fn color(&mut self) -> Option<Value> {
        let color = self.definition.extra.color.clone()?;
        let is_hex =
            color.len() == 7 && color.starts_with('#') && color[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_known = match self.target.colors {
            Colors::Any => true,
            Colors::Named(names) => names.contains(&color.as_str()),
            Colors::Hex(names) => is_hex || names.contains(&color.as_str()),
        };
        if !is_known {
            self.note("color", Outcome::Dropped, format!("{} has no colour `{color}`", self.target.program));
        }
        is_known.then(|| json!(color))
    }

    /// OpenCode's mode: `primary` if only the user starts the agent, otherwise as its author had it.
    fn mode(&mut self) -> Option<Value> {
        let definition = self.definition;
        let written = definition
            .extra
            .metadata
            .get("mode")
            .filter(|mode| ["subagent", "primary", "all"].iter().any(|known| *mode == known));
        match (definition.execution.offered_to, written) {
            (OfferedTo::User, _) => Some(json!("primary")),
            (_, Some(mode)) if mode == "primary" => None,
            (OfferedTo::Models, None) => Some(json!("subagent")),
            (_, mode) => mode.cloned(),
        }
    }

    /// The parameters of a recipe, as its author had them if they are known.
    fn parameters(&self) -> Option<Value> {
        if let Some(written) = self.definition.extra.metadata.get("parameters").filter(|value| value.is_array()) {
            return Some(written.clone());
        }
        let one = |(key, default): (&String, &Option<Value>)| {
            let mut parameter = json!({"key": key, "input_type": "string", "description": key});
            match default {
                Some(default) => {
                    parameter["requirement"] = json!("optional");
                    parameter["default"] = default.clone();
                }
                None => parameter["requirement"] = json!("required"),
            }
            parameter
        };
        let all: Vec<Value> = self.definition.task.parameters.iter().map(one).collect();
        (!all.is_empty()).then_some(Value::Array(all))
    }

    /// Writes the author's own keys, which other programs ignore.
    fn write_notes(&self, front: &mut Map<String, Value>) {
        for (key, value) in &self.definition.extra.metadata {
            if fields::lookup(&fields::fold(key)) == Some(Field::Note) && !front.contains_key(key) {
                front.insert(key.clone(), value.clone());
            }
        }
    }

    /// Explains the losses of fields that have no key.
    fn note_lost(&mut self) {
        if let WrittenModel::Lost(reason) = &self.model {
            let note =
                format!("`{}`: {reason}; the default model applies", self.definition.model.choice.names().join(", "));
            self.note("model", Outcome::Dropped, note);
        }
        for limit in Limit::SETTABLE {
            let cap = self.definition.limits.cap(limit);
            let key =
                |field: &Field| matches!(field, Field::Limit(other, _) if *other == limit) || *field == Field::Limits;
            if let (Cap::At(_), false) = (cap, self.target.keys.iter().any(|(field, _)| key(field))) {
                let note = format!("{} has no such limit: {} is lost", self.target.program, limit.shown(cap));
                self.note(&format!("limits.{limit}"), Outcome::Dropped, note);
            }
        }
        if naming::is_valid(&self.definition.name) || self.definition.name.is_empty() {
            return;
        }
        let name = file_name(&self.definition.name).to_owned();
        self.note("name", Outcome::Mapped, format!("written as `{name}`, without the name of its plugin"));
    }
}

/// Inserts a value under a key with dots.
fn insert(map: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => _ = map.insert(key.to_owned(), value),
        Some((outer, inner)) => {
            let entry = map.entry(outer.to_owned()).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(nested) = entry {
                insert(nested, inner, value);
            }
        }
    }
}

fn list(names: &[String]) -> Option<Value> {
    (!names.is_empty()).then(|| json!(names))
}

/// A whole number if possible, else a decimal one.
fn decimal(value: u64, scale: u64) -> Value {
    if value.is_multiple_of(scale) {
        return json!(value / scale);
    }
    Number::from_f64(value as f64 / scale as f64).map_or(Value::Null, Value::Number)
}

fn inherit(inherit: Inherit, target: &Target) -> Option<Value> {
    match (inherit, target.dialect) {
        (Inherit::None, _) => None,
        (Inherit::All, "pi") => Some(json!("fork")),
        (Inherit::Last(_), "pi") => None,
        (Inherit::All, _) => Some(json!("all")),
        (Inherit::Last(count), _) => Some(json!(count)),
    }
}
