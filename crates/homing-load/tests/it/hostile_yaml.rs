//! Hostile YAML (list Y): an error or a harmless result, in bounded time and memory.

use std::time::{Duration, Instant};

use crate::show::{definition, parsed};
use homing_core::{authority::Allow, diagnostic::Severity, limits::Cap};
use homing_load::{MAX_FRONT_MATTER, Parsed};

fn front(yaml: &str) -> Parsed {
    let start = Instant::now();
    let parsed = parsed(".claude/agents/file.md", &format!("---\nname: a\ndescription: d\n{yaml}\n---\nP\n"));
    assert!(start.elapsed() < Duration::from_secs(10), "bounded time");
    parsed
}

fn refused(yaml: &str) -> String {
    let parsed = front(yaml);
    assert!(parsed.definitions.is_empty(), "{yaml:.60} was accepted");
    let errors = parsed.diagnostics.into_iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    errors.map(|it| it.message).collect::<Vec<_>>().join("; ")
}

fn tools(yaml: &str) -> Allow {
    front(yaml).definitions.remove(0).tools.allowed
}

fn only(names: &[&str]) -> Allow {
    Allow::Only(names.iter().map(|name| name.parse().unwrap()).collect())
}

#[test]
fn y1_billion_laughs_is_rejected() {
    let mut yaml = String::from("l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let before = format!("*l{}", level - 1);
        yaml.push_str(&format!("l{level}: &l{level} [{}]\n", vec![before; 9].join(", ")));
    }
    assert!(refused(&yaml).contains("more than"));
}

#[test]
fn y2_hundred_thousand_brackets_are_rejected() {
    assert!(refused(&format!("x: {}", "[".repeat(60_000))).contains("recursion limit"));
    assert!(refused(&format!("x: {}", "[".repeat(100_000))).contains(&MAX_FRONT_MATTER.to_string()));
}

#[test]
fn y3_nested_flow_maps_are_rejected() {
    assert!(refused(&format!("x: {}", "{a: ".repeat(15_000))).contains("nested more than"));
    assert!(refused(&format!("x: {}", "{a: ".repeat(50_000))).contains("front matter has"));
}

#[test]
fn y4_deep_block_maps_are_rejected() {
    let deep: String = (0..300).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    assert!(refused(&deep).contains("nested more than"));
}

#[test]
fn y5_narrower_of_duplicate_restrictions_applies() {
    assert_eq!(tools("tools: Read\ntools: \"*\""), only(&["read"]));
    assert_eq!(tools("tools: \"*\"\ntools: Read"), only(&["read"]));
    assert_eq!(tools("tools: Read, Grep\nallowedTools: Grep, Bash"), only(&["grep"]));
    assert_eq!(tools("tools: Bash\ntools: Bash(git log:*)"), only(&["bash(git log:*)"]));
    let agent = &front("maxTurns: 50\nmax_turns: 5\ndisallowedTools: Write\ndisallowedTools: Edit").definitions[0];
    assert_eq!(agent.limits.turns, Cap::At(5));
    assert_eq!(agent.tools.denied.len(), 2);
    let twice = front("model: opus\nmodel: haiku");
    assert_eq!(twice.diagnostics[0].message, "duplicate key `model`: the first one is used");
    assert_eq!((twice.diagnostics[0].line, twice.diagnostics[0].column), (5, 1));
}

#[test]
fn y6_norway_problem_and_unusual_numbers() {
    assert!(front("background: yes").definitions[0].execution.background);
    assert!(!front("background: no").definitions[0].execution.background);
    assert_eq!(front("maxTurns: 1_000").definitions[0].limits.turns, Cap::At(1_000));
    for odd in ["0o17", "12e03", "0x1F", "1 000"] {
        assert!(refused(&format!("maxTurns: {odd}")).contains("is not a whole number"), "{odd}");
    }
    assert_eq!(tools("tools: {read: no, bash: off, grep: on}"), only(&["grep"]));
}

#[test]
fn y7_invalid_limits_are_rejected_never_unlimited() {
    for bad in [".inf", "-.inf", ".nan", "-1", "1e400", "99999999999999999999999", "", "[5]", "{a: 5}", "many", "~"] {
        for key in ["maxTurns", "maxTokens", "maxCost", "timeout"] {
            assert!(!refused(&format!("{key}: {bad}")).is_empty(), "{key}: {bad}");
            assert!(!refused(&format!("limits: {{{key}: {bad}}}")).is_empty());
        }
    }
    assert!(refused("limits: none").contains("must be a map of limits"));
    assert!(refused("limits: {trns: 5}").contains("unknown limit `trns`"));
}

#[test]
fn y8_tags_execute_nothing() {
    let agent = &front("model: !!python/object/apply:os.system [\"touch /tmp/evil\"]").definitions[0];
    assert_eq!(agent.name, "a");
}

#[test]
fn y9_recursive_anchor_is_rejected() {
    assert!(refused("x: &x [*x]").contains("cannot be read"));
}

#[test]
fn y10_merge_key_never_overrides_written_keys() {
    assert_eq!(tools("base: &base {tools: \"*\"}\n<<: *base\ntools: Read"), only(&["read"]));
    assert_eq!(tools("base: &base {tools: Read}\n<<: *base"), only(&["read"]));
}

#[test]
fn y11_second_document_is_body() {
    let parsed = front("tools: Read\n---\ntools: \"*\"\nmodel: evil");
    assert_eq!(parsed.definitions[0].tools.allowed, only(&["read"]));
    assert!(parsed.definitions[0].prompt.starts_with("tools:"));
}

#[test]
fn y12_five_megabyte_key_is_rejected() {
    assert!(refused(&format!("{}: x", "k".repeat(5_000_000))).contains("front matter has"));
    assert_eq!(front(&format!("{}: x", "k".repeat(900))).definitions.len(), 1);
}

#[test]
fn y13_tools_of_the_wrong_shape_stay_closed() {
    assert_eq!(tools("tools: [Bash, [Read]]"), only(&["bash"]));
    assert_eq!(tools("tools: {Read: true}"), only(&["read"]));
    assert_eq!(tools("tools: {Read: maybe}"), Allow::All, "see the denial");
    assert_eq!(front("tools: {Read: maybe}").definitions[0].tools.denied, [homing_core::rule::Rule::tool("read")]);
    assert_eq!(tools("tools: ~"), only(&[]));
    assert_eq!(tools("tools: [{a: b}]"), only(&[]));
    assert_eq!(tools("tools: 5"), only(&[]));
}

#[test]
fn y14_unknown_keys_are_kept_and_reported() {
    let parsed = front("frobnicate: {deep: [1, two]}");
    let kept = &parsed.definitions[0].extra.unknown["frobnicate"];
    assert_eq!(kept.to_string(), r#"{"deep":[1,"two"]}"#);
    let diagnostic = &parsed.diagnostics[0];
    assert_eq!((diagnostic.line, diagnostic.column, diagnostic.field.as_deref()), (4, 1, Some("frobnicate")));
}

#[test]
fn y15_tabs_and_directives_are_accepted() {
    assert_eq!(front("tools:\n\t- Read").definitions[0].tools.allowed, only(&["read"]));
    for directive in ["%YAML 9.9", "%TAG ! tag:evil,2000:"] {
        assert!(
            front(directive).definitions.iter().all(|agent| agent.tools.allowed == Allow::All && agent.name == "a")
        );
    }
}

#[test]
fn y16_amounts_of_money_are_exact_or_rejected() {
    let cost = |text: &str| front(&format!("maxCost: {text}")).definitions.first().map(|it| it.limits.cost_micros);
    assert_eq!(cost("$5"), Some(Cap::At(5_000_000)));
    assert_eq!(cost("5 USD"), Some(Cap::At(5_000_000)));
    assert_eq!(cost("0"), Some(Cap::At(0)));
    assert_eq!(cost("0.0000001"), Some(Cap::At(0)), "cut off, never rounded up");
    assert_eq!(cost("none"), Some(Cap::Unlimited));
    for bad in ["5,00", "-0", "1e-9", "five", "5€"] {
        assert_eq!(cost(bad), None, "{bad}");
    }
}

#[test]
fn unquoted_colons_and_stars_are_read_as_text() {
    let agent = definition("---\nname: a\ndescription: Use when: always\n  and more\ntools: Read\n---\nP\n");
    assert_eq!(agent.description, "Use when: always and more");
    let agent = definition("---\nname: a\ndescription: *starred* text\n---\nP\n");
    assert_eq!(agent.description, "*starred* text");
}

#[test]
fn examples_that_are_not_indented_stay_in_the_description() {
    let text = "---\nname: a\ndescription: Use this. Examples:\n<example>\nContext: The user: wants\nuser: \"hi: there\"\n</example>\nmodel: opus\ntools: [Read, Grep]\n---\nP\n";
    let agent = definition(text);
    assert!(agent.description.contains("Context: The user: wants"), "{}", agent.description);
    assert_eq!(agent.tools.allowed, only(&["read", "grep"]));
    assert!(agent.extra.unknown.is_empty());
}

#[test]
fn inv45_deep_json_and_toml_are_rejected() {
    for (path, text) in [
        ("x.json", format!("{{\"name\": \"a\", \"x\": {}", "[".repeat(500_000))),
        ("x.toml", format!("name = \"a\"\nx = {}", "[".repeat(500_000))),
        ("x.toml", format!("name = \"a\"\n[{}]\n", vec!["a"; 100_000].join("."))),
        (".roomodes", format!("customModes: {}", "[".repeat(100_000))),
    ] {
        let parsed = parsed(path, &text);
        assert!(parsed.definitions.is_empty() && !parsed.diagnostics.is_empty(), "{path}");
    }
}
