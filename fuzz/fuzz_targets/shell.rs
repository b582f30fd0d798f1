//! Shell lines against rules. A line that a real parser finds broken is never taken apart, a line that was not taken apart is
//! never vouched for by a pattern, and what a line was taken apart into is read as itself.
#![no_main]

use homing_core::{
    authority::{Allow, Decision, Grant, Layer, Network, Sandbox},
    rule::{Rule, Subject, Subjects},
};
use homing_tools::shell::subjects;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let read = subjects(line);
    let allowed = is_allowed(&read);
    match &read {
        Subjects::None => panic!("a command always has subjects"),
        Subjects::Unclear(_) => assert!(!allowed, "{line:?} is unclear and allowed"),
        Subjects::Parts(parts) => {
            assert!(is_whole(line), "{line:?} is broken and was taken apart into {parts:?}");
            let texts: Vec<&str> = parts.iter().map(text).collect();
            let ours = |it: &&str| it.starts_with("git log");
            assert_eq!(allowed, texts.iter().all(ours), "{texts:?}");
            read_again(parts[0].clone());
        }
    }
});

fn text(part: &Subject) -> &str {
    match part {
        Subject::Command { text, .. } => text,
        other => panic!("{other:?} is not a command"),
    }
}

/// The first command as it is shown to rules and people, read once more, is the same command or unclear, never another one.
fn read_again(part: Subject) {
    match subjects(text(&part)) {
        Subjects::Parts(parts) => assert_eq!(parts.first(), Some(&part)),
        // A quote within quotes is shown with a backslash, which is not read.
        Subjects::Unclear(_) => (),
        Subjects::None => panic!("a command always has subjects"),
    }
}

fn is_allowed(subjects: &Subjects) -> bool {
    let rules = ["git log", "git log *"].map(|pattern| Rule::calls("bash", pattern));
    let layer = Layer { allow: Allow::Only(rules.to_vec()), ..Layer::everything("the test") };
    let grant = Grant {
        layers: vec![layer.into()],
        read: Vec::new(),
        write: Vec::new(),
        network: Network::Off,
        sandbox: Sandbox::ReadOnly,
    };
    matches!(grant.decide("bash", subjects), Decision::Allow { .. })
}

/// Returns true if bash accepts the line's syntax.
fn is_whole(line: &str) -> bool {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).expect("the grammar fits");
    parser.parse(line, None).is_some_and(|tree| !tree.root_node().has_error())
}
