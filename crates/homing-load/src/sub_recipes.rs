//! Goose's `sub_recipes`: each becomes an agent to which its recipe may delegate, with the given values.

use std::path::Path;

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, Scope},
    diagnostic::Diagnostic,
    rule::Rule,
};
use serde_json::Value;

use crate::{
    dialect,
    discover::{load_found, repository},
    file, naming,
    parse::{ParseOptions, Parsed, ParsedFile},
};

/// The maximum number of sub-recipes of one recipe.
const MAX: usize = 32;

/// Loads the sub-recipes of a recipe, which must be inside the project, and lets it delegate to them.
pub(crate) fn load(
    recipe: &mut AgentDefinition,
    path: &Path,
    project: Option<&Path>,
    options: &ParseOptions,
) -> Parsed {
    let mut all = Parsed::default();
    let Some(Value::Array(listed)) = recipe.extra.metadata.get("sub_recipes").cloned() else { return all };
    let folder = path.parent().unwrap_or(Path::new(""));
    let root = project.unwrap_or_else(|| repository(folder).unwrap_or(folder));
    for sub in listed.iter().take(MAX) {
        match load_one(sub, folder, root, recipe.source.kind, options) {
            Ok(mut parsed) => {
                all.definitions.append(&mut parsed.definitions);
                all.diagnostics.append(&mut parsed.diagnostics);
            }
            Err(message) => {
                let path = Some(std::sync::Arc::new(path.to_owned()));
                all.diagnostics.push(Diagnostic::warning(message).at(1, 1).on("sub_recipes").path(path));
            }
        }
    }
    let names: Vec<&str> = all.definitions.iter().map(|definition| definition.name.as_str()).collect();
    if let (Allow::Only(rules), false) = (&mut recipe.tools.allowed, names.is_empty()) {
        rules.push(Rule::calls("delegate", names.join(",")));
    }
    all
}

fn load_one(sub: &Value, folder: &Path, root: &Path, scope: Scope, options: &ParseOptions) -> Result<Parsed, String> {
    let text = |key: &str| sub.get(key).and_then(Value::as_str).unwrap_or_default();
    let path = folder.join(text("path"));
    file::read_inside(&path, root).map_err(|reason| format!("the sub-recipe `{}` {reason}", text("path")))?;
    let recipes = dialect::named("goose-recipe").unwrap_or(dialect::own());
    let mut parsed = load_found(&path, ParsedFile::Among(recipes), scope, Some(root), options);
    for definition in &mut parsed.definitions {
        if let Some(name) = naming::slug(text("name")) {
            definition.name = name;
        }
        // Values of the recipe take the place of defaults.
        for (key, value) in sub.get("values").and_then(Value::as_object).into_iter().flatten() {
            definition.task.parameters.insert(key.clone(), Some(value.clone()));
        }
        definition.extra.metadata.remove("sub_recipes");
    }
    Ok(parsed)
}
