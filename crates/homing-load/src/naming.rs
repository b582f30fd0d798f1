//! Valid names of agents.

use deunicode::deunicode_char;

/// Longer names are rejected, not truncated.
pub(crate) const MAX_LENGTH: usize = 128;

/// Returns true if `name` matches `^[a-z0-9][a-z0-9-]*$`, contains a letter and is not too long.
pub(crate) fn is_valid(name: &str) -> bool {
    name.len() <= MAX_LENGTH
        && !name.starts_with('-')
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The nearest valid name, if there is one. Letters of other scripts are transliterated.
pub(crate) fn slug(name: &str) -> Option<String> {
    let mut slug = String::new();
    for character in name.chars() {
        if character.is_ascii() || !character.is_alphabetic() {
            push(&mut slug, character);
        } else {
            deunicode_char(character).unwrap_or("-").chars().for_each(|letter| push(&mut slug, letter));
        }
    }
    let slug = slug.trim_end_matches('-');
    let has_letter = slug.bytes().any(|byte| byte.is_ascii_lowercase());
    let slug = if has_letter || slug.is_empty() { slug.to_owned() } else { format!("agent-{slug}") };
    Some(slug).filter(|slug| is_valid(slug))
}

/// Adds a letter or digit in lower case; anything else separates words.
fn push(slug: &mut String, character: char) {
    if character.is_ascii_alphanumeric() {
        slug.push(character.to_ascii_lowercase());
    } else if !slug.is_empty() && !slug.ends_with('-') {
        slug.push('-');
    }
}
