//! `homing check`: checks agent, skill and team files, with output for people, programs and pull requests.

use std::{io::Write, path::PathBuf};

use anyhow::bail;
use homing::{CodingSetup, environment};
use homing_core::{
    diagnostic::{Diagnostic, Severity},
    skill::SkillLibrary,
};
use homing_load::{CheckReport, Discovered, ParseOptions};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::{
    cli::{CheckArgs, Format},
    exit::Exit,
    terminal,
};

mod show;
mod teams;

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    if let Some(missing) = args.paths.iter().find(|path| path.symlink_metadata().is_err()) {
        bail!("there is no file or folder {}", missing.display());
    }
    let options = ParseOptions { strict: args.strict, ..ParseOptions::default() };
    let (report, teams) = if args.paths.is_empty() {
        (check_places(options)?, 0)
    } else {
        // Team files and agent files are both YAML with a name; only the latter are checked as agents.
        let others: Vec<PathBuf> = args.paths.iter().filter(|path| !teams::is_team_file(path)).cloned().collect();
        let mut report = check_paths(&others, &options);
        let known = discover(options)?.registry;
        let teams = teams::add(&mut report, &args.paths, &known);
        (report, teams)
    };
    let format = if args.json { Format::Json } else { args.format };
    let mut out = anstream::stdout().lock();
    match format {
        Format::Human => show::human(&report, teams, &mut out)?,
        Format::Json => writeln!(out, "{}", terminal::json(&as_json(&report, teams)))?,
        Format::Github => show::github(&report, &mut out)?,
    }
    out.flush()?;
    Ok(match report.of(Severity::Error).next() {
        None => Exit::Done,
        Some(_) => Exit::Failed,
    })
}

fn check_paths(paths: &[PathBuf], options: &ParseOptions) -> CheckReport {
    let bar = bar();
    homing_load::check(paths, options, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })
}

/// Returns a progress bar, because many files take a while.
fn bar() -> ProgressBar {
    if !terminal::is_watched() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} files").unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style).with_finish(indicatif::ProgressFinish::AndClear)
}

/// Checks everything that would be loaded in this folder.
fn check_places(options: ParseOptions) -> anyhow::Result<CheckReport> {
    let loaded = discover(options)?;
    let mut report = CheckReport::default();
    report.skills = loaded.skills.list().len();
    report.files = loaded.files + report.skills;
    report.agents = loaded.agent_files;
    report.ignored = loaded.ignored.len();
    report.ignored_files = loaded.ignored;
    report.diagnostics = loaded.diagnostics;
    Ok(report)
}

/// Finds the agents and skills of this folder as `homing run` does.
fn discover(options: ParseOptions) -> std::io::Result<Discovered> {
    let setup = CodingSetup::from_env(&environment::current_folder()?);
    Ok(CodingSetup { options, ..setup }.discover())
}

fn as_json(report: &CheckReport, teams: usize) -> Value {
    let all = |severity| report.of(severity).map(diagnostic_as_json).collect::<Vec<_>>();
    json!({
        "files": report.files,
        "agents": report.agents,
        "skills": report.skills,
        "teams": teams,
        "ignored": report.ignored,
        "not_searched": report.not_searched,
        "ignored_files": report.ignored_files.iter().map(ignored_file).collect::<Vec<_>>(),
        "errors": all(Severity::Error),
        "warnings": all(Severity::Warning),
        "infos": all(Severity::Info),
    })
}

fn ignored_file((path, reason): &(PathBuf, &str)) -> Value {
    json!({"path": path.display().to_string(), "reason": reason})
}

/// Returns a diagnostic in the published JSON format.
pub(crate) fn diagnostic_as_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "path": diagnostic.path.as_ref().map(|path| path.display().to_string()),
        "line": diagnostic.line,
        "column": diagnostic.column,
        "field": diagnostic.field,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    })
}
