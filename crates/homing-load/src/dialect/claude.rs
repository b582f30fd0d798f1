//! Claude Code: `.claude/agents`, the format that other programs also read.

use super::{Dialect, PLAIN, deep};

pub(super) static DIALECT: Dialect =
    Dialect { name: "claude-code", project: &[deep(".claude/agents")], home: &[deep(".claude/agents")], ..PLAIN };
