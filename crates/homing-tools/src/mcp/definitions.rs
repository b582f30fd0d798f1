//! Tool descriptions of a server, cleaned before use. A description is untrusted text that the model reads, so it is cut,
//! stripped of invisible characters, and must be the same as when it was approved.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{ServerConfig, hash};

const MAX_DESCRIPTION: usize = 2_048;
const MAX_SCHEMA: usize = 64 << 10;
const MAX_TOOLS: usize = 200;

/// Maximum length of a tool name; some providers reject longer ones.
const MAX_NAME: usize = 64;

/// The tools that a server lists, for the user to approve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolListing {
    /// The server.
    pub server: String,
    pub(super) config: String,
    /// Its tools.
    pub tools: Vec<ListedTool>,
    /// Rejected tools, with the reason.
    pub refused: Vec<String>,
}

/// One tool of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTool {
    /// The name by which models call the tool: `mcp__server__tool`.
    pub name: String,
    /// The server's own name of the tool.
    pub original: String,
    /// The description, as models read it.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
    /// True if the server declares the tool as read-only.
    pub read_only: bool,
    /// The hash of the server's description, before cleaning.
    pub hash: String,
}

/// A tool as a server describes it, before cleaning.
pub(super) struct ToolDescription {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
    pub(super) read_only: bool,
}

impl ToolListing {
    pub(super) fn new(config: &ServerConfig, described: Vec<ToolDescription>) -> Self {
        let (mut tools, mut refused, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for tool in described {
            let shown: String = visible(&tool.name).chars().take(40).collect();
            if tools.len() == MAX_TOOLS {
                refused.push(format!("`{shown}` and all after it: a server may list at most {MAX_TOOLS} tools"));
                break;
            }
            match ListedTool::new(&config.name, tool) {
                Ok(tool) if names.insert(tool.name.clone()) => tools.push(tool),
                Ok(_) => refused.push(format!("`{shown}`: duplicate name")),
                Err(why) => refused.push(format!("`{shown}`: {why}")),
            }
        }
        Self { server: config.name.clone(), config: config.hash(), tools, refused }
    }
}

impl ListedTool {
    fn new(server: &str, tool: ToolDescription) -> Result<Self, String> {
        let hash = hash(&serde_json::json!([tool.name, tool.description, tool.schema]));
        if tool.schema.to_string().len() > MAX_SCHEMA {
            return Err("the schema of its arguments is too large".to_owned());
        }
        if tool.schema.get("type").is_some_and(|kind| kind != "object") {
            return Err("its arguments are not an object".to_owned());
        }
        if tool.name.trim().is_empty() || tool.name.len() > 1_024 {
            return Err("its name is empty or too long".to_owned());
        }
        let description: String = visible(&tool.description).chars().take(MAX_DESCRIPTION).collect();
        let mut schema = tool.schema;
        clean(&mut schema);
        let name = namespaced(server, &tool.name);
        Ok(Self { name, original: tool.name, description, schema, read_only: tool.read_only, hash })
    }
}

fn plain(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    text.chars().map(|character| if is_plain(character) { character } else { '_' }).collect()
}

/// Returns `mcp__server`: the prefix of all its tool names, and the permission rule for all of them.
pub fn tools_prefix(server: &str) -> String {
    // Two underscores separate server and tool, so a server's name must not contain them.
    format!("mcp__{}", plain(server).replace("__", "_"))
}

/// Returns `mcp__server__tool`, with only letters, digits, `_` and `-`.
fn namespaced(server: &str, tool: &str) -> String {
    let full = format!("{}__{}", tools_prefix(server), plain(tool));
    if full.len() <= MAX_NAME {
        return full;
    }
    let digest = hash(&Value::from(format!("{server}/{tool}")));
    format!("{}_{}", &full[..MAX_NAME - 9], &digest[..8])
}

/// Removes control characters and invisible characters.
pub(super) fn visible(text: &str) -> String {
    text.chars()
        .filter(|&character| {
            matches!(character, '\n' | '\t')
                || !(character.is_control() || homing_core::sanitize::is_invisible(character))
        })
        .collect()
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = visible(text).chars().take(MAX_DESCRIPTION).collect(),
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(object) => object.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listing(tools: &[(&str, &str, Value)]) -> ToolListing {
        let config = ServerConfig::parse("my server", &json!({"command": "x"})).unwrap();
        let described = tools.iter().map(|(name, description, schema)| ToolDescription {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
            schema: schema.clone(),
            read_only: false,
        });
        ToolListing::new(&config, described.collect())
    }

    #[test]
    fn m5_names_are_plain_and_unique() {
        let schema = json!({"type": "object"});
        let long = "x".repeat(500);
        let huge = "x".repeat(10_000);
        let listing = listing(&[
            ("a/b c", "", schema.clone()),
            ("a_b_c", "", schema.clone()),
            (&long, "", schema.clone()),
            (&huge, "", schema.clone()),
            ("", "", schema),
        ]);
        assert_eq!(listing.tools[0].name, "mcp__my_server__a_b_c");
        assert_eq!(listing.tools[1].name.len(), MAX_NAME);
        assert_eq!((listing.tools.len(), listing.refused.len()), (2, 3), "{:?}", listing.refused);
    }

    #[test]
    fn m6_descriptions_are_short_and_visible() {
        let hidden = "reads\u{E0041}\u{200B} a file\u{1b}[2J\u{202E}";
        let schema = json!({"type": "object", "properties": {"a": {"description": "x\u{E0041}y"}}});
        let listing = listing(&[("a", hidden, schema), ("b", &"y".repeat(1 << 20), json!({}))]);
        assert_eq!(listing.tools[0].description, "reads a file[2J");
        assert_eq!(listing.tools[0].schema["properties"]["a"]["description"], "xy");
        assert_eq!(listing.tools[1].description.len(), MAX_DESCRIPTION);
    }

    #[test]
    fn m7_invalid_schemas_are_rejected() {
        let recursive = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
        let large = json!({"type": "object", "description": "x".repeat(MAX_SCHEMA)});
        let listing = listing(&[("a", "", recursive), ("b", "", large), ("c", "", json!({"type": "string"}))]);
        assert_eq!((listing.tools.len(), listing.refused.len()), (1, 2));
    }
}
