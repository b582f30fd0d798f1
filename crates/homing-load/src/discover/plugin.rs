//! Plugins: their names, the paths that their manifests name, and the parts of them that are not used.

use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use homing_core::diagnostic::Diagnostic;
use serde_json::Value;

use crate::{file, naming};

/// The manifest of a plugin.
const MANIFEST: &str = ".claude-plugin/plugin.json";

/// Keys of manifests that are obeyed, with their effects.
const OBEYED: &[(&str, &str)] = &[
    ("name", "prefix of its agents and skills"),
    ("agents", "further files and folders of agents"),
    ("skills", "further folders of skills"),
];

/// Parts of plugins that are not used: the key in the manifest, the usual file or folder, and the reason.
const IGNORED: &[(&str, &str, &str)] = &[
    ("commands", "commands", "write them as skills"),
    ("hooks", "hooks/hooks.json", "hooks of plugins do not run"),
    ("mcpServers", ".mcp.json", "servers of plugins are not started"),
    ("lspServers", ".lsp.json", "language servers are not used"),
    ("outputStyles", "output-styles", "answers have no styles"),
    ("workflows", "workflows", "write them as teams"),
    ("monitors", "", "runs have no monitors"),
    ("channels", "", "messages reach runs through the host"),
    ("themes", "themes", "there are no themes"),
    ("userConfig", "", "plugins are not configured"),
    ("dependencies", "", "the user installs plugins"),
    ("engines", "", "no version is checked"),
    ("defaultEnabled", "", "the user's settings decide"),
    ("evals", "evals", "they are for the author"),
];

/// The keys of plugins' manifests with their effects, for the table in the documentation.
pub(crate) fn plugin_fields() -> impl Iterator<Item = (&'static str, String)> {
    let obeyed = OBEYED.iter().map(|(key, effect)| (*key, (*effect).to_owned()));
    obeyed.chain(IGNORED.iter().map(|(key, _, reason)| (*key, format!("ignored: {reason}"))))
}

/// The name of the plugin in a folder: from its manifest, or else the folder's name.
pub(crate) fn plugin_name(folder: &Path) -> Option<String> {
    let manifest = manifest(folder);
    let name = manifest.get("name").and_then(Value::as_str);
    let folder = folder.file_name().and_then(|name| name.to_str());
    name.or(folder).and_then(naming::slug)
}

/// The paths inside a plugin that its manifest names under `key`, in addition to the usual folder.
pub(crate) fn plugin_paths(folder: &Path, key: &str) -> Vec<PathBuf> {
    let manifest = manifest(folder);
    let written: Vec<&str> = match manifest.get(key) {
        Some(Value::String(path)) => vec![path],
        Some(Value::Array(paths)) => paths.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    let is_inside = |part: Component<'_>| matches!(part, Component::CurDir | Component::Normal(_));
    let inside = written.into_iter().map(Path::new).filter(|path| path.components().all(is_inside));
    let mut paths: Vec<PathBuf> = inside.map(|path| path.components().collect()).collect();
    paths.retain(|path| path != Path::new(key));
    paths
}

/// Remarks about the parts of a plugin that are not used.
pub(super) fn unused_parts(folder: &Path) -> Vec<Diagnostic> {
    let manifest = manifest(folder);
    let unused = IGNORED
        .iter()
        .filter(|(key, usual, _)| manifest.get(*key).is_some() || (!usual.is_empty() && folder.join(usual).exists()));
    let path = Arc::new(folder.join(MANIFEST));
    let remark = |(key, _, reason): &(&str, &str, &str)| {
        Diagnostic::info(format!("`{key}` of the plugin is ignored: {reason}")).on(*key).path(Some(path.clone()))
    };
    unused.map(remark).collect()
}

fn manifest(folder: &Path) -> Value {
    let manifest = file::read(&folder.join(MANIFEST)).ok();
    manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
