//! Parses JSON into [`Node`]s. Comments and trailing commas are allowed, as in most programs' configuration files.
//! It knows nothing about agents.

use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{ObjectProp, Value},
    common::{Range, Ranged},
    errors::ParseError,
    parse_to_ast,
};

use crate::{
    line_index::LineIndex,
    node::{Node, NodeEntry, NodeKind, Position},
};

const MAX_DEPTH: usize = 64;

/// Comments and trailing commas are accepted, everything else as in JSON.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// A JSON syntax error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonError {
    pub(crate) position: Position,
    pub(crate) message: String,
}

/// Parses one JSON value. Duplicate keys are kept, in order.
pub(crate) fn parse(text: &str) -> Result<Node<'static>, JsonError> {
    let lines = LineIndex::new(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS);
    let parsed = parsed.map_err(|error| syntax_error(&lines, &error))?;
    let Some(root) = parsed.value else {
        return Err(JsonError { position: lines.position(text.len()), message: "the text contains no value".into() });
    };
    node(&lines, &root, 0)
}

fn syntax_error(lines: &LineIndex<'_>, error: &ParseError) -> JsonError {
    let message = error.kind().to_string();
    let message = message.chars().take(1).flat_map(char::to_lowercase).chain(message.chars().skip(1)).collect();
    JsonError { position: lines.position(error.range().start), message }
}

fn node(lines: &LineIndex<'_>, value: &Value<'_>, depth: usize) -> Result<Node<'static>, JsonError> {
    let position = lines.position(value.start());
    if depth > MAX_DEPTH {
        return Err(JsonError { position, message: format!("nested more than {MAX_DEPTH} levels deep") });
    }
    let kind = match value {
        Value::StringLit(text) => {
            reject_control_characters(lines, text.range)?;
            NodeKind::Quoted(text.value.to_string().into())
        }
        Value::NumberLit(number) if serde_json::from_str::<serde_json::Number>(number.value).is_err() => {
            return Err(JsonError { position, message: format!("`{}` is out of range", number.value) });
        }
        Value::NumberLit(_) | Value::BooleanLit(_) | Value::NullKeyword(_) => {
            NodeKind::Plain(lines.slice(value.start()..value.end()).to_owned().into())
        }
        Value::Array(array) => {
            let items = array.elements.iter().map(|item| node(lines, item, depth + 1));
            NodeKind::List(items.collect::<Result<_, _>>()?)
        }
        Value::Object(object) => {
            let entries = object.properties.iter().map(|property| entry(lines, property, depth + 1));
            NodeKind::Map(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node::new(position, kind))
}

fn entry(lines: &LineIndex<'_>, property: &ObjectProp<'_>, depth: usize) -> Result<NodeEntry<'static>, JsonError> {
    reject_control_characters(lines, property.name.range())?;
    let value = node(lines, &property.value, depth)?;
    let key = property.name.as_str().to_owned().into();
    Ok(NodeEntry { key, position: lines.position(property.start()), value })
}

/// Rejects control characters in a string, which JSON requires to be escaped. The parser accepts them.
fn reject_control_characters(lines: &LineIndex<'_>, string: Range) -> Result<(), JsonError> {
    match lines.slice(string.start..string.end).find(|character| character < ' ') {
        Some(at) => {
            let position = lines.position(string.start + at);
            Err(JsonError { position, message: "control characters in strings must be escaped".into() })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let error = parse(text).expect_err(text);
        format!("{}:{}: {}", error.position.line, error.position.column, error.message)
    }

    #[test]
    fn comments_and_trailing_commas_keep_positions() {
        let node = parse("// one\n{ /* two */ \"ä\": [1, true,], \"b\": null, \"b\": \"\\u00e4\",}\n").unwrap();
        let entries = node.entries().unwrap();
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_ref()).collect();
        assert_eq!(keys, ["ä", "b", "b"], "duplicate keys are kept");
        assert_eq!(entries[1].position, Position { line: 2, column: 30 });
        assert_eq!(entries[2].value.text(), Some("ä"));
        assert_eq!(node.to_json(), serde_json::json!({"ä": [1, true], "b": null}));
    }

    #[test]
    fn extensions_beyond_comments_are_rejected() {
        for text in ["{a: 1}", "{'a': 1}", "{\"a\": 1 \"b\": 2}", "[0x1]", "[+1]", "[.5]", "[NaN]", "[1] [2]", "{", ""]
        {
            error(text);
        }
        assert_eq!(error("[\"a\nb\"]"), "1:4: control characters in strings must be escaped");
        assert_eq!(error("{\"a\tb\": 1}"), "1:4: control characters in strings must be escaped");
        assert_eq!(error("[1e999]"), "1:2: `1e999` is out of range");
        assert!(error("{\n  \"a\" 1\n}").starts_with("2:"), "{}", error("{\n  \"a\" 1\n}"));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(&nested(64)).is_ok());
        assert_eq!(error(&nested(66)), "1:66: nested more than 64 levels deep");
        assert!(error(&nested(100_000)).contains("nesting depth"), "{}", error(&nested(100_000)));
    }
}
