//! Qwen Code: Claude Code's fields, with `approvalMode`.

use super::{Dialect, PLAIN, deep, has};

pub(super) static DIALECT: Dialect = Dialect {
    name: "qwen",
    project: &[deep(".qwen/agents")],
    home: &[deep(".qwen/agents")],
    recognises: |node| has(node, &["approvalMode"]),
    ..PLAIN
};
