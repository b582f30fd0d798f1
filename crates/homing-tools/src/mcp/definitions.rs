//! What a server says about its tools, cleaned before anybody reads it. A description is a stranger's text that a model
//! will read, so it is short, visible, and the same as when it was approved.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{ServerConfig, hash};

const MAX_DESCRIPTION: usize = 2_048;
const MAX_SCHEMA: usize = 64 << 10;
const MAX_TOOLS: usize = 200;

/// Some providers take no longer names.
const MAX_NAME: usize = 64;

/// What a server offers, for somebody to approve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The server.
    pub server: String,
    pub(super) config: String,
    /// Its tools.
    pub tools: Vec<OfferedTool>,
    /// Tools that are not taken, and why.
    pub refused: Vec<String>,
}

/// One tool of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// The name models call it by: `mcp__server__tool`.
    pub name: String,
    /// The server's own name for it.
    pub original: String,
    /// The description, as models read it.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
    /// The server says that it changes nothing.
    pub read_only: bool,
    /// The hash of what the server said, before it was cleaned.
    pub hash: String,
}

/// A tool as a server describes it.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
    pub(super) read_only: bool,
}

impl Offer {
    pub(super) fn of(config: &ServerConfig, described: Vec<Described>) -> Self {
        let (mut tools, mut refused, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for tool in described {
            let shown: String = visible(&tool.name).chars().take(40).collect();
            if tools.len() == MAX_TOOLS {
                refused.push(format!("`{shown}` and what follows: a server may offer {MAX_TOOLS} tools"));
                break;
            }
            match OfferedTool::of(&config.name, tool) {
                Ok(tool) if names.insert(tool.name.clone()) => tools.push(tool),
                Ok(_) => refused.push(format!("`{shown}`: another tool has this name")),
                Err(why) => refused.push(format!("`{shown}`: {why}")),
            }
        }
        Self { server: config.name.clone(), config: config.hash(), tools, refused }
    }
}

impl OfferedTool {
    fn of(server: &str, tool: Described) -> Result<Self, String> {
        let hash = hash(&serde_json::json!([tool.name, tool.description, tool.schema]));
        if tool.schema.to_string().len() > MAX_SCHEMA {
            return Err("the schema of its arguments is too large".to_owned());
        }
        if tool.schema.get("type").is_some_and(|kind| kind != "object") {
            return Err("its arguments are no object".to_owned());
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
    text.chars().map(|it| if it.is_ascii_alphanumeric() || it == '-' || it == '_' { it } else { '_' }).collect()
}

/// `mcp__server`: how the names of all its tools begin, and the rule that stands for them.
pub fn tools_prefix(server: &str) -> String {
    // Two underscores separate; a server's name must not end before it does.
    format!("mcp__{}", plain(server).replace("__", "_"))
}

/// `mcp__server__tool`, with nothing in it but letters, digits, `_` and `-`.
fn namespaced(server: &str, tool: &str) -> String {
    let full = format!("{}__{}", tools_prefix(server), plain(tool));
    if full.len() <= MAX_NAME {
        return full;
    }
    let digest = hash(&Value::from(format!("{server}/{tool}")));
    format!("{}_{}", &full[..MAX_NAME - 9], &digest[..8])
}

/// The text without control characters and without what nobody can see.
pub(super) fn visible(text: &str) -> String {
    text.chars()
        .filter(|&it| matches!(it, '\n' | '\t') || !(it.is_control() || homing_core::sanitize::is_invisible(it)))
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

    fn offer(tools: &[(&str, &str, Value)]) -> Offer {
        let config = ServerConfig::parse("my server", &json!({"command": "x"})).unwrap();
        let described = tools.iter().map(|(name, description, schema)| Described {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
            schema: schema.clone(),
            read_only: false,
        });
        Offer::of(&config, described.collect())
    }

    #[test]
    fn m5_names_are_plain_and_nobody_has_two() {
        let schema = json!({"type": "object"});
        let long = "x".repeat(500);
        let huge = "x".repeat(10_000);
        let offer = offer(&[
            ("a/b c", "", schema.clone()),
            ("a_b_c", "", schema.clone()),
            (&long, "", schema.clone()),
            (&huge, "", schema.clone()),
            ("", "", schema),
        ]);
        assert_eq!(offer.tools[0].name, "mcp__my_server__a_b_c");
        assert_eq!(offer.tools[1].name.len(), MAX_NAME);
        assert_eq!((offer.tools.len(), offer.refused.len()), (2, 3), "{:?}", offer.refused);
    }

    #[test]
    fn m6_descriptions_are_short_and_visible() {
        let hidden = "reads\u{E0041}\u{200B} a file\u{1b}[2J\u{202E}";
        let schema = json!({"type": "object", "properties": {"a": {"description": "x\u{E0041}y"}}});
        let offer = offer(&[("a", hidden, schema), ("b", &"y".repeat(1 << 20), json!({}))]);
        assert_eq!(offer.tools[0].description, "reads a file[2J");
        assert_eq!(offer.tools[0].schema["properties"]["a"]["description"], "xy");
        assert_eq!(offer.tools[1].description.len(), MAX_DESCRIPTION);
    }

    #[test]
    fn m7_schemas_that_are_none_are_refused() {
        let recursive = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
        let large = json!({"type": "object", "description": "x".repeat(MAX_SCHEMA)});
        let offer = offer(&[("a", "", recursive), ("b", "", large), ("c", "", json!({"type": "string"}))]);
        assert_eq!((offer.tools.len(), offer.refused.len()), (1, 2));
    }
}
