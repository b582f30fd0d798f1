//! Skills: cards are read once, bodies when somebody wants them. It knows nothing of who uses a skill.

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

/// Where skills lie in a project and below a home folder, the weakest first.
const FOLDERS: &[&str] = &[".acai/skills", ".agents/skills", ".claude/skills", ".homing/skills"];
/// A card needs no more than this of its file.
const HEAD: u64 = MAX_FRONT_MATTER as u64 + 8 * 1024;

/// The skills of a project and its user.
#[derive(Clone, Debug, Default)]
pub struct SkillFolders {
    cards: Vec<SkillCard>,
}

impl SkillFolders {
    /// Reads the cards of all skills in `places`.
    pub fn discover(places: &Places) -> (Self, Vec<Diagnostic>) {
        let mut library = Shelf::default();
        for base in &places.plugins {
            library.add(&base.join("skills"), Scope::Plugin, plugin_name(base).as_deref(), Some(base));
        }
        let user = places.home.iter().flat_map(|home| FOLDERS.iter().map(|it| home.join(it)));
        for folder in user.chain(places.config.iter().map(|it| it.join("homing/skills"))) {
            library.add(&folder, Scope::User, None, None);
        }
        let folders = places.project_folders();
        for base in &folders {
            for folder in FOLDERS {
                library.add(&base.join(folder), Scope::Project, None, folders.first());
            }
        }
        for base in &places.managed {
            library.add(&base.join("skills"), Scope::Managed, None, None);
        }
        (Self { cards: library.cards.into_values().collect() }, library.diagnostics)
    }

    /// The skills in one folder.
    pub fn in_folder(folder: &Path, scope: Scope) -> (Self, Vec<Diagnostic>) {
        let mut shelf = Shelf::default();
        shelf.add(folder, scope, None, None);
        (Self { cards: shelf.cards.into_values().collect() }, shelf.diagnostics)
    }
}

impl SkillLibrary for SkillFolders {
    fn list(&self) -> &[SkillCard] {
        &self.cards
    }

    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>> {
        let card = self.cards.iter().find(|it| it.name == name)?;
        Some(read_skill(card).map(Arc::new))
    }
}

/// Cards by name; a later one takes an earlier one's place.
#[derive(Default)]
struct Shelf {
    cards: BTreeMap<String, SkillCard>,
    diagnostics: Vec<Diagnostic>,
}

impl Shelf {
    fn add(&mut self, folder: &Path, scope: Scope, plugin: Option<&str>, fence: Option<&PathBuf>) {
        let fence = fence.map(PathBuf::as_path);
        let skipped = [".git", "node_modules"];
        let listing =
            walk::list(folder, WalkFilter { depth: Depth::Deep, endings: &[".md"], fence, skipped: &skipped });
        self.diagnostics.extend(listing.diagnostics);
        for path in listing.files.iter().filter(|it| is_skill(it) || it.parent() == Some(folder)) {
            let (card, diagnostics) = read_card(path, scope);
            self.diagnostics.extend(diagnostics);
            let Some(mut card) = card else { continue };
            if let Some(plugin) = plugin {
                card.name = format!("{plugin}:{}", card.name);
            }
            self.cards.insert(card.name.clone(), card);
        }
    }
}

/// Reads what stands at the head of a skill; no card where the file is no skill.
pub(crate) fn read_card(path: &Path, scope: Scope) -> (Option<SkillCard>, Vec<Diagnostic>) {
    let mut remarks = Diagnostics::default();
    let card = match file::read_up_to(path, HEAD) {
        Ok((_, size)) if size > file::MAX_FILE => {
            let message = format!("the file has {size} bytes; skill files may have {}", file::MAX_FILE);
            remarks.error(Position::default(), "", message, "move text into files beside it");
            None
        }
        Ok((bytes, _)) => card_of(path, scope, bytes, &mut remarks),
        Err(message) => {
            remarks.error(Position::default(), "", message, "");
            None
        }
    };
    (card, remarks.into_diagnostics(Some(path)))
}

fn card_of(path: &Path, scope: Scope, mut bytes: Vec<u8>, remarks: &mut Diagnostics) -> Option<SkillCard> {
    // The head may end inside a character.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    let text = file::decode(bytes, remarks)?;
    let split = front_matter::split(&text, remarks);
    let start = Position { line: 1, column: 1 };
    let Some((yaml, line)) = split.front else {
        if is_skill(path) {
            remarks.error(
                start,
                "",
                "the skill has no front matter",
                "begin it with `---`, `name: …`, `description: …`, `---`",
            );
        }
        return None;
    };
    if yaml.len() > MAX_FRONT_MATTER {
        remarks.error(start, "", format!("the front matter has more than {MAX_FRONT_MATTER} bytes"), "");
        return None;
    }
    let node = match repair::read(yaml, line, remarks) {
        Ok(node) => node,
        Err(error) => {
            remarks.error(
                error.spot,
                "",
                format!("the front matter cannot be read: {}", error.message),
                "correct the YAML",
            );
            return None;
        }
    };
    let name = card_name(path, &node, remarks)?;
    let description = card_description(&node, split.body, split.body_line, remarks)?;
    Some(SkillCard { name, description, path: path.to_owned(), scope })
}

fn card_name(path: &Path, node: &Node, remarks: &mut Diagnostics) -> Option<String> {
    let folder = match is_skill(path) {
        true => path.parent().and_then(Path::file_name),
        false => path.file_stem(),
    };
    let folder = folder.and_then(|it| it.to_str()).unwrap_or_default();
    let spot = node.get("name").map_or(node.spot, |it| it.spot);
    let written = node.get("name").and_then(Node::text).map(str::trim).filter(|it| !it.is_empty());
    let name = sanitize::inert_line(written.unwrap_or(folder));
    if written.is_none() {
        remarks.warn(spot, "name", format!("there is no `name`; the folder gives `{folder}`"), "write `name: …`");
    }
    let good = name.len() <= 64
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
    if name.is_empty() || name.len() > 256 {
        remarks.error(spot, "name", "the skill has no usable name", "use up to 64 lower-case letters, digits, hyphens");
        return None;
    }
    if !good {
        let message = format!("the name `{name}` is not one that other programs accept");
        remarks.warn(spot, "name", message, "use up to 64 lower-case letters, digits and single hyphens");
    }
    Some(name)
}

fn card_description(node: &Node, body: &str, body_line: u32, remarks: &mut Diagnostics) -> Option<String> {
    let written = node.get("description").and_then(Node::text).map(str::trim).filter(|it| !it.is_empty());
    if let Some(written) = written {
        return Some(written.to_owned());
    }
    let paragraph =
        body.split("\n\n").map(str::trim).find(|it| !it.is_empty() && !it.starts_with(['#', '`', '-', '<']));
    let spot = Position { line: body_line, column: 1 };
    match paragraph {
        Some(paragraph) => {
            let message = "there is no `description`; the first paragraph stands in";
            remarks.warn(node.spot, "description", message, "say when to use the skill");
            Some(paragraph.chars().take(1_024).collect())
        }
        None => {
            remarks.error(spot, "description", "the skill has no description", "say when to use the skill");
            None
        }
    }
}

fn read_skill(card: &SkillCard) -> Result<Skill, String> {
    let bytes = file::read(&card.path).map_err(|it| format!("{}: {it}", card.path.display()))?;
    let mut remarks = Diagnostics::default();
    let text = file::decode(bytes, &mut remarks).ok_or_else(|| format!("{}: not text", card.path.display()))?;
    let split = front_matter::split(&text, &mut remarks);
    let mut resources = listed(split.front, &mut remarks);
    resources.extend(beside(&card.path));
    resources.sort();
    resources.dedup();
    Ok(Skill { card: card.clone(), body: split.body.trim().to_owned(), resources })
}

/// What the front matter itself names.
fn listed(front: Option<(&str, u32)>, remarks: &mut Diagnostics) -> Vec<String> {
    let node = front.and_then(|(yaml, line)| repair::read(yaml, line, remarks).ok());
    let resources = node.as_ref().and_then(|it| it.get("resources"));
    let items = resources.map(|it| crate::tools::items(it, "resources", remarks));
    items.unwrap_or_default().into_iter().map(|(item, _)| item).collect()
}

/// The files of the skill's folder, relative to it.
fn beside(path: &Path) -> Vec<String> {
    const MOST: usize = 200;
    let Some(folder) = path.parent().filter(|_| is_skill(path)) else { return Vec::new() };
    let skipped = [".git", "node_modules", "__pycache__"];
    let wanted = WalkFilter { depth: Depth::Deep, endings: &[""], fence: Some(folder), skipped: &skipped };
    let files = walk::list(folder, wanted).files;
    let relative = files.iter().filter(|it| !is_skill(it)).filter_map(|it| it.strip_prefix(folder).ok());
    relative.take(MOST).map(|it| it.to_string_lossy().into_owned()).collect()
}

/// Reads a skill as an agent: its body is the prompt, its files are the agent's resources.
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
        let more = beside(path).into_iter().filter(|it| !definition.resources.contains(it)).collect::<Vec<_>>();
        definition.resources.extend(more);
    }
    parsed
}
