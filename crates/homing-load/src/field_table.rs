//! The table of all keys of all dialects and their effects, for the documentation.

use std::fmt::Write;

use crate::{dialect, discover, fields, skills};

/// Returns a Markdown table of every key: obeyed, or ignored with the reason that `check` gives. Keys of agents and skills
/// are written without capital letters, `-` and `_`.
pub fn field_table() -> String {
    let mut table = "| dialect | key | effect |\n|---|---|---|\n".to_owned();
    let mut row = |dialect: &str, key: &str, effect: &str| {
        writeln!(table, "| {dialect} | `{key}` | {effect} |").expect("writing to a string");
    };
    for (key, field) in fields::common() {
        row("all", key, &fields::effect(*field));
    }
    for dialect in dialect::ALL {
        for (key, field) in dialect.fields {
            row(dialect.name, key, &fields::effect(*field));
        }
    }
    for (key, effect) in skills::field_effects() {
        row("skills", key, &effect);
    }
    for (key, effect) in discover::plugin_fields() {
        row("plugin.json", key, &effect);
    }
    table
}
