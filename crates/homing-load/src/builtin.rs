//! The built-in agents and the example agents. Their texts are agent files in `builtin` and `examples`.
//!
//! Every start of the program parses the built-in agents, so their front matter has the form that needs no YAML parser, except for
//! the quoted `*` of `general`, and the schemas of their answers are files of their own.

use std::{path::Path, sync::LazyLock};

use homing_core::definition::{AgentDefinition, Scope};

use crate::{
    dialect,
    parse::{ParseOptions, ParsedFile, parse},
};

/// A built-in agent: its file, and the JSON schema of its answer.
struct BuiltIn {
    name: &'static str,
    text: &'static str,
    schema: Option<&'static str>,
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "explore.md",
        text: include_str!("builtin/explore.md"),
        schema: Some(include_str!("builtin/explore.schema.json")),
    },
    BuiltIn {
        name: "plan.md",
        text: include_str!("builtin/plan.md"),
        schema: Some(include_str!("builtin/plan.schema.json")),
    },
    BuiltIn { name: "code.md", text: include_str!("builtin/code.md"), schema: None },
    BuiltIn {
        name: "code-review.md",
        text: include_str!("builtin/code-review.md"),
        schema: Some(include_str!("builtin/code-review.schema.json")),
    },
    BuiltIn { name: "general.md", text: include_str!("builtin/general.md"), schema: None },
];

/// Example agents: a file name and its text.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("code-reviewer.md", include_str!("examples/code-reviewer.md")),
    ("test-writer.md", include_str!("examples/test-writer.md")),
    ("api-designer.md", include_str!("examples/api-designer.md")),
    ("researcher.md", include_str!("examples/researcher.md")),
];

static AGENTS: LazyLock<Vec<AgentDefinition>> =
    LazyLock::new(|| BUILT_IN.iter().flat_map(BuiltIn::definition).collect());

impl BuiltIn {
    fn definition(&self) -> Option<AgentDefinition> {
        let (found, text) = (ParsedFile::Among(dialect::own()), self.text.as_bytes().to_vec());
        let parsed = parse(Path::new(self.name), text, found, Scope::BuiltIn, &ParseOptions::default());
        debug_assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
        let mut definition = parsed.definitions.into_iter().next()?;
        definition.source.path = None;
        definition.task.schema = self.schema.and_then(|schema| serde_json::from_str(schema).ok());
        Some(definition)
    }
}

/// The built-in agents: explore, plan, code, code-review and general.
pub fn agents() -> &'static [AgentDefinition] {
    &AGENTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_agent_has_its_schema() {
        assert_eq!(agents().len(), BUILT_IN.len());
        for (built_in, agent) in BUILT_IN.iter().zip(agents()) {
            assert_eq!(agent.task.schema.is_some(), built_in.schema.is_some(), "{}", agent.name);
        }
    }
}
