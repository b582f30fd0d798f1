//! The card of a skill: its front matter, without its body.

use std::path::Path;

use homing_core::{
    definition::{OfferedTo, Scope},
    diagnostic::Diagnostic,
    model::Effort,
    rule::Rule,
    sanitize,
    skill::{SkillCard, SkillSettings},
};

use crate::{
    build::{EFFORT_LEVELS, effort_level},
    diagnostics::Diagnostics,
    dialect, fields,
    file::{self, MAX_FRONT_MATTER},
    fix::FixDraft,
    front_matter,
    node::{Node, NodeEntry, NodeKind, Position},
    parse::is_skill,
    repair,
    tools::{self, Meaning, Vocabulary},
};

/// The number of bytes of a file that are read for its card.
const HEAD: u64 = MAX_FRONT_MATTER as u64 + 8 * 1024;

/// Folded keys of skills that are known and have no effect here.
const IGNORED: &[(&str, &str)] = &[
    ("hooks", "hooks of skills do not run"),
    ("paths", "the skill is offered for all files"),
    ("shell", "`bash` runs commands"),
    ("fallback", "it has no effect"),
];

/// Folded keys of skills that have an effect.
const OBEYED: &[(&str, &str)] = &[
    ("name", "name"),
    ("description", "description"),
    ("whentouse", "follows the description"),
    ("arguments", "names of its arguments"),
    ("argumenthint", "shown in the list of skills"),
    ("context", "`fork`: a run of its own carries it out, and its answer is the result"),
    ("agent", "agent that carries it out if it runs on its own"),
    ("background", "`true`: the caller does not wait for a fork"),
    ("model", "model if it runs on its own"),
    ("effort", "reasoning effort if it runs on its own"),
    ("allowedtools", "calls that need no approval while it is in use (needs trust)"),
    ("disallowedtools", "calls that are denied while it is in use"),
    ("disablemodelinvocation", "`true`: only the user starts it"),
    ("userinvocable", "`false`: only models start it"),
    ("resources", "files that belong to it"),
];

/// Folded keys of skills that are for people and other programs.
const NOTES: &[&str] =
    &["version", "license", "compatibility", "metadata", "author", "tags", "createdby", "improvedby", "displayname"];

/// All keys of skills with their effects, for the table in the documentation.
pub(crate) fn field_effects() -> impl Iterator<Item = (&'static str, String)> {
    let obeyed = OBEYED.iter().map(|(key, effect)| (*key, (*effect).to_owned()));
    let notes = NOTES.iter().map(|key| (*key, "note of the author".to_owned()));
    obeyed.chain(notes).chain(IGNORED.iter().map(|(key, reason)| (*key, format!("ignored: {reason}"))))
}

/// Reads the front matter of a skill; returns no card if the file is not a skill.
pub(crate) fn read_card(path: &Path, scope: Scope) -> (Option<SkillCard>, Vec<Diagnostic>) {
    let mut diagnostics = Diagnostics::default();
    let card = match file::read_up_to(path, HEAD) {
        Ok((_, size)) if size > file::MAX_FILE => {
            let message = format!("the file has {size} bytes; the maximum for skill files is {}", file::MAX_FILE);
            diagnostics.error(Position::default(), "", message, "move text into files beside it");
            None
        }
        Ok((bytes, _)) => return parse_card(path, scope, &bytes),
        Err(message) => {
            diagnostics.error(Position::default(), "", message, "");
            None
        }
    };
    (card, diagnostics.into_diagnostics(Some(path), None))
}

/// Reads the front matter in the first bytes of a skill.
pub(crate) fn parse_card(path: &Path, scope: Scope, mut bytes: &[u8]) -> (Option<SkillCard>, Vec<Diagnostic>) {
    let mut diagnostics = Diagnostics::default();
    // The bytes that were read may end inside a character.
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes = &bytes[..error.valid_up_to()];
    }
    let text = file::decode(bytes, &mut diagnostics);
    let card = text.as_ref().and_then(|text| card_of(path, scope, text, &mut diagnostics));
    (card, diagnostics.into_diagnostics(Some(path), text.as_deref()))
}

fn card_of(path: &Path, scope: Scope, text: &str, diagnostics: &mut Diagnostics) -> Option<SkillCard> {
    let split = front_matter::split(text, diagnostics);
    let start = Position { line: 1, column: 1 };
    let Some((yaml, line)) = split.front else {
        if is_skill(path) {
            diagnostics.error(
                start,
                "",
                "the skill has no front matter",
                "begin it with `---`, `name: …`, `description: …`, `---`",
            );
        }
        return None;
    };
    if yaml.len() > MAX_FRONT_MATTER {
        diagnostics.error(start, "", format!("the front matter has more than {MAX_FRONT_MATTER} bytes"), "");
        return None;
    }
    let node = match repair::read(yaml, line, diagnostics) {
        Ok(node) => node,
        Err(error) => {
            diagnostics.error(
                error.position,
                "",
                format!("the front matter cannot be read: {}", error.message),
                "correct the YAML",
            );
            return None;
        }
    };
    let name = card_name(path, &node, diagnostics)?;
    let mut description = card_description(&node, split.body, split.body_line, diagnostics)?;
    if let Some(more) = node.get("when_to_use").and_then(Node::text).filter(|text| !text.trim().is_empty()) {
        description = format!("{description}\n{}", more.trim());
    }
    report_lengths(&node, diagnostics);
    let settings = settings(&node, diagnostics);
    Some(SkillCard { name, description, path: path.to_owned(), scope, settings })
}

/// Reads the settings of a skill and reports keys without effect.
fn settings(node: &Node<'_>, diagnostics: &mut Diagnostics) -> SkillSettings {
    let mut settings = SkillSettings::default();
    let names = Vocabulary { dialect: dialect::interchange(), extra: &[], servers: &[] };
    for entry in node.entries().unwrap_or_default() {
        let (folded, value) = (fields::fold(&entry.key), &entry.value);
        let text = || value.text().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        match folded.as_ref() {
            // A value that cannot be read restricts.
            "disablemodelinvocation" if value.truth() != Some(false) => settings.offered_to = OfferedTo::User,
            "userinvocable" if value.truth() == Some(false) && settings.offered_to.is_everyone() => {
                settings.offered_to = OfferedTo::Models;
            }
            "arguments" => settings.arguments = arguments(value, diagnostics),
            "argumenthint" => settings.argument_hint = text().or_else(|| bracketed(value)),
            "context" => settings.fork = is_fork(entry, diagnostics),
            "background" => settings.background = value.truth() == Some(true),
            "agent" => settings.agent = text(),
            "model" => settings.model = text().filter(|model| model != "inherit"),
            "effort" => settings.effort = effort(entry, diagnostics),
            "allowedtools" => settings.approved = approved(entry, names, diagnostics),
            "disallowedtools" => {
                let words = tools::named(value, &entry.key, diagnostics);
                settings.denied = tools::denied(words, names, &entry.key, diagnostics);
            }
            _ => report_ignored(entry, &folded, diagnostics),
        }
    }
    settings
}

/// Reads the calls that need no approval. Tools of other programs need none, because there are none.
fn approved(entry: &NodeEntry<'_>, names: Vocabulary<'_>, diagnostics: &mut Diagnostics) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (word, position) in tools::items(&entry.value, &entry.key, diagnostics) {
        match names.meaning(&word) {
            Meaning::Everything => rules.push(Rule::tool("*")),
            Meaning::Rules(found) => rules.extend(found),
            Meaning::NoCounterpart | Meaning::Unknown => {
                let message = format!("there is no tool `{word}` here: it approves nothing");
                diagnostics.info(position, &entry.key, message, "");
            }
        }
    }
    rules
}

/// Reads `context`: only `fork` has a meaning.
fn is_fork(entry: &NodeEntry<'_>, diagnostics: &mut Diagnostics) -> bool {
    let value = entry.value.text().unwrap_or_default().trim();
    if !matches!(value, "fork" | "inline" | "") {
        let message = format!("`{value}` is not a valid `{}`: ignored", entry.key);
        diagnostics.warn(entry.position, &entry.key, message, "write fork, or leave it out");
    }
    value == "fork"
}

fn effort(entry: &NodeEntry<'_>, diagnostics: &mut Diagnostics) -> Option<Effort> {
    let word = entry.value.text().unwrap_or_default().trim();
    let effort = effort_level(word);
    if effort.is_none() {
        let message = format!("`{word}` is not an effort level: ignored");
        diagnostics.warn(entry.value.position, &entry.key, message, EFFORT_LEVELS);
    }
    effort
}

/// A hint such as `[issue]`, which YAML reads as a list.
fn bracketed(value: &Node<'_>) -> Option<String> {
    let NodeKind::List(items) = &value.kind else { return None };
    let words: Vec<&str> = items.iter().filter_map(Node::text).collect();
    (!words.is_empty()).then(|| format!("[{}]", words.join(", ")))
}

/// Reads the names of arguments: a list, or words.
fn arguments(value: &Node<'_>, diagnostics: &mut Diagnostics) -> Vec<String> {
    match value.text() {
        Some(text) => {
            text.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        }
        None => tools::items(value, "arguments", diagnostics).into_iter().map(|(name, _)| name.into_owned()).collect(),
    }
}

fn report_ignored(entry: &NodeEntry<'_>, folded: &str, diagnostics: &mut Diagnostics) {
    let is_known = OBEYED.iter().any(|(key, _)| *key == folded) || NOTES.contains(&folded);
    let message = match IGNORED.iter().find(|(key, _)| *key == folded) {
        Some((_, effect)) => format!("`{}` is ignored: {effect}", entry.key),
        None if is_known => return,
        None => format!("unknown key `{}`: ignored", entry.key),
    };
    diagnostics.info(entry.position, &entry.key, message, "");
}

/// Reports values that the reference validator of agentskills.io rejects.
fn report_lengths(node: &Node<'_>, diagnostics: &mut Diagnostics) {
    for (key, most) in [("description", 1_024), ("compatibility", 500)] {
        let Some(value) = node.get(key) else { continue };
        let length = value.text().map_or(0, |text| text.trim().chars().count());
        if length > most {
            let message = format!("`{key}` has {length} characters; other programs accept up to {most}");
            diagnostics.info(value.position, key, message, "");
        }
    }
}

fn card_name(path: &Path, node: &Node<'_>, diagnostics: &mut Diagnostics) -> Option<String> {
    let folder = if is_skill(path) { path.parent().and_then(Path::file_name) } else { path.file_stem() };
    let folder = folder.and_then(|name| name.to_str()).unwrap_or_default();
    let position = node.get("name").map_or(node.position, |name| name.position);
    let written = node.get("name").and_then(Node::text).map(str::trim).filter(|name| !name.is_empty());
    let name = sanitize::inert_line(written.unwrap_or(folder));
    if written.is_none() {
        diagnostics.warn(position, "name", format!("missing `name`: using `{folder}`"), "write `name: …`");
        diagnostics.rule("missing-name");
        diagnostics.fix(FixDraft::add(node.position, "name", folder));
    }
    let portable = name.len() <= 64
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if name.is_empty() || name.len() > 256 {
        diagnostics.error(
            position,
            "name",
            "the skill has no usable name",
            "use up to 64 lower-case letters, digits, hyphens",
        );
        return None;
    }
    if !portable {
        let message = format!("other programs do not accept the name `{name}`");
        diagnostics.warn(position, "name", message, "use up to 64 lower-case letters, digits and single hyphens");
    }
    if portable && is_skill(path) && written.is_some_and(|written| written != folder) {
        let message = format!("other programs require that the name `{name}` is the name of its folder, `{folder}`");
        diagnostics.info(position, "name", message, "rename one of them");
    }
    Some(name)
}

fn card_description(node: &Node<'_>, body: &str, body_line: u32, diagnostics: &mut Diagnostics) -> Option<String> {
    let written = node.get("description").and_then(Node::text).map(str::trim).filter(|text| !text.is_empty());
    if let Some(written) = written {
        return Some(written.to_owned());
    }
    let is_prose = |text: &&str| !text.is_empty() && !text.starts_with(['#', '`', '-', '<']);
    let paragraph = body.split("\n\n").map(str::trim).find(is_prose);
    let position = Position { line: body_line, column: 1 };
    match paragraph {
        Some(paragraph) => {
            let message = "missing `description`: using the first paragraph";
            diagnostics.warn(node.position, "description", message, "describe when to use the skill");
            diagnostics.rule("missing-description");
            let paragraph: String = paragraph.chars().take(1_024).collect();
            diagnostics.fix(FixDraft::add(node.position, "description", &paragraph));
            Some(paragraph)
        }
        None => {
            diagnostics.error(position, "description", "missing `description`", "describe when to use the skill");
            None
        }
    }
}
