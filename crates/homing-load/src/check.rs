//! Diagnoses files wherever they lie. It lists, reads and counts; showing is the host's business.

use std::path::PathBuf;

use homing_core::{
    definition::Scope,
    diagnostic::{Diagnostic, Severity},
};

use crate::{
    dialect::Depth,
    discover::{load_found, repository},
    parse::{FileKind, ParseOptions, ParsedFile, is_skill},
    skills::read_card,
    walk::{self, WalkFilter},
};

const ENDINGS: &[&str] = &[".md", ".json", ".jsonc", ".yaml", ".yml", ".toml", ".roomodes"];
const SKIPPED: &[&str] = &[".git", "node_modules", "target", ".venv", "__pycache__"];

/// What was found wrong, and how much was looked at.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Files that were read.
    pub files: usize,
    /// Files that gave an agent.
    pub agents: usize,
    /// Skills.
    pub skills: usize,
    /// Files that are neither.
    pub ignored: usize,
    /// Everything there is to say, in the order of files.
    pub diagnostics: Vec<Diagnostic>,
}

impl CheckReport {
    /// The remarks of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(move |it| it.severity == severity)
    }
}

/// Checks files, and every agent and skill file below folders; `on_file` is told how many of how many are done.
pub fn check(paths: &[PathBuf], options: &ParseOptions, on_file: &mut dyn FnMut(usize, usize)) -> CheckReport {
    let mut report = CheckReport::default();
    let mut files: Vec<(PathBuf, ParsedFile)> = Vec::new();
    for path in paths {
        if path.is_dir() {
            // Remarks show lines of files, so a stranger's link must not choose the file.
            let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let fence = Some(repository(&whole).unwrap_or(&whole));
            let listing =
                walk::list(path, WalkFilter { depth: Depth::Deep, endings: ENDINGS, fence, skipped: SKIPPED });
            report.diagnostics.extend(listing.diagnostics);
            files.extend(listing.files.into_iter().map(|it| (it, ParsedFile::Anywhere)));
        } else {
            files.push((path.clone(), ParsedFile::Named));
        }
    }
    let total = files.len();
    for (index, (path, found)) in files.into_iter().enumerate() {
        report.add(path, found, options);
        on_file(index + 1, total);
    }
    report
}

impl CheckReport {
    fn add(&mut self, path: PathBuf, found: ParsedFile, options: &ParseOptions) {
        // A single file in a folder of skills is one, too.
        let single = path.parent().is_some_and(|it| it.ends_with("skills"));
        if is_skill(&path) || (single && path.extension().is_some_and(|it| it == "md")) {
            return self.add_skill(path, options);
        }
        let parsed = load_found(&path, found, Scope::Project, options);
        let markdown = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("md"));
        match parsed.what {
            FileKind::Agent | FileKind::Skill => {
                self.files += 1;
                self.agents += usize::from(!parsed.definitions.is_empty());
            }
            // Every project is full of data files; those without agents are none of our business.
            FileKind::Other(_) if !markdown => return,
            FileKind::Other(_) => {
                self.files += 1;
                self.ignored += 1;
            }
        }
        self.diagnostics.extend(parsed.diagnostics);
    }

    fn add_skill(&mut self, path: PathBuf, options: &ParseOptions) {
        let (card, mut diagnostics) = read_card(&path, Scope::Project);
        if options.strict {
            let warnings = diagnostics.iter_mut().filter(|it| it.severity == Severity::Warning);
            warnings.for_each(|it| it.severity = Severity::Error);
        }
        self.files += 1;
        // Without front matter it is documentation that lies there.
        self.ignored += usize::from(card.is_none() && diagnostics.is_empty());
        self.skills += usize::from(card.is_some() && (!options.strict || diagnostics.is_empty()));
        self.diagnostics.extend(diagnostics);
    }
}
