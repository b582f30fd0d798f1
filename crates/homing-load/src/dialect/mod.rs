//! The dialects: the folders of each ecosystem and how its files differ. One file per dialect, each a row of data; common
//! behaviour is in `fields` and `build`.

mod acai;
mod agents;
mod claude;
mod codex;
mod copilot;
mod cursor;
mod factory;
mod gemini;
mod goose;
mod homing;
mod instructor;
mod json;
mod kiro;
mod opencode;
mod pi;
mod qwen;
mod roo;

use std::{ffi::OsStr, path::Path};

use crate::{fields::Field, node::Node};

/// The agent-file format of one ecosystem.
#[derive(Debug)]
pub struct Dialect {
    /// The name in listings: `claude-code`.
    pub name: &'static str,
    /// Folders in a project.
    pub(crate) project: &'static [DialectFolder],
    /// Folders in the user's home folder.
    pub(crate) home: &'static [DialectFolder],
    /// Folders in the user's configuration folder.
    pub(crate) config: &'static [DialectFolder],
    /// Single files with agents, relative to a project.
    pub(crate) files: &'static [&'static str],
    /// Folded keys that differ from the common table.
    pub(crate) fields: &'static [(&'static str, Field)],
    /// Lower-case names that stand for several tools.
    pub(crate) groups: &'static [(&'static str, &'static [&'static str])],
    /// The model of an agent without `model`.
    pub(crate) absent_model: AbsentModel,
    /// The relation between the file name and the agent's name.
    pub(crate) file_name: FileName,
    /// The effect of `tools: {a: true}` on tools that it does not name.
    pub(crate) tool_map: ToolMap,
    /// Recognises a document of this dialect by its content, for files outside of the known folders.
    pub(crate) recognises: fn(&Node<'_>) -> bool,
}

/// A folder with agent files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DialectFolder {
    pub(crate) path: &'static str,
    pub(crate) depth: Depth,
    pub(crate) endings: &'static [&'static str],
}

/// Selects whether the folders below are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Flat,
    Deep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbsentModel {
    Parents,
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    /// Used if the file contains no name.
    Fallback,
    /// Agents are usually named by their file.
    Usual,
    /// Must be equal to the agent's name.
    MustMatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolMap {
    /// Tools that are not named are off.
    Exact,
    /// Tools that are not named are on.
    Switches,
}

/// The defaults of all dialects.
const PLAIN: Dialect = Dialect {
    name: "",
    project: &[],
    home: &[],
    config: &[],
    files: &[],
    fields: &[],
    groups: &[],
    absent_model: AbsentModel::Parents,
    file_name: FileName::Fallback,
    tool_map: ToolMap::Exact,
    recognises: |_| false,
};

const MARKDOWN: &[&str] = &[".md"];

const fn deep(path: &'static str) -> DialectFolder {
    DialectFolder { path, depth: Depth::Deep, endings: MARKDOWN }
}

const fn flat(path: &'static str) -> DialectFolder {
    DialectFolder { path, depth: Depth::Flat, endings: MARKDOWN }
}

/// A single file.
pub(crate) const fn single_file(path: &'static str) -> DialectFolder {
    DialectFolder { path, depth: Depth::Flat, endings: &[] }
}

/// A folder for files of any kind.
pub(crate) const fn anything(path: &'static str) -> DialectFolder {
    DialectFolder { path, depth: Depth::Deep, endings: &[".md", ".json", ".yaml", ".yml", ".toml"] }
}

/// All dialects, the strongest first: `.homing`, `.claude`, `.agents`, then alphabetically.
pub(crate) static ALL: &[&Dialect] = &[
    &homing::DIALECT,
    &claude::DIALECT,
    &agents::DIALECT,
    &acai::DIALECT,
    &codex::DIALECT,
    &copilot::DIALECT,
    &cursor::DIALECT,
    &factory::DIALECT,
    &gemini::DIALECT,
    &goose::DIALECT,
    &goose::RECIPES,
    &instructor::DIALECT,
    &json::DIALECT,
    &opencode::KILO,
    &kiro::DIALECT,
    &opencode::DIALECT,
    &pi::DIALECT,
    &qwen::DIALECT,
    &roo::DIALECT,
];

/// The position of a dialect in the order of strength, 0 the strongest.
pub(crate) fn strength(dialect: &Dialect) -> usize {
    ALL.iter().position(|other| other.name == dialect.name).unwrap_or(ALL.len())
}

/// Homing's own dialect, which built-in agents use.
pub fn own() -> &'static Dialect {
    &homing::DIALECT
}

/// Claude Code's dialect, which is assumed if nothing indicates another one.
pub fn interchange() -> &'static Dialect {
    &claude::DIALECT
}

/// The dialect called `name`.
pub fn named(name: &str) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|dialect| dialect.name == name)
}

/// The dialect of a file according to its path.
pub(crate) fn by_path(path: &Path) -> Option<&'static Dialect> {
    let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if [".agent.md", ".chatmode.md"].iter().any(|ending| file.ends_with(ending)) {
        return Some(&copilot::DIALECT);
    }
    if let Some(dialect) = ALL.iter().find(|dialect| dialect.files.iter().any(|name| path.ends_with(name))) {
        return Some(dialect);
    }
    let mut dialects = ALL.iter().copied();
    dialects.find(|dialect| dialect.project.iter().chain(dialect.home).any(|folder| is_in(path, folder.path)))
}

/// Returns true if a file at `path` is loaded in a project that contains its folder.
pub(crate) fn is_searched(path: &Path) -> bool {
    let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let holds = |folder: &DialectFolder| {
        let is_near = folder.depth == Depth::Deep || path.parent().is_some_and(|parent| parent.ends_with(folder.path));
        is_near && is_in(path, folder.path) && folder.endings.iter().any(|ending| file.ends_with(ending))
    };
    let is_plugin = || path.ancestors().skip(1).any(|folder| folder.join(".claude-plugin").is_dir());
    ALL.iter().any(|dialect| {
        dialect.files.iter().any(|name| path.ends_with(name)) || dialect.project.iter().chain(dialect.home).any(holds)
    }) || is_plugin()
}

/// The dialect of a document according to its content.
pub(crate) fn by_content(node: &Node<'_>) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|dialect| (dialect.recognises)(node))
}

/// The dialect of instructor-php, if it is the dialect of a document according to its content.
pub(crate) fn instructor_by_content(node: &Node<'_>) -> Option<&'static Dialect> {
    // Another dialect may recognise it, too, and comes first.
    let recognises = (instructor::DIALECT.recognises)(node);
    recognises.then(|| by_content(node)).flatten().filter(|found| found.name == instructor::DIALECT.name)
}

/// Returns true if the components of `folder` are consecutive components of `path`.
fn is_in(path: &Path, folder: &str) -> bool {
    let parts: Vec<&OsStr> = path.iter().collect();
    let wanted: Vec<&OsStr> = Path::new(folder).iter().collect();
    parts.windows(wanted.len()).any(|window| window == wanted)
}

fn has(node: &Node<'_>, keys: &[&str]) -> bool {
    keys.iter().any(|key| node.get(key).is_some())
}
