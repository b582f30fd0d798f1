//! Keys that nobody defined but that were surely meant to restrict: misspelt ones, and words that mean the same as a known one.
//! Ignoring such a key would silently give an agent more than its author wanted.

use homing_core::registry::distance;

use crate::fields::{Field, lookup};

/// Fields whose misspelling would take a restriction away.
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

/// Words that forbid, by themselves or together with `tools`.
const FORBID: &[&str] = &[
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

/// Words that forbid together with `tools` only: alone they may speak of something else.
const FORBID_TOOLS: &[&str] = &[
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

/// Words that allow, by themselves or together with `tools`.
const ALLOW: &[&str] = &["allow", "allowed", "allowlist", "whitelist", "whitelisted", "permitted"];

/// Words that allow together with `tools` only.
const ALLOW_TOOLS: &[&str] = &["permit", "enable", "enabled", "available", "only"];

/// The restriction that a folded key was probably meant to be, by its name and as a field.
pub(crate) fn meant(folded: &str) -> Option<(&'static str, Field)> {
    match folded {
        "permissions" | "toolpermissions" | "toolspermissions" => return Some(("permission", Field::Permission)),
        "disabled" => return Some(("disable", Field::Disable)),
        _ => (),
    }
    let alone = |words: &[&str]| words.iter().any(|it| it.len() > 7 && is_near(folded, it));
    let speaks_of_tools = folded.contains("too") || folded.contains("tol");
    let with_tools = |words: &[&str]| {
        let spelled =
            |it: &&str| [format!("{it}tools"), format!("tools{it}"), format!("{it}tool"), format!("tool{it}")];
        speaks_of_tools && words.iter().flat_map(|it| spelled(&it)).any(|it| is_near(folded, &it))
    };
    let exact = |words: &[&str]| words.contains(&folded);
    // A word without a mistake says more than one with, and a restriction that is known says more than its relatives.
    if exact(FORBID) {
        return Some(("disallowedTools", Field::Denied));
    }
    if exact(ALLOW) {
        return Some(("tools", Field::Tools));
    }
    if let Some(key) = MISSPELT.iter().find(|it| is_near(folded, it)) {
        let key = if *key == "permissions" { "permission" } else { *key };
        return lookup(key).map(|field| (key, field));
    }
    if with_tools(FORBID) || with_tools(FORBID_TOOLS) || alone(FORBID) {
        return Some(("disallowedTools", Field::Denied));
    }
    (with_tools(ALLOW) || with_tools(ALLOW_TOOLS) || alone(ALLOW)).then_some(("tools", Field::Tools))
}

/// Whether one is the other with a slip of the pen. Short words differ from each other by little, so they must be right.
fn is_near(folded: &str, word: &str) -> bool {
    let slips = match word.len() {
        0..=4 => 0,
        5..=7 => 1,
        _ => 2,
    };
    // Ten thousand files have many keys that nobody knows; most differ in length already.
    folded.len().abs_diff(word.len()) <= slips && distance(folded, word) <= slips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_restrict_are_understood() {
        for key in
            ["blockedtools", "disabledtools", "forbiddentools", "deny", "excludedtools", "disallowed", "toolsdenied"]
        {
            assert_eq!(meant(key).map(|it| it.1), Some(Field::Denied), "{key}");
        }
        for key in ["restrictedtools", "blokedtools", "tooldenylist", "forbidentools", "notools", "toolrestrictions"] {
            assert_eq!(meant(key).map(|it| it.1), Some(Field::Denied), "{key}");
        }
        for key in ["allow", "alowedtools", "allowtools", "permittedtools", "enabledtools", "toolwhitelist", "tool"] {
            assert_eq!(meant(key).map(|it| it.1), Some(Field::Tools), "{key}");
        }
        for key in ["permissions", "permision", "permissons"] {
            assert_eq!(meant(key).map(|it| it.1), Some(Field::Permission), "{key}");
        }
    }

    #[test]
    fn other_words_are_left_alone() {
        for key in
            ["toolchain", "foods", "band", "blog", "density", "checklist", "examples", "globs", "toolbox", "banner"]
        {
            assert_eq!(meant(key), None, "{key}");
        }
    }
}
