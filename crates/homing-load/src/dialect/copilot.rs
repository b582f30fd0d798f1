//! GitHub Copilot and VS Code: `.agent.md` and the older `.chatmode.md`; one tool name may stand for several.

use super::{Dialect, FileName, PLAIN, deep, has};

pub(super) static DIALECT: Dialect = Dialect {
    name: "copilot",
    project: &[deep(".github/agents"), deep(".github/chatmodes")],
    home: &[deep(".copilot/agents")],
    file_name: FileName::Usual,
    groups: &[
        ("edit", &["edit", "write"]),
        ("edit/editfiles", &["edit", "write"]),
        ("editfiles", &["edit", "write"]),
        ("search", &["grep", "glob", "ls"]),
        ("search/codebase", &["grep", "glob", "read"]),
        ("codebase", &["grep", "glob", "read"]),
        ("web", &["fetch", "websearch"]),
        ("custom-agent", &["delegate"]),
    ],
    recognises: |node| has(node, &["handoffs", "user-invocable", "disable-model-invocation", "argument-hint", "infer"]),
    ..PLAIN
};
