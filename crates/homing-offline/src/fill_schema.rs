//! Fits what was found into the shape that a caller asked for. It fills fields; it cannot know what they mean.

use serde_json::{Map, Value};

use crate::search_hits::Hit;

/// What there is to fill a shape with.
pub(super) struct Material<'a> {
    /// The report in words.
    pub(super) text: &'a str,
    /// The places.
    pub(super) hits: &'a [Hit],
}

/// A value that fits `schema` as far as its structure says.
pub(super) fn fit(schema: &Value, material: &Material<'_>) -> Value {
    fit_at(schema, schema, material, "", 0)
}

fn fit_at(root: &Value, schema: &Value, material: &Material<'_>, name: &str, depth: usize) -> Value {
    let schema = resolve(root, schema);
    if depth > 8 {
        return Value::Null;
    }
    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|it| it.first()) {
        return first.clone();
    }
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    if let Some(option) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key)?.as_array()?.first()) {
        return fit_at(root, option, material, name, depth + 1);
    }
    match kind(schema) {
        "object" => Value::Object(object(root, schema, material, depth)),
        "array" => array(root, schema, material, depth),
        "integer" | "number" => number(schema, material, name),
        "boolean" => Value::Bool(!material.hits.is_empty()),
        "null" => Value::Null,
        _ => Value::String(words(schema, material, name)),
    }
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
    pointer.and_then(|it| root.pointer(it)).unwrap_or(schema)
}

fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|it| *it != "null").unwrap_or("null"),
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    }
}

fn object(root: &Value, schema: &Value, material: &Material<'_>, depth: usize) -> Map<String, Value> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let filled = fields.into_iter().flatten();
    filled.map(|(name, field)| (name.clone(), fit_at(root, field, material, name, depth + 1))).collect()
}

/// One item for each place that was found.
fn array(root: &Value, schema: &Value, material: &Material<'_>, depth: usize) -> Value {
    let item = schema.get("items").cloned().unwrap_or_default();
    let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(20).min(20);
    let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(most);
    let wanted = (material.hits.len() as u64).clamp(least, most);
    let one = |at: u64| {
        let hit = usize::try_from(at).ok().and_then(|it| material.hits.get(it..=it)).unwrap_or_default();
        let text =
            hit.first().map_or_else(|| material.text.to_owned(), |it| format!("{}:{} — {}", it.path, it.line, it.text));
        fit_at(root, &item, &Material { text: &text, hits: hit }, "", depth + 1)
    };
    Value::Array((0..wanted).map(one).collect())
}

fn number(schema: &Value, material: &Material<'_>, name: &str) -> Value {
    let line = material.hits.first().map(|hit| hit.line).filter(|_| name.contains("line"));
    let count = line.unwrap_or(material.hits.len() as u64);
    let least = schema.get("minimum").and_then(Value::as_u64).unwrap_or(0);
    let most = schema.get("maximum").and_then(Value::as_u64).unwrap_or(u64::MAX);
    count.clamp(least.min(most), most).into()
}

fn words(schema: &Value, material: &Material<'_>, name: &str) -> String {
    let hit = material.hits.first();
    let text = match hit {
        Some(hit) if name.contains("path") || name.contains("file") => hit.path.clone(),
        Some(_) | None => material.text.to_owned(),
    };
    let most =
        schema.get("maxLength").and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX);
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shape_is_filled_with_what_was_found() {
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
        let hits = [Hit { path: "a.rs".into(), line: 7, text: "fn a()".into() }];
        let value = fit(&schema, &Material { text: "words", hits: &hits });
        assert_eq!(
            value,
            json!({"summary": "words", "found": true, "severity": "low", "places": [{"path": "a.rs", "line": 7}]})
        );
    }
}
