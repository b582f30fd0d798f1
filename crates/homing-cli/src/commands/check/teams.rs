//! Checks team files. They are recognised by the key that names the kind of team, and workflow scripts by their header.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::{registry::Registry, tool::ToolSpec, tool_names};
use homing_load::CheckReport;
use homing_tools::{
    shell::bash,
    toolset::{ToolsConfig, files_tools},
};
use serde_json::json;

/// Maximum depth of folders.
const MAX_DEPTH: usize = 6;
/// Maximum size of a team file in bytes.
const MAX_SIZE: u64 = 1024 * 1024;
const KINDS: [&str; 5] = ["crew:", "chat:", "graph:", "map:", "orchestrator:"];

/// Adds the diagnostics of team files below `paths` to the report and returns their number.
pub(super) fn add(report: &mut CheckReport, paths: &[PathBuf], known: &Registry) -> usize {
    paths.iter().map(|path| add_below(report, path, known, MAX_DEPTH)).sum()
}

fn add_below(report: &mut CheckReport, path: &Path, known: &Registry, deeper: usize) -> usize {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if metadata.is_dir() && deeper > 0 {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| {
            !path.file_name().is_some_and(|name| name == ".git" || name == "target" || name == "node_modules")
        });
        inside.sort();
        return inside.iter().map(|path| add_below(report, path, known, deeper - 1)).sum();
    }
    let Some(text) = team_text(path) else { return 0 };
    let loaded = homing_teams::load(&text, Some(path));
    report.diagnostics.extend(loaded.check(known, &tools()));
    report.diagnostics.extend(loaded.diagnostics);
    report.files += 1;
    1
}

/// Returns the specifications of the tools. The arguments of those that need a host are not known here.
fn tools() -> Vec<ToolSpec> {
    let mut specs: Vec<ToolSpec> = files_tools(ToolsConfig::default()).iter().map(|tool| tool.spec().clone()).collect();
    specs.push(bash::spec());
    let missing = tool_names::all().filter(|name| !specs.iter().any(|spec| spec.name == *name));
    let missing: Vec<ToolSpec> = missing.map(|name| ToolSpec::new(name, "", json!({}))).collect();
    specs.extend(missing);
    specs
}

/// Returns whether this is a team file.
pub(super) fn is_team_file(path: &Path) -> bool {
    team_text(path).is_some()
}

/// Returns the text of a regular file that defines a team.
fn team_text(path: &Path) -> Option<String> {
    let metadata = path.symlink_metadata().ok()?;
    let is = |name: &str| path.extension().is_some_and(|extension| extension == name);
    let (is_yaml, is_script) = (is("yaml") || is("yml"), is("js"));
    let is_readable = (is_yaml || is_script) && metadata.is_file() && metadata.len() <= MAX_SIZE;
    let text = is_readable.then(|| fs::read_to_string(path).ok())??;
    let is_workflow = || path.parent().is_some_and(|folder| folder.ends_with("workflows") || folder.ends_with("teams"));
    let is_team = if is_script { is_workflow() || text.contains("export const meta") } else { is_team(&text) };
    is_team.then_some(text)
}

fn is_team(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    has("name:") && (KINDS.iter().any(|kind| has(kind)) || defines_agents(text))
}

/// Returns whether a file without a kind is a team all the same: agent files have no list of agent definitions.
fn defines_agents(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("agents:"));
    let Some(first) = lines.next().and_then(|line| line.strip_prefix("agents:")) else { return false };
    let list = if first.trim().is_empty() { lines.next().unwrap_or_default() } else { first };
    let entry = list.trim().trim_start_matches(['[', '-']).trim_start();
    entry.starts_with('{') || entry.starts_with("name:")
}
