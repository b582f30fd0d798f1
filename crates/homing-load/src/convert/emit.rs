//! Writes values as YAML, TOML or JSON. It knows nothing about agents.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Front matter with a body below it.
pub(super) fn markdown(front: &Map<String, Value>, body: &str) -> String {
    format!("---\n{}---\n\n{body}\n", yaml(front))
}

/// A YAML document.
pub(super) fn yaml(map: &Map<String, Value>) -> String {
    let mut out = String::new();
    write_map(&mut out, map, 0);
    out
}

pub(super) fn json(map: &Map<String, Value>) -> String {
    serde_json::to_string_pretty(map).map(|text| text + "\n").unwrap_or_default()
}

/// A TOML document: plain values first, tables after them. Nulls are left out.
pub(super) fn toml(map: &Map<String, Value>) -> String {
    let table: toml::Table = map.iter().filter_map(|(key, value)| Some((key.clone(), toml_value(value)?))).collect();
    let is_table = |key: &&String| matches!(table.get(*key), Some(toml::Value::Table(_)));
    let (tables, plain): (Vec<&String>, Vec<&String>) =
        map.keys().filter(|key| table.contains_key(*key)).partition(is_table);
    let mut out = String::new();
    for key in plain.into_iter().chain(tables) {
        let one: toml::Table = [(key.clone(), table[key].clone())].into_iter().collect();
        out.push_str(&toml::to_string_pretty(&one).unwrap_or_default());
    }
    out
}

fn toml_value(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => toml::Value::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => toml::Value::Integer(whole),
            None => toml::Value::Float(number.as_f64()?),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(items) => toml::Value::Array(items.iter().filter_map(toml_value).collect()),
        Value::Object(map) => {
            let entries = map.iter().filter_map(|(key, value)| Some((key.clone(), toml_value(value)?)));
            toml::Value::Table(entries.collect())
        }
    })
}

fn write_map(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (key, value) in map {
        out.push_str(&" ".repeat(indent));
        out.push_str(&scalar(key));
        out.push(':');
        write_value(out, value, indent);
    }
}

/// Writes the value after a key.
fn write_value(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_map(out, map, indent + 2);
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            out.push('\n');
            for item in items {
                let pad = " ".repeat(indent + 2);
                // JSON is YAML, and a list of maps in one line each is easy to read and to write.
                writeln!(out, "{pad}- {}", flow(item)).expect("writing to a string");
            }
        }
        Value::String(text) if is_block(text) => {
            out.push_str(" |-\n");
            for line in text.lines() {
                let pad = if line.is_empty() { String::new() } else { " ".repeat(indent + 2) };
                writeln!(out, "{pad}{line}").expect("writing to a string");
            }
        }
        other => writeln!(out, " {}", flow(other)).expect("writing to a string"),
    }
}

/// A value in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow_inside).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{}: {}", quoted_key(key), flow_inside(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Inside brackets, commas and braces end a text.
fn flow_inside(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains([',', '[', ']', '{', '}', ':']) => quoted(text),
        other => flow(other),
    }
}

fn quoted_key(key: &str) -> String {
    let plain = scalar(key);
    if plain.contains([',', '[', ']', '{', '}', ':']) { quoted(key) } else { plain }
}

/// Returns true for long text that a block keeps as it is.
fn is_block(text: &str) -> bool {
    let is_plain = |character: char| character == '\n' || !(character.is_control() || is_line_break(character));
    text.lines().count() > 1
        && text.chars().all(is_plain)
        && !text.starts_with([' ', '\n'])
        && !text.ends_with('\n')
        && text.lines().all(|line| line.trim_end() == line)
        && !text.lines().any(|line| line.trim_start().starts_with("---"))
}

fn is_line_break(character: char) -> bool {
    matches!(character, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A text without quotes if no YAML parser can mistake it, else in double quotes.
fn scalar(text: &str) -> String {
    let is_word = |character: char| character.is_alphanumeric() || " _./()-,;'+=&$~^".contains(character);
    let starts_well = text.starts_with(|first: char| first.is_alphabetic());
    let is_reserved = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "null" | "nan" | "inf" | "infinity"
    );
    let is_plain = starts_well && !is_reserved && !text.ends_with(' ') && text.chars().all(is_word) && text.is_ascii();
    if is_plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            other if other.is_control() || is_line_break(other) => {
                write!(out, "\\u{:04X}", u32::from(other)).expect("writing to a string");
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
