//! pi-subagents: budgets, milliseconds, fallback models.

use super::{Dialect, PLAIN, deep, has};
use crate::fields::Field;

pub(super) static DIALECT: Dialect = Dialect {
    name: "pi",
    project: &[deep(".pi/agents")],
    home: &[deep(".pi/agent/agents")],
    fields: &[
        ("output", Field::Note),
        ("extensions", Field::Note),
        ("systempromptmode", Field::Note),
        ("inheritskills", Field::Note),
        ("tooltimeoutms", Field::Note),
        ("defaultprogress", Field::Note),
        ("interactive", Field::Note),
    ],
    recognises: |node| has(node, &["systemPromptMode", "inheritProjectContext", "turnBudget", "defaultReads"]),
    ..PLAIN
};
