//! Spellings of keys: how a known key is written, and which one an unknown key resembles.

use homing_core::registry::distance;

use crate::{
    dialect::Dialect,
    fields::{self, Field, fold},
};

/// Known keys of several words, as they are usually written.
const WRITTEN: &[&str] = &[
    "allowedTools",
    "approvalMode",
    "argument-hint",
    "customInstructions",
    "defaultContext",
    "defaultReads",
    "deniedTools",
    "denyTools",
    "developer_instructions",
    "disable-model-invocation",
    "disallowedTools",
    "displayName",
    "excludeTools",
    "fallbackModel",
    "fallbackModels",
    "inheritMessages",
    "inheritProjectContext",
    "initialPrompt",
    "isBackground",
    "llmConfig",
    "maxBudgetUsd",
    "maxChildren",
    "maxCost",
    "maxDepth",
    "maxOutput",
    "maxOutputTokens",
    "maxSeconds",
    "maxSteps",
    "maxTokens",
    "maxToolCalls",
    "maxTurns",
    "mcpServers",
    "modelProvider",
    "model_reasoning_effort",
    "omitClaudeMd",
    "onFailure",
    "outputSchema",
    "permissionMode",
    "readOnly",
    "reasoningEffort",
    "roleDefinition",
    "sandbox_mode",
    "schemaOptional",
    "sharedContext",
    "systemPrompt",
    "timeoutMins",
    "timeoutMs",
    "timeoutSeconds",
    "toolCalls",
    "toolsDeny",
    "topP",
    "turnBudget",
    "user-invocable",
    "whenToUse",
];

/// A folded key as it is usually written, with the separators of `like` if that has any.
pub(crate) fn written(folded: &str, like: &str) -> String {
    let usual = WRITTEN.iter().find(|key| fold(key) == folded).copied().unwrap_or(folded);
    match like.chars().find(|character| matches!(character, '_' | '-')) {
        Some(separator) => separated(usual, separator),
        None => usual.to_owned(),
    }
}

fn separated(key: &str, separator: char) -> String {
    let mut out = String::new();
    for character in key.chars() {
        match character {
            '-' | '_' => out.push(separator),
            upper if upper.is_ascii_uppercase() => out.extend([separator, upper.to_ascii_lowercase()]),
            other => out.push(other),
        }
    }
    out
}

/// The known key of a dialect that an unknown one resembles: folded, with its field.
pub(crate) fn near(folded: &str, dialect: &Dialect) -> Option<(&'static str, Field)> {
    if folded.len() <= 4 {
        return None;
    }
    let own = |key: &str| dialect.fields.iter().any(|(other, _)| *other == key);
    let common = fields::common().iter().filter(|(key, _)| !own(key));
    let all = dialect.fields.iter().chain(common);
    let near = all.filter(|(key, _)| key.len().abs_diff(folded.len()) <= 2);
    let near = near.map(|(key, field)| (distance(folded, key), *key, *field)).min_by_key(|near| (near.0, near.1))?;
    (near.0 <= 2).then_some((near.1, near.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect;

    #[test]
    fn keys_are_written_as_usual_or_like_the_misspelt_one() {
        assert_eq!(written("maxturns", "maxturn"), "maxTurns");
        assert_eq!(written("maxturns", "max_turn"), "max_turns");
        assert_eq!(written("disablemodelinvocation", "disable_model_invocaton"), "disable_model_invocation");
        assert_eq!(written("description", "descripton"), "description");
    }

    #[test]
    fn every_key_of_every_dialect_is_suggested() {
        for dialect in dialect::ALL {
            let own = dialect.fields.iter();
            for (key, field) in own.chain(fields::common()).filter(|(key, _)| key.len() > 6) {
                let expected = dialect.fields.iter().find(|(own, _)| own == key).map_or(*field, |(_, field)| *field);
                // The letter `q` is at the end of no key, so it is an error of typing.
                let found = near(&format!("{key}q"), dialect);
                assert_eq!(found, Some((*key, expected)), "{}: {key}", dialect.name);
            }
        }
        assert!(near("xyz", dialect::own()).is_none());
    }

    #[test]
    fn usual_spellings_are_those_of_known_keys() {
        let known = |folded: &str| {
            let own = dialect::ALL.iter().flat_map(|dialect| dialect.fields);
            own.chain(fields::common()).any(|(key, _)| *key == folded)
        };
        for key in WRITTEN {
            assert!(known(&fold(key)), "{key}");
        }
    }
}
