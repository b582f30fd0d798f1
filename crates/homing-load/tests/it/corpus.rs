//! Agent files of public repositories. They are not part of this repository; without them the tests are skipped.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::diagnostic::Severity;
use homing_load::{CheckReport, ParseOptions, check};

fn corpus(part: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus").join(part);
    if !folder.is_dir() {
        eprintln!("skipped: there is no corpus at {}", folder.display());
        return None;
    }
    Some(folder)
}

fn checked(folder: PathBuf) -> CheckReport {
    check(&[folder], &ParseOptions::default(), &mut |_, _| ())
}

/// Markdown files that begin with a fence, apart from blank lines.
fn with_front_matter(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let count = |path: PathBuf| {
        if path.is_dir() {
            return with_front_matter(&path);
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        usize::from(is_markdown && text.trim_start().starts_with("---\n"))
    };
    entries.map(|entry| count(entry.path())).sum()
}

#[test]
fn every_corpus_file_is_an_agent_or_documentation() {
    let Some(folder) = corpus("agents") else { return };
    let toml = 172;
    let fenced = with_front_matter(&folder);
    let report = checked(folder);
    let errors: Vec<String> = report.of(Severity::Error).map(ToString::to_string).collect();
    assert_eq!(errors, [] as [&str; 0]);
    assert_eq!((report.files, report.agents, report.ignored), (952, 931, 21));
    // All files with front matter but one page of documentation, and all TOML files, are agents.
    assert_eq!(report.agents, fenced - 1 + toml);
    assert!(
        report
            .diagnostics
            .iter()
            .all(|diagnostic| diagnostic.line > 0 && diagnostic.column > 0 && diagnostic.path.is_some())
    );
}

#[test]
fn every_corpus_skill_loads() {
    let Some(folder) = corpus("skills") else { return };
    let report = checked(folder);
    assert_eq!((report.files, report.skills, report.of(Severity::Error).count()), (197, 197, 0));
}
