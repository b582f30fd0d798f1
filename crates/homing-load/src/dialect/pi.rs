//! pi-subagents: budgets, milliseconds, fallback models.

use super::{Dialect, PLAIN, deep, has};
use crate::fields::Field;

pub(super) static DIALECT: Dialect = Dialect {
    name: "pi",
    project: &[deep(".pi/agents")],
    home: &[deep(".pi/agent/agents")],
    fields: &[
        ("output", Field::Ignored("the answer is returned to the parent")),
        ("extensions", Field::Ignored("extensions of pi are not loaded")),
        ("systempromptmode", Field::Ignored("its prompt is the whole system prompt")),
        ("inheritskills", Field::Ignored("list the skills in `skills`")),
        ("tooltimeoutms", Field::Ignored("tools have their own limits")),
        ("defaultprogress", Field::Ignored("progress is shown by the host")),
        ("interactive", Field::Ignored("questions go to the user")),
    ],
    recognises: |node| has(node, &["systemPromptMode", "inheritProjectContext", "turnBudget", "defaultReads"]),
    ..PLAIN
};
