//! Keys: held so that they cannot be printed, and cut out of whatever a provider says back.

use homing_core::model::{AskFailure, ModelError};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// A provider's key, or the fact that it needs none.
#[derive(Clone, Default)]
pub(crate) struct Key(Option<SecretString>);

impl Key {
    /// A key; blank ones are none.
    pub(crate) fn new(secret: Option<SecretString>) -> Self {
        let trimmed = secret.map(|it| SecretString::from(it.expose_secret().trim().to_owned()));
        Self(trimmed.filter(|it| !it.expose_secret().is_empty()))
    }

    /// The key itself, for the one header that carries it.
    pub(crate) fn expose(&self) -> Option<&str> {
        self.0.as_ref().map(|it| it.expose_secret())
    }

    /// Tells keys apart without giving them away.
    pub(crate) fn fingerprint(&self) -> String {
        match self.expose() {
            None => "no key".to_owned(),
            Some(key) => Sha256::digest(key.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// `failure` without the key, in whatever form a provider quoted it.
    pub(crate) fn scrub(&self, mut failure: AskFailure) -> AskFailure {
        let reason = match &mut failure.error {
            ModelError::Busy { reason, .. }
            | ModelError::Broken { reason }
            | ModelError::ContextFull { reason }
            | ModelError::Refused { reason }
            | ModelError::Unauthorized { reason }
            | ModelError::Unusable { reason }
            | ModelError::Team { reason } => reason,
            ModelError::OutOfTime => return failure,
        };
        *reason = self.scrub_text(reason);
        failure
    }

    fn scrub_text(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        // Very short keys are placeholders such as `x`; cutting them out would only garble the message.
        if let Some(key) = self.expose().filter(|key| key.len() >= 6) {
            for form in forms(key) {
                clean = clean.replace(&form, "[key]");
            }
        }
        clean.split(' ').map(|word| if looks_like_a_key(word) { "[key]" } else { word }).collect::<Vec<_>>().join(" ")
    }
}

/// The key as it is, and as base64, hex and URL encoding write it.
fn forms(key: &str) -> Vec<String> {
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url: String = key
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    // Base64 of a text that contains the key depends on where it begins; the middle of each of three cases is fixed.
    let shifted = (0..3).map(|shift| {
        let padded = [&b"\0\0"[..shift], key.as_bytes()].concat();
        let whole = base64(&padded);
        let from = [0, 2, 3][shift];
        let to = (padded.len() / 3) * 4;
        whole[from..to.max(from)].to_owned()
    });
    let mut forms = vec![key.to_owned(), hex.to_uppercase(), hex, url];
    forms.extend(shifted.filter(|it| it.len() >= 8));
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = chunk.iter().chain([&0, &0]).take(3).fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        (0..=chunk.len()).map(|at| char::from(DIGITS[bits >> (18 - 6 * at) & 63])).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Providers quote keys shortened or starred; such a word is no use to a reader, either.
fn looks_like_a_key(word: &str) -> bool {
    let bare = word.trim_matches(|it: char| !it.is_ascii_alphanumeric());
    let has_prefix = ["sk-", "gsk_", "xai-", "AIza", "hf_", "r8_", "pplx-"].iter().any(|it| bare.starts_with(it));
    has_prefix && bare.len() >= 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv40_no_form_of_the_key_survives() {
        let secret = "sk-test/Key+0123456789";
        let key = Key::new(Some(SecretString::from(secret)));
        let quoted = [
            format!("bad key {secret}."),
            format!("bad header {}", base64(secret.as_bytes())),
            format!("bad header {}", base64(format!("x:{secret}").as_bytes())),
            format!("bad header {}", base64(format!("xy:{secret} and more").as_bytes())),
            format!("hex {}", secret.bytes().map(|it| format!("{it:02x}")).collect::<String>()),
            "url sk-test%2FKey%2B0123456789".to_owned(),
        ];
        for text in quoted {
            let clean = key.scrub_text(&text);
            assert!(clean.contains("[key]"), "{text} -> {clean}");
            assert!(!clean.contains("0123456789"), "{clean}");
        }
        assert_eq!(key.scrub_text("Incorrect key: sk-proj-***abc"), "Incorrect key: [key]");
        assert_eq!(Key::new(None).scrub_text("plain words"), "plain words");
    }

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw");
        assert_eq!(base64(b"any carnal pleasu"), "YW55IGNhcm5hbCBwbGVhc3U");
    }
}
