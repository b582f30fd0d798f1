//! `homing check`: corrections, grouped output, names that refer to nothing, and SARIF.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use serde_json::{Value, json};

use crate::world::{World, code, err, json, out};

const MISSPELT: &str = "---\nname: a\ndescripton: Use it: now\n---\nP\n";

#[test]
fn fix_without_a_terminal_shows_the_changes_and_makes_none() {
    let world = World::saying("hello");
    world.write(".claude/agents/a.md", MISSPELT);
    let shown = world.homing(&["check", "--fix"]);
    assert_eq!(code(&shown), 1, "{}", err(&shown));
    let expected = "--- a/.claude/agents/a.md\n+++ b/.claude/agents/a.md\n@@ -1,5 +1,5 @@\n ---\n name: a\n\
                    -descripton: Use it: now\n+description: 'Use it: now'\n ---\n P\n";
    assert_eq!(out(&shown), expected);
    assert!(err(&shown).contains("2 fixes in 1 file available; --yes applies them"), "{}", err(&shown));
    let path = world.project.path().join(".claude/agents/a.md");
    assert_eq!(fs::read_to_string(path).unwrap(), MISSPELT);
}

#[test]
fn fix_with_yes_corrects_the_files_and_reports_what_is_left() {
    let world = World::saying("hello");
    world.write(".claude/agents/a.md", MISSPELT);
    world.write(".claude/agents/b.md", "---\nname: b\ndescription: d\nshoesize: 9\n---\nP\n");
    let path = world.project.path().join(".claude/agents/a.md");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let fixed = world.homing(&["check", "--fix", "--yes", "."]);
    assert_eq!(code(&fixed), 0, "{}", err(&fixed));
    assert!(err(&fixed).contains("applied 2 fixes in 1 file"), "{}", err(&fixed));
    assert!(out(&fixed).contains("unknown key `shoesize`") && out(&fixed).contains("1 warning:"), "{}", out(&fixed));
    assert_eq!(fs::read_to_string(&path).unwrap(), "---\nname: a\ndescription: 'Use it: now'\n---\nP\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let again = world.homing(&["check", "--fix", "."]);
    assert_eq!((code(&again), err(&again).as_str()), (0, ""));
}

#[test]
fn fix_as_json_names_each_correction() {
    let world = World::saying("hello");
    world.write("agents/a.md", MISSPELT);
    let shown = world.homing(&["check", "--fix", "--json", "agents"]);
    let corrections = json(&shown)["corrections"].clone();
    assert_eq!((code(&shown), &corrections[0]["applied"]), (1, &json!(false)), "{corrections}");
    assert_eq!(corrections[0]["fixed"][0]["rule"], "unknown-key");
    assert!(corrections[0]["diff"].as_str().unwrap().contains("+description: 'Use it: now'"), "{corrections}");
    let applied = json(&world.homing(&["check", "--fix", "--yes", "--json", "agents"]));
    assert_eq!((&applied["corrections"][0]["applied"], &applied["warnings"]), (&json!(true), &json!([])));
    assert_eq!(code(&world.homing(&["check", "--fix", "--format", "sarif"])), 2);
    assert_eq!(code(&world.homing(&["check", "--yes"])), 2, "--yes alone means nothing");
}

#[test]
fn fix_on_a_terminal_asks_first() {
    let world = World::saying("hello");
    world.write(".claude/agents/a.md", MISSPELT);
    let path = world.project.path().join(".claude/agents/a.md");
    let homing = world.command(&[]).get_program().to_owned();
    let answered = |answer: &str| {
        let line = format!("{} check --fix", homing.to_str().unwrap());
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(world.project.path());
        script.env("HOME", world.home.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = script.spawn().ok()?;
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answer.as_bytes()).unwrap();
        child.wait_with_output().ok()
    };
    let Some(declined) = answered("n\n") else {
        eprintln!("skipped: `script` is not installed");
        return;
    };
    assert!(out(&declined).contains("Apply 2 fixes in 1 file? [y/N]"), "{}", out(&declined));
    assert_eq!(fs::read_to_string(&path).unwrap(), MISSPELT);
    answered("y\n");
    assert!(fs::read_to_string(&path).unwrap().contains("description: 'Use it: now'"));
}

#[test]
fn findings_of_one_kind_are_one_entry() {
    let world = World::saying("hello");
    for index in 0..40 {
        let text = format!("---\ndescription: d\ntools: Read, Gadget{index}\n---\nP\n");
        world.write(&format!(".claude/agents/helper-{index:02}.md"), &text);
    }
    let shown = out(&world.homing(&["check"]));
    assert_eq!(shown.matches("missing `name`").count(), 1, "{shown}");
    assert!(shown.contains("helper-01.md:3 (`Gadget1`)") && shown.contains("and 34 more (40 in all; -v"), "{shown}");
    assert!(shown.lines().count() < 25, "{shown}");
    assert!(shown.contains("0 errors, 80 warnings (40 fixable with --fix): 40 agent files"), "{shown}");
    let all = out(&world.homing(&["check", "-v"]));
    assert_eq!((all.matches("missing `name`").count(), all.matches("unknown tool").count()), (40, 40));
}

#[test]
fn names_that_refer_to_nothing_are_warnings_with_positions() {
    let world = World::saying("hello");
    world.configure("[mcp.github]\ncommand = \"github-mcp-server\"\n[aliases]\nquick = \"openai/gpt-4.1\"");
    world.write(".mcp.json", r#"{"mcpServers": {"linear": {"command": "x"}}}"#);
    world.write(".claude/skills/deploy/SKILL.md", "---\nname: deploy\ndescription: d\n---\nB\n");
    let lead = "---\nname: lead\ndescription: d\nmodel: sonet\nskills: deploy, deplay\n\
                tools: Read, Agent(helper, helpr, explore), mcp__linear__list, mcp__githib__x\n\
                mcpServers: [github, gitlab]\n---\nP\n";
    world.write(".claude/agents/lead.md", lead);
    world.write(".claude/agents/helper.md", "---\nname: helper\ndescription: d\nmodel: quick\n---\nP\n");
    world.write(
        ".github/agents/vs.md",
        "---\nname: vs\ndescription: d\nagents: [Helper]\nhandoffs: [{agent: leed}]\n---\nP\n",
    );
    let expected = [
        ("unknown-model", 4, 8, "did you mean `sonnet`?"),
        ("unknown-skill", 5, 17, "did you mean `deploy`?"),
        ("unknown-agent", 6, 14, "did you mean `helper`?"),
        ("unknown-server", 6, 64, "did you mean `github`?"),
        ("unknown-server", 7, 22, "did you mean `github`?"),
        ("unknown-agent", 5, 20, "did you mean `lead`?"),
    ];
    for args in [&["check", "--json"][..], &["check", "--json", "."], &["check", "--json", "--strict"]] {
        let report = json(&world.homing(args));
        assert_eq!(report["errors"], json!([]), "{report}");
        let mut found: Vec<(&str, i64, i64, &str)> = Vec::new();
        for warning in report["warnings"].as_array().unwrap() {
            let number = |key: &str| warning[key].as_i64().unwrap();
            let text = |key: &str| warning[key].as_str().unwrap_or_default();
            if text("rule").starts_with("unknown-") {
                found.push((text("rule"), number("line"), number("column"), text("hint")));
            }
        }
        found.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(found, expected, "{args:?} {report}");
    }
}

#[test]
fn files_that_are_not_read_are_named_with_the_reason() {
    let world = World::saying("hello");
    let folder = world.project.path().join(".claude/agents");
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("nowhere.md", folder.join("broken.md")).unwrap();
    fs::create_dir(world.project.path().join(".git")).unwrap();
    let outside = world.home.path().join("outside.md");
    fs::write(&outside, "---\nname: outside\ndescription: d\n---\nP\n").unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("link.md")).unwrap();
    fs::write(folder.join("latin.md"), b"---\nname: caf\xe9\n---\n").unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.join("pipe.md")).status().unwrap();
    assert!(made.success());
    let reasons = [
        ("broken.md", "broken symbolic link"),
        ("link.md", "symbolic link out of the project"),
        ("latin.md", "not UTF-8 text"),
        ("pipe.md", "not a regular file"),
    ];
    let failed = err(&world.homing(&["run", "--agent", "outside", "x"]));
    for args in [&["check"][..], &["check", "--strict"], &["check", "."], &["check", "--json"]] {
        let shown = out(&world.homing(args));
        for (file, reason) in reasons {
            assert!(shown.contains(file) && shown.contains(reason), "{args:?} {file}: {shown}");
            let named = failed.lines().any(|line| line.starts_with("not loaded: ") && line.contains(file));
            assert!(named && failed.contains(reason), "{file}: {failed}");
        }
    }
}

#[test]
fn checked_file_that_no_run_would_load_is_reported() {
    let world = World::saying("hello");
    fs::create_dir(world.project.path().join(".git")).unwrap();
    let outside = world.home.path().join("outside.md");
    fs::write(&outside, "---\nname: outside\ndescription: d\n---\nP\n").unwrap();
    world.write(".claude/agents/page.md", "---\ntitle: Begin\nsidebar_position: 2\ndescription: d\n---\nText\n");
    std::os::unix::fs::symlink(&outside, world.project.path().join(".claude/agents/link.md")).unwrap();
    world.write("stray.md", "---\nname: stray\ndescription: d\n---\nP\n");
    world.write(".claude/agents/good.md", "---\nname: good\ndescription: d\n---\nP\n");
    let reason = |path: &str| {
        let report = json(&world.homing(&["check", "--json", path]));
        let found = ["warnings", "infos"].map(|kind| report[kind].as_array().unwrap().clone()).concat();
        let found =
            found.iter().filter(|found| ["not-loaded", "not-searched"].contains(&found["rule"].as_str().unwrap()));
        let reasons: Vec<String> = found.map(|found| found["message"].as_str().unwrap().to_owned()).collect();
        assert_eq!(report["not_searched"].as_u64().unwrap(), reasons.len() as u64, "{report}");
        reasons.join(", ")
    };
    assert!(reason(".claude/agents/page.md").contains("it is read as a page of documentation"));
    assert!(reason(".claude/agents/link.md").contains("symbolic link out of the project"));
    assert!(reason("stray.md").contains("its folder is not searched"));
    assert_eq!(reason(".claude/agents/good.md"), "");
}

#[test]
fn sarif_log_follows_the_rules_of_the_format() {
    let world = World::saying("hello");
    world.write(".claude/agents/a b.md", "---\nname: a b\ndescripton: Use it: now\nmaxTurns: $5\n---\nP\n");
    world.write(".claude/agents/c.md", MISSPELT);
    world.write(".claude/agents/d.md", "no agent");
    let log = json(&world.homing(&["check", "--format", "sarif"]));
    assert_eq!(problems(&log), [] as [String; 0], "{log}");
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(results.iter().any(|result| result["level"] == "error" && result["ruleId"].is_string()), "{log}");
    let uris: Vec<&str> =
        results.iter().filter_map(|result| place(result)["artifactLocation"]["uri"].as_str()).collect();
    assert!(uris.contains(&".claude/agents/a%20b.md"), "{uris:?}");
    let fix = results.iter().find(|result| result["fixes"].is_array()).unwrap();
    assert_eq!(fix["fixes"][0]["artifactChanges"][0]["artifactLocation"]["uri"], ".claude/agents/c.md");
    let all = json(&world.homing(&["check", "--json"]));
    let count = ["errors", "warnings", "infos"].map(|kind| all[kind].as_array().unwrap().len()).iter().sum::<usize>();
    assert_eq!(results.len(), count, "every diagnostic is a result");
}

fn place(result: &Value) -> &Value {
    &result["locations"][0]["physicalLocation"]
}

/// Checks the rules of SARIF 2.1.0 that readers rely on.
fn problems(log: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |is_met: bool, what: &str| {
        if !is_met {
            problems.push(what.to_owned());
        }
    };
    require(log["version"] == "2.1.0" && log["$schema"].as_str().is_some_and(|uri| uri.contains("sarif")), "version");
    for run in log["runs"].as_array().into_iter().flatten() {
        let driver = &run["tool"]["driver"];
        require(driver["name"].is_string(), "the tool has a name");
        require(run["columnKind"] == "unicodeCodePoints", "columns are characters");
        let rules: Vec<&str> =
            driver["rules"].as_array().unwrap().iter().filter_map(|rule| rule["id"].as_str()).collect();
        let mut unique = rules.clone();
        unique.dedup();
        require(unique.len() == rules.len(), "rules are unique");
        for rule in driver["rules"].as_array().unwrap() {
            require(
                rule["shortDescription"]["text"].as_str().is_some_and(|text| !text.is_empty()),
                "rules are described",
            );
        }
        for result in run["results"].as_array().unwrap() {
            let index = result["ruleIndex"].as_u64().and_then(|index| usize::try_from(index).ok());
            require(index.and_then(|index| rules.get(index)).copied() == result["ruleId"].as_str(), "ruleIndex");
            require(["error", "warning", "note"].contains(&result["level"].as_str().unwrap_or_default()), "level");
            require(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()), "message");
            let uri = place(result)["artifactLocation"]["uri"].as_str().unwrap_or_default();
            require(!uri.is_empty() && !uri.contains([' ', '\\']), "uri");
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let region = &place(result)["region"];
            require(
                region.is_null() || (number(&region["startLine"]) > 0 && number(&region["startColumn"]) > 0),
                "region",
            );
            for change in
                result["fixes"].as_array().into_iter().flatten().flat_map(|fix| fix["artifactChanges"].as_array())
            {
                for replacement in change.iter().flat_map(|change| change["replacements"].as_array().unwrap()) {
                    let deleted = &replacement["deletedRegion"];
                    let start = (number(&deleted["startLine"]), number(&deleted["startColumn"]));
                    let end = (number(&deleted["endLine"]), number(&deleted["endColumn"]));
                    require(start > (0, 0) && start <= end, "deletedRegion");
                    require(replacement["insertedContent"]["text"].is_string(), "insertedContent");
                }
            }
        }
    }
    problems
}
