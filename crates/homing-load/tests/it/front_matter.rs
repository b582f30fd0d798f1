//! Front matter that other programs do not read: fences of more dashes, blank lines, indentation.

use crate::show::{definition, parsed};

#[test]
fn unusual_fences_and_blank_lines_are_repaired() {
    let keys = "name: a\ndescription: d\ntools: Read\n";
    let indented = |by: &str| keys.lines().map(|line| format!("{by}{line}\n")).collect::<String>();
    for text in [
        format!("---\n{keys}-----\nBody\n\n---\nmore\n"),
        format!("-----\n{keys}-----\nBody\n\n---\nmore\n"),
        format!("---\n\n{keys}---\nBody\n\n---\nmore\n"),
        format!("\n---\n{keys}---\nBody\n\n---\nmore\n"),
        format!("\n\n---\n\n{keys}----\nBody\n\n---\nmore\n"),
        format!("# Title\n\n---\n\n{keys}---\nBody\n\n---\nmore\n"),
        format!("---\n{}---\nBody\n\n---\nmore\n", indented("  ")),
        format!("  ---\n{}  ---\nBody\n\n---\nmore\n", indented("  ")),
        format!("    ---\n{}    ---\nBody\n\n---\nmore\n", indented("    ")),
        "---\nname: a\n  description: d\n  tools: Read\n---\nBody\n\n---\nmore\n".to_owned(),
    ] {
        let agent = definition(&text);
        assert_eq!((agent.name.as_str(), agent.description.as_str()), ("a", "d"), "{text}");
        assert_eq!(agent.prompt, "Body\n\n---\nmore", "{text}");
        assert_eq!(serde_json::to_value(&agent.tools).unwrap()["tools"]["only"][0], "read", "{text}");
    }
}

#[test]
fn unclosed_front_matter_may_begin_with_a_blank_line_or_end_with_an_indented_fence() {
    for text in ["---\n\nname: a\ndescription: d\n\nBody\n", "---\n  name: a\n  description: d\n  ---\n\nBody\n"] {
        let agent = definition(text);
        assert_eq!((agent.name.as_str(), agent.prompt.as_str()), ("a", "Body"), "{text}");
    }
}

#[test]
fn each_repair_is_reported() {
    for text in [
        "---\nname: a\ndescription: d\n-----\nBody\n",
        "  ---\n  name: a\n  description: d\n  ---\nBody\n",
        "---\nname: a\n  description: d\n---\nBody\n",
    ] {
        let parsed = parsed(".claude/agents/a.md", text);
        assert_eq!(parsed.diagnostics.len(), 1, "{text}: {:?}", parsed.diagnostics);
    }
}

#[test]
fn horizontal_rules_do_not_become_front_matter() {
    for text in ["# Title\n\n-----\n\nNote: this is text.\n", "Title\n  ---\nNote: text\n", "Title\n-----\n\ntext\n"] {
        assert!(parsed("docs/x.md", text).definitions.is_empty(), "{text}");
    }
    let agent = definition("---\nname: a\ndescription: |\n  one\n  -----\n  two\n---\nBody\n");
    assert_eq!(agent.description, "one\n-----\ntwo");
}
