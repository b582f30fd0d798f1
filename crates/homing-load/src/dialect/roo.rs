//! Roo modes: a list in one file, tools in groups.

use super::{Dialect, PLAIN};
use crate::fields::Field;

pub(super) static DIALECT: Dialect = Dialect {
    name: "roo",
    files: &[".roomodes", ".kilocodemodes"],
    fields: &[
        ("slug", Field::Name),
        ("name", Field::Title),
        ("roledefinition", Field::Prompt),
        ("custominstructions", Field::PromptMore),
        ("whentouse", Field::Description),
        ("groups", Field::Groups),
        ("source", Field::Note),
        ("iconname", Field::Note),
    ],
    groups: &[
        ("read", &["read", "grep", "glob", "ls"]),
        ("edit", &["edit", "write"]),
        ("command", &["bash"]),
        ("browser", &["fetch"]),
        ("mcp", &["mcp__*"]),
        ("modes", &["delegate"]),
    ],
    recognises: |node| node.get("roleDefinition").is_some(),
    ..PLAIN
};
