//! `.claude/settings.json` and `settings.local.json`: `deny` and `ask` always apply, `allow` and hooks only if the file is
//! trusted. This module parses bytes; the caller decides about trust.

use homing_core::{authority::Layer, rule::Rule};
use serde_json::Value;

/// The supported part of a settings file.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaudeSettings {
    /// The `deny` and `ask` rules. They only restrict, so they need no trust.
    pub layer: Layer,
    /// The `allow` rules, valid only if the file is trusted: see [`ClaudeSettings::allowed`].
    allow: Vec<Rule>,
    /// The unparsed hooks, valid only if the file is trusted: see [`ClaudeSettings::hooks`].
    hooks: Value,
    /// Warnings about invalid entries. An invalid `deny` rule denies its whole tool.
    pub warnings: Vec<String>,
}

/// The trust in a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The user trusts the file.
    Trusted,
    /// The user does not trust the file.
    Untrusted,
}

/// A settings file that is not a JSON object.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {from}: {why}")]
pub struct SettingsError {
    from: String,
    why: String,
}

impl ClaudeSettings {
    /// Parses a settings file; `from` names it in messages.
    ///
    /// # Errors
    ///
    /// Fails if the file is not JSON of the expected form, or contains a rule that cannot be parsed.
    pub fn parse(from: &str, bytes: &[u8]) -> Result<Self, SettingsError> {
        let bad = |why: String| SettingsError { from: from.to_owned(), why };
        let json: Value = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if !json.is_object() {
            return Err(bad("not a JSON object".to_owned()));
        }
        let mut warnings = Vec::new();
        let mut rules = |key: &str, on_error: OnError| {
            let list = json.pointer(&format!("/permissions/{key}"));
            read_rules(list, from, key, on_error, &mut warnings)
        };
        let layer =
            Layer::everything(from).ask(rules("ask", OnError::WholeTool)).deny(rules("deny", OnError::WholeTool));
        let allow = rules("allow", OnError::Drop);
        let hooks = json.get("hooks").cloned().unwrap_or_default();
        Ok(Self { layer, allow, hooks, warnings })
    }

    /// The `allow` rules; empty unless the file is trusted.
    pub fn allowed(&self, trust: Trust) -> &[Rule] {
        match trust {
            Trust::Trusted => &self.allow,
            Trust::Untrusted => &[],
        }
    }

    /// The unparsed hooks; null unless the file is trusted.
    pub fn hooks(&self, trust: Trust) -> Value {
        match trust {
            Trust::Trusted => self.hooks.clone(),
            Trust::Untrusted => Value::Null,
        }
    }
}

/// The treatment of an invalid rule.
#[derive(Clone, Copy)]
enum OnError {
    /// A restriction applies to the whole tool.
    WholeTool,
    /// A permission is dropped.
    Drop,
}

fn read_rules(list: Option<&Value>, from: &str, key: &str, on_error: OnError, warnings: &mut Vec<String>) -> Vec<Rule> {
    let values = match list {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(values)) => values.as_slice(),
        Some(single) => std::slice::from_ref(single),
    };
    let mut rules = Vec::new();
    for value in values {
        let text = value.as_str().unwrap_or_default();
        match (text.parse::<Rule>(), on_error) {
            (Ok(rule), _) => rules.push(rule),
            (Err(_), OnError::WholeTool) => {
                let name = text.split(['(', ' ']).next().unwrap_or_default();
                let whole = name.parse().unwrap_or_else(|_| Rule::tool("*"));
                warnings.push(format!("{from}: `{value}` in `{key}` is not a valid rule: treated as `{whole}`"));
                rules.push(whole);
            }
            (Err(_), OnError::Drop) => {
                warnings.push(format!("{from}: `{value}` in `{key}` is not a valid rule: ignored"))
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn deny_rules_always_apply_and_allow_rules_need_trust() {
        let text = r#"{"permissions": {"allow": ["Bash(npm run:*)"], "ask": ["WebFetch"], "deny": ["Read(.env)", "Bash(curl *)"]},
            "hooks": {"PreToolUse": []}, "env": {"A": "b"}}"#;
        let settings = ClaudeSettings::parse(".claude/settings.json", text.as_bytes()).unwrap();
        assert_eq!(rules(&settings.layer.deny), ["read(.env)", "bash(curl *)"]);
        assert_eq!(rules(&settings.layer.ask), ["fetch"]);
        assert_eq!(settings.layer.allow, homing_core::authority::Allow::All);
        assert!(settings.allowed(Trust::Untrusted).is_empty() && settings.hooks(Trust::Untrusted).is_null());
        assert_eq!(rules(settings.allowed(Trust::Trusted)), ["bash(npm run:*)"]);
        assert!(settings.hooks(Trust::Trusted).is_object());
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn invalid_deny_rule_denies_the_whole_tool() {
        let text = r#"{"permissions": {"allow": ["Bash(git"], "deny": ["Bash(rm", 7]}}"#;
        let settings = ClaudeSettings::parse("s", text.as_bytes()).unwrap();
        assert_eq!(rules(&settings.layer.deny), ["bash", "*"]);
        assert!(settings.allowed(Trust::Trusted).is_empty());
        assert_eq!(settings.warnings.len(), 3);
        assert!(ClaudeSettings::parse("s", b"[]").is_err() && ClaudeSettings::parse("s", b"{").is_err());
    }
}
