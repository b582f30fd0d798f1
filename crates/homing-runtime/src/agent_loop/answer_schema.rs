//! Checks answers against the JSON schema of a run.

use serde_json::Value;

/// The first problems of an answer, in words the model can act on.
#[cfg(feature = "schemas")]
pub(super) fn problems(schema: &Value, answer: &Value) -> Option<String> {
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("the schema itself is invalid: {error}")),
    };
    let problems: Vec<String> = validator
        .iter_errors(answer)
        .take(5)
        .map(|error| format!("{} (at `{}`)", error, error.instance_path()))
        .collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// A run with a schema does not start in this build, but one of another build may be resumed.
#[cfg(not(feature = "schemas"))]
pub(super) fn problems(_: &Value, _: &Value) -> Option<String> {
    Some("this program cannot check answers against a schema".to_owned())
}
