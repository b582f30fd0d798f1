//! Corrections of files: they keep the meaning, leave nothing to correct, and change nothing else.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::{definition::Scope, diagnostic::Diagnostic};
use homing_load::{CheckReport, FixedFile, ParseOptions, Places, check, discover, load_file};
use serde_json::Value;
use tempfile::TempDir;

fn checked(path: &Path) -> CheckReport {
    check(&[path.to_owned()], &ParseOptions::default(), &mut |_, _| ())
}

/// Fixes a file with this text at `path` and returns the new text with the titles of the fixes.
fn fixed_at(path: &str, text: &str) -> (String, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let files = checked(&path).fixed_files();
    for file in &files {
        prove(file);
        file.write().unwrap();
    }
    let title = |diagnostic: &Diagnostic| diagnostic.fix.clone().unwrap().title;
    (fs::read_to_string(&path).unwrap(), files.iter().flat_map(|file| file.fixed.iter().map(title)).collect())
}

fn fixed(text: &str) -> String {
    fixed_at(".claude/agents/reviewer.md", text).0
}

/// Checks that the corrected text means the same, has nothing left to correct, and fewer diagnostics.
fn prove(file: &FixedFile) {
    let shown = file.path.display();
    let folder = TempDir::new().unwrap();
    // The dialect depends on the folders around the file.
    let parts: Vec<_> = file.path.components().collect();
    let path = folder.path().join(parts[parts.len().saturating_sub(4)..].iter().skip(1).collect::<PathBuf>());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, &file.before).unwrap();
    let (before, old) = (meaning(&path), checked(&path).diagnostics.len());
    fs::write(&path, &file.after).unwrap();
    let again = checked(&path);
    let left: Vec<&Diagnostic> = again.diagnostics.iter().filter(|diagnostic| diagnostic.fix.is_some()).collect();
    assert!(left.is_empty(), "{shown}: {left:?}\n{}", file.after);
    assert!(again.fixed_files().is_empty(), "{shown}: fixing twice is fixing once");
    assert!(again.diagnostics.len() + file.fixed.len() <= old, "{shown}: {:?}", again.diagnostics);
    let named: Vec<&String> = file.fixed.iter().flat_map(|fixed| &fixed.fix.as_ref().unwrap().changes).collect();
    let after = meaning(&path);
    assert_eq!(before.len(), after.len(), "{shown}");
    for (old, new) in before.iter().zip(&after) {
        for (key, value) in old.as_object().unwrap().iter().chain(new.as_object().unwrap()) {
            let is_same = old.get(key) == Some(value) && new.get(key) == Some(value);
            assert!(is_same || named.contains(&key), "{shown}: {key} changed\n{}\n{}", file.before, file.after);
        }
    }
}

fn meaning(path: &Path) -> Vec<Value> {
    let parsed = load_file(path, Scope::Project, &ParseOptions::default());
    parsed.definitions.iter().map(|definition| serde_json::to_value(definition).unwrap()).collect()
}

#[test]
fn values_are_quoted_and_everything_else_stays() {
    let text = "\u{feff}---\r\n# the reviewer\r\nname: reviewer\r\ndescription: Use it: it's good\r\n  on two lines \r\n\
                color:   \"red\"  # yes\r\n---\r\n\r\nBody: with\ttabs  \r\nlast line";
    let expected = text.replace("Use it: it's good\r\n  on two lines ", "'Use it: it''s good\r\n  on two lines' ");
    assert_eq!(fixed(text), expected);
}

#[test]
fn misspelt_keys_are_renamed() {
    let text = "---\nname: reviewer\ndescripton: Reviews code\nmax_turn: 3\nallowed-tools: Read\nColor: red\n---\nP\n";
    let expected = "---\nname: reviewer\ndescription: Reviews code\nmax_turns: 3\ntools: Read\ncolor: red\n---\nP\n";
    assert_eq!(fixed(text), expected);
    let other = "---\nname: reviewer\ndescription: d\nagent: plan\neffect: x\n---\nP\n";
    assert_eq!(fixed(other), other, "a key that is merely similar is not renamed");
    let (json, _) = fixed_at("a/agent.json", "{\"name\": \"a\", \"descripton\": \"d\", \"prompt\": \"p\"}");
    assert_eq!(json, "{\"name\": \"a\", \"description\": \"d\", \"prompt\": \"p\"}");
    let (toml, _) =
        fixed_at(".codex/agents/a.toml", "name = \"a\"\n\"descripton\" = \"d\"\ndeveloper_instructions = \"p\"\n");
    assert_eq!(toml, "name = \"a\"\n\"description\" = \"d\"\ndeveloper_instructions = \"p\"\n");
}

#[test]
fn missing_keys_are_added() {
    assert_eq!(
        fixed("---\nmodel: opus\n---\n# Title\n\nReviews code: all of it.\n"),
        "---\nname: reviewer\ndescription: 'Reviews code: all of it.'\nmodel: opus\n---\n# Title\n\nReviews code: all of it.\n"
    );
    let (skill, _) = fixed_at(".claude/skills/deploy/SKILL.md", "---\nlicense: MIT\n---\nDeploys it.\n");
    assert_eq!(skill, "---\nname: deploy\ndescription: Deploys it.\nlicense: MIT\n---\nDeploys it.\n");
    let (json, _) = fixed_at("agents/a.json", "{\n  \"description\": \"d\",\n  \"prompt\": \"p\"\n}\n");
    assert_eq!(json, "{\n  \"name\": \"a\",\n  \"description\": \"d\",\n  \"prompt\": \"p\"\n}\n");
}

#[test]
fn fences_are_closed_and_shortened() {
    assert_eq!(fixed("---\nname: a\ndescription: d\n\nP\n"), "---\nname: a\ndescription: d\n---\n\nP\n");
    assert_eq!(fixed("---\nname: a\ndescription: d\n-----\nP\n"), "---\nname: a\ndescription: d\n---\nP\n");
    assert_eq!(fixed("\n\n---\nname: a\ndescription: d\n---\nP\n"), "---\nname: a\ndescription: d\n---\nP\n");
    let code = "```markdown\n---\nname: a\ndescription: d\n---\nP\n```\n";
    assert_eq!(fixed(code), "---\nname: a\ndescription: d\n---\nP\n\n");
    let prose = "Copyright me\n\n---\nname: a\ndescription: d\n---\nP\n";
    assert_eq!(fixed(prose), prose, "the author's prose is not deleted");
}

#[test]
fn indentation_and_duplicates_are_removed() {
    assert_eq!(
        fixed("---\nname: a\n  description: d\n  model: opus\n---\nP\n"),
        "---\nname: a\ndescription: d\nmodel: opus\n---\nP\n"
    );
    assert_eq!(
        fixed("---\nname: a\ndescription: d\ndescription: >\n  e\n\n  f\nmodel: opus\n---\nP\n"),
        "---\nname: a\ndescription: d\nmodel: opus\n---\nP\n"
    );
    let both_apply = "---\nname: a\ndescription: d\ntools: Read, Grep\ntools: Read\n---\nP\n";
    assert_eq!(fixed(both_apply), both_apply, "deleting one would allow more");
    assert_eq!(
        fixed("---\nname: a\ndescription: d\nhooks:\n\tStop: []\n---\nP\n"),
        "---\nname: a\ndescription: d\nhooks:\n  Stop: []\n---\nP\n"
    );
}

#[test]
fn invalid_names_become_titles() {
    let (text, titles) = fixed_at(".claude/agents/x.md", "---\nname: Code Reviewer # mine\ndescription: d\n---\nP\n");
    assert_eq!(text, "---\nname: code-reviewer # mine\ntitle: Code Reviewer\ndescription: d\n---\nP\n");
    assert_eq!(titles, ["write `code-reviewer`, and the name as title"]);
    let text = "---\nname: a\ndescription: one\\ntwo\n---\nP\n";
    assert_eq!(fixed(text), "---\nname: a\ndescription: |-\n  one\n  two\n---\nP\n");
    let text = "---\nname: a\ndescription: \"one\\\\ntwo\" # c\n---\nP\n";
    assert_eq!(fixed(text), "---\nname: a\ndescription: \"one\\ntwo\" # c\n---\nP\n");
    let text = "---\nname: a\ndescription: |\n  one\\ntwo\n\n  three\nmodel: opus\n---\nP\n";
    assert_eq!(fixed(text), "---\nname: a\ndescription: |-\n  one\n  two\n\n  three\nmodel: opus\n---\nP\n");
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_the_checked_folder_are_written() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let outside = TempDir::new().unwrap();
    let inside = TempDir::new().unwrap();
    fs::create_dir(outside.path().join(".git")).unwrap();
    let folder = outside.path().join("agents");
    fs::create_dir(&folder).unwrap();
    let text = "---\nname: a\ndescripton: d\n---\nP\n";
    // Links inside the repository are read, but the files behind them were not named.
    for (name, target) in [("b.md", outside.path().join("b.md")), ("c.md", inside.path().join("c.md"))] {
        fs::write(&target, text).unwrap();
        symlink(&target, folder.join(name)).unwrap();
    }
    let own = folder.join("a.md");
    fs::write(&own, text).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o751)).unwrap();
    let files = checked(&folder).fixed_files();
    assert_eq!(files.len(), 2, "the link out of the repository is not even read");
    let results: Vec<bool> = files.iter().map(|file| file.write().is_ok()).collect();
    assert_eq!(results, [true, false]);
    assert_eq!(fs::read_to_string(outside.path().join("b.md")).unwrap(), text);
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o751);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "no temporary file is left");
    assert!(files[0].write().unwrap_err().to_string().contains("changed in the meantime"));
}

#[test]
fn files_of_plugins_are_not_corrected_with_the_project() {
    let folder = TempDir::new().unwrap();
    let text = "---\nname: a\ndescripton: d\n---\nP\n";
    let paths = ["project/.claude/agents/a.md", "plugin/agents/a.md"].map(|path| folder.path().join(path));
    for path in &paths {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut places = Places::new(folder.path().join("project"));
    places.plugins = vec![folder.path().join("plugin")];
    let options = ParseOptions::default();
    let report = CheckReport::of_discovered(discover(&places, &options), &places, &options);
    let fixed: Vec<PathBuf> = report.fixed_files().into_iter().map(|file| file.path).collect();
    assert_eq!(fixed, [paths[0].clone()]);
    let fixable = report.diagnostics.iter().filter(|diagnostic| diagnostic.fix.is_some()).count();
    assert_eq!(fixable, 2, "{:?}", report.diagnostics);
}

/// Files with combined mistakes, from a fixed list of parts.
#[test]
fn generated_files_are_fixed_completely() {
    let openings = ["---\n", "\n---\n", "-----\n", "\u{feff}---\n", "```\n---\n"];
    let keys = [
        "name: The Agent\n",
        "Name: a\n",
        "descripton: d: e\n",
        "description: 'x'y'\n",
        "description: a\\nb # c\n",
        "tools: [Read,\n  Grep]\n",
        "disalowedTools: Bash\n",
        "model: *opus\n",
        "max-turn: 4\n",
        "  color: red\n",
        "skills:\n\t- a\n",
        "description:\n- a\n- b\n",
        "user: says: hello\n",
    ];
    let closings = ["---\n", "------\n", "\n"];
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(".claude/agents/x.md");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (mut files, mut fixes) = (0, 0);
    // The lengths have no common divisor with the step, so every pair of keys and every fence occurs.
    for index in (0..openings.len() * closings.len() * keys.len() * keys.len()).step_by(7) {
        let first = keys[index % keys.len()];
        let second = keys[index / keys.len() % keys.len()];
        let fences = index / keys.len() / keys.len();
        let (opening, closing) = (openings[fences % openings.len()], closings[fences / openings.len()]);
        let text = format!("{opening}{first}{second}{closing}You do things.\n");
        fs::write(&path, text.replace('\n', if index % 2 == 0 { "\n" } else { "\r\n" })).unwrap();
        for file in checked(&path).fixed_files() {
            prove(&file);
            fixes += file.fixed.len();
        }
        files += 1;
    }
    assert!(files > 300 && fixes > files, "{fixes} fixes of {files} files");
}

#[test]
fn corpus_is_fixed_completely() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    if !folder.is_dir() {
        eprintln!("skipped: there is no corpus at {}", folder.display());
        return;
    }
    let report = checked(&folder);
    let files = report.fixed_files();
    files.iter().for_each(prove);
    let fixes: usize = files.iter().map(|file| file.fixed.len()).sum();
    eprintln!("{} diagnostics, {fixes} fixed in {} files", report.diagnostics.len(), files.len());
    assert!(fixes > 100, "{fixes}");
}
