//! API keys: never printed, and removed from error messages that quote them.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use homing_core::model::{AskFailure, ModelError};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// A provider's API key, if it has one.
#[derive(Clone, Default)]
pub(crate) struct ApiKey(Option<SecretString>);

impl ApiKey {
    /// Wraps a key; a blank one counts as absent.
    pub(crate) fn new(secret: Option<SecretString>) -> Self {
        let trimmed = secret.map(|secret| SecretString::from(secret.expose_secret().trim().to_owned()));
        Self(trimmed.filter(|secret| !secret.expose_secret().is_empty()))
    }

    /// The key in plain text, for the one header that carries it.
    pub(crate) fn expose(&self) -> Option<&str> {
        self.0.as_ref().map(|secret| secret.expose_secret())
    }

    /// A short hash that distinguishes keys without revealing them.
    pub(crate) fn fingerprint(&self) -> String {
        match self.expose() {
            None => "no key".to_owned(),
            Some(key) => format!("{:x}", Sha256::digest(key.as_bytes()))[..8].to_owned(),
        }
    }

    /// Removes the key from the message of `failure`, however the provider encoded it.
    pub(crate) fn scrub(&self, mut failure: AskFailure) -> AskFailure {
        let reason = match &mut failure.error {
            ModelError::Busy { reason, .. }
            | ModelError::Broken { reason }
            | ModelError::ContextFull { reason }
            | ModelError::Refused { reason }
            | ModelError::Unauthorized { reason }
            | ModelError::Unusable { reason }
            | ModelError::Team { reason, .. } => reason,
            _ => return failure,
        };
        *reason = self.scrub_text(reason);
        failure
    }

    fn scrub_text(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        // Very short keys are placeholders such as `x`; removing them would only garble the message.
        if let Some(key) = self.expose().filter(|key| key.len() >= 6) {
            for form in forms(key) {
                clean = clean.replace(&form, "[key]");
            }
        }
        clean.split(' ').map(|word| if looks_like_a_key(word) { "[key]" } else { word }).collect::<Vec<_>>().join(" ")
    }
}

/// The key in plain text, base64, hex and URL encoding.
fn forms(key: &str) -> Vec<String> {
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url: String = key
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    // The base64 of a text that contains the key depends on the key's offset modulo 3. For each offset, the digits that
    // encode only bytes of the key are fixed.
    let shifted = (0..3).map(|shift| {
        let padded = [&b"\0\0"[..shift], key.as_bytes()].concat();
        let whole = STANDARD_NO_PAD.encode(&padded);
        let from = [0, 2, 3][shift];
        let to = (padded.len() / 3) * 4;
        whole[from..to.max(from)].to_owned()
    });
    let mut forms = vec![key.to_owned(), hex.to_uppercase(), hex, url];
    forms.extend(shifted.filter(|form| form.len() >= 8));
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms
}

/// Returns true for shortened or starred keys, which providers quote as well.
fn looks_like_a_key(word: &str) -> bool {
    let bare = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let has_prefix =
        ["sk-", "gsk_", "xai-", "AIza", "hf_", "r8_", "pplx-"].iter().any(|prefix| bare.starts_with(prefix));
    has_prefix && bare.len() >= 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv40_no_form_of_the_key_survives() {
        let secret = "sk-test/Key+0123456789";
        let key = ApiKey::new(Some(SecretString::from(secret)));
        let quoted = [
            format!("bad key {secret}."),
            format!("bad header {}", STANDARD_NO_PAD.encode(secret)),
            format!("bad header {}", STANDARD_NO_PAD.encode(format!("x:{secret}"))),
            format!("bad header {}", STANDARD_NO_PAD.encode(format!("xy:{secret} and more"))),
            format!("hex {}", secret.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()),
            "url sk-test%2FKey%2B0123456789".to_owned(),
        ];
        for text in quoted {
            let clean = key.scrub_text(&text);
            assert!(clean.contains("[key]"), "{text} -> {clean}");
            assert!(!clean.contains("0123456789"), "{clean}");
        }
        assert_eq!(key.scrub_text("Incorrect key: sk-proj-***abc"), "Incorrect key: [key]");
        assert_eq!(ApiKey::new(None).scrub_text("plain words"), "plain words");
    }

    #[test]
    fn fingerprint_is_short_and_stable() {
        assert_eq!(ApiKey::new(Some(SecretString::from("key"))).fingerprint(), "2c70e12b");
        assert_eq!(ApiKey::new(None).fingerprint(), "no key");
    }
}
