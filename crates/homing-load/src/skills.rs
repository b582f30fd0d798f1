//! Skills: cards are read once, bodies on demand.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::Scope,
    diagnostic::Diagnostic,
    sanitize,
    skill::{Skill, SkillCard, SkillLibrary},
};

use crate::{
    diagnostics::Diagnostics,
    dialect::Depth,
    discover::{Places, plugin_name},
    file::{self, MAX_FRONT_MATTER},
    front_matter,
    node::{Node, Position},
    parse::{ParseOptions, Parsed, ParsedFile, is_skill, parse},
    repair,
    walk::{self, WalkFilter},
};

/// The folders of skills in a project and in a home folder, the weakest first.
pub(crate) const FOLDERS: &[&str] = &[".acai/skills", ".agents/skills", ".claude/skills", ".homing/skills"];
/// The number of bytes of a file that are read for its card.
const HEAD: u64 = MAX_FRONT_MATTER as u64 + 8 * 1024;

/// The skills of a project and its user.
#[derive(Clone, Debug, Default)]
pub struct SkillFolders {
    cards: Vec<SkillCard>,
}

impl SkillFolders {
    /// Reads the cards of all skills in `places`.
    pub fn discover(places: &Places) -> (Self, Vec<Diagnostic>) {
        let mut cards = SkillCards::default();
        for base in &places.plugins {
            cards.add(&base.join("skills"), Scope::Plugin, plugin_name(base).as_deref(), Some(base));
        }
        let user = places.home.iter().flat_map(|home| FOLDERS.iter().map(|folder| home.join(folder)));
        for folder in user.chain(places.config.iter().map(|config| config.join("homing/skills"))) {
            cards.add(&folder, Scope::User, None, None);
        }
        let folders = places.project_folders();
        for base in &folders {
            for folder in FOLDERS {
                cards.add(&base.join(folder), Scope::Project, None, folders.first());
            }
        }
        for base in &places.managed {
            cards.add(&base.join("skills"), Scope::Managed, None, None);
        }
        (Self { cards: cards.by_name.into_values().collect() }, cards.diagnostics)
    }

    /// Reads the cards of the skills in one folder.
    pub fn in_folder(folder: &Path, scope: Scope) -> (Self, Vec<Diagnostic>) {
        let mut cards = SkillCards::default();
        cards.add(folder, scope, None, None);
        (Self { cards: cards.by_name.into_values().collect() }, cards.diagnostics)
    }
}

impl SkillLibrary for SkillFolders {
    fn list(&self) -> &[SkillCard] {
        &self.cards
    }

    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>> {
        let card = self.cards.iter().find(|card| card.name == name)?;
        Some(read_skill(card).map(Arc::new))
    }
}

/// Cards by name; a later card replaces an earlier one.
#[derive(Default)]
struct SkillCards {
    by_name: BTreeMap<String, SkillCard>,
    diagnostics: Vec<Diagnostic>,
}

impl SkillCards {
    fn add(&mut self, folder: &Path, scope: Scope, plugin: Option<&str>, fence: Option<&PathBuf>) {
        let fence = fence.map(PathBuf::as_path);
        let skipped = [".git", "node_modules"];
        let listing =
            walk::list(folder, WalkFilter { depth: Depth::Deep, endings: &[".md"], fence, skipped: &skipped });
        self.diagnostics.extend(listing.diagnostics);
        for path in listing.files.iter().filter(|path| is_skill(path) || path.parent() == Some(folder)) {
            let (card, diagnostics) = read_card(path, scope);
            self.diagnostics.extend(diagnostics);
            let Some(mut card) = card else { continue };
            if let Some(plugin) = plugin {
                card.name = format!("{plugin}:{}", card.name);
            }
            self.by_name.insert(card.name.clone(), card);
        }
    }
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
        Ok((bytes, _)) => card_of(path, scope, bytes, &mut diagnostics),
        Err(message) => {
            diagnostics.error(Position::default(), "", message, "");
            None
        }
    };
    (card, diagnostics.into_diagnostics(Some(path)))
}

fn card_of(path: &Path, scope: Scope, mut bytes: Vec<u8>, diagnostics: &mut Diagnostics) -> Option<SkillCard> {
    // The bytes that were read may end inside a character.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    let text = file::decode(bytes, diagnostics)?;
    let split = front_matter::split(&text, diagnostics);
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
    let description = card_description(&node, split.body, split.body_line, diagnostics)?;
    Some(SkillCard { name, description, path: path.to_owned(), scope })
}

fn card_name(path: &Path, node: &Node, diagnostics: &mut Diagnostics) -> Option<String> {
    let folder = if is_skill(path) { path.parent().and_then(Path::file_name) } else { path.file_stem() };
    let folder = folder.and_then(|name| name.to_str()).unwrap_or_default();
    let position = node.get("name").map_or(node.position, |name| name.position);
    let written = node.get("name").and_then(Node::text).map(str::trim).filter(|name| !name.is_empty());
    let name = sanitize::inert_line(written.unwrap_or(folder));
    if written.is_none() {
        diagnostics.warn(position, "name", format!("missing `name`: using `{folder}`"), "write `name: …`");
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
    Some(name)
}

fn card_description(node: &Node, body: &str, body_line: u32, diagnostics: &mut Diagnostics) -> Option<String> {
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
            Some(paragraph.chars().take(1_024).collect())
        }
        None => {
            diagnostics.error(position, "description", "missing `description`", "describe when to use the skill");
            None
        }
    }
}

fn read_skill(card: &SkillCard) -> Result<Skill, String> {
    let bytes = file::read(&card.path).map_err(|error| format!("{}: {error}", card.path.display()))?;
    let mut diagnostics = Diagnostics::default();
    let text =
        file::decode(bytes, &mut diagnostics).ok_or_else(|| format!("{}: not a text file", card.path.display()))?;
    let split = front_matter::split(&text, &mut diagnostics);
    let mut resources = listed_resources(split.front, &mut diagnostics);
    resources.extend(bundled_files(&card.path));
    resources.sort();
    resources.dedup();
    Ok(Skill { card: card.clone(), body: split.body.trim().to_owned(), resources })
}

/// The resources that the front matter names.
fn listed_resources(front: Option<(&str, u32)>, diagnostics: &mut Diagnostics) -> Vec<String> {
    let node = front.and_then(|(yaml, line)| repair::read(yaml, line, diagnostics).ok());
    let resources = node.as_ref().and_then(|node| node.get("resources"));
    let items = resources.map(|node| crate::tools::items(node, "resources", diagnostics));
    items.unwrap_or_default().into_iter().map(|(item, _)| item).collect()
}

/// The other files in the folder of a skill, relative to it.
fn bundled_files(path: &Path) -> Vec<String> {
    const MAX_FILES: usize = 200;
    let Some(folder) = path.parent().filter(|_| is_skill(path)) else { return Vec::new() };
    let skipped = [".git", "node_modules", "__pycache__"];
    let filter = WalkFilter { depth: Depth::Deep, endings: &[""], fence: Some(folder), skipped: &skipped };
    let files = walk::list(folder, filter).files;
    let relative = files.iter().filter(|file| !is_skill(file)).filter_map(|file| file.strip_prefix(folder).ok());
    relative.take(MAX_FILES).map(|file| file.to_string_lossy().into_owned()).collect()
}

/// Reads a skill as an agent. Its body becomes the prompt, its files become resources.
pub fn skill_as_agent(path: &Path, scope: Scope, options: &ParseOptions) -> Parsed {
    let bytes = match file::read(path) {
        Ok(bytes) => bytes,
        Err(message) => {
            let path = Some(Arc::new(path.to_owned()));
            let diagnostics = vec![Diagnostic { path, ..Diagnostic::error(message) }];
            return Parsed { diagnostics, ..Parsed::default() };
        }
    };
    let mut parsed = parse(path, bytes, ParsedFile::SkillAsAgent, scope, options);
    for definition in &mut parsed.definitions {
        let mut files = bundled_files(path);
        files.retain(|file| !definition.attachments.resources.contains(file));
        definition.attachments.resources.extend(files);
    }
    parsed
}
