//! Whose files are read, where they lie, and how they differ. One file per ecosystem, each a row of data; whatever
//! they have in common stands in `fields` and `build`.

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
mod opencode;
mod pi;
mod qwen;
mod roo;

use std::{ffi::OsStr, path::Path};

use crate::{fields::Field, node::Node};

/// An ecosystem's way of writing agent files.
#[derive(Debug)]
pub struct Dialect {
    /// Its name in listings: `claude-code`.
    pub name: &'static str,
    /// Where its files lie in a project.
    pub(crate) project: &'static [DialectFolder],
    /// Where its files lie below the user's home folder.
    pub(crate) home: &'static [DialectFolder],
    /// Where its files lie below the user's configuration folder.
    pub(crate) config: &'static [DialectFolder],
    /// Single files, relative to a project, that hold agents.
    pub(crate) files: &'static [&'static str],
    /// Keys, folded, that mean something else here than in the common table.
    pub(crate) fields: &'static [(&'static str, Field)],
    /// Names, lower case, that stand for several tools.
    pub(crate) groups: &'static [(&'static str, &'static [&'static str])],
    /// What a missing `model` means.
    pub(crate) absent_model: AbsentModel,
    /// What the file's name has to do with the agent's.
    pub(crate) file_name: FileName,
    /// What `tools: {a: true}` says about the tools that it does not name.
    pub(crate) tool_map: ToolMap,
    /// Whether a document is of this dialect, by what it contains; asked where its place does not tell.
    pub(crate) recognises: fn(&Node) -> bool,
}

/// A folder with agent files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DialectFolder {
    pub(crate) path: &'static str,
    pub(crate) depth: Depth,
    pub(crate) endings: &'static [&'static str],
}

/// Whether the folders below count, too.
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
    /// It is used where the file names no agent.
    Fallback,
    /// It is how agents are usually named here.
    Usual,
    /// It must be the agent's name.
    MustMatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolMap {
    /// They are off.
    Exact,
    /// They are on.
    Switches,
}

/// What most dialects are like; rows override what differs.
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

/// A folder for files of any kind.
pub(crate) const fn anything(path: &'static str) -> DialectFolder {
    DialectFolder { path, depth: Depth::Deep, endings: &[".md", ".json", ".yaml", ".yml", ".toml"] }
}

/// Strongest first: `.homing`, `.claude`, `.agents`, then in the order of the alphabet.
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
    &opencode::DIALECT,
    &pi::DIALECT,
    &qwen::DIALECT,
    &roo::DIALECT,
];

/// The position of a dialect in the order of strength, 0 the strongest.
pub(crate) fn strength(dialect: &Dialect) -> usize {
    ALL.iter().position(|it| it.name == dialect.name).unwrap_or(ALL.len())
}

/// Our own dialect: command lines and built-in agents speak it.
pub fn own() -> &'static Dialect {
    &homing::DIALECT
}

/// Claude Code's, which is what a file is taken for when nothing else can be said.
pub fn interchange() -> &'static Dialect {
    &claude::DIALECT
}

/// The dialect called `name`.
pub fn named(name: &str) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|it| it.name == name)
}

/// The dialect that a file's place tells.
pub(crate) fn by_path(path: &Path) -> Option<&'static Dialect> {
    let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if [".agent.md", ".chatmode.md"].iter().any(|it| file.ends_with(it)) {
        return Some(&copilot::DIALECT);
    }
    if let Some(dialect) = ALL.iter().find(|it| it.files.iter().any(|name| path.ends_with(name))) {
        return Some(dialect);
    }
    let folders = |it: &Dialect| it.project.iter().chain(it.home).any(|folder| lies_in(path, folder.path));
    ALL.iter().copied().find(|it| folders(it))
}

/// The dialect that a document's content tells.
pub(crate) fn by_content(node: &Node) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|it| (it.recognises)(node))
}

/// Whether `folder`'s components stand together somewhere in `path`.
fn lies_in(path: &Path, folder: &str) -> bool {
    let parts: Vec<&OsStr> = path.iter().collect();
    let wanted: Vec<&OsStr> = Path::new(folder).iter().collect();
    parts.windows(wanted.len()).any(|it| it == wanted)
}

fn has(node: &Node, keys: &[&str]) -> bool {
    keys.iter().any(|key| node.get(key).is_some())
}
