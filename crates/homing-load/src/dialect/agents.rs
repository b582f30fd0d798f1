//! `.agents/agents`: the folder that several tools agreed on, in Claude Code's format.

use super::{Dialect, PLAIN, deep};

pub(super) static DIALECT: Dialect =
    Dialect { name: "agents", project: &[deep(".agents/agents")], home: &[deep(".agents/agents")], ..PLAIN };
