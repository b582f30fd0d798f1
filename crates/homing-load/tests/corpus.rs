//! Real files of public repositories. They are not part of this repository; without them the test says so and passes.
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
    let count = |path: PathBuf| match path.is_dir() {
        true => with_front_matter(&path),
        false => {
            let text = fs::read_to_string(&path).unwrap_or_default();
            usize::from(path.extension().is_some_and(|it| it == "md") && text.trim_start().starts_with("---\n"))
        }
    };
    entries.map(|it| count(it.path())).sum()
}

#[test]
fn every_agent_of_the_corpus_loads_or_is_no_agent() {
    let Some(folder) = corpus("agents") else { return };
    let toml = 172;
    let fenced = with_front_matter(&folder);
    let report = checked(folder);
    let errors: Vec<String> = report.of(Severity::Error).map(ToString::to_string).collect();
    assert_eq!(errors, [] as [&str; 0]);
    assert_eq!((report.files, report.agents, report.ignored), (952, 932, 20));
    // Everything with front matter is an agent, and so is every TOML file.
    assert_eq!(report.agents, fenced + toml);
    assert!(report.diagnostics.iter().all(|it| it.line > 0 && it.column > 0 && it.path.is_some()));
}

#[test]
fn every_skill_of_the_corpus_loads() {
    let Some(folder) = corpus("skills") else { return };
    let report = checked(folder);
    assert_eq!((report.files, report.skills, report.of(Severity::Error).count()), (197, 197, 0));
}
