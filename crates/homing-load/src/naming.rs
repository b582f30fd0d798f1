//! What an agent may be called.

/// Longer names are refused rather than cut.
pub(crate) const MAX_LENGTH: usize = 128;

/// `^[a-z][a-z0-9-]*$`, of a sensible length.
pub(crate) fn is_good(name: &str) -> bool {
    name.len() <= MAX_LENGTH
        && name.starts_with(|it: char| it.is_ascii_lowercase())
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
}

/// `plugin:name`.
pub(crate) fn is_qualified(name: &str) -> bool {
    name.split_once(':').is_some_and(|(plugin, name)| is_good(plugin) && is_good(name))
}

/// The nearest good name, if anything is left of it.
pub(crate) fn slug(name: &str) -> Option<String> {
    let mut slug = String::new();
    for it in name.chars().flat_map(char::to_lowercase) {
        match it.is_ascii_alphanumeric() {
            true => slug.push(it),
            false if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            false => (),
        }
    }
    let slug = slug.trim_end_matches('-');
    match slug.starts_with(|it: char| it.is_ascii_digit()) {
        true => Some(format!("agent-{slug}")),
        false => Some(slug.to_owned()),
    }
    .filter(|it| is_good(it))
}
