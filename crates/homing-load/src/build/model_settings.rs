//! The model that an agent uses and the parameters of its calls.

use homing_core::{
    definition::{AgentDefinition, ModelChoice},
    model::{Effort, Sampling},
};

use super::field_reader::FieldReader;
use crate::{
    dialect::AbsentModel,
    fields::Setting,
    node::{Node, NodeKind},
    tools::unquoted,
};

/// The keys of a file that choose a model.
#[derive(Default)]
pub(super) struct ModelReader {
    /// Models by name, the preferred one first.
    models: Vec<String>,
    /// `inherit` or `default`, if written.
    choice: Option<ModelChoice>,
    pub(super) provider: Option<String>,
    effort: Option<Effort>,
    temperature_milli: Option<u32>,
    sampling: Sampling,
}

impl ModelReader {
    pub(super) fn model(&mut self, reader: &mut FieldReader<'_>) {
        let value = reader.value;
        match &value.kind {
            NodeKind::Plain(text) | NodeKind::Quoted(text) => {
                self.model_text(text);
                self.drop_window(reader);
            }
            NodeKind::List(items) => {
                self.prefer(items.iter().filter_map(Node::text).map(str::to_owned).collect());
            }
            NodeKind::Map(_) => match value.get("model").or_else(|| value.get("preset")).and_then(Node::text) {
                Some(model) => self.models.insert(0, model.to_owned()),
                None => reader.warn(format!("`{}` is a map without `model`: ignored", reader.key), ""),
            },
        }
    }

    /// Removes Claude Code's mark for a large context window (`sonnet[1m]`), which is not part of a model's name.
    fn drop_window(&mut self, reader: &mut FieldReader<'_>) {
        for model in &mut self.models {
            if let Some(bare) = model.strip_suffix("[1m]") {
                *model = bare.trim_end().to_owned();
                let message = format!("`[1m]` is ignored: {model} has the context window that its provider gives it");
                reader.diagnostics.info(reader.value.position, reader.key, message, "");
            }
        }
    }

    pub(super) fn fallback_models(&mut self, reader: &mut FieldReader<'_>) {
        self.models.extend(reader.list());
    }

    fn model_text(&mut self, text: &str) {
        match text.trim() {
            "" | "~" | "null" => (),
            "inherit" => self.choice = Some(ModelChoice::Inherit),
            "default" => self.choice = Some(ModelChoice::Default),
            text => {
                let names = text.split(['|', ',']).map(|name| unquoted(name.trim(), &['"', '\'', '`']));
                self.prefer(names.filter(|name| !name.is_empty()).map(str::to_owned).collect());
            }
        }
    }

    /// Puts models before those that are known already.
    fn prefer(&mut self, mut models: Vec<String>) {
        models.append(&mut self.models);
        self.models = models;
    }

    pub(super) fn effort(&mut self, reader: &mut FieldReader<'_>) {
        let word = reader.word();
        self.effort = effort_level(word);
        if self.effort.is_none() {
            reader.warn(format!("`{}` is not an effort level: ignored", word.to_lowercase()), EFFORT_LEVELS);
        }
    }

    pub(super) fn sampling(&mut self, setting: Setting, reader: &mut FieldReader<'_>) {
        match setting {
            Setting::Temperature => {
                let warning = "the temperature must be a number from 0 to 2: ignored";
                self.temperature_milli = thousandths(reader, 2.0, warning).or(self.temperature_milli);
            }
            Setting::TopP => {
                let warning = "top_p must be a number from 0 to 1: ignored";
                self.sampling.top_p_milli = thousandths(reader, 1.0, warning).or(self.sampling.top_p_milli);
            }
            Setting::Seed => match reader.word().parse() {
                Ok(seed) => self.sampling.seed = Some(seed),
                Err(_) => reader.warn("the seed must be a whole number: ignored", ""),
            },
            Setting::ServiceTier => self.sampling.service_tier = reader.text(),
        }
    }

    pub(super) fn finish(self, absent: AbsentModel, definition: &mut AgentDefinition) {
        let mut models = self.models;
        if let Some(provider) = &self.provider {
            for model in models.iter_mut().filter(|model| !model.contains('/')) {
                *model = format!("{provider}/{model}");
            }
        }
        let absent = match absent {
            AbsentModel::Parents => ModelChoice::Inherit,
            AbsentModel::Default => ModelChoice::Default,
        };
        definition.model.choice =
            if models.is_empty() { self.choice.unwrap_or(absent) } else { ModelChoice::Named(models) };
        definition.model.effort = self.effort;
        definition.model.temperature_milli = self.temperature_milli;
        definition.model.sampling = self.sampling;
    }
}

/// A number from 0 to `most` in thousandths, because no provider distinguishes less; `None` with a warning otherwise.
fn thousandths(reader: &mut FieldReader<'_>, most: f64, warning: &str) -> Option<u32> {
    let number = reader.word().parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
    if number.is_none() {
        reader.warn(warning, "");
    }
    number.map(|number| (number * 1_000.0).round() as u32)
}

/// The hint for an unknown effort level.
pub(crate) const EFFORT_LEVELS: &str = "write none, minimal, low, medium, high, xhigh or max";

/// The effort level with this name.
pub(crate) fn effort_level(name: &str) -> Option<Effort> {
    Some(match name.to_lowercase().as_str() {
        "none" | "off" | "false" => Effort::None,
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "xhigh" => Effort::Xhigh,
        "max" => Effort::Max,
        _ => return None,
    })
}
