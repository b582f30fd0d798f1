//! What is left when all keys are read: a name, a description, a prompt, a model, and the checks across fields.

use homing_core::{
    definition::{AgentDefinition, ModelChoice},
    sanitize,
};

use super::{DefinitionBuilder, PartialDefinition};
use crate::{
    dialect::{AbsentModel, FileName},
    naming,
    node::Position,
};

impl DefinitionBuilder<'_> {
    pub(super) fn finish(mut self, draft: &PartialDefinition<'_>) -> AgentDefinition {
        self.finish_prompt(draft);
        self.finish_name(draft);
        self.finish_aliases();
        self.finish_description(draft);
        self.finish_model();
        self.definition
    }

    fn finish_name(&mut self, draft: &PartialDefinition<'_>) {
        let written = self.name.take().filter(|(name, _)| !name.trim().is_empty());
        let (name, spot) = match (written, draft.key, draft.stem) {
            (Some((name, spot)), _, _) => (name.trim().to_owned(), spot),
            (None, Some(key), _) => (key.to_owned(), draft.spot),
            (None, None, Some(stem)) if self.dialect().file_name == FileName::Usual => return self.usual_name(stem),
            (None, None, Some(stem)) => {
                let message = format!("there is no `name`; the file's name gives `{stem}`");
                self.warn(draft.spot, "name", message, &format!("write `name: {stem}`"));
                (stem.to_owned(), draft.spot)
            }
            (None, None, None) => {
                return self.remarks.error(draft.spot, "name", "there is no `name`", "write `name: …`");
            }
        };
        if self.dialect().file_name == FileName::MustMatch && draft.stem.is_some_and(|it| it != name) {
            let stem = draft.stem.unwrap_or_default();
            let message = format!("the name `{}` must be the file's name, `{stem}`", sanitize::inert_line(&name));
            return self.remarks.error(spot, "name", message, "rename one of them");
        }
        self.take_name(name, spot, draft.stem);
    }

    /// Where agents have their file's name, it need not be one of ours to be understood.
    fn usual_name(&mut self, stem: &str) {
        match naming::slug(stem) {
            Some(slug) if slug == stem => self.definition.name = slug,
            Some(slug) => {
                self.definition.title.get_or_insert_with(|| sanitize::inert_line(stem));
                self.definition.name = slug;
            }
            None => self.take_name(stem.to_owned(), Position { line: 1, column: 1 }, None),
        }
    }

    fn take_name(&mut self, name: String, spot: Position, stem: Option<&str>) {
        if naming::is_good(&name) {
            self.definition.name = name;
            return;
        }
        let slug = naming::slug(&name).or_else(|| stem.and_then(naming::slug));
        let Some(slug) = slug.filter(|_| name.len() <= naming::MAX_LENGTH) else {
            let shown: String = sanitize::inert_line(&name).chars().take(40).collect();
            let hint = "use up to 128 lower-case letters, digits and hyphens, a letter first";
            return self.remarks.error(spot, "name", format!("`{shown}` cannot be an agent's name"), hint);
        };
        let shown = sanitize::inert_line(&name);
        let message = format!("the name `{shown}` became `{slug}`: names are lower-case letters, digits and hyphens");
        self.warn(spot, "name", message, &format!("write `name: {slug}`"));
        if self.definition.title.is_none() {
            self.definition.title = Some(shown);
        } else {
            self.definition.aliases.push(shown);
        }
        self.definition.name = slug;
    }

    /// `plugin:name` is what a plugin's agent is called; no file may call itself so.
    fn finish_aliases(&mut self) {
        let AgentDefinition { title, aliases, .. } = &mut self.definition;
        for name in title.iter_mut().chain(aliases).filter(|it| !it.contains(' ')) {
            *name = name.replace(':', " ");
        }
    }

    fn finish_description(&mut self, draft: &PartialDefinition<'_>) {
        if !self.definition.description.trim().is_empty() {
            return;
        }
        let paragraph = first_paragraph(&self.definition.prompt);
        if paragraph.is_empty() {
            return self.remarks.error(
                draft.spot,
                "description",
                "there is no `description`",
                "say when to use the agent",
            );
        }
        let message = "there is no `description`; the first paragraph of the prompt stands in";
        self.warn(draft.spot, "description", message, "say when to use the agent: `description: …`");
        self.definition.description = paragraph;
    }

    fn finish_prompt(&mut self, draft: &PartialDefinition<'_>) {
        let body = draft.body.map_or("", |(body, _)| body).trim();
        let prompt = std::mem::take(&mut self.definition.prompt);
        let parts = [prompt.trim(), body, self.more.trim()];
        let parts: Vec<&str> = parts.into_iter().filter(|it| !it.is_empty()).collect();
        self.definition.prompt = parts.join("\n\n");
        self.drop_invisible(draft);
        if self.definition.prompt.trim().is_empty() {
            self.substitute_prompt(draft);
        }
    }

    /// Somebody who wrote no prompt still said something that can stand in.
    fn substitute_prompt(&mut self, draft: &PartialDefinition<'_>) {
        let spot = draft.body.map_or(draft.spot, |(_, line)| Position { line, column: 1 });
        let first = self.definition.initial_prompt.clone();
        let substitute = first.unwrap_or_else(|| self.definition.description.clone());
        match substitute.trim().is_empty() {
            true => self.remarks.error(
                spot,
                "prompt",
                "there is no prompt",
                "write below the front matter what the agent is to do",
            ),
            false => {
                let message = "there is no prompt; the description stands in";
                self.warn(spot, "prompt", message, "write below the front matter what the agent is to do");
                self.definition.prompt = substitute;
            }
        }
    }

    /// Tag characters are invisible to people and legible to models.
    fn drop_invisible(&mut self, draft: &PartialDefinition<'_>) {
        let tag = |it: char| ('\u{e0000}'..='\u{e007f}').contains(&it);
        let AgentDefinition { prompt, description, initial_prompt, .. } = &mut self.definition;
        let first = initial_prompt.iter_mut().map(|it| ("initialPrompt", it));
        for (field, text) in [("prompt", prompt), ("description", description)].into_iter().chain(first) {
            // Their first byte; looking for a byte is much cheaper than for characters.
            if !text.as_bytes().contains(&0xf3) || !text.contains(tag) {
                continue;
            }
            text.retain(|it| !tag(it));
            let message = format!("the {field} hides invisible characters; they were removed");
            self.remarks.warn(draft.spot, field, message, "somebody may have hidden instructions in this file");
        }
    }

    fn finish_model(&mut self) {
        let absent = match self.dialect().absent_model {
            AbsentModel::Parents => ModelChoice::Inherit,
            AbsentModel::Default => ModelChoice::Default,
        };
        let mut models = std::mem::take(&mut self.models);
        if let Some(provider) = &self.provider {
            for model in models.iter_mut().filter(|it| !it.contains('/')) {
                *model = format!("{provider}/{model}");
            }
        }
        self.definition.model = match (models.is_empty(), self.model_choice.take()) {
            (false, _) => ModelChoice::Named(models),
            (true, Some(choice)) => choice,
            (true, None) => absent,
        };
    }
}

/// The first lines of prose, without headings.
fn first_paragraph(prompt: &str) -> String {
    let lines =
        prompt.lines().map(str::trim).skip_while(|it| it.is_empty() || it.starts_with(['#', '`', '<', '-', '|']));
    let paragraph = lines.take_while(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    paragraph.chars().take(1_024).collect()
}
