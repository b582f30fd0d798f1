//! Unknown keys that were probably meant as restrictions: misspelt keys, and synonyms of known ones.
//! Ignoring such a key would silently grant an agent more than its author intended.

use homing_core::registry::distance;

use crate::fields::{Field, lookup};

/// Keys of restrictions, which may be misspelt.
const MISSPELT: &[&str] = &[
    "tools",
    "allowedtools",
    "disallowedtools",
    "permission",
    "permissions",
    "permissionmode",
    "readonly",
    "maxturns",
    "maxtokens",
    "maxcost",
    "timeout",
    "limits",
    "budget",
    "isolation",
];

/// Words that deny, alone or combined with `tools`.
const DENY: &[&str] = &[
    "deny",
    "denied",
    "denylist",
    "disallow",
    "disallowed",
    "forbid",
    "forbidden",
    "block",
    "blocked",
    "blocklist",
    "blacklist",
    "blacklisted",
    "exclude",
    "excluded",
    "prohibit",
    "prohibited",
    "restrict",
    "restricted",
];

/// Words that deny only in combination with `tools`: alone they may mean something else.
const DENY_TOOLS: &[&str] = &[
    "ban",
    "banned",
    "disable",
    "disabled",
    "restrictions",
    "exclusions",
    "remove",
    "removed",
    "reject",
    "rejected",
    "notallowed",
    "without",
    "no",
];

/// Words that allow, alone or combined with `tools`.
const ALLOW: &[&str] = &["allow", "allowed", "allowlist", "whitelist", "whitelisted", "permitted"];

/// Words that allow only in combination with `tools`.
const ALLOW_TOOLS: &[&str] = &["permit", "enable", "enabled", "available", "only"];

/// The restriction that a folded key was probably meant to be: its name and field.
pub(crate) fn meant(folded: &str) -> Option<(&'static str, Field)> {
    match folded {
        "permissions" | "toolpermissions" | "toolspermissions" => return Some(("permission", Field::Permission)),
        "disabled" => return Some(("disable", Field::Disable)),
        _ => (),
    }
    let alone = |words: &[&str]| words.iter().any(|word| word.len() > 7 && is_near(folded, word));
    let mentions_tools = folded.contains("too") || folded.contains("tol");
    let combine =
        |word: &&str| [format!("{word}tools"), format!("tools{word}"), format!("{word}tool"), format!("tool{word}")];
    let with_tools = |words: &[&str]| mentions_tools && words.iter().flat_map(combine).any(|key| is_near(folded, &key));
    let exact = |words: &[&str]| words.contains(&folded);
    // Exact words take precedence over misspelt ones, and known keys over their synonyms.
    if exact(DENY) {
        return Some(("disallowedTools", Field::Denied));
    }
    if exact(ALLOW) {
        return Some(("tools", Field::Tools));
    }
    if let Some(key) = MISSPELT.iter().find(|key| is_near(folded, key)) {
        let key = if *key == "permissions" { "permission" } else { *key };
        return lookup(key).map(|field| (key, field));
    }
    if with_tools(DENY) || with_tools(DENY_TOOLS) || alone(DENY) {
        return Some(("disallowedTools", Field::Denied));
    }
    (with_tools(ALLOW) || with_tools(ALLOW_TOOLS) || alone(ALLOW)).then_some(("tools", Field::Tools))
}

/// Returns true if the two differ by a few typing errors. Short words must be equal, because they are similar to many others.
fn is_near(folded: &str, word: &str) -> bool {
    let errors = match word.len() {
        0..=4 => 0,
        5..=7 => 1,
        _ => 2,
    };
    // The comparison of lengths is cheap and rules out most unknown keys.
    folded.len().abs_diff(word.len()) <= errors && distance(folded, word) <= errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_of_restrictions_are_recognised() {
        for key in
            ["blockedtools", "disabledtools", "forbiddentools", "deny", "excludedtools", "disallowed", "toolsdenied"]
        {
            assert_eq!(meant(key).map(|(_, field)| field), Some(Field::Denied), "{key}");
        }
        for key in ["restrictedtools", "blokedtools", "tooldenylist", "forbidentools", "notools", "toolrestrictions"] {
            assert_eq!(meant(key).map(|(_, field)| field), Some(Field::Denied), "{key}");
        }
        for key in ["allow", "alowedtools", "allowtools", "permittedtools", "enabledtools", "toolwhitelist", "tool"] {
            assert_eq!(meant(key).map(|(_, field)| field), Some(Field::Tools), "{key}");
        }
        for key in ["permissions", "permision", "permissons"] {
            assert_eq!(meant(key).map(|(_, field)| field), Some(Field::Permission), "{key}");
        }
    }

    #[test]
    fn unrelated_keys_are_not_restrictions() {
        for key in
            ["toolchain", "foods", "band", "blog", "density", "checklist", "examples", "globs", "toolbox", "banner"]
        {
            assert_eq!(meant(key), None, "{key}");
        }
    }
}
