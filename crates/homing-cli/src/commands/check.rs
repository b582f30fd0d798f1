//! `homing check`: checks agent, skill and team files, with output for people, programs and pull requests.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::bail;
use homing::{CodingSetup, environment};
use homing_core::diagnostic::{Diagnostic, Severity};
use homing_load::{CheckReport, ParseOptions};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::{
    cli::{CheckArgs, Format},
    exit::{Exit, Trouble},
    terminal,
};

mod corrections;
mod known;
mod sarif;
mod show;
mod teams;

use corrections::Corrections;
use known::Known;

/// The report on the files, and the number of team files.
struct Checked {
    report: CheckReport,
    teams: usize,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    if let Some(missing) = args.paths.iter().find(|path| path.symlink_metadata().is_err()) {
        bail!("there is no file or folder {}", missing.display());
    }
    let format = if args.json { Format::Json } else { args.format };
    if args.fix && matches!(format, Format::Github | Format::Sarif) {
        return Err(Trouble::usage("--fix prints changes for people or as JSON").into());
    }
    let mut checked = check(args)?;
    let mut corrections = args.fix.then(|| Corrections::of(&checked.report));
    let mut out = anstream::stdout().lock();
    if let Some(corrections) = corrections.as_mut().filter(|corrections| !corrections.is_empty()) {
        let is_human = format == Format::Human;
        if is_human {
            corrections.show(&mut out)?;
            out.flush()?;
        }
        let may_ask = is_human && io::stdin().is_terminal() && io::stderr().is_terminal();
        if args.yes || (may_ask && terminal::confirmed(&corrections.question())) {
            corrections.apply();
            checked = check(args)?;
        } else if is_human {
            terminal::say(&format!("nothing was changed: {} available; --yes applies them", corrections.count()));
            return Ok(Exit::Failed);
        }
    }
    let Checked { report, teams } = &checked;
    match format {
        Format::Human => show::human(report, *teams, args.verbose, &mut out)?,
        Format::Json => {
            let mut value = as_json(report, *teams);
            if let Some(corrections) = &corrections {
                value["corrections"] = corrections.as_json();
            }
            writeln!(out, "{}", terminal::json(&value))?;
        }
        Format::Github => show::github(report, &mut out)?,
        Format::Sarif => writeln!(out, "{}", terminal::json(&sarif::log(report)))?,
    }
    out.flush()?;
    let is_unfinished = corrections.is_some_and(|corrections| corrections.is_unfinished());
    Ok(if is_unfinished || report.of(Severity::Error).next().is_some() { Exit::Failed } else { Exit::Done })
}

fn check(args: &CheckArgs) -> anyhow::Result<Checked> {
    let options = ParseOptions { strict: args.strict, ..ParseOptions::default() };
    let setup = CodingSetup::from_env(&environment::current_folder()?);
    let setup = {
        let mut changed = setup;
        changed.options = options.clone();
        changed
    };
    let found = setup.discover();
    let mut known = Known::of(&setup)?;
    if args.paths.is_empty() {
        known.add(&found);
        let mut report = CheckReport::of_discovered(found, &setup.places, &options);
        known.check(&mut report);
        return Ok(Checked { report, teams: 0 });
    }
    // Team files and agent files are both YAML with a name; only the latter are checked as agents.
    let others: Vec<PathBuf> = args.paths.iter().filter(|path| !teams::is_team_file(path)).cloned().collect();
    let mut report = check_paths(&others, &options);
    let teams = teams::add(&mut report, &args.paths, &found.registry);
    known.add(&found);
    known.add_around(&args.paths, &report);
    known.check(&mut report);
    Ok(Checked { report, teams })
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
        "rule": diagnostic.rule(),
        "fix": diagnostic.fix,
    })
}
