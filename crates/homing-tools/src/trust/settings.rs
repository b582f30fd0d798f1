//! `.claude/settings.json` and `settings.local.json`: what a project denies and asks holds always, what it allows holds
//! once it is trusted. Only bytes are read here; whether they are trusted is for the caller to know.

use homing_core::{
    authority::{Allow, Layer},
    rule::Rule,
};
use serde_json::Value;

/// What a settings file says, as far as it concerns us.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaudeSettings {
    /// Denials and questions. They only narrow, so they need no trust.
    pub layer: Layer,
    /// Calls that need no question. Use them only when the file is trusted: see [`ClaudeSettings::allowed`].
    allow: Vec<Rule>,
    /// Hooks, as the file wrote them. Use them only when the file is trusted: see [`ClaudeSettings::hooks`].
    hooks: Value,
    /// What could not be understood, in words. A denial that cannot be understood denies its whole tool.
    pub warnings: Vec<String>,
}

/// Whether the file that settings came from is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The user vouches for it.
    Trusted,
    /// Nobody does.
    Untrusted,
}

/// A settings file that is no JSON object.
#[derive(Debug, thiserror::Error)]
#[error("{from} cannot be read: {why}")]
pub struct SettingsError {
    from: String,
    why: String,
}

impl ClaudeSettings {
    /// Reads a settings file; `from` names it in messages.
    pub fn parse(from: &str, bytes: &[u8]) -> Result<Self, SettingsError> {
        let bad = |why: String| SettingsError { from: from.to_owned(), why };
        let json: Value = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if !json.is_object() {
            return Err(bad("it is no JSON object".to_owned()));
        }
        let mut warnings = Vec::new();
        let mut rules = |key: &str, on_error: OnError| {
            let list = json.pointer(&format!("/permissions/{key}"));
            read_rules(list, from, key, on_error, &mut warnings)
        };
        let layer = Layer {
            from: from.to_owned(),
            allow: Allow::All,
            ask: rules("ask", OnError::WholeTool),
            deny: rules("deny", OnError::WholeTool),
            settled: Vec::new(),
        };
        let allow = rules("allow", OnError::Drop);
        let hooks = json.get("hooks").cloned().unwrap_or_default();
        Ok(Self { layer, allow, hooks, warnings })
    }

    /// Calls that need no question: none, unless the file is trusted.
    pub fn allowed(&self, trust: Trust) -> &[Rule] {
        match trust {
            Trust::Trusted => &self.allow,
            Trust::Untrusted => &[],
        }
    }

    /// Hooks, as the file wrote them: none, unless the file is trusted.
    pub fn hooks(&self, trust: Trust) -> Value {
        match trust {
            Trust::Trusted => self.hooks.clone(),
            Trust::Untrusted => Value::Null,
        }
    }
}

/// What a rule that cannot be read means.
#[derive(Clone, Copy)]
enum OnError {
    /// A restriction stays closed: it is taken for its whole tool.
    WholeTool,
    /// A permission that is not understood permits nothing.
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
                warnings.push(format!("{from}: `{value}` in `{key}` is no rule; it is taken for all of `{whole}`"));
                rules.push(whole);
            }
            (Err(_), OnError::Drop) => {
                warnings.push(format!("{from}: `{value}` in `{key}` is no rule; it allows nothing"))
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
    fn denials_hold_always_and_permissions_only_with_trust() {
        let text = r#"{"permissions": {"allow": ["Bash(npm run:*)"], "ask": ["WebFetch"], "deny": ["Read(.env)", "Bash(curl *)"]},
            "hooks": {"PreToolUse": []}, "env": {"A": "b"}}"#;
        let settings = ClaudeSettings::parse(".claude/settings.json", text.as_bytes()).unwrap();
        assert_eq!(rules(&settings.layer.deny), ["read(.env)", "bash(curl *)"]);
        assert_eq!(rules(&settings.layer.ask), ["fetch"]);
        assert_eq!(settings.layer.allow, Allow::All);
        assert!(settings.allowed(Trust::Untrusted).is_empty() && settings.hooks(Trust::Untrusted).is_null());
        assert_eq!(rules(settings.allowed(Trust::Trusted)), ["bash(npm run:*)"]);
        assert!(settings.hooks(Trust::Trusted).is_object());
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn a_denial_that_cannot_be_read_stays_closed() {
        let text = r#"{"permissions": {"allow": ["Bash(git"], "deny": ["Bash(rm", 7]}}"#;
        let settings = ClaudeSettings::parse("s", text.as_bytes()).unwrap();
        assert_eq!(rules(&settings.layer.deny), ["bash", "*"]);
        assert!(settings.allowed(Trust::Trusted).is_empty());
        assert_eq!(settings.warnings.len(), 3);
        assert!(ClaudeSettings::parse("s", b"[]").is_err() && ClaudeSettings::parse("s", b"{").is_err());
    }
}
