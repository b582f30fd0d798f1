//! Values that mean something else than they seem to: names, models, limits and pages.

use std::{fs, path::PathBuf};

use crate::show::{definition, parsed};
use homing_core::{definition::ModelChoice, diagnostic::Severity, limits::Cap};
use homing_load::{FileKind, ParseOptions, Parsed, ParsedFile, check, dialect, parse};
use tempfile::TempDir;

fn agent(keys: &str) -> String {
    format!("---\nname: a\ndescription: d\n{keys}\n---\nBody\n")
}

fn among(path: &str, text: &str) -> Parsed {
    let found = ParsedFile::Among(dialect::interchange());
    parse(
        path.as_ref(),
        text.as_bytes().to_vec(),
        found,
        homing_core::definition::Scope::Project,
        &ParseOptions::default(),
    )
}

#[test]
fn names_that_begin_with_a_digit_are_kept() {
    for name in ["3d-artist", "10x", "2fa"] {
        let text = agent("").replace("name: a", &format!("name: {name}"));
        let parsed = parsed(".claude/agents/x.md", &text);
        assert_eq!(
            (parsed.definitions[0].name.as_str(), parsed.diagnostics.len()),
            (name, 0),
            "{:?}",
            parsed.diagnostics
        );
    }
    let numeric = definition(&agent("").replace("name: a", "name: 42"));
    assert_eq!((numeric.name.as_str(), numeric.title.as_deref()), ("agent-42", Some("42")));
}

#[test]
fn names_in_other_scripts_become_readable() {
    let slugs =
        ["レビュー担当", "代码审查", "Проверка кода", "Prüfer für Änderungen", "مراجع", "코드 리뷰", "🚀 Launcher"]
            .map(|name| {
                let agent = definition(&agent("").replace("name: a", &format!("name: {name}")));
                assert_eq!(agent.title.as_deref(), Some(name), "the original is kept");
                agent.name
            });
    insta::assert_snapshot!(slugs.join("\n"), @"
    rebiyudan-dang
    dai-ma-shen-cha
    proverka-koda
    prufer-fur-anderungen
    mrj
    kodeu-ribyu
    launcher
    ");
}

#[test]
fn large_window_is_not_part_of_the_model_name() {
    let parsed = parsed(".claude/agents/x.md", &agent("model: sonnet[1m]"));
    assert_eq!(parsed.definitions[0].model.choice, ModelChoice::Named(vec!["sonnet".into()]));
    assert_eq!(parsed.diagnostics.len(), 1);
    assert_eq!(parsed.diagnostics[0].severity, Severity::Info, "{:?}", parsed.diagnostics);
}

#[test]
fn few_max_tokens_limit_a_reply_and_many_limit_the_run() {
    let reply = definition(&agent("max_tokens: 4096"));
    assert_eq!(reply.limits.tokens, Cap::Default, "a run with 4096 tokens could not begin");
    let run = definition(&agent("max_tokens: 500000"));
    assert_eq!(run.limits.tokens, Cap::At(500_000));
    for keys in ["limits: {tokens: 4096}", "limits: {max_tokens: 4096}", "budget: {maxTokens: 4096}"] {
        assert_eq!(definition(&agent(keys)).limits.tokens, Cap::At(4_096), "{keys}");
    }
}

#[test]
fn pages_among_agents_are_not_agents() {
    for keys in [
        "title: How to write agents\ndescription: A tutorial",
        "title: Tutorial\ndescription: A tutorial\nsidebar_position: 2",
        "name: Tutorial\ndescription: A tutorial\nlayout: post\ndate: 2026-01-01",
    ] {
        let parsed = among(".claude/agents/tutorial.md", &format!("---\n{keys}\n---\n# Tutorial\n"));
        assert_eq!(parsed.what, FileKind::Other("a page of documentation"), "{keys}");
    }
    for keys in [
        "description: Reviews code",
        "title: Reviewer\ndescription: d\ntools: Read",
        "name: a\ndescription: d\ntitle: A",
    ] {
        let parsed = among(".claude/agents/a.md", &format!("---\n{keys}\n---\nYou review.\n"));
        assert_eq!(parsed.definitions.len(), 1, "{keys}: {:?}", parsed.what);
    }
}

#[test]
fn agents_outside_of_searched_folders_are_reported_once_per_folder() {
    let root = TempDir::new().unwrap();
    let write = |path: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, agent("")).unwrap();
    };
    [
        "agents/a.md",
        "agents/b.md",
        ".other/agents/c.md",
        ".claude/agents/deep/d.md",
        ".gemini/agents/e.md",
        ".gemini/agents/deep/f.md",
    ]
    .into_iter()
    .for_each(write);
    let report = check(&[root.path().to_owned()], &ParseOptions::default(), &mut |_, _| ());
    assert_eq!((report.agents, report.not_searched), (6, 4));
    let mut paths: Vec<PathBuf> =
        report.diagnostics.iter().map(|diagnostic| (**diagnostic.path.as_ref().unwrap()).clone()).collect();
    paths.sort();
    let expected = [".gemini/agents/deep/f.md", ".other/agents/c.md", "agents/a.md"].map(|path| root.path().join(path));
    assert_eq!(paths, expected, "{:?}", report.diagnostics);
}
