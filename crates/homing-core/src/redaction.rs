//! Removes known secrets, such as API keys, from facts and texts. The runtime applies it before anything is recorded, so
//! that a key that a provider or a tool repeats reaches neither the journal nor the model nor a screen.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use crate::fact::Fact;

/// The text that replaces a secret.
pub const PLACEHOLDER: &str = "[redacted]";

/// Shorter secrets are placeholders such as `x`; removing them would garble ordinary text.
const SHORTEST: usize = 8;

/// Secrets that must not be shown or recorded.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Longest first, so that a secret that contains another one is replaced as a whole.
    all: Arc<[String]>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.all.len())
    }
}

impl FromIterator<String> for Secrets {
    /// Collects secrets; those with fewer than eight characters are left out.
    fn from_iter<I: IntoIterator<Item = String>>(secrets: I) -> Self {
        let trimmed = secrets.into_iter().map(|secret| secret.trim().to_owned());
        let mut all: Vec<String> = trimmed.filter(|secret| secret.chars().count() >= SHORTEST).collect();
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self { all: all.into() }
    }
}

impl Secrets {
    /// Returns these secrets together with others.
    #[must_use]
    pub fn and(&self, others: impl IntoIterator<Item = String>) -> Self {
        self.all.iter().cloned().chain(others).collect()
    }

    /// Replaces every secret in `text`.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for secret in self.all.iter() {
            if clean.contains(secret.as_str()) {
                clean = Cow::Owned(clean.replace(secret, PLACEHOLDER));
            }
        }
        clean
    }

    /// Replaces every secret in the strings and keys of a JSON value.
    pub fn redact_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(&text).into_owned()),
            Value::Array(values) => values.into_iter().map(|value| self.redact_json(value)).collect(),
            Value::Object(fields) => {
                let clean = |(key, value): (String, Value)| (self.redact(&key).into_owned(), self.redact_json(value));
                fields.into_iter().map(clean).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    /// Replaces every secret in a fact. Facts that only the host or the user makes are returned as they are.
    pub fn redact_fact(&self, fact: Fact) -> Fact {
        let is_foreign = match &fact {
            Fact::Replied { .. }
            | Fact::AskFailed { .. }
            | Fact::Called(_)
            | Fact::Returned { .. }
            | Fact::Questioned { .. }
            | Fact::Answered { .. }
            | Fact::Told { .. }
            | Fact::Compacted { .. }
            | Fact::Ended(_) => true,
            Fact::Spawned(_) | Fact::Asked(_) | Fact::Halted { .. } | Fact::Extended { .. } => false,
        };
        if self.all.is_empty() || !is_foreign {
            return fact;
        }
        let Ok(text) = serde_json::to_string(&fact) else { return fact };
        if !self.all.iter().any(|secret| text.contains(in_json(secret).as_str())) {
            return fact;
        }
        let clean = serde_json::from_str(&text).map(|value| self.redact_json(value));
        // This fails only if a secret is one of the format's own words, which reveals nothing.
        clean.and_then(serde_json::from_value).unwrap_or(fact)
    }

    /// Returns a filter for a text that arrives in pieces.
    pub fn stream(&self) -> RedactedStream {
        RedactedStream { secrets: self.clone(), held: String::new() }
    }
}

/// The secret as it is written inside a JSON string.
fn in_json(secret: &str) -> String {
    let quoted = Value::from(secret).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Removes secrets from a text that arrives in pieces, even if a secret is split between two of them.
#[derive(Debug)]
pub struct RedactedStream {
    secrets: Secrets,
    /// The end of the text, as long as it may be the beginning of a secret.
    held: String,
}

impl RedactedStream {
    /// Adds a piece and returns the text that can be shown.
    pub fn push<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        if self.secrets.all.is_empty() {
            return Cow::Borrowed(piece);
        }
        self.held.push_str(piece);
        let mut clean = self.secrets.redact(&self.held).into_owned();
        let held = self.secrets.all.iter().map(|secret| begun(&clean, secret)).max().unwrap_or(0);
        self.held = clean.split_off(clean.len() - held);
        Cow::Owned(clean)
    }

    /// Returns the rest once the text is complete.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The length of the longest end of `text` that is a beginning of `secret`.
fn begun(text: &str, secret: &str) -> usize {
    let starts = secret.char_indices().map(|(at, _)| at).skip(1);
    starts.filter(|length| text.ends_with(&secret[..*length])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        message::Usage,
        model::{AskFailure, Charge, ModelError},
    };

    const KEY: &str = "sk-\"quoted\\0123456789";

    #[test]
    fn secrets_are_removed_from_facts_and_short_ones_are_not() {
        let secrets: Secrets = [KEY.to_owned(), "x".to_owned(), format!("{KEY}-longer")].into_iter().collect();
        assert_eq!(secrets.redact(&format!("a {KEY}-longer b {KEY} x")), "a [redacted] b [redacted] x");
        assert_eq!(format!("{secrets:?}"), "Secrets(2)");
        let error = ModelError::Broken { reason: format!("bad {KEY}") };
        let failure = AskFailure { error, charge: Charge::Hold, partial: format!("so {KEY}") };
        let fact = secrets.redact_fact(Fact::AskFailed { failure: Box::new(failure), charge: Usage::default() });
        let Fact::AskFailed { failure, .. } = fact else { panic!("{fact:?}") };
        assert_eq!(
            (failure.partial.as_str(), failure.error.to_string().contains("[redacted]")),
            ("so [redacted]", true)
        );
    }

    #[test]
    fn split_secret_is_removed_wherever_it_is_split() {
        let secrets: Secrets = [KEY.to_owned()].into_iter().collect();
        let text = format!("before sk-\"quo {KEY} after {KEY}");
        for (cut, _) in text.char_indices() {
            let mut stream = secrets.stream();
            let shown = format!("{}{}{}", stream.push(&text[..cut]), stream.push(&text[cut..]), stream.finish());
            assert_eq!(shown, "before sk-\"quo [redacted] after [redacted]", "cut at {cut}");
        }
        let mut stream = secrets.stream();
        let one_by_one: String = text.chars().map(|letter| stream.push(&letter.to_string()).into_owned()).collect();
        assert_eq!(one_by_one + &stream.finish(), "before sk-\"quo [redacted] after [redacted]");
    }
}
