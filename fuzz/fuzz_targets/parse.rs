//! The whole parse of an agent file. The first byte chooses the file's name, and with it syntax and dialect.
#![no_main]

use std::path::Path;

use homing_core::definition::Scope;
use homing_load::{ParsedFile, ParseOptions, parse};
use libfuzzer_sys::fuzz_target;

const NAMES: &[&str] = &[
    ".claude/agents/x.md",
    "x.json",
    "x.yaml",
    "x.toml",
    ".roomodes",
    "x.agent.md",
    ".opencode/agent/x.md",
    "opencode.json",
    ".goose/recipes/x.yaml",
];

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let path = Path::new(NAMES[usize::from(*first) % NAMES.len()]);
    for strict in [false, true] {
        let options = ParseOptions { strict, ..ParseOptions::default() };
        let parsed = parse(path, rest.to_vec(), ParsedFile::Named, Scope::Project, &options);
        for agent in &parsed.definitions {
            assert!(!agent.name.is_empty() && !agent.prompt.is_empty() && !agent.description.is_empty());
        }
    }
});
