//! Fields that describe: who the agent is, which model it speaks with, what it is given.

use homing_core::{
    definition::{Inherit, MemoryScope, ModelChoice, OnFailure, ProjectContext},
    model::Effort,
};
use serde_json::Value;

use super::DefinitionBuilder;
use crate::{
    fields,
    node::{Node, NodeKind},
    tools,
};

impl DefinitionBuilder<'_> {
    /// A scalar; a list of scalars is joined, anything else reported.
    pub(super) fn text(&mut self, key: &str, value: &Node) -> Option<String> {
        match &value.kind {
            NodeKind::Plain(_) if value.is_null() => None,
            NodeKind::Plain(text) | NodeKind::Quoted(text) => Some(text.clone()),
            NodeKind::List(items) if items.iter().all(|it| it.text().is_some()) => {
                self.warn(value.spot, key, format!("`{key}` is a list; its entries were joined"), "write one text");
                Some(items.iter().filter_map(Node::text).collect::<Vec<_>>().join(", "))
            }
            NodeKind::List(_) | NodeKind::Map(_) => {
                self.warn(value.spot, key, format!("`{key}` should be text and is {}", value.noun()), "");
                None
            }
        }
    }

    /// A list of names, or a comma string of them.
    pub(super) fn list(&mut self, key: &str, value: &Node) -> Vec<String> {
        match value.text() {
            Some(_) if value.is_null() => Vec::new(),
            Some(text) => text.split([',', '\n']).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect(),
            None => tools::items(value, key, self.remarks).into_iter().map(|(item, _)| item).collect(),
        }
    }

    pub(super) fn flag(&mut self, key: &str, value: &Node) -> bool {
        value.truth().unwrap_or_else(|| {
            self.warn(value.spot, key, format!("`{key}` is neither true nor false; it was taken for false"), "");
            false
        })
    }

    pub(super) fn description(&mut self, key: &str, value: &Node) {
        let Some(text) = self.text(key, value) else { return };
        if text.contains("\\n") {
            let message = format!("`{key}` contains `\\n` as two characters; they were read as line ends");
            self.warn(value.spot, key, message, "use a block scalar (`|`) for several lines");
        }
        self.definition.description = text.replace("\\n", "\n").trim().to_owned();
    }

    pub(super) fn model(&mut self, key: &str, value: &Node) {
        match &value.kind {
            NodeKind::Plain(text) | NodeKind::Quoted(text) => self.model_text(text),
            NodeKind::List(items) => {
                let models = items.iter().filter_map(Node::text).map(str::to_owned).collect::<Vec<_>>();
                self.models.splice(0..0, models);
            }
            NodeKind::Map(_) => match value.get("model").or_else(|| value.get("preset")).and_then(Node::text) {
                Some(model) => self.models.insert(0, model.to_owned()),
                None => self.warn(value.spot, key, format!("`{key}` is a map without `model`; it is ignored"), ""),
            },
        }
    }

    pub(super) fn fallback_models(&mut self, key: &str, value: &Node) {
        let models = self.list(key, value);
        self.models.extend(models);
    }

    fn model_text(&mut self, text: &str) {
        match text.trim() {
            "" | "~" | "null" => (),
            "inherit" => self.model_choice = Some(ModelChoice::Inherit),
            "default" => self.model_choice = Some(ModelChoice::Default),
            text => {
                let names = text.split(['|', ',']).map(|it| it.trim().trim_matches(['"', '\'', '`']));
                let names: Vec<String> = names.filter(|it| !it.is_empty()).map(str::to_owned).collect();
                self.models.splice(0..0, names);
            }
        }
    }

    pub(super) fn effort(&mut self, key: &str, value: &Node) {
        let word = value.text().unwrap_or_default().trim().to_lowercase();
        self.definition.effort = match word.as_str() {
            "none" | "off" | "false" => Some(Effort::None),
            "minimal" => Some(Effort::Minimal),
            "low" => Some(Effort::Low),
            "medium" => Some(Effort::Medium),
            "high" => Some(Effort::High),
            "xhigh" => Some(Effort::Xhigh),
            "max" => Some(Effort::Max),
            _ => {
                let hint = "write none, minimal, low, medium, high, xhigh or max";
                self.warn(value.spot, key, format!("`{word}` is no effort; it is ignored"), hint);
                None
            }
        };
    }

    pub(super) fn temperature(&mut self, key: &str, value: &Node) {
        let number = value.text().and_then(|it| it.trim().parse::<f64>().ok());
        match number.filter(|it| (0.0..=2.0).contains(it)) {
            // In range by the line above; thousandths are as fine as any provider reads.
            Some(number) => self.definition.temperature_milli = Some((number * 1_000.0).round() as u32),
            None => self.warn(value.spot, key, "a temperature is a number from 0 to 2; it is ignored", ""),
        }
    }

    /// Recipes call what they want to know parameters; the keys come from the parent's context.
    pub(super) fn parameters(&mut self, value: &Node) {
        let NodeKind::List(parameters) = &value.kind else { return };
        let keys = parameters.iter().filter_map(|it| it.get("key").and_then(Node::text)).map(str::to_owned);
        self.definition.shared_context.extend(keys);
        self.definition.metadata.insert("parameters".into(), value.to_json());
    }

    pub(super) fn inherit(&mut self, key: &str, value: &Node) {
        let word = value.text().unwrap_or_default().trim();
        self.definition.inherit = match word {
            "none" | "false" | "fresh" | "no" => Inherit::None,
            "all" | "true" | "fork" | "yes" => Inherit::All,
            _ => match word.parse() {
                Ok(count) => Inherit::Last(count),
                Err(_) => {
                    self.warn(
                        value.spot,
                        key,
                        format!("`{word}` is not known; no messages are inherited"),
                        "write none, all or a number",
                    );
                    Inherit::None
                }
            },
        };
    }

    pub(super) fn surroundings(&mut self, key: &str, value: &Node) {
        self.definition.surroundings = match value.text().unwrap_or_default() {
            "none" => ProjectContext::None,
            "environment" => ProjectContext::Environment,
            "full" => ProjectContext::Full,
            "fork" => return self.definition.inherit = Inherit::All,
            other => {
                let message = format!("`{other}` is not known; it is ignored");
                return self.warn(value.spot, key, message, "write full, environment or none");
            }
        };
    }

    pub(super) fn inherit_project(&mut self, key: &str, value: &Node) {
        if !self.flag(key, value) {
            self.definition.surroundings = ProjectContext::Environment;
        }
    }

    pub(super) fn memory(&mut self, key: &str, value: &Node) {
        self.definition.memory = match value.text().unwrap_or_default() {
            "user" => Some(MemoryScope::User),
            "project" => Some(MemoryScope::Project),
            "local" => Some(MemoryScope::Local),
            other => {
                let message = format!("`{other}` is not a memory; the agent keeps none");
                self.warn(value.spot, key, message, "write user, project or local");
                None
            }
        };
    }

    /// A list of names or of `{name: configuration}`, or a map of name to configuration.
    pub(super) fn mcp_servers(&mut self, key: &str, value: &Node) {
        let mut add = |node: &Node| match (&node.kind, node.text()) {
            (NodeKind::Map(entries), _) => {
                for entry in entries {
                    self.definition.mcp_servers.insert(entry.key.clone(), entry.value.to_json());
                }
            }
            (_, Some(name)) if !name.trim().is_empty() => {
                for name in name.split(',') {
                    self.definition.mcp_servers.insert(name.trim().to_owned(), Value::Null);
                }
            }
            (NodeKind::List(_) | NodeKind::Plain(_) | NodeKind::Quoted(_), _) => (),
        };
        match &value.kind {
            NodeKind::List(items) => items.iter().for_each(&mut add),
            NodeKind::Map(_) | NodeKind::Plain(_) | NodeKind::Quoted(_) => add(value),
        }
        if self.definition.mcp_servers.is_empty() && !value.is_null() && value.noun() == "text" {
            self.warn(value.spot, key, format!("`{key}` names no server"), "");
        }
    }

    pub(super) fn schema(&mut self, key: &str, value: &Node) {
        match value.entries() {
            Some(_) => self.definition.schema = Some(value.to_json()),
            None => self.warn(value.spot, key, format!("a schema is a map and this is {}", value.noun()), ""),
        }
    }

    pub(super) fn on_failure(&mut self, key: &str, value: &Node) {
        if value.get("retry").is_some() {
            return self.retry(key, value);
        }
        self.definition.on_failure = match fields::fold(value.text().unwrap_or_default()).as_str() {
            "report" => OnFailure::Report,
            "retry" => OnFailure::Retry(1),
            "skip" => OnFailure::Skip,
            "failparent" | "fail" => OnFailure::FailParent,
            other => {
                let message = format!("`{other}` is not known; failures are reported");
                return self.warn(value.spot, key, message, "write report, retry, skip or fail_parent");
            }
        };
    }

    pub(super) fn retry(&mut self, key: &str, value: &Node) {
        let times = value.get("max_retries").or_else(|| value.get("retry")).unwrap_or(value);
        match times.text().and_then(|it| it.trim().parse().ok()).filter(|it| *it <= 10) {
            Some(times) => self.definition.on_failure = OnFailure::Retry(times),
            None => self.warn(value.spot, key, "retries are a number from 0 to 10; failures are reported", ""),
        }
        if value.entries().is_some_and(|it| it.len() > 1) {
            self.definition.metadata.insert(key.to_owned(), value.to_json());
        }
    }

    pub(super) fn metadata(&mut self, key: &str, value: &Node) {
        let Some(entries) = value.entries() else {
            self.definition.metadata.insert(key.to_owned(), value.to_json());
            return;
        };
        for entry in entries {
            self.definition.metadata.entry(entry.key.clone()).or_insert_with(|| entry.value.to_json());
        }
    }

    pub(super) fn kind(&mut self, key: &str, value: &Node) {
        if value.text() == Some("remote") {
            let message = "remote agents (A2A) cannot be run";
            self.remarks.error(
                value.spot,
                key,
                message,
                "write a local agent that calls the remote one through a tool",
            );
        }
    }
}
