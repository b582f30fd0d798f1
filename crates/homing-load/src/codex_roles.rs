//! Codex's roles: `[agents.ROLE]` tables of its `config.toml`, each with a description and a file with the role's settings.

use std::{path::Path, sync::Arc};

use homing_core::{
    definition::{AgentDefinition, Scope, Source},
    diagnostic::{Diagnostic, Severity},
};

use crate::{
    dialect,
    discover::{load_found, repository},
    file, naming,
    node::{Node, NodeEntry},
    parse::{FileKind, ParseOptions, Parsed, ParsedFile},
    toml_nodes,
};

/// The file of a project with roles.
pub(crate) const FILE: &str = ".codex/config.toml";

/// Reads the roles in the configuration at `path`. Their files must be inside the project.
pub(crate) fn load(path: &Path, text: &str, scope: Scope, project: Option<&Path>, options: &ParseOptions) -> Parsed {
    let mut all = Parsed { what: FileKind::Other("a configuration without agents"), ..Parsed::default() };
    let Ok(config) = toml_nodes::parse(text) else { return all };
    let folder = path.parent().unwrap_or(Path::new(""));
    let root = project.unwrap_or_else(|| repository(folder).unwrap_or(folder));
    let entries = config.get("agents").and_then(Node::entries).unwrap_or_default();
    let (roles, settings): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.value.entries().is_some());
    all.diagnostics.extend(settings.iter().map(|entry| ignored(entry, path, "it is a setting of Codex itself")));
    for role in roles {
        let others = role.value.entries().unwrap_or_default().iter();
        let others = others.filter(|entry| !matches!(entry.key.as_ref(), "description" | "config_file"));
        all.diagnostics.extend(others.map(|entry| ignored(entry, path, "a role has a description and a file")));
        all.what = FileKind::Agent;
        match one(role, path, root, scope, options) {
            Ok(mut parsed) => {
                all.definitions.append(&mut parsed.definitions);
                all.diagnostics.append(&mut parsed.diagnostics);
            }
            Err(message) => {
                let path = Some(Arc::new(path.to_owned()));
                let error = Diagnostic::error(format!("the role `{}` {message}", role.key)).on("agents");
                let error = error.at(role.position.line, role.position.column);
                all.diagnostics.push(error.path(path));
            }
        }
    }
    all
}

/// The remark about a key without effect.
fn ignored(entry: &NodeEntry<'_>, path: &Path, reason: &str) -> Diagnostic {
    let remark = Diagnostic::info(format!("`{}` is ignored: {reason}", entry.key)).on(entry.key.as_ref());
    remark.at(entry.position.line, entry.position.column).path(Some(Arc::new(path.to_owned())))
}

fn one(role: &NodeEntry<'_>, path: &Path, root: &Path, scope: Scope, options: &ParseOptions) -> Result<Parsed, String> {
    let text = |key: &str| role.value.get(key).and_then(Node::text).map(str::trim).filter(|text| !text.is_empty());
    let name = naming::slug(&role.key).ok_or("has no usable name")?;
    let description = text("description");
    let Some(config) = text("config_file") else {
        let description = description.ok_or("has neither a `config_file` nor a `description`")?;
        let mut definition = AgentDefinition::new(name, description, description);
        definition.source = Source { kind: scope, path: Some(path.to_owned()), dialect: "codex".to_owned() };
        return Ok(Parsed { definitions: vec![definition], ..Parsed::default() });
    };
    let config = path.parent().unwrap_or(Path::new("")).join(config);
    file::read_inside(&config, root)
        .map_err(|reason| format!("names the file {}, which {reason}", config.display()))?;
    let codex = dialect::named("codex").unwrap_or(dialect::own());
    let mut parsed = load_found(&config, ParsedFile::Among(codex), scope, Some(root), options);
    // The file need not repeat what the role says.
    let is_said =
        |field: Option<&str>| field == Some("name") || (field == Some("description") && description.is_some());
    parsed
        .diagnostics
        .retain(|diagnostic| diagnostic.severity == Severity::Error || !is_said(diagnostic.field.as_deref()));
    for definition in &mut parsed.definitions {
        definition.name.clone_from(&name);
        if let Some(description) = description {
            definition.description = description.to_owned();
        }
    }
    Ok(parsed)
}
