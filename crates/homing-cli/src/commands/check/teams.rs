//! Team files among what `homing check` was given: told from other YAML by the key that says which kind of team it is.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::registry::Registry;
use homing_load::CheckReport;

/// Folders that are looked into at most, one below the other.
const DEEPEST: usize = 6;
/// No team is larger.
const LARGEST: u64 = 1024 * 1024;
const KINDS: [&str; 5] = ["crew:", "chat:", "graph:", "map:", "orchestrator:"];

/// Adds what there is to say about team files below `paths`, and says how many there are.
pub(super) fn add(report: &mut CheckReport, paths: &[PathBuf], known: &Registry) -> usize {
    paths.iter().map(|path| add_below(report, path, known, DEEPEST)).sum()
}

fn add_below(report: &mut CheckReport, path: &Path, known: &Registry, deeper: usize) -> usize {
    let Ok(about) = path.symlink_metadata() else { return 0 };
    if about.is_dir() && deeper > 0 {
        let mut inside: Vec<PathBuf> = fs::read_dir(path).into_iter().flatten().flatten().map(|it| it.path()).collect();
        inside.retain(|it| {
            !it.file_name().is_some_and(|name| name == ".git" || name == "target" || name == "node_modules")
        });
        inside.sort();
        return inside.iter().map(|it| add_below(report, it, known, deeper - 1)).sum();
    }
    let Some(text) = team_text(path) else { return 0 };
    let loaded = homing_teams::load(&text, Some(path));
    let tools: Vec<String> = homing_core::tool_names::all().map(str::to_owned).collect();
    report.diagnostics.extend(loaded.check(known, &tools));
    report.diagnostics.extend(loaded.diagnostics);
    report.files += 1;
    1
}

/// Whether this very file is a team's.
pub(super) fn is_team_file(path: &Path) -> bool {
    team_text(path).is_some()
}

/// The text of a regular YAML file that describes a team.
fn team_text(path: &Path) -> Option<String> {
    let about = path.symlink_metadata().ok()?;
    let is_yaml = path.extension().is_some_and(|it| it == "yaml" || it == "yml");
    let readable = is_yaml && about.is_file() && about.len() <= LARGEST;
    readable.then(|| fs::read_to_string(path).ok())?.filter(|it| is_team(it))
}

fn is_team(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    has("name:") && KINDS.iter().any(|kind| has(kind))
}
