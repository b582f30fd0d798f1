//! Finds agents and decides which one wins: folders give candidates, candidates form a registry.

mod hidden;
mod places;
mod plugin;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::{Diagnostic, Severity},
    limits::Limits,
    registry::Registry,
};

pub use hidden::is_about_hidden_agent;
pub(crate) use hidden::skill_announcement;
pub(crate) use places::repository;
use places::{AgentFolder, agent_folders};
pub use places::{Places, project_paths};
pub(crate) use plugin::{plugin_fields, plugin_name, plugin_paths};

use crate::{
    builtin, codex_roles,
    dialect::{self, Depth, Dialect},
    file, file_references,
    opencode_defaults::{AllDefaults, OpenCodeDefaults},
    parse::{self, DOCUMENTATION, FileKind, ParseOptions, Parsed, ParsedFile, is_skill, parse_json, parse_with},
    skills::{PLUGIN_FOLDER, SkillFolders, skill_as_agent},
    strip_authority::without_authority,
    sub_recipes,
    walk::{self, WalkFilter},
};

/// The result of a discovery.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Discovered {
    /// The agents by name, with the definitions that they shadow.
    pub registry: Registry,
    /// The skills.
    pub skills: SkillFolders,
    /// Problems with the files.
    pub diagnostics: Vec<Diagnostic>,
    /// Files in agent folders that contain no agent, with the reason.
    pub ignored: Vec<(PathBuf, &'static str)>,
    /// Fields that were removed because their file is not trusted.
    pub stripped: Vec<StrippedField>,
    /// The number of files that were read.
    pub files: usize,
    /// The number of files that contain an agent.
    pub agent_files: usize,
    /// The folders with files that were read.
    folders: Vec<AgentFolder>,
    /// The files of all candidates, because comparing each candidate with every other takes longer than reading the files. It is
    /// made when a file may be read for the second time.
    sources: Option<HashSet<PathBuf>>,
}

/// A field that was removed from a definition because its file is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StrippedField {
    /// The name of the agent.
    pub agent: String,
    /// The field as it is written in agent files: `hooks`, `mcpServers`.
    pub field: String,
}

/// Decides which definitions keep the fields that need trust, and which files of a project may replace others.
#[derive(Clone, Copy)]
pub struct TrustPolicy<'a> {
    /// Returns true if a file of this scope is trusted; definitions that were made in code have no path. It is called after all
    /// files were read.
    pub is_trusted: &'a dyn Fn(Scope, Option<&Path>) -> bool,
    /// The limits that untrusted definitions cannot exceed.
    pub ceiling: Limits,
}

impl std::fmt::Debug for TrustPolicy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrustPolicy").field("ceiling", &self.ceiling).finish_non_exhaustive()
    }
}

/// Reads all agents and skills in `places` and keeps every field. Loading executes nothing, opens no connections and expands
/// no variables.
pub fn discover(places: &Places, options: &ParseOptions) -> Discovered {
    discover_trusted(places, options, TrustPolicy { is_trusted: &|_, _| true, ceiling: Limits::default() })
}

/// Reads all agents and skills in `places`, and removes from untrusted ones what only a trusted file may ask for
/// (see [`without_authority`]; of skills, the calls that need no approval). The registry contains the definitions as they may
/// be used: an untrusted definition or skill of a project shadows nothing.
pub fn discover_trusted(places: &Places, options: &ParseOptions, trust: TrustPolicy<'_>) -> Discovered {
    let mut found = Discovered::default();
    let mut candidates = if places.skip_built_in { Vec::new() } else { built_in() };
    let defaults = AllDefaults::read(places);
    for folder in agent_folders(places) {
        let defaults = defaults.get(folder.dialect, folder.scope);
        found.read_folder(folder, options, defaults, &mut candidates);
    }
    for path in &places.files {
        found.read_named(path, options, &mut candidates);
    }
    if let Some(json) = &places.agents_json {
        let parsed = parse_json(json, Scope::CommandLine, options);
        found.diagnostics.extend(parsed.diagnostics);
        candidates.extend(parsed.definitions.into_iter().map(|agent| Candidate::of(agent, dialect::own())));
    }
    let repeated = repeated_names(&candidates);
    found.diagnostics.extend(duplicates(&candidates, &repeated));
    found.diagnostics.extend(places.plugins.iter().flat_map(|folder| plugin::unused_parts(folder)));
    let (skills, diagnostics) = SkillFolders::discover_trusted(places, trust.is_trusted);
    found.skills = skills;
    found.diagnostics.extend(diagnostics);
    found.diagnostics.extend(found.skills.strip_untrusted(trust.is_trusted));
    for candidate in &mut candidates {
        let source = &candidate.definition.source;
        candidate.is_trusted = (trust.is_trusted)(source.kind, source.path.as_deref());
        if !candidate.is_trusted {
            found.strip(Arc::make_mut(&mut candidate.definition), trust.ceiling);
        }
    }
    found.diagnostics.extend(hidden::announcements(&candidates, &repeated));
    found.registry = register(candidates);
    found
}

/// Reads the agents in one file.
pub fn load_file(path: &Path, scope: Scope, options: &ParseOptions) -> Parsed {
    load_found(path, ParsedFile::Named, scope, None, options)
}

/// The lines of the file at `path` that set the fields of `definition`, by their names in its JSON form.
pub fn field_lines(path: &Path, definition: &AgentDefinition) -> BTreeMap<&'static str, u32> {
    let Ok(bytes) = file::read(path) else { return BTreeMap::new() };
    let dialect = dialect::named(&definition.source.dialect);
    let found = dialect.map_or(ParsedFile::Named, ParsedFile::Among);
    let lines = parse::notes(path, &bytes, found, &ParseOptions::default()).lines.into_iter();
    let name = definition.name.rsplit(':').next().unwrap_or_default();
    lines.filter(|line| line.agent == name).map(|line| (line.field, line.line)).collect()
}

/// Reads the agents in one folder and, if asked for, in the folders below it.
pub fn load_folder(folder: &Path, recurse: Recurse, scope: Scope, options: &ParseOptions) -> Vec<Parsed> {
    let depth = match recurse {
        Recurse::No => Depth::Flat,
        Recurse::Yes => Depth::Deep,
    };
    let endings = [".md", ".json", ".yaml", ".yml", ".toml"];
    let listing = walk::list(folder, WalkFilter { depth, endings: &endings, fence: None, skipped: &[".git"] });
    let problems = Parsed { diagnostics: listing.diagnostics, ..Parsed::default() };
    let dialect = dialect::by_path(&folder.join("x.md")).unwrap_or(dialect::interchange());
    let parsed = listing.files.iter().map(|path| load_found(path, ParsedFile::Among(dialect), scope, None, options));
    parsed.chain((!problems.diagnostics.is_empty()).then_some(problems)).collect()
}

/// Selects whether the folders below a folder are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurse {
    /// Only the folder itself.
    No,
    /// The folder and all folders below it.
    Yes,
}

/// Reads the agents in one file. Files that it refers to must be inside `project`, or else in the file's repository.
pub(crate) fn load_found(
    path: &Path,
    found: ParsedFile,
    scope: Scope,
    project: Option<&Path>,
    options: &ParseOptions,
) -> Parsed {
    load_with(path, found, scope, project, options, None, &mut Vec::new())
}

/// The same with what the configuration of OpenCode or Kilo says of the agents, and with a buffer for the content of the file.
fn load_with(
    path: &Path,
    found: ParsedFile,
    scope: Scope,
    project: Option<&Path>,
    options: &ParseOptions,
    defaults: Option<&OpenCodeDefaults>,
    buffer: &mut Vec<u8>,
) -> Parsed {
    match file::read_into(path, buffer) {
        Ok(bytes) => load_bytes(path, bytes, found, scope, project, options, defaults),
        Err(message) => {
            let path = Some(Arc::new(path.to_owned()));
            let hint = "make it a readable text file of at most 1 MiB, or remove it";
            let diagnostic = Diagnostic::error(message).path(path).hint(hint);
            Parsed { diagnostics: vec![diagnostic], ..Parsed::default() }
        }
    }
}

/// Reads the agents in the content of a file, as [`load_found`] does.
pub(crate) fn load_bytes(
    path: &Path,
    bytes: &[u8],
    found: ParsedFile,
    scope: Scope,
    project: Option<&Path>,
    options: &ParseOptions,
    defaults: Option<&OpenCodeDefaults>,
) -> Parsed {
    if path.ends_with(codex_roles::FILE) {
        return codex_roles::load(path, &String::from_utf8_lossy(bytes), scope, project, options);
    }
    let mut parsed = parse_with(path, bytes, found, scope, options, defaults);
    let dialect = parsed.definitions.first().map(|definition| definition.source.dialect.as_str());
    let is_data = || path.extension().is_some_and(|extension| extension == "json" || extension == "jsonc");
    if dialect.is_some_and(|dialect| file_references::may_contain(dialect, bytes)) && is_data() {
        file_references::expand(&mut parsed, path, &String::from_utf8_lossy(bytes), project);
    }
    parsed
}

impl Discovered {
    fn read_folder(
        &mut self,
        mut folder: AgentFolder,
        options: &ParseOptions,
        defaults: Option<&OpenCodeDefaults>,
        candidates: &mut Vec<Candidate>,
    ) {
        if self.folders.iter().any(|other| folder.is_empty_like(other)) {
            return;
        }
        let listing = folder.list();
        folder.is_whole = listing.is_whole();
        self.diagnostics.extend(listing.diagnostics);
        if !listing.files.is_empty() && self.folders.iter().any(|other| folder.overlaps(other)) {
            self.note_sources(candidates);
        }
        let mut buffer = Vec::new();
        for (order, path) in listing.files.iter().enumerate() {
            let (found, fence) = (ParsedFile::Among(folder.dialect), folder.fence.as_deref());
            let mut parsed = load_with(path, found, folder.scope, fence, options, defaults, &mut buffer);
            if let (Some(_), Some(root)) = (&folder.plugin, &folder.fence) {
                let root = root.display().to_string();
                for definition in &mut parsed.definitions {
                    definition.prompt = definition.prompt.replace(PLUGIN_FOLDER, &root);
                }
            }
            for at in 0..parsed.definitions.len() {
                let sub = sub_recipes::load(&mut parsed.definitions[at], path, fence, options);
                parsed.definitions.extend(sub.definitions);
                parsed.diagnostics.extend(sub.diagnostics);
            }
            self.files += 1;
            self.agent_files += usize::from(!parsed.definitions.is_empty());
            self.replace_own(path, &mut parsed, candidates);
            self.diagnostics.extend(parsed.diagnostics);
            if let FileKind::Other(reason) = parsed.what {
                // A configuration of another program is often one without agents.
                if !folder.is_file() {
                    self.ignored.push((path.clone(), reason));
                    self.diagnostics.extend(not_an_agent(path, reason));
                }
            }
            candidates.extend(parsed.definitions.into_iter().map(|definition| Candidate {
                definition: Arc::new(definition),
                nearness: folder.nearness,
                strength: dialect::strength(folder.dialect),
                order,
                plugin: folder.plugin.clone(),
                is_trusted: true,
            }));
        }
        if !listing.files.is_empty() {
            self.folders.push(folder);
        }
    }

    /// Decides between the agent that a file defines for itself and the one that another file makes of it, a role or a
    /// sub-recipe: the latter says more. `parsed` was read from `path`.
    fn replace_own(&mut self, path: &Path, parsed: &mut Parsed, candidates: &mut Vec<Candidate>) {
        let is_own = |definition: &AgentDefinition| definition.source.path.as_deref() == Some(path);
        if self.sources.is_none() && parsed.definitions.iter().all(is_own) {
            return;
        }
        let is_roles = path.ends_with(codex_roles::FILE);
        let is_known = |definition: &AgentDefinition, other: &Candidate| {
            let is_same = is_roles || other.definition.name == definition.name;
            is_same && other.definition.source == definition.source
        };
        self.note_sources(candidates);
        let Some(sources) = &mut self.sources else { return };
        let before = parsed.definitions.len();
        let has_source =
            |definition: &AgentDefinition| definition.source.path.as_ref().is_some_and(|path| sources.contains(path));
        let is_taken = |definition: &AgentDefinition| {
            has_source(definition) && candidates.iter().any(|other| is_known(definition, other))
        };
        parsed.definitions.retain(|definition| !is_own(definition) || !is_taken(definition));
        if parsed.definitions.is_empty() && before > 0 {
            parsed.diagnostics.clear();
        }
        let is_replaced = |definition: &&AgentDefinition| !is_own(definition) && has_source(definition);
        for named in parsed.definitions.iter().filter(is_replaced) {
            let known = candidates.len();
            candidates.retain(|other| !is_known(named, other));
            if candidates.len() < known {
                let path = named.source.path.as_deref();
                self.diagnostics.retain(|found| found.path.as_deref().map(PathBuf::as_path) != path);
            }
        }
        sources.extend(parsed.definitions.iter().filter_map(|definition| definition.source.path.clone()));
    }

    /// Notes the files of all candidates, unless they are noted already.
    fn note_sources(&mut self, candidates: &[Candidate]) {
        let of_candidates =
            || candidates.iter().filter_map(|candidate| candidate.definition.source.path.clone()).collect();
        self.sources.get_or_insert_with(of_candidates);
    }

    /// Reads a file that the user named. It is the nearest of the project's files.
    fn read_named(&mut self, path: &Path, options: &ParseOptions, candidates: &mut Vec<Candidate>) {
        let parsed = if is_skill(path) {
            skill_as_agent(path, Scope::Project, options)
        } else {
            load_found(path, ParsedFile::Named, Scope::Project, None, options)
        };
        self.files += 1;
        self.diagnostics.extend(parsed.diagnostics);
        self.agent_files += usize::from(!parsed.definitions.is_empty());
        let nearest = |definition| Candidate { nearness: usize::MAX, ..Candidate::of(definition, dialect::own()) };
        candidates.extend(parsed.definitions.into_iter().map(nearest));
    }

    /// The files in agent folders that define no agent, each with the reason: errors, and files that are something else.
    pub fn unloaded(&self) -> Vec<(PathBuf, String)> {
        let is_error = |diagnostic: &&Diagnostic| {
            diagnostic.severity == Severity::Error || diagnostic.rule.as_deref() == Some(walk::NOT_READ)
        };
        let errors = self.diagnostics.iter().filter(is_error);
        let failed = errors.filter_map(|diagnostic| {
            let path = diagnostic.path.as_ref()?;
            let line = if diagnostic.line > 0 { format!("line {}: ", diagnostic.line) } else { String::new() };
            Some((PathBuf::clone(path), format!("{line}{}", diagnostic.message)))
        });
        let ignored = self.ignored.iter().filter(|(_, reason)| *reason != DOCUMENTATION);
        let ignored = ignored.map(|(path, reason)| (path.clone(), (*reason).to_owned()));
        let mut all: Vec<(PathBuf, String)> = failed.chain(ignored).collect();
        all.dedup_by(|next, first| next.0 == first.0);
        all
    }

    fn strip(&mut self, definition: &mut AgentDefinition, ceiling: Limits) {
        let diagnostics = without_authority(definition, ceiling);
        let fields = diagnostics.iter().filter_map(|diagnostic| diagnostic.field.clone());
        self.stripped.extend(fields.map(|field| StrippedField { agent: definition.name.clone(), field }));
        self.diagnostics.extend(diagnostics);
    }
}

/// A remark about a file in an agent folder that is not an agent; documentation needs none.
pub(crate) fn not_an_agent(path: &Path, reason: &str) -> Option<Diagnostic> {
    let diagnostic = Diagnostic::info(format!("not an agent: {reason}")).at(1, 1);
    (reason != DOCUMENTATION).then(|| diagnostic.path(Some(Arc::new(path.to_owned()))))
}

/// A definition before precedence is decided.
struct Candidate {
    /// Shared with the registry, because definitions are large and candidates are sorted.
    definition: Arc<AgentDefinition>,
    /// The distance of the project folder from the root; the larger one wins.
    nearness: usize,
    /// The dialect's position; the smaller one wins.
    strength: usize,
    /// The position in its folder; the smaller one wins.
    order: usize,
    plugin: Option<String>,
    is_trusted: bool,
}

impl Candidate {
    fn of(definition: AgentDefinition, dialect: &Dialect) -> Self {
        let definition = Arc::new(definition);
        Self { definition, nearness: 0, strength: dialect::strength(dialect), order: 0, plugin: None, is_trusted: true }
    }

    /// The sort key, the weakest first, because later registrations shadow earlier ones. What a project's untrusted file
    /// defines is weaker than anything else, so that it cannot take the name of an agent that the user knows.
    fn rank(&self, scope: Scope) -> impl Ord + use<> {
        let may_shadow = self.is_trusted || scope != Scope::Project;
        (may_shadow, scope, self.nearness, Reverse(self.strength), Reverse(self.order))
    }

    fn path(&self) -> PathBuf {
        self.definition.source.path.clone().unwrap_or_default()
    }
}

fn built_in() -> Vec<Candidate> {
    builtin::agents().iter().map(|agent| Candidate::of(agent.clone(), dialect::own())).collect()
}

fn register(mut candidates: Vec<Candidate>) -> Registry {
    let claude = dialect::interchange().name;
    let is_claude_user = |candidate: &&Candidate| {
        let source = &candidate.definition.source;
        source.kind == Scope::User && source.dialect == claude
    };
    let user_names: HashSet<String> =
        candidates.iter().filter(is_claude_user).map(|candidate| candidate.definition.name.clone()).collect();
    // In Claude Code the user's agents shadow a plugin's; in all other dialects it is the other way round.
    let scope = |candidate: &Candidate| match candidate.definition.source.kind {
        Scope::Plugin
            if candidate.definition.source.dialect == claude && user_names.contains(&candidate.definition.name) =>
        {
            Scope::BuiltIn
        }
        other => other,
    };
    candidates.sort_by_key(|candidate| candidate.rank(scope(candidate)));
    let has_plugins = candidates.iter().any(|candidate| candidate.plugin.is_some());
    let winners = if has_plugins { winners(&candidates) } else { HashMap::new() };
    let mut registry = Registry::default();
    for mut candidate in candidates {
        if let Some(plugin) = &candidate.plugin {
            let qualified = format!("{plugin}:{}", candidate.definition.name);
            if winners.get(&candidate.definition.name) == Some(&candidate.path()) {
                Arc::make_mut(&mut candidate.definition).aliases.push(qualified);
            } else {
                // A plugin's agent that is shadowed under its short name stays available under its qualified one.
                let mut shadowed = AgentDefinition::clone(&candidate.definition);
                shadowed.name = qualified;
                registry.register(shadowed);
            }
        }
        registry.register(candidate.definition);
    }
    registry
}

/// The path of the definition that wins, by name: the last one.
fn winners(candidates: &[Candidate]) -> HashMap<String, PathBuf> {
    candidates.iter().map(|candidate| (candidate.definition.name.clone(), candidate.path())).collect()
}

/// The names of more than one candidate. They are few, and all other candidates need not be compared.
fn repeated_names(candidates: &[Candidate]) -> HashSet<String> {
    let mut names: Vec<&str> = candidates.iter().map(|candidate| candidate.definition.name.as_str()).collect();
    // Files are listed in the order of their names, so there is little to sort.
    names.sort();
    names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned()).collect()
}

/// Warns about two files of one folder that define the same name.
fn duplicates(candidates: &[Candidate], repeated: &HashSet<String>) -> Vec<Diagnostic> {
    let mut first_paths = HashMap::new();
    let mut diagnostics = Vec::new();
    for candidate in candidates.iter().filter(|candidate| repeated.contains(&candidate.definition.name)) {
        let source = &candidate.definition.source;
        let Some(path) = &source.path else { continue };
        let key = (source.kind, candidate.nearness, candidate.strength, &candidate.plugin, &candidate.definition.name);
        let first: &PathBuf = first_paths.entry(key).or_insert(path);
        if !std::ptr::eq(first, path) {
            let message =
                format!("duplicate agent name `{}`: the one in {} is used", candidate.definition.name, first.display());
            let path = Some(Arc::new(path.clone()));
            diagnostics.push(Diagnostic::warning(message).on("name").path(path).hint("rename one of them"));
        }
    }
    diagnostics
}
