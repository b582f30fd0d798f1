//! Builds a value that matches a JSON schema from search results. Fields are filled by their type and name only.

use serde_json::{Map, Value};

use crate::search_hits::SearchHit;

/// The content to fill a schema with.
pub(super) struct SchemaContent<'a> {
    /// The report as text.
    pub(super) text: &'a str,
    /// The matching lines.
    pub(super) hits: &'a [SearchHit],
}

/// Returns a value that matches the structure of `schema`.
pub(super) fn fill(schema: &Value, content: &SchemaContent<'_>) -> Value {
    fill_at(schema, schema, content, "", 0)
}

fn fill_at(root: &Value, schema: &Value, content: &SchemaContent<'_>, name: &str, depth: usize) -> Value {
    let schema = resolve(root, schema);
    if depth > 8 {
        return Value::Null;
    }
    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    if let Some(option) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key)?.as_array()?.first()) {
        return fill_at(root, option, content, name, depth + 1);
    }
    match kind(schema) {
        "object" => Value::Object(object(root, schema, content, depth)),
        "array" => array(root, schema, content, depth),
        "integer" | "number" => number(schema, content, name),
        "boolean" => Value::Bool(!content.hits.is_empty()),
        "null" => Value::Null,
        _ => Value::String(text(schema, content, name)),
    }
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    }
}

fn object(root: &Value, schema: &Value, content: &SchemaContent<'_>, depth: usize) -> Map<String, Value> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let filled = fields.into_iter().flatten();
    filled.map(|(name, field)| (name.clone(), fill_at(root, field, content, name, depth + 1))).collect()
}

/// Returns an array with one item per matching line.
fn array(root: &Value, schema: &Value, content: &SchemaContent<'_>, depth: usize) -> Value {
    let item = schema.get("items").cloned().unwrap_or_default();
    let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(20).min(20);
    let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(most);
    let wanted = (content.hits.len() as u64).clamp(least, most);
    let one = |at: u64| {
        let hit = usize::try_from(at).ok().and_then(|index| content.hits.get(index..=index)).unwrap_or_default();
        let text = hit
            .first()
            .map_or_else(|| content.text.to_owned(), |hit| format!("{}:{} — {}", hit.path, hit.line, hit.text));
        fill_at(root, &item, &SchemaContent { text: &text, hits: hit }, "", depth + 1)
    };
    Value::Array((0..wanted).map(one).collect())
}

fn number(schema: &Value, content: &SchemaContent<'_>, name: &str) -> Value {
    let line = content.hits.first().map(|hit| hit.line).filter(|_| name.contains("line"));
    let count = line.unwrap_or(content.hits.len() as u64);
    let least = schema.get("minimum").and_then(Value::as_u64).unwrap_or(0);
    let most = schema.get("maximum").and_then(Value::as_u64).unwrap_or(u64::MAX);
    count.clamp(least.min(most), most).into()
}

fn text(schema: &Value, content: &SchemaContent<'_>, name: &str) -> String {
    let hit = content.hits.first();
    let text = match hit {
        Some(hit) if name.contains("path") || name.contains("file") => hit.path.clone(),
        Some(_) | None => content.text.to_owned(),
    };
    let most = schema
        .get("maxLength")
        .and_then(Value::as_u64)
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(usize::MAX);
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_is_filled_with_search_results() {
        let schema = json!({
            "type": "object",
            "properties": {
                "summary": {"type": "string"},
                "found": {"type": "boolean"},
                "severity": {"enum": ["low", "high"]},
                "places": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            },
            "$defs": {"place": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}},
        });
        let hits = [SearchHit { path: "a.rs".into(), line: 7, text: "fn a()".into() }];
        let value = fill(&schema, &SchemaContent { text: "report", hits: &hits });
        assert_eq!(
            value,
            json!({"summary": "report", "found": true, "severity": "low", "places": [{"path": "a.rs", "line": 7}]})
        );
    }
}
