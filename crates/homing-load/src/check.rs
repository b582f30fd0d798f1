//! Checks agent and skill files in any folder. It lists, reads and counts; the host displays the result.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::Scope,
    diagnostic::{Diagnostic, Severity},
};

use crate::{
    dialect::{self, Depth},
    discover::{load_found, not_an_agent, repository},
    parse::{FileKind, ParseOptions, ParsedFile, is_skill},
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
}

impl CheckReport {
    /// The diagnostics of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(move |diagnostic| diagnostic.severity == severity)
    }
}

/// Checks files, and all agent and skill files below folders. Calls `on_file` with the number of checked files and the total.
pub fn check(paths: &[PathBuf], options: &ParseOptions, on_file: &mut dyn FnMut(usize, usize)) -> CheckReport {
    let mut report = CheckReport::default();
    let mut files: Vec<(PathBuf, ParsedFile)> = Vec::new();
    for path in paths {
        if path.is_dir() {
            // Diagnostics show lines of files, so a link in an untrusted project must not select other files.
            let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let fence = Some(repository(&whole).unwrap_or(&whole));
            let listing =
                walk::list(path, WalkFilter { depth: Depth::Deep, endings: ENDINGS, fence, skipped: SKIPPED });
            report.diagnostics.extend(listing.diagnostics);
            files.extend(listing.files.into_iter().map(|file| (file, ParsedFile::Anywhere)));
        } else {
            files.push((path.clone(), ParsedFile::Named));
        }
    }
    let mut not_searched = BTreeMap::new();
    let total = files.len();
    for (index, (path, found)) in files.into_iter().enumerate() {
        let agents = report.agents;
        report.add(path.clone(), found, options);
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

/// A remark about the agents of one folder, at its first file: a page of remarks about a collection of agents helps less.
fn not_searched_remark(files: Vec<PathBuf>) -> Option<Diagnostic> {
    let more = match files.len() - 1 {
        0 => String::new(),
        more => format!(", like {more} more in its folder"),
    };
    let message = format!("this agent is not loaded by its place{more}: its folder is not searched for agents");
    let hint = "move it to `.claude/agents` or another folder for agents, or run it by its path";
    let first = files.into_iter().next()?;
    Some(Diagnostic { path: Some(Arc::new(first)), ..Diagnostic::info(message).at(1, 1).hint(hint) })
}

impl CheckReport {
    fn add(&mut self, path: PathBuf, found: ParsedFile, options: &ParseOptions) {
        // A single file in a folder of skills is also a skill.
        let single = path.parent().is_some_and(|parent| parent.ends_with("skills"));
        if is_skill(&path) || (single && path.extension().is_some_and(|extension| extension == "md")) {
            return self.add_skill(path, options);
        }
        let parsed = load_found(&path, found, Scope::Project, None, options);
        let markdown = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md"));
        match parsed.what {
            FileKind::Agent | FileKind::Skill => {
                self.files += 1;
                self.agents += usize::from(!parsed.definitions.is_empty());
            }
            // Projects contain many data files, so those without agents are not counted.
            FileKind::Other(_) if !markdown => return,
            FileKind::Other(reason) => {
                self.files += 1;
                self.ignored += 1;
                if dialect::by_path(&path).is_some() {
                    self.diagnostics.extend(not_an_agent(&path, reason));
                    self.ignored_files.push((path, reason));
                }
            }
        }
        self.diagnostics.extend(parsed.diagnostics);
    }

    fn add_skill(&mut self, path: PathBuf, options: &ParseOptions) {
        let (card, mut diagnostics) = read_card(&path, Scope::Project);
        if options.strict {
            for diagnostic in diagnostics.iter_mut().filter(|diagnostic| diagnostic.severity == Severity::Warning) {
                diagnostic.severity = Severity::Error;
            }
        }
        self.files += 1;
        // A file without front matter in a folder of skills is documentation.
        self.ignored += usize::from(card.is_none() && diagnostics.is_empty());
        self.skills += usize::from(card.is_some() && (!options.strict || diagnostics.is_empty()));
        self.diagnostics.extend(diagnostics);
    }
}
