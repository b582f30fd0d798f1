//! Skills: instructions that are loaded on demand or included in an agent's prompt.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;

use crate::{
    authority::Layer,
    definition::{OfferedTo, Scope},
    model::Effort,
    rule::Rule,
};

/// Agent that carries out a skill which names none.
pub const DEFAULT_AGENT: &str = "general";

/// Metadata of a skill, known without reading its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillCard {
    /// Unique within a library.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// Its file.
    pub path: PathBuf,
    /// Scope that it was found in.
    pub scope: Scope,
    /// Settings beyond its description.
    pub settings: SkillSettings,
}

/// Settings of a skill beyond its description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// Those who may start it.
    pub offered_to: OfferedTo,
    /// Names of its arguments, in order.
    pub arguments: Vec<String>,
    /// Description of its arguments, for lists.
    pub argument_hint: Option<String>,
    /// Agent that carries it out if it runs on its own.
    pub agent: Option<String>,
    /// True if it is carried out in a run of its own, without the conversation of the run that calls it.
    pub fork: bool,
    /// True if the caller does not wait for such a run.
    pub background: bool,
    /// Model that carries it out if it runs on its own.
    pub model: Option<String>,
    /// Reasoning effort if it runs on its own.
    pub effort: Option<Effort>,
    /// Calls that need no approval while it is in use. Libraries keep these from trusted files only.
    pub approved: Vec<Rule>,
    /// Calls that are denied while it is in use.
    pub denied: Vec<Rule>,
}

impl SkillCard {
    /// Returns the skill's rules on tools as a layer: it approves and denies calls, and allows nothing that other layers deny.
    /// `None` if it has no rules.
    pub fn layer(&self) -> Option<Layer> {
        let SkillSettings { approved, denied, .. } = &self.settings;
        let has_rules = !approved.is_empty() || !denied.is_empty();
        has_rules.then(|| Layer {
            settled: approved.clone(),
            deny: denied.clone(),
            ..Layer::everything(format!("skill {}", self.name))
        })
    }
}

/// A skill with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Metadata.
    pub card: SkillCard,
    /// The instructions.
    pub body: String,
    /// Files that the instructions may refer to, relative to the skill's folder.
    pub resources: Vec<String>,
}

impl Skill {
    /// Renders the skill for a prompt.
    pub fn render(&self) -> String {
        self.render_with("")
    }

    /// Renders the skill with arguments, for a tool result or as a task. If the body has no placeholder for them, they follow
    /// it.
    pub fn render_with(&self, arguments: &str) -> String {
        let body = fill_arguments(self.body.trim(), arguments.trim(), &self.card.settings.arguments);
        let mut text = format!("<skill name=\"{}\">\n{body}\n", escape(&self.card.name));
        if !self.resources.is_empty() {
            let folder = self.card.path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
            text.push_str(&format!("\nResources in {folder}:\n"));
            for resource in &self.resources {
                text.push_str(&format!("- {resource}\n"));
            }
        }
        text.push_str("</skill>");
        text
    }
}

/// Replaces `$ARGUMENTS`, `$ARGUMENTS[N]`, `$N` and the names of arguments. `$N` is only replaced if there is such an argument,
/// because bodies contain shell scripts.
fn fill_arguments(body: &str, arguments: &str, names: &[String]) -> String {
    const ALL: &str = "ARGUMENTS";
    let words = words(arguments);
    let (mut filled, mut rest, mut is_used) = (String::with_capacity(body.len()), body, false);
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        let end = after
            .find(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | '-')))
            .unwrap_or(after.len());
        let (name, tail) = after.split_at(end);
        let indexed = || tail.strip_prefix('[')?.split_once(']').and_then(|(at, tail)| Some((at.parse().ok()?, tail)));
        let word = |at: usize| words.get(at).map_or("", |(_, word)| word.as_str());
        let found: Option<(&str, &str)> = if name == ALL {
            Some(indexed().map_or((arguments, tail), |(at, tail)| (word(at), tail)))
        } else if let Some(at) = names.iter().position(|known| known == name) {
            // The last argument takes the rest.
            let takes_rest = at + 1 == names.len() && words.len() > names.len();
            Some((if takes_rest { &arguments[words[at].0..] } else { word(at) }, tail))
        } else {
            name.parse().ok().filter(|at: &usize| *at < words.len()).map(|at| (word(at), tail))
        };
        match found {
            Some((value, tail)) => {
                is_used = true;
                filled.push_str(value);
                rest = tail;
            }
            None => {
                filled.push('$');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    if !is_used && !arguments.is_empty() {
        filled.push_str(&format!("\n\nARGUMENTS: {arguments}"));
    }
    filled
}

/// The words of a text with their positions. Quotes keep a word together, as in a shell.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let (mut quote, mut is_inside) = (None, false);
    for (at, letter) in text.char_indices() {
        match quote {
            Some(open) if open == letter => quote = None,
            None if letter.is_whitespace() => is_inside = false,
            Some(_) | None => {
                // A quote inside a word, or one that is never closed, is an apostrophe.
                let opens = !is_inside && matches!(letter, '"' | '\'') && text[at + 1..].contains(letter);
                if !is_inside {
                    words.push((at, String::new()));
                    is_inside = true;
                }
                if opens {
                    quote = Some(letter);
                } else if let Some((_, word)) = words.last_mut() {
                    word.push(letter);
                }
            }
        }
    }
    words
}

/// Returns the skill that a call of the tool `skill` names, and its arguments, as models spell them.
pub fn named_in(args: &Value) -> Option<(&str, &str)> {
    let text = |keys: &[&str]| keys.iter().find_map(|key| args.get(*key)?.as_str()).map(str::trim);
    let name = text(&["name", "skill", "skill_name", "command"]).filter(|name| !name.is_empty())?;
    Some((name, text(&["arguments", "args", "input"]).unwrap_or_default()))
}

fn escape(name: &str) -> String {
    name.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// A collection of skills. Metadata is in memory, bodies are read on demand.
pub trait SkillLibrary: Send + Sync {
    /// Returns the metadata of all skills, ordered by name.
    fn list(&self) -> &[SkillCard];

    /// Reads a skill. Returns `None` if there is no such skill, and an error message if its file cannot be read.
    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>>;

    /// Returns whether there is such a skill.
    fn has(&self, name: &str) -> bool {
        self.card(name).is_some()
    }

    /// Returns the metadata of a skill.
    fn card(&self, name: &str) -> Option<&SkillCard> {
        self.list().iter().find(|card| card.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_replace_their_placeholders() {
        let names = ["issue".to_owned(), "branch".to_owned()];
        let fill = |body: &str, arguments: &str| fill_arguments(body, arguments, &names);
        assert_eq!(fill("Fix $ARGUMENTS now", "12 on main"), "Fix 12 on main now");
        assert_eq!(fill("$ARGUMENTS[0]/$1/$7 $ARGUMENTS[9].", "12 main"), "12/main/$7 .");
        assert_eq!(fill("Fix $issue in $branch, cost $issues", "12 main line"), "Fix 12 in main line, cost $issues");
        assert_eq!(fill("awk '{print $1}' ${HOME} $", ""), "awk '{print $1}' ${HOME} $");
        assert_eq!(fill("Do it.", "well"), "Do it.\n\nARGUMENTS: well");
        assert_eq!(fill("Do $ARGUMENTS.", "$ARGUMENTS"), "Do $ARGUMENTS.", "arguments are not expanded again");
        assert_eq!(fill("$0|$1|$2", r#""hello big world" it's 'a b'"#), "hello big world|it's|a b");
        assert_eq!(fill("$issue|$branch", "'1 2' 'main line'"), "1 2|main line");
    }
}
