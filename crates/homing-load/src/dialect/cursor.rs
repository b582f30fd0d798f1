//! Cursor: few keys; `readonly` is its restriction.

use super::{Dialect, PLAIN, deep, has};

pub(super) static DIALECT: Dialect = Dialect {
    name: "cursor",
    project: &[deep(".cursor/agents")],
    home: &[deep(".cursor/agents")],
    recognises: |node| has(node, &["is_background", "readonly"]),
    ..PLAIN
};
