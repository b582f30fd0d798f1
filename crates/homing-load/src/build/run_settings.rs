//! The settings of an agent's runs: context, skills, servers, hooks, output and failures.

use std::collections::BTreeMap;

use homing_core::{
    definition::{
        AgentDefinition, ContextSettings, Inherit, Isolation, MemoryScope, Observers, OfferedTo, OnFailure,
        ProjectContext, TaskDefaults,
    },
    taint::TaintMode,
};
use serde_json::Value;

use super::field_reader::FieldReader;
use crate::{
    fields::{self, ObserverKey},
    node::{Node, NodeEntry, NodeKind},
};

/// The parts of a definition that describe how its runs are set up and how they end.
#[derive(Default)]
pub(super) struct RunSettings {
    pub(super) skills: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) context: ContextSettings,
    pub(super) background: bool,
    isolation: Isolation,
    memory: Option<MemoryScope>,
    offered_to: OfferedTo,
    pub(super) mcp_servers: BTreeMap<String, Value>,
    hooks: Value,
    pub(super) task: TaskDefaults,
    taint: Option<TaintMode>,
    observers: Observers,
    /// Values that are kept as metadata in addition.
    notes: BTreeMap<String, Value>,
}

impl RunSettings {
    /// Reads the parameters of a recipe: keys of the parent's context, with defaults.
    pub(super) fn parameters(&mut self, reader: &FieldReader<'_>) {
        let NodeKind::List(parameters) = &reader.value.kind else { return };
        for parameter in parameters {
            let Some(key) = parameter.get("key").and_then(Node::text) else { continue };
            let default = parameter.get("default").map(Node::to_json).filter(|default| !default.is_null());
            let is_optional = parameter.get("requirement").and_then(Node::text) == Some("optional");
            // An optional parameter without a default is empty.
            let default = default.or_else(|| is_optional.then(|| Value::String(String::new())));
            self.context.shared_context.push(key.to_owned());
            self.task.parameters.insert(key.to_owned(), default);
        }
        self.notes.insert("parameters".into(), reader.value.to_json());
    }

    pub(super) fn inherit(&mut self, reader: &mut FieldReader<'_>) {
        let word = reader.word();
        self.context.inherit = match word {
            "none" | "false" | "fresh" | "no" => Inherit::None,
            "all" | "true" | "fork" | "yes" => Inherit::All,
            _ => match word.parse() {
                Ok(count) => Inherit::Last(count),
                Err(_) => {
                    let message = format!("`{word}` is not a valid `{}`: no messages are inherited", reader.key);
                    reader.warn(message, "write none, all or a number");
                    Inherit::None
                }
            },
        };
    }

    pub(super) fn project_context(&mut self, reader: &mut FieldReader<'_>) {
        self.context.project_context = match reader.value.text().unwrap_or_default() {
            "none" => ProjectContext::None,
            "environment" => ProjectContext::Environment,
            "full" => ProjectContext::Full,
            "fork" => return self.context.inherit = Inherit::All,
            other => {
                let message = format!("`{other}` is not a valid `{}`: ignored", reader.key);
                return reader.warn(message, "write full, environment or none");
            }
        };
    }

    /// Reads a flag that leaves the project's instructions out.
    pub(super) fn no_project(&mut self, reader: &mut FieldReader<'_>, when: bool) {
        if reader.flag() == when {
            self.context.project_context = ProjectContext::Environment;
        }
    }

    /// Reads the size from which on the conversation is summarised. The prompt and the tools alone need a part of it.
    pub(super) fn compact_window(&mut self, reader: &mut FieldReader<'_>) {
        const LEAST: u64 = 20_000;
        self.context.compact_window =
            reader.word().replace(['_', ','], "").parse().ok().filter(|tokens| *tokens >= LEAST);
        if self.context.compact_window.is_none() {
            let message = format!("`{}` must be a number of tokens from {LEAST} on: ignored", reader.key);
            reader.warn(message, "");
        }
    }

    pub(super) fn observers(&mut self, key: ObserverKey, reader: &mut FieldReader<'_>) {
        match key {
            ObserverKey::Agents => self.observers.agents = reader.list(),
            ObserverKey::Message => self.observers.message = reader.text(),
            ObserverKey::Subagents => self.observers.subagents = reader.flag(),
        }
        if self.observers.agents.len() > Observers::MOST {
            reader.warn(format!("a run has at most {} observers: the others are ignored", Observers::MOST), "");
            self.observers.agents.truncate(Observers::MOST);
        }
    }

    pub(super) fn hooks(&mut self, reader: &FieldReader<'_>) {
        if !reader.value.entries().is_some_and(<[NodeEntry<'_>]>::is_empty) {
            self.hooks = reader.value.to_json();
        }
    }

    /// Reads the isolation. An unknown value isolates, because it may be a restriction.
    pub(super) fn isolation(&mut self, reader: &mut FieldReader<'_>) {
        match reader.value.text().unwrap_or_default() {
            "none" | "false" | "" => (),
            "worktree" => self.isolation = Isolation::Worktree,
            other => {
                let message = format!("`{other}` is not a valid `{}`: treated as `worktree`", reader.key);
                reader.warn(message, "write worktree or none");
                self.isolation = Isolation::Worktree;
            }
        }
    }

    /// Reads OpenCode's mode: a primary agent is never started by another one.
    pub(super) fn mode(&mut self, reader: &FieldReader<'_>) {
        if reader.word() == "primary" {
            self.offered_to = OfferedTo::User;
        }
        self.notes.insert(reader.key.to_owned(), reader.value.to_json());
    }

    /// Reads a flag that keeps the agent from models. An unknown value does so too, because it may be a restriction.
    pub(super) fn not_for_models(&mut self, reader: &mut FieldReader<'_>, when: bool) {
        let value = reader.value.truth();
        if value.is_none() {
            let message = format!("`{}` is neither true nor false: the agent is not offered to models", reader.key);
            reader.warn(message, "write true or false");
        }
        if value.is_none_or(|value| value == when) {
            self.offered_to = OfferedTo::User;
        }
    }

    /// Reads a flag that keeps the agent out of the user's lists.
    pub(super) fn not_for_user(&mut self, reader: &mut FieldReader<'_>, when: bool) {
        if reader.value.truth() == Some(when) && self.offered_to.is_everyone() {
            self.offered_to = OfferedTo::Models;
        }
    }

    pub(super) fn memory(&mut self, reader: &mut FieldReader<'_>) {
        self.memory = match reader.value.text().unwrap_or_default() {
            "user" => Some(MemoryScope::User),
            "project" => Some(MemoryScope::Project),
            "local" => Some(MemoryScope::Local),
            other => {
                let message = format!("`{other}` is not a memory scope: the agent has no memory");
                reader.warn(message, "write user, project or local");
                None
            }
        };
    }

    /// Reads a list of names or of `{name: configuration}`, or a map of name to configuration.
    pub(super) fn mcp_servers(&mut self, reader: &mut FieldReader<'_>) {
        let value = reader.value;
        match &value.kind {
            NodeKind::List(items) => items.iter().for_each(|item| self.add_servers(item)),
            NodeKind::Map(_) | NodeKind::Plain(_) | NodeKind::Quoted(_) => self.add_servers(value),
        }
        if self.mcp_servers.is_empty() && !value.is_null() && value.noun() == "text" {
            reader.warn(format!("`{}` names no server", reader.key), "");
        }
    }

    fn add_servers(&mut self, node: &Node<'_>) {
        if let Some(entries) = node.entries() {
            let configured = entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_json()));
            self.mcp_servers.extend(configured);
        } else if let Some(names) = node.text().filter(|text| !text.trim().is_empty()) {
            self.mcp_servers.extend(names.split(',').map(|name| (name.trim().to_owned(), Value::Null)));
        }
    }

    pub(super) fn schema(&mut self, reader: &mut FieldReader<'_>) {
        if reader.value.entries().is_some() {
            self.task.schema = Some(reader.value.to_json());
        } else {
            reader.warn(format!("`{}` must be a schema, not {}: ignored", reader.key, reader.value.noun()), "");
        }
    }

    /// Reads the schema in a recipe's `response`.
    pub(super) fn response(&mut self, reader: &mut FieldReader<'_>) {
        if let Some(schema) = reader.value.get("json_schema") {
            self.schema(&mut reader.inner(reader.key, schema));
        }
    }

    pub(super) fn on_failure(&mut self, reader: &mut FieldReader<'_>) {
        if reader.value.entries().is_some() {
            return self.retry(reader);
        }
        self.task.on_failure = match fields::fold(reader.value.text().unwrap_or_default()).as_ref() {
            "report" => OnFailure::Report,
            "retry" => OnFailure::Retry(1),
            "skip" => OnFailure::Skip,
            "failparent" | "fail" => OnFailure::FailParent,
            other => {
                let message = format!("`{other}` is not a valid `{}`: failures are reported", reader.key);
                return reader.warn(message, "write report, retry, skip or fail_parent");
            }
        };
    }

    /// Reads the treatment of network use after untrusted content. An unknown value asks, as the default does.
    pub(super) fn taint(&mut self, reader: &mut FieldReader<'_>) {
        self.taint = match fields::fold(reader.value.text().unwrap_or_default()).as_ref() {
            "off" | "false" => Some(TaintMode::Off),
            "ask" => Some(TaintMode::Ask),
            "deny" => Some(TaintMode::Deny),
            other => {
                let message = format!("`{other}` is not a valid `{}`: treated as `ask`", reader.key);
                reader.warn(message, "write off, ask or deny");
                Some(TaintMode::Ask)
            }
        };
    }

    fn retry(&mut self, reader: &mut FieldReader<'_>) {
        let value = reader.value;
        let times = value.get("max_retries").or_else(|| value.get("retry")).unwrap_or(value);
        match times.text().and_then(|text| text.trim().parse().ok()).filter(|times| *times <= 10) {
            Some(times) => self.task.on_failure = OnFailure::Retry(times),
            None => reader.warn("the number of retries must be from 0 to 10: failures are reported", ""),
        }
        if value.entries().is_some_and(|entries| entries.len() > 1) {
            self.notes.insert(reader.key.to_owned(), value.to_json());
        }
    }

    pub(super) fn finish(self, definition: &mut AgentDefinition) {
        definition.attachments.skills = self.skills;
        definition.attachments.resources = self.resources;
        definition.context = self.context;
        definition.execution.background = self.background;
        definition.execution.isolation = self.isolation;
        definition.execution.memory = self.memory;
        definition.execution.offered_to = self.offered_to;
        definition.execution.taint = self.taint;
        definition.execution.observers = Some(self.observers).filter(|observers| !observers.agents.is_empty());
        definition.integrations.mcp_servers = self.mcp_servers;
        definition.integrations.hooks = self.hooks;
        definition.task = TaskDefaults { initial_prompt: definition.task.initial_prompt.take(), ..self.task };
        definition.extra.metadata.extend(self.notes);
    }
}
