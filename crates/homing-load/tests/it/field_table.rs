//! The table of fields in the documentation is the one in the code.

use std::{fs, path::Path};

use crate::show::parsed;
use homing_core::{definition::Observers, diagnostic::Severity, rule::Rule};
use homing_load::field_table;

const BEGIN: &str = "<!-- field table: written by a test -->\n";
const END: &str = "<!-- end of the field table -->";

/// `UPDATE_DOCS=1` writes the table.
#[test]
fn r58_documentation_has_the_table_of_all_fields() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMATS.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (written, after) = rest.split_once(END).expect("the end of the table");
    let table = field_table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(written, table, "run this test with UPDATE_DOCS=1");
    }
}

#[test]
fn r58_every_ignored_key_is_reported() {
    let table = field_table();
    let rows = table.lines().filter(|row| row.starts_with("| all |") && row.contains("| ignored:"));
    let keys: Vec<&str> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
    assert!(keys.len() > 10, "{keys:?}");
    for key in keys {
        let parsed = parsed(".claude/agents/a.md", &format!("---\nname: a\ndescription: d\n{key}: x\n---\nP\n"));
        let said = parsed.diagnostics.iter().find(|diagnostic| diagnostic.field.as_deref() == Some(key));
        let said = said.unwrap_or_else(|| panic!("{key} is ignored silently"));
        assert!(said.severity == Severity::Info && said.message.contains("is ignored"), "{said:?}");
    }
}

#[test]
fn observers_and_windows_out_of_range_are_reported() {
    let said = |keys: &str| {
        let parsed = parsed(".claude/agents/a.md", &format!("---\nname: a\ndescription: d\n{keys}\n---\nP\n"));
        let observers = parsed.definitions[0].execution.observers.clone().map_or(0, |observers| observers.agents.len());
        format!(
            "{observers} {}",
            parsed.diagnostics.iter().map(|found| found.message.clone()).collect::<Vec<_>>().join("; ")
        )
    };
    assert_eq!(said("observer: [a, b, c, d, e]"), "4 a run has at most 4 observers: the others are ignored");
    assert_eq!(
        said("autoCompactWindow: 500"),
        "0 `autoCompactWindow` must be a number of tokens from 20000 on: ignored"
    );
}

#[test]
fn newest_fields_are_obeyed() {
    let agent = |path: &str, keys: &str| {
        let mut parsed = parsed(path, &format!("---\nname: a\ndescription: d\n{keys}\n---\nP\n"));
        parsed.definitions.remove(0)
    };
    let omitted = agent(".claude/agents/a.md", "omitClaudeMd: true");
    assert_eq!(serde_json::to_value(&omitted.context).unwrap()["surroundings"], "environment");
    let observed = agent(
        ".claude/agents/a.md",
        "autoCompactWindow: 150_000\nobserver: critic\nobserverMessage: Mind it.\nobserveSubagents: false",
    );
    assert_eq!(observed.context.compact_window, Some(150_000));
    let expected = Observers { agents: vec!["critic".into()], message: Some("Mind it.".into()), subagents: false };
    assert_eq!(observed.execution.observers, Some(expected));
    let handoff =
        agent(".github/agents/a.agent.md", "tools: [read]\nhandoffs: [{label: Go, agent: coder, prompt: Go on}]");
    let expected = homing_core::authority::Allow::Only(vec![Rule::tool("read"), Rule::calls("delegate", "coder")]);
    assert_eq!(handoff.tools.allowed, expected);
    let modes =
        "customModes:\n  - {slug: tester, name: Tester, roleDefinition: You test., whenToUse: d, groups: [read]}\n";
    assert_eq!(parsed(".kilocodemodes", modes).definitions[0].name, "tester");
    let kiro = r#"{"name": "k", "description": "d", "prompt": "P", "tools": ["fs_read", "shell"], "allowedTools": ["fs_read"]}"#;
    let kiro = &parsed(".kiro/agents/k.json", kiro).definitions[0];
    assert_eq!(
        (kiro.source.dialect.as_str(), kiro.tools.allowed == homing_core::authority::Allow::All),
        ("kiro", false)
    );
    assert!(serde_json::to_string(&kiro.tools).unwrap().contains("bash"));
}
