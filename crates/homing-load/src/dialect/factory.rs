//! Factory droids: top level only; tools are categories or names.

use super::{Dialect, PLAIN, flat};

pub(super) static DIALECT: Dialect = Dialect {
    name: "factory",
    project: &[flat(".factory/droids")],
    home: &[flat(".factory/droids")],
    groups: &[
        ("read-only", &["read", "ls", "grep", "glob"]),
        ("edit", &["edit", "write"]),
        ("execute", &["bash"]),
        ("web", &["websearch", "fetch"]),
        ("mcp", &["mcp__*"]),
    ],
    ..PLAIN
};
