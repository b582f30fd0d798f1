//! The agent's name, description and prompt, and the notes that only people read.

use std::collections::BTreeMap;

use homing_core::{definition::AgentDefinition, sanitize};
use memchr::memchr;
use serde_json::Value;

use super::{PartialDefinition, field_reader::FieldReader};
use crate::{diagnostics::Diagnostics, dialect::FileName, fix::FixDraft, naming, node::Position};

/// The parts of a definition that identify and describe the agent, as the file has them.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) name: Option<(String, Position)>,
    pub(super) title: Option<String>,
    pub(super) aliases: Vec<String>,
    pub(super) description: String,
    pub(super) prompt: String,
    /// Instructions that follow the prompt.
    pub(super) prompt_more: String,
    pub(super) initial_prompt: Option<String>,
    pub(super) color: Option<String>,
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) unknown: BTreeMap<String, Value>,
}

impl Identity {
    pub(super) fn name(&mut self, reader: &mut FieldReader<'_>) {
        let name = reader.borrowed_text();
        self.name = name.map(|name| (name.trim().to_owned(), reader.value.position));
    }

    pub(super) fn description(&mut self, reader: &mut FieldReader<'_>) {
        let Some(text) = reader.borrowed_text() else { return };
        if !text.contains("\\n") {
            text.trim().clone_into(&mut self.description);
            return;
        }
        let message = format!("`{}` contains a literal `\\n`: read as a line break", reader.key);
        reader.warn(message, "use a block scalar (`|`) for several lines");
        text.replace("\\n", "\n").trim().clone_into(&mut self.description);
        let fix = FixDraft::value("write the line breaks as such", reader.value.position, &self.description);
        reader.diagnostics.fix(fix);
    }

    pub(super) fn metadata(&mut self, reader: &mut FieldReader<'_>) {
        let Some(entries) = reader.value.entries() else {
            self.metadata.insert(reader.key.to_owned(), reader.value.to_json());
            return;
        };
        for entry in entries {
            self.metadata.entry(entry.key.to_string()).or_insert_with(|| entry.value.to_json());
        }
    }

    /// Fills in what is missing and writes the result into `definition`.
    pub(super) fn finish(
        mut self,
        partial: &PartialDefinition<'_>,
        diagnostics: &mut Diagnostics,
        definition: &mut AgentDefinition,
    ) {
        self.finish_prompt(partial, diagnostics);
        definition.name = self.finish_name(partial, diagnostics).unwrap_or_default();
        self.finish_aliases();
        self.finish_description(partial, diagnostics);
        definition.title = self.title;
        definition.aliases = self.aliases;
        definition.description = self.description;
        definition.prompt = self.prompt;
        definition.task.initial_prompt = self.initial_prompt;
        definition.extra.color = self.color;
        definition.extra.metadata = self.metadata;
        definition.extra.unknown = self.unknown;
    }

    fn finish_name(&mut self, partial: &PartialDefinition<'_>, diagnostics: &mut Diagnostics) -> Option<String> {
        let file_name = partial.names.dialect.file_name;
        let written = self.name.take().filter(|(name, _)| !name.is_empty());
        let (name, position) = match (written, partial.key, partial.stem) {
            (Some((name, position)), _, _) => (name, position),
            (None, Some(key), _) => (key.to_owned(), partial.position),
            (None, None, Some(stem)) if file_name == FileName::Usual => {
                return self.usual_name(stem, partial, diagnostics);
            }
            (None, None, Some(stem)) => {
                let message = format!("missing `name`: using the file name `{stem}`");
                diagnostics.warn(partial.position, "name", message, &format!("write `name: {stem}`"));
                diagnostics.rule("missing-name");
                diagnostics.fix(FixDraft::add(partial.position, "name", stem));
                (stem.to_owned(), partial.position)
            }
            (None, None, None) => {
                diagnostics.error(partial.position, "name", "missing `name`", "write `name: …`");
                return None;
            }
        };
        if let Some(stem) = partial.stem.filter(|stem| file_name == FileName::MustMatch && *stem != name) {
            let message = format!("the name `{}` must match the file name `{stem}`", sanitize::inert_line(&name));
            diagnostics.error(position, "name", message, "rename one of them");
            return None;
        }
        self.valid_name(name, position, partial, diagnostics)
    }

    /// Derives the name from the file name, which in these dialects need not be a valid name.
    fn usual_name(
        &mut self,
        stem: &str,
        partial: &PartialDefinition<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let Some(slug) = naming::slug(stem) else {
            return self.valid_name(stem.to_owned(), Position { line: 1, column: 1 }, partial, diagnostics);
        };
        if slug != stem {
            self.title.get_or_insert_with(|| sanitize::inert_line(stem));
        }
        Some(slug)
    }

    /// Returns the name, or the nearest valid one; then the written name becomes the title or an alias.
    fn valid_name(
        &mut self,
        name: String,
        position: Position,
        partial: &PartialDefinition<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        if naming::is_valid(&name) {
            return Some(name);
        }
        let slug = naming::slug(&name).or_else(|| partial.stem.and_then(naming::slug));
        let Some(slug) = slug.filter(|_| name.len() <= naming::MAX_LENGTH) else {
            let shown: String = sanitize::inert_line(&name).chars().take(40).collect();
            let hint = "use up to 128 lower-case letters, digits and hyphens, with at least one letter";
            diagnostics.error(position, "name", format!("`{shown}` is not a valid agent name"), hint);
            return None;
        };
        let shown = sanitize::inert_line(&name);
        let message = format!(
            "the name `{shown}` was changed to `{slug}`: names consist of lower-case letters, digits and hyphens"
        );
        diagnostics.warn(position, "name", message, &format!("write `name: {slug}`"));
        diagnostics.rule("invalid-name");
        // The name of the file or a key of a map is not written as a value.
        if self.title.is_none() && position != partial.position {
            let fix = FixDraft::value(format!("write `{slug}`, and the name as title"), position, &slug);
            diagnostics.fix(fix.and(FixDraft::add(partial.position, "title", &shown)));
        }
        if self.title.is_none() {
            self.title = Some(shown);
        } else {
            self.aliases.push(shown);
        }
        Some(slug)
    }

    /// Removes colons from names: `plugin:name` is reserved for the agents of plugins.
    fn finish_aliases(&mut self) {
        for name in self.title.iter_mut().chain(&mut self.aliases).filter(|name| !name.contains(' ')) {
            *name = name.replace(':', " ");
        }
    }

    fn finish_description(&mut self, partial: &PartialDefinition<'_>, diagnostics: &mut Diagnostics) {
        if !self.description.trim().is_empty() {
            return;
        }
        let paragraph = first_paragraph(&self.prompt);
        if paragraph.is_empty() {
            let hint = "describe when to use the agent";
            return diagnostics.error(partial.position, "description", "missing `description`", hint);
        }
        let message = "missing `description`: using the first paragraph of the prompt";
        let hint = "describe when to use the agent: `description: …`";
        diagnostics.warn(partial.position, "description", message, hint);
        diagnostics.rule("missing-description");
        diagnostics.fix(FixDraft::add(partial.position, "description", &paragraph));
        self.description = paragraph;
    }

    fn finish_prompt(&mut self, partial: &PartialDefinition<'_>, diagnostics: &mut Diagnostics) {
        let body = partial.body.map_or("", |(body, _)| body).trim();
        let parts = [self.prompt.trim(), body, self.prompt_more.trim()];
        let mut parts = parts.into_iter().filter(|part| !part.is_empty());
        let mut prompt = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            prompt.push_str("\n\n");
            prompt.push_str(part);
        }
        self.prompt = prompt;
        self.drop_invisible(partial, diagnostics);
        if self.prompt.trim().is_empty() {
            self.substitute_prompt(partial, diagnostics);
        }
    }

    /// Uses the initial prompt or the description if there is no prompt.
    fn substitute_prompt(&mut self, partial: &PartialDefinition<'_>, diagnostics: &mut Diagnostics) {
        let position = partial.body.map_or(partial.position, |(_, line)| Position { line, column: 1 });
        let substitute = self.initial_prompt.as_ref().unwrap_or(&self.description);
        let hint = "write what the agent should do below the front matter";
        if substitute.trim().is_empty() {
            return diagnostics.error(position, "prompt", "missing prompt", hint);
        }
        diagnostics.warn(position, "prompt", "missing prompt: using the description", hint);
        self.prompt = substitute.clone();
    }

    /// Removes Unicode tag characters, which people cannot see and models can read.
    fn drop_invisible(&mut self, partial: &PartialDefinition<'_>, diagnostics: &mut Diagnostics) {
        let is_tag = |character: char| ('\u{e0000}'..='\u{e007f}').contains(&character);
        let Self { prompt, description, initial_prompt, .. } = self;
        let first = initial_prompt.iter_mut().map(|text| ("initialPrompt", text));
        for (field, text) in [("prompt", prompt), ("description", description)].into_iter().chain(first) {
            // All tag characters begin with this byte, and looking for a byte is much cheaper than for characters.
            if memchr(0xf3, text.as_bytes()).is_none() || !text.contains(is_tag) {
                continue;
            }
            text.retain(|character| !is_tag(character));
            let message = format!("the {field} contains invisible characters: removed");
            diagnostics.warn(partial.position, field, message, "check the file for hidden instructions");
        }
    }
}

/// The first lines of prose, without headings.
fn first_paragraph(prompt: &str) -> String {
    let is_markup = |line: &&str| line.is_empty() || line.starts_with(['#', '`', '<', '-', '|']);
    let lines = prompt.lines().map(str::trim).skip_while(is_markup);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    paragraph.chars().take(1_024).collect()
}
