//! The built-in agents and the example agents. Their texts are agent files in `builtin` and `examples`.

use std::{path::Path, sync::LazyLock};

use homing_core::definition::{AgentDefinition, Scope};

use crate::{
    dialect,
    parse::{ParseOptions, ParsedFile, parse},
};

const BUILT_IN: &[(&str, &str)] = &[
    ("explore.md", include_str!("builtin/explore.md")),
    ("plan.md", include_str!("builtin/plan.md")),
    ("code.md", include_str!("builtin/code.md")),
    ("code-review.md", include_str!("builtin/code-review.md")),
    ("general.md", include_str!("builtin/general.md")),
];

/// Example agents: a file name and its text.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("code-reviewer.md", include_str!("examples/code-reviewer.md")),
    ("test-writer.md", include_str!("examples/test-writer.md")),
    ("api-designer.md", include_str!("examples/api-designer.md")),
    ("researcher.md", include_str!("examples/researcher.md")),
];

static AGENTS: LazyLock<Vec<AgentDefinition>> = LazyLock::new(|| {
    let definitions = BUILT_IN.iter().flat_map(|(name, text)| {
        let found = ParsedFile::Among(dialect::own());
        let parsed = parse(Path::new(name), text.as_bytes().to_vec(), found, Scope::BuiltIn, &ParseOptions::default());
        debug_assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
        parsed.definitions
    });
    definitions
        .map(|mut definition| {
            definition.source.path = None;
            definition
        })
        .collect()
});

/// The built-in agents: explore, plan, code, code-review and general.
pub fn agents() -> &'static [AgentDefinition] {
    &AGENTS
}
