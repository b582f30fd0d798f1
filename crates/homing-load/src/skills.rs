//! Skills: cards are read once, bodies on demand.

mod card;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::Scope,
    diagnostic::Diagnostic,
    skill::{Skill, SkillCard, SkillLibrary},
};

use crate::{
    diagnostics::Diagnostics,
    dialect::Depth,
    discover::{Places, plugin_name, plugin_paths, skill_announcement},
    file, front_matter,
    parse::{ParseOptions, Parsed, ParsedFile, is_skill, parse},
    repair,
    strip_authority::needs_trust,
    walk::{self, WalkFilter},
};

pub(crate) use card::{field_effects, parse_card, read_card};

/// The folders of skills in a project and in a home folder, the weakest first.
pub(crate) const FOLDERS: &[&str] = &[
    ".qwen/skills",
    ".opencode/skills",
    ".opencode/skill",
    ".goose/skills",
    ".github/skills",
    ".gemini/skills",
    ".factory/skills",
    ".cursor/skills",
    ".copilot/skills",
    ".codex/skills",
    ".acai/skills",
    ".agents/skills",
    ".claude/skills",
    ".homing/skills",
];
/// The folders of skills in the user's configuration folder, the weakest first.
const CONFIG_FOLDERS: &[&str] = &["opencode/skills", "opencode/skill", "goose/skills", "homing/skills"];

/// The variable for the folder of a skill.
const SKILL_FOLDER: &str = "${CLAUDE_SKILL_DIR}";
/// The variable for the folder of a plugin.
pub(crate) const PLUGIN_FOLDER: &str = "${CLAUDE_PLUGIN_ROOT}";

/// The skills of a project and its user.
#[derive(Clone, Debug, Default)]
pub struct SkillFolders {
    cards: Vec<SkillCard>,
}

impl SkillFolders {
    /// Reads the cards of all skills in `places`, and trusts all files.
    pub fn discover(places: &Places) -> (Self, Vec<Diagnostic>) {
        Self::discover_trusted(places, &|_, _| true)
    }

    /// Reads the cards of all skills in `places`. An untrusted skill of a project replaces none of the user's.
    pub(crate) fn discover_trusted(
        places: &Places,
        is_trusted: &dyn Fn(Scope, Option<&Path>) -> bool,
    ) -> (Self, Vec<Diagnostic>) {
        let mut cards = SkillCards::default();
        for base in &places.plugins {
            let name = plugin_name(base);
            for path in [PathBuf::from("skills")].into_iter().chain(plugin_paths(base, "skills")) {
                cards.add(&base.join(path), Scope::Plugin, name.as_deref(), Some(base));
            }
        }
        let user = places.home.iter().flat_map(|home| FOLDERS.iter().map(|folder| home.join(folder)));
        let config = places.config.iter().flat_map(|config| CONFIG_FOLDERS.iter().map(|folder| config.join(folder)));
        for folder in user.chain(config) {
            cards.add(&folder, Scope::User, None, None);
        }
        let folders = places.project_folders();
        for base in &folders {
            for folder in FOLDERS {
                cards.add(&base.join(folder), Scope::Project, None, folders.first());
            }
        }
        cards.add_projects(is_trusted);
        for base in &places.managed {
            cards.add(&base.join("skills"), Scope::Managed, None, None);
        }
        (Self { cards: cards.by_name.into_values().collect() }, cards.diagnostics)
    }

    /// Reads the cards of the skills in one folder.
    pub fn in_folder(folder: &Path, scope: Scope) -> (Self, Vec<Diagnostic>) {
        let mut cards = SkillCards::default();
        cards.add(folder, scope, None, None);
        cards.add_projects(&|_, _| true);
        (Self { cards: cards.by_name.into_values().collect() }, cards.diagnostics)
    }

    /// Removes what only a trusted file may ask for from the skills that are not trusted, with a warning for each.
    pub(crate) fn strip_untrusted(&mut self, is_trusted: &dyn Fn(Scope, Option<&Path>) -> bool) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        for card in self.cards.iter_mut().filter(|card| !card.settings.approved.is_empty()) {
            if !is_trusted(card.scope, Some(&card.path)) {
                card.settings.approved.clear();
                diagnostics.push(needs_trust(Some(&card.path), "allowed-tools", "it approves no calls"));
            }
        }
        diagnostics
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
    /// Those of the project, until it is decided which of them replace others.
    of_project: BTreeMap<String, SkillCard>,
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
            let cards = if scope == Scope::Project { &mut self.of_project } else { &mut self.by_name };
            cards.insert(card.name.clone(), card);
        }
    }

    /// Adds the project's skills to the others. One with the name of another replaces it only if it is trusted, and is
    /// announced.
    fn add_projects(&mut self, is_trusted: &dyn Fn(Scope, Option<&Path>) -> bool) {
        for (name, card) in std::mem::take(&mut self.of_project) {
            let Some(other) = self.by_name.get(&name) else {
                self.by_name.insert(name, card);
                continue;
            };
            let is_trusted = is_trusted(card.scope, Some(&card.path));
            self.diagnostics.push(skill_announcement(&card, other, is_trusted));
            if is_trusted {
                self.by_name.insert(name, card);
            }
        }
    }
}

fn read_skill(card: &SkillCard) -> Result<Skill, String> {
    let bytes = file::read(&card.path).map_err(|error| format!("{}: {error}", card.path.display()))?;
    let mut diagnostics = Diagnostics::default();
    let text =
        file::decode(&bytes, &mut diagnostics).ok_or_else(|| format!("{}: not a text file", card.path.display()))?;
    let split = front_matter::split(&text, &mut diagnostics);
    let mut resources = listed_resources(split.front, &mut diagnostics);
    resources.extend(bundled_files(&card.path));
    resources.sort();
    resources.dedup();
    Ok(Skill { card: card.clone(), body: with_folders(split.body.trim(), &card.path), resources })
}

/// The body in the text of a skill.
pub(crate) fn body_of(text: &str) -> String {
    let text = file::decode(text.as_bytes(), &mut Diagnostics::default()).unwrap_or_default();
    front_matter::split(&text, &mut Diagnostics::default()).body.trim().to_owned()
}

/// Replaces the variables for the folder of a skill and of its plugin. No others are expanded.
fn with_folders(body: &str, path: &Path) -> String {
    let shown = |folder: &Path| folder.display().to_string();
    let body = match path.parent().filter(|_| body.contains(SKILL_FOLDER)) {
        Some(folder) => body.replace(SKILL_FOLDER, &shown(folder)),
        None => body.to_owned(),
    };
    match plugin_root(path).filter(|_| body.contains(PLUGIN_FOLDER)) {
        Some(root) => body.replace(PLUGIN_FOLDER, &shown(root)),
        None => body,
    }
}

/// The folder of the plugin that contains a skill: the one with a manifest, or else the one that contains `skills`.
fn plugin_root(path: &Path) -> Option<&Path> {
    let mut folders = path.ancestors().skip(1);
    let with_manifest = folders.clone().find(|folder| folder.join(".claude-plugin").is_dir());
    with_manifest.or_else(|| folders.find(|folder| folder.ends_with("skills"))?.parent())
}

/// The resources that the front matter names.
fn listed_resources(front: Option<(&str, u32)>, diagnostics: &mut Diagnostics) -> Vec<String> {
    let node = front.and_then(|(yaml, line)| repair::read(yaml, line, diagnostics).ok());
    let resources = node.as_ref().and_then(|node| node.get("resources"));
    let items = resources.map(|node| crate::tools::items(node, "resources", diagnostics));
    items.unwrap_or_default().into_iter().map(|(item, _)| item.into_owned()).collect()
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
            let diagnostics = vec![Diagnostic::error(message).path(path)];
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
