//! The types that this crate re-exports can grow without breaking its users.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Types that are closed on purpose: their readers must handle each case, or they cannot grow.
const CLOSED: &[&str] = &[
    "Abilities",         // known yes or no, as published
    "Account",           // a limit per day
    "Allow",             // everything, or a list
    "AmountError",       // the text that is not an amount
    "Args",              // JSON, or text that is not
    "Asked",             // the parts of a recorded fact
    "Authority",         // own permissions, and those to pass on
    "Begun",             // a new tree, or an earlier one
    "Cached",            // a new run, or an earlier result
    "CallKey",           // run, turn and index
    "CallRefusal",       // each screen must show it
    "Called",            // the parts of a recorded fact
    "Cap",               // default, unlimited, or a number
    "Charge",            // nothing, an amount, or the worst case
    "Claim",             // whose process is gone, or any
    "Commit",            // done, or pending
    "Decision",          // allow, ask or deny
    "Delta",             // each reader of a stream must show it
    "Effect",            // each permission mode decides by it
    "Effort",            // each wire must encode it
    "Ended",             // the parts of a recorded fact
    "Event",             // a fact, a notice, or a gap
    "Fact",              // each reader of a journal must know it
    "FieldType",         // a type of JSON
    "Filter",            // hosts write it as a literal
    "FindError",         // each host must explain it
    "FindQuestionError", // each host must explain it
    "HookCall",          // a tool and its arguments
    "HookDecision",      // allow, ask or block
    "HookEnding",        // end, or go on
    "HookNotes",         // for the model and for the user
    "HookRun",           // what every hook is told
    "InboxRequest",      // each owner must carry it out
    "Inherit",           // each converter must express it
    "Left",              // removed or kept
    "LimitFields",       // the limits of team files, with a default each
    "LimitHit",          // the limit, and what was spent where
    "MemoryScope",       // each host must have a folder for it
    "Message",           // one of three roles; each wire must encode it
    "MessageOrigin",     // each reader of a transcript must know it
    "Network",           // each sandbox must enforce it
    "NextSpeaker",       // each chat must know it
    "OnTaskFailure",     // each pattern must handle it
    "Outcome",           // each reader of a result must know it
    "Part",              // each wire must encode it
    "Pattern",           // each kind of team
    "PermissionMode",    // each decision must know it
    "Posted",            // the owner, or none
    "Process",           // each crew must follow it
    "QuestionKind",      // yes or no, a choice, or text
    "Record",            // a fact with its position
    "Reducer",           // each graph must apply it
    "Replay",            // may a call be repeated
    "ResolvedModel",     // names and warnings
    "Retention",         // hosts write it as a literal
    "Rule",              // a tool and a pattern
    "RuleError",         // the reason
    "Sampling",          // each wire must encode it
    "Sandbox",           // each sandbox must enforce it
    "Several",           // a list, or the first of several
    "Severity",          // info, warning, error
    "Skill",             // card, text and files
    "SkillCard",         // each library of skills fills it
    "SkillSettings",     // each library of skills fills it
    "Source",            // kind, path and dialect
    "Spawned",           // the parts of a recorded fact
    "Subject",           // each rule must match it
    "Subjects",          // none, parts, or unclear
    "Submission",        // new or earlier
    "SumBy",             // each screen of sums must show it
    "TaskDefaults",      // each loader fills it
    "ToolCall",          // ID, name and arguments
    "ToolChoice",        // each wire must encode it
    "ToolResult",        // each wire must encode it
    "Transient",         // a notice with its run and time
    "TransientKind",     // each screen must show it
    "UsageSum",          // a group with its usage
    "Which",             // roots, or all runs
    "Work",              // agents, or a tool
    "Workspace",         // a folder, and what else it needs
];

#[test]
fn reexported_types_can_grow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let definitions = definitions(&root.join("crates"));
    let names = reexported_by_facade(&root.join("crates/homing/src"));
    assert!(names.len() > 60, "{names:?}");
    let frozen: Vec<_> = names
        .iter()
        .filter(|name| !CLOSED.contains(&name.as_str()))
        .filter(|name| definitions.get(*name).is_some_and(|can_grow| !can_grow))
        .collect();
    assert!(frozen.is_empty(), "add `#[non_exhaustive]`, or list them as closed: {frozen:?}");
}

/// The names that the crate and its public modules re-export.
fn reexported_by_facade(sources: &Path) -> BTreeSet<String> {
    let root = fs::read_to_string(sources.join("lib.rs")).unwrap();
    let modules = root.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let modules = modules.map(|name| fs::read_to_string(sources.join(format!("{name}.rs"))).unwrap());
    modules.chain([root.clone()]).flat_map(|text| reexported(&text)).collect()
}

/// The names in the `pub use` lines of a file.
fn reexported(text: &str) -> Vec<String> {
    let uses = text.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
    let words = uses.flat_map(|list| list.split(|character: char| !character.is_alphanumeric() && character != '_'));
    words.filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned).collect()
}

/// The public types of all crates by name, and whether each can grow: it is `non_exhaustive`, or has private fields.
fn definitions(crates: &Path) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let members = ["homing", "homing-core", "homing-runtime", "homing-teams", "homing-tools"];
    let mut folders: Vec<_> = members.iter().map(|name| crates.join(name).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                add_definitions(&fs::read_to_string(entry.path()).unwrap(), &mut found);
            }
        }
    }
    found
}

fn add_definitions(text: &str, found: &mut BTreeMap<String, bool>) {
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum ")) else { continue };
        let name: String = rest.chars().take_while(|character| character.is_alphanumeric()).collect();
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("///"));
        let is_open = attributes.into_iter().any(|line| *line == "#[non_exhaustive]");
        let body = lines[at + 1..].iter().take_while(|line| **line != "}");
        let is_field = |line: &&&str| line.starts_with("    ") && !line.starts_with("     ");
        let is_private = |line: &str| {
            let line = line.trim_start();
            !line.starts_with("pub ") && !line.starts_with("//") && !line.starts_with('#')
        };
        let has_private = line.starts_with("pub struct ")
            && (body.into_iter().filter(is_field).any(|line| is_private(line))
                || rest.contains('(') && !rest.contains("(pub"));
        *found.entry(name).or_insert(false) |= is_open || has_private;
    }
}
