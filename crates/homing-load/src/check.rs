//! Checks agent and skill files in any folder. It lists, reads and counts; the host displays the result.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::{Diagnostic, Severity},
    skill::SkillLibrary,
};

use crate::{
    dialect::{self, Depth},
    discover::{Discovered, Places, load_found, not_an_agent, repository},
    fix::{CheckedFile, FixedFile, is_skill_file},
    parse::{FileKind, ParseOptions, ParsedFile},
    references::{KnownNames, Reference},
    skills::read_card,
    walk::{self, WalkFilter},
};

const ENDINGS: &[&str] = &[".md", ".json", ".jsonc", ".yaml", ".yml", ".toml", ".roomodes", ".kilocodemodes"];
const SKIPPED: &[&str] = &[".git", "node_modules", "target", ".venv", "__pycache__"];

/// The result of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// The number of files that were read.
    pub files: usize,
    /// The number of files that define an agent.
    pub agents: usize,
    /// The number of skills.
    pub skills: usize,
    /// The number of files that are neither.
    pub ignored: usize,
    /// Files in agent folders that are neither, with the reason.
    pub ignored_files: Vec<(PathBuf, &'static str)>,
    /// The number of agent files in folders that are not searched for agents.
    pub not_searched: usize,
    /// All diagnostics, in the order of files.
    pub diagnostics: Vec<Diagnostic>,
    /// Files with diagnostics that can be fixed.
    fixable: Vec<CheckedFile>,
    /// The agents in the files.
    pub found: Vec<AgentDefinition>,
    /// The names of the skills in the files.
    pub found_skills: Vec<String>,
    /// Names in the files that refer to something else.
    references: Vec<(Arc<PathBuf>, Reference)>,
}

impl CheckReport {
    /// The diagnostics of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(move |diagnostic| diagnostic.severity == severity)
    }

    /// The report on everything that was found in `places`.
    pub fn of_discovered(found: Discovered, places: &Places, options: &ParseOptions) -> Self {
        let skills = found.skills.list().len();
        let mut report = Self {
            files: found.files + skills,
            agents: found.agent_files,
            skills,
            ignored: found.ignored.len(),
            ignored_files: found.ignored,
            diagnostics: found.diagnostics,
            ..Self::default()
        };
        let project = places.project_folders().into_iter().next();
        let roots: Vec<&PathBuf> = project.iter().chain(&places.home).chain(&places.config).collect();
        let mut dialects = BTreeMap::new();
        for definition in found.registry.definitions() {
            let dialect = dialect::named(&definition.source.dialect);
            dialects.extend(definition.source.path.as_ref().zip(dialect));
        }
        for (path, dialect) in &dialects {
            let file = CheckedFile { found: ParsedFile::Among(dialect), ..CheckedFile::of(path, options) };
            report.references.extend(file.references());
        }
        let mut fixable = BTreeMap::new();
        // The diagnostics of one file are next to each other.
        for diagnostics in report.diagnostics.chunk_by_mut(|one, next| one.path == next.path) {
            let has_fix = diagnostics.iter().any(|diagnostic| diagnostic.fix.is_some());
            let Some(path) = diagnostics[0].path.clone().filter(|_| has_fix) else { continue };
            let path = PathBuf::clone(&path);
            // The files of plugins and of the administrator are not the user's to correct.
            if places.plugins.iter().chain(&places.managed).any(|folder| path.starts_with(folder)) {
                diagnostics.iter_mut().for_each(|diagnostic| diagnostic.fix = None);
                continue;
            }
            let found = dialects.get(&path).map_or(ParsedFile::Named, |dialect| ParsedFile::Among(dialect));
            let above = roots.iter().copied().filter(|root| path.starts_with(root));
            let root = above.max_by_key(|root| root.as_os_str().len()).map(PathBuf::as_path).or(path.parent());
            let root = root.unwrap_or(Path::new("")).to_owned();
            let file = CheckedFile { found, root, ..CheckedFile::of(&path, options) };
            if file.keep_valid_fixes(diagnostics) {
                fixable.insert(path, file);
            }
        }
        report.fixable = fixable.into_values().collect();
        report
    }

    /// Warns about names of models, skills, MCP servers and agents that do not exist.
    pub fn cross_check(&mut self, known: &KnownNames<'_>) {
        let unknown = self.references.iter().filter_map(|(path, reference)| known.unknown(reference, path));
        self.diagnostics.extend(unknown);
    }

    /// Corrects the files as far as a program can. Writes nothing.
    pub fn fixed_files(&self) -> Vec<FixedFile> {
        self.fixable.iter().filter_map(CheckedFile::fixed).collect()
    }
}

/// Checks files, and all agent and skill files below folders. Calls `on_file` with the number of checked files and the total.
pub fn check(paths: &[PathBuf], options: &ParseOptions, on_file: &mut dyn FnMut(usize, usize)) -> CheckReport {
    let mut report = CheckReport::default();
    let mut files: Vec<CheckedFile> = Vec::new();
    for path in paths {
        if path.is_dir() {
            // Diagnostics show lines of files, so a link in an untrusted project must not select other files.
            let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let fence = Some(repository(&whole).unwrap_or(&whole));
            let listing =
                walk::list(path, WalkFilter { depth: Depth::Deep, endings: ENDINGS, fence, skipped: SKIPPED });
            report.diagnostics.extend(listing.diagnostics);
            let below = |file: &PathBuf| CheckedFile {
                found: ParsedFile::Anywhere,
                root: path.clone(),
                ..CheckedFile::of(file, options)
            };
            files.extend(listing.files.iter().map(below));
        } else {
            files.push(CheckedFile::of(path, options));
        }
    }
    let mut not_searched = BTreeMap::new();
    let total = files.len();
    for (index, file) in files.into_iter().enumerate() {
        let (agents, path) = (report.agents, file.path.clone());
        report.add(file, options);
        if report.agents > agents && !dialect::is_searched(&std::path::absolute(&path).unwrap_or(path.clone())) {
            let folder = path.parent().map(Path::to_owned).unwrap_or_default();
            not_searched.entry(folder).or_insert_with(Vec::new).push(path);
        }
        on_file(index + 1, total);
    }
    for files in not_searched.into_values() {
        report.not_searched += files.len();
        report.diagnostics.extend(not_searched_remark(files));
    }
    report
}

/// A warning about a file in an agent folder that is an agent only if it is named.
fn not_loaded(path: &Path, reason: &str) -> Diagnostic {
    let message = format!("this agent is not loaded by its place: {reason}");
    let diagnostic = Diagnostic::warning(message).at(1, 1).hint("it runs by its path only");
    diagnostic.rule_id("not-loaded").path(Some(Arc::new(path.to_owned())))
}

/// A remark about the agents of one folder, at its first file: a page of remarks about a collection of agents helps less.
fn not_searched_remark(files: Vec<PathBuf>) -> Option<Diagnostic> {
    let more = match files.len() - 1 {
        0 => String::new(),
        more => format!(", like {more} more in its folder"),
    };
    let message = format!("this agent is not loaded by its place{more}: its folder is not searched for agents");
    let hint = "move it to `.claude/agents` or another folder for agents, or run it by its path";
    let first = files.into_iter().next()?;
    let diagnostic = Diagnostic::info(message).at(1, 1).hint(hint).rule_id("not-searched");
    Some(diagnostic.path(Some(Arc::new(first))))
}

impl CheckReport {
    fn add(&mut self, file: CheckedFile, options: &ParseOptions) {
        let first = self.diagnostics.len();
        if is_skill_file(&file.path) {
            self.add_skill(&file.path, options);
        } else {
            self.add_agents(&file, options);
        }
        let new = &mut self.diagnostics[first..];
        if new.iter().any(|diagnostic| diagnostic.fix.is_some()) && file.keep_valid_fixes(new) {
            self.fixable.push(file);
        }
    }

    fn add_agents(&mut self, file: &CheckedFile, options: &ParseOptions) {
        let path = &file.path;
        let parsed = load_found(path, file.found, Scope::Project, None, options);
        let markdown = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md"));
        match parsed.what {
            FileKind::Agent | FileKind::Skill => {
                self.files += 1;
                self.agents += usize::from(!parsed.definitions.is_empty());
                if !parsed.definitions.is_empty() {
                    self.references.extend(file.references());
                    if let Some(reason) = file.not_loaded_here(options) {
                        self.not_searched += 1;
                        self.diagnostics.push(not_loaded(path, &reason));
                    }
                }
                self.found.extend(parsed.definitions);
            }
            // Projects contain many data files, so those without agents are not counted.
            FileKind::Other(_) if !markdown => return,
            FileKind::Other(reason) => {
                self.files += 1;
                self.ignored += 1;
                if dialect::by_path(path).is_some() {
                    self.diagnostics.extend(not_an_agent(path, reason));
                    self.ignored_files.push((path.clone(), reason));
                }
            }
        }
        self.diagnostics.extend(parsed.diagnostics);
    }

    fn add_skill(&mut self, path: &Path, options: &ParseOptions) {
        let (card, mut diagnostics) = read_card(path, Scope::Project);
        if options.strict {
            for diagnostic in diagnostics.iter_mut().filter(|diagnostic| diagnostic.severity == Severity::Warning) {
                diagnostic.severity = Severity::Error;
            }
        }
        self.files += 1;
        // A file without front matter in a folder of skills is documentation.
        self.ignored += usize::from(card.is_none() && diagnostics.is_empty());
        self.skills += usize::from(card.is_some() && (!options.strict || diagnostics.is_empty()));
        self.found_skills.extend(card.map(|card| card.name));
        self.diagnostics.extend(diagnostics);
    }
}
