//! Valid names of agents.

/// Longer names are rejected, not truncated.
pub(crate) const MAX_LENGTH: usize = 128;

/// Returns true if `name` matches `^[a-z][a-z0-9-]*$` and is not too long.
pub(crate) fn is_valid(name: &str) -> bool {
    name.len() <= MAX_LENGTH
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The nearest valid name, if there is one.
pub(crate) fn slug(name: &str) -> Option<String> {
    let mut slug = String::new();
    for character in name.chars().flat_map(char::to_lowercase) {
        if character.is_ascii_alphanumeric() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    let starts_with_digit = slug.starts_with(|first: char| first.is_ascii_digit());
    let slug = if starts_with_digit { format!("agent-{slug}") } else { slug.to_owned() };
    Some(slug).filter(|slug| is_valid(slug))
}
