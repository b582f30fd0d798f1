//! A team file, from its text to a team that is ready. What is ready can be drawn, and says the same when it is read again.
#![no_main]

use std::path::Path;

use homing_core::diagnostic::Severity;
use homing_teams::{load, mermaid};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let path = Path::new("team.yaml");
    let loaded = load(text, Some(path));
    let again = load(text, Some(path));
    assert_eq!(loaded.diagnostics, again.diagnostics);
    let has_errors = loaded.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    assert!(loaded.team.is_some() || has_errors, "a file that gives no team says why");
    if let Ok(team) = loaded.ready() {
        assert!(!has_errors, "a team with errors is not ready");
        assert!(!mermaid(&team).is_empty());
    }
});
