//! Claude Code: `.claude/agents`, the format that the others read, too.

use super::{Dialect, PLAIN, deep};

pub(super) static DIALECT: Dialect =
    Dialect { name: "claude-code", project: &[deep(".claude/agents")], home: &[deep(".claude/agents")], ..PLAIN };
