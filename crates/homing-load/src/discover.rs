//! Where agents lie and who wins: folders to candidates, candidates to a registry. It is told where to look.

mod places;

use std::{cmp::Reverse, collections::HashSet, path::Path, path::PathBuf, sync::Arc};

use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::Diagnostic,
    registry::Registry,
};

pub use places::Places;
pub(crate) use places::repository;
use places::{AgentFolder, agent_spots};

use crate::{
    builtin,
    dialect::{self, Depth, Dialect},
    file, naming,
    parse::{FileKind, ParseOptions, Parsed, ParsedFile, parse, parse_json},
    skills::SkillFolders,
    walk::{self, WalkFilter},
};

/// Everything that was found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Discovered {
    /// The agents, by name, with those that they hide.
    pub registry: Registry,
    /// The skills.
    pub skills: SkillFolders,
    /// What there is to say about the files.
    pub diagnostics: Vec<Diagnostic>,
    /// Files in agent folders that hold no agent, and why.
    pub ignored: Vec<(PathBuf, &'static str)>,
    /// How many files were read.
    pub files: usize,
    /// How many of them gave an agent.
    pub agent_files: usize,
}

/// Looks everywhere that `places` names. Loading runs nothing, connects to nothing and expands no variables.
pub fn discover(places: &Places, options: &ParseOptions) -> Discovered {
    let mut loaded = Discovered::default();
    let mut candidates = built_in();
    for spot in agent_spots(places) {
        loaded.read_spot(&spot, options, &mut candidates);
    }
    if let Some(json) = &places.agents_json {
        let parsed = parse_json(json, Scope::CommandLine, options);
        loaded.diagnostics.extend(parsed.diagnostics);
        candidates.extend(parsed.definitions.into_iter().map(|it| Candidate::of(it, dialect::own())));
    }
    loaded.diagnostics.extend(same_folder(&candidates));
    loaded.registry = register(candidates);
    let (skills, diagnostics) = SkillFolders::discover(places);
    loaded.skills = skills;
    loaded.diagnostics.extend(diagnostics);
    loaded
}

/// Reads the agents in one file.
pub fn load_file(path: &Path, scope: Scope, options: &ParseOptions) -> Parsed {
    load_found(path, ParsedFile::Named, scope, options)
}

/// Reads the agents in one folder, or in the folders below it, too.
pub fn load_folder(folder: &Path, below: Recurse, scope: Scope, options: &ParseOptions) -> Vec<Parsed> {
    let depth = match below {
        Recurse::Not => Depth::Flat,
        Recurse::Too => Depth::Deep,
    };
    let endings = [".md", ".json", ".yaml", ".yml", ".toml"];
    let listing = walk::list(folder, WalkFilter { depth, endings: &endings, fence: None, skipped: &[".git"] });
    let problems = Parsed { diagnostics: listing.diagnostics, ..Parsed::default() };
    let among = dialect::by_path(&folder.join("x.md")).unwrap_or(dialect::interchange());
    let each = listing.files.iter().map(|it| load_found(it, ParsedFile::Among(among), scope, options));
    each.chain((!problems.diagnostics.is_empty()).then_some(problems)).collect()
}

/// Whether folders below a folder count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurse {
    /// They do not.
    Not,
    /// They do.
    Too,
}

pub(crate) fn load_found(path: &Path, found: ParsedFile, scope: Scope, options: &ParseOptions) -> Parsed {
    match file::read(path) {
        Ok(bytes) => parse(path, bytes, found, scope, options),
        Err(message) => {
            let path = Some(Arc::new(path.to_owned()));
            let hint = Some("make it a readable text file of at most 1 MiB, or take it away".to_owned());
            let diagnostic = Diagnostic { path, hint, ..Diagnostic::error(message) };
            Parsed { diagnostics: vec![diagnostic], ..Parsed::default() }
        }
    }
}

impl Discovered {
    fn read_spot(&mut self, spot: &AgentFolder, options: &ParseOptions, candidates: &mut Vec<Candidate>) {
        let listing = spot.list();
        self.diagnostics.extend(listing.diagnostics);
        for (order, path) in listing.files.iter().enumerate() {
            let parsed = load_found(path, ParsedFile::Among(spot.dialect), spot.scope, options);
            self.files += 1;
            self.diagnostics.extend(parsed.diagnostics);
            if let FileKind::Other(reason) = parsed.what {
                self.ignored.push((path.clone(), reason));
            }
            self.agent_files += usize::from(!parsed.definitions.is_empty());
            candidates.extend(parsed.definitions.into_iter().map(|definition| Candidate {
                definition,
                nearness: spot.nearness,
                strength: dialect::strength(spot.dialect),
                order,
                plugin: spot.plugin.clone(),
            }));
        }
    }
}

/// A definition that wants a place in the registry.
struct Candidate {
    definition: AgentDefinition,
    /// How near a project folder lies; larger is nearer.
    nearness: usize,
    /// The dialect's position; smaller is stronger.
    strength: usize,
    /// The position in its folder; the first counts.
    order: usize,
    plugin: Option<String>,
}

impl Candidate {
    fn of(definition: AgentDefinition, dialect: &Dialect) -> Self {
        Self { definition, nearness: 0, strength: dialect::strength(dialect), order: 0, plugin: None }
    }

    /// Weakest first, as the registry wants it.
    fn rank(&self, scope: Scope) -> impl Ord + use<> {
        (scope, self.nearness, Reverse(self.strength), Reverse(self.order))
    }
}

fn built_in() -> Vec<Candidate> {
    builtin::agents().iter().map(|it| Candidate::of(it.clone(), dialect::own())).collect()
}

fn register(mut candidates: Vec<Candidate>) -> Registry {
    let claude = dialect::interchange().name;
    let of_user = |it: &&Candidate| it.definition.source.kind == Scope::User && it.definition.source.dialect == claude;
    let users: HashSet<String> = candidates.iter().filter(of_user).map(|it| it.definition.name.clone()).collect();
    // Claude Code puts the user's agents above a plugin's; everybody else the other way round.
    let scope = |it: &Candidate| match it.definition.source.kind {
        Scope::Plugin if it.definition.source.dialect == claude && users.contains(&it.definition.name) => {
            Scope::BuiltIn
        }
        other => other,
    };
    candidates.sort_by_key(|it| it.rank(scope(it)));
    let winners: HashSet<(String, PathBuf)> = winners(&candidates);
    let mut registry = Registry::default();
    for mut candidate in candidates {
        if let Some(plugin) = &candidate.plugin {
            let qualified = format!("{plugin}:{}", candidate.definition.name);
            let key = (candidate.definition.name.clone(), candidate.definition.source.path.clone().unwrap_or_default());
            match winners.contains(&key) {
                true => candidate.definition.aliases.push(qualified),
                // Hidden under its short name, a plugin's agent can still be had by its long one.
                false => registry.register(AgentDefinition { name: qualified, ..candidate.definition.clone() }),
            }
        }
        registry.register(candidate.definition);
    }
    registry
}

/// Who will count, by name and path: the last of each name.
fn winners(candidates: &[Candidate]) -> HashSet<(String, PathBuf)> {
    let mut last = std::collections::HashMap::new();
    for candidate in candidates {
        let definition = &candidate.definition;
        last.insert(definition.name.clone(), definition.source.path.clone().unwrap_or_default());
    }
    last.into_iter().collect()
}

/// Two files of one folder with one name: somebody is probably mistaken.
fn same_folder(candidates: &[Candidate]) -> Vec<Diagnostic> {
    let mut seen = std::collections::HashMap::new();
    let mut diagnostics = Vec::new();
    for candidate in candidates {
        let source = &candidate.definition.source;
        let Some(path) = &source.path else { continue };
        let key = (source.kind, candidate.nearness, candidate.strength, &candidate.plugin, &candidate.definition.name);
        if let Some(first) = seen.insert(key, path) {
            seen.insert(key, first);
            let message =
                format!("the name `{}` is taken by {}; that one counts", candidate.definition.name, first.display());
            let path = Some(Arc::new(path.clone()));
            let hint = Some("give one of them another name".to_owned());
            diagnostics.push(Diagnostic { path, hint, ..Diagnostic::warning(message).on("name") });
        }
    }
    diagnostics
}

/// The name that a plugin's folder gives it.
pub(crate) fn plugin_name(folder: &Path) -> Option<String> {
    let manifest = file::read(&folder.join(".claude-plugin/plugin.json")).ok();
    let value = manifest.and_then(|it| serde_json::from_slice::<serde_json::Value>(&it).ok());
    let name = value.as_ref().and_then(|it| it.get("name")?.as_str());
    let folder = folder.file_name().and_then(|it| it.to_str());
    name.or(folder).and_then(naming::slug)
}
