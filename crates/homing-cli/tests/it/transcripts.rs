//! Output of `agents`, `check` and `init`.

use std::{fs, path::Path};

use snapbox::{
    cmd::{Command, cargo_bin},
    str,
};
use tempfile::TempDir;

/// Creates a project folder outside any home folder.
fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn homing(folder: &Path, line: &str) -> Command {
    Command::new(cargo_bin!("homing"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("HOME")
        .env("NO_COLOR", "1")
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().expect("it has one")).unwrap();
    fs::write(path, text).unwrap();
}

const BAD: &str = "---\nname: Bad Name\ndescription: Use this: now\ntools: Read, Bassh\nmaxTurns: $5\n---\nBody\n";

#[test]
fn r7_agents_without_home_lists_the_built_in_ones() {
    homing(folder().path(), "agents").assert().success().stderr_eq("").stdout_eq(str![[r#"
code         built-in  Writes and changes code [..]
code-review  built-in  Reviews code changes - bugs, security, maintainability - and reports findings by severity. Reads only, apart from git.
explore      built-in  Explores a code base and answers questions about it - where something is done, how parts fit together, what uses what. Reads only. Start several in parallel when the questions do not depend on each other.
general      built-in  Handles any task, alone or by delegating to other agents, and reports the result.
plan         built-in  Plans a change before it is made - steps in order, files to touch, dependencies, risks. Reads only.

"#]]);
}

#[test]
fn r6_agents_name_explains_origin_and_hidden_agents() {
    let folder = folder();
    let text = "---\nname: explore\ndescription: Mine\ntools: Read\nmaxTurns: 5\nhooks: {Stop: x}\n---\nBody\n";
    write(folder.path(), ".claude/agents/e.md", text);
    homing(folder.path(), "agents explore").assert().success().stderr_eq("").stdout_eq(str![[r#"
agent      explore
about      Explores a code base and answers questions about it - where something is done, how parts fit together, what uses what. Reads only. Start several in parallel when the questions do not depend on each other.
from       built-in
hides      project: [..]/.claude/agents/e.md (claude-code)
model      its parent's, or the default for a root run
tools      glob, grep, read, ls, tree
gets       read, glob, grep, ls, tree, answer
limit      turns: 100 (default)
limit      depth: 3 (default)
limit      cost: $5.00 (default)
limit      tool_calls: 300 (default)
limit      children: 50 (default)
limit      wall: 1h00m (default)
prompt     708 characters
warning    this project's agent `explore` ([..]/.claude/agents/e.md) is not trusted, so the built-in agent of that name is used instead

"#]]);
}

#[test]
fn agents_json_has_the_documented_fields() {
    let folder = folder();
    write(
        folder.path(),
        ".claude/agents/e.md",
        "---\nname: scout\ndescription: Mine\ntools: Read\nmodel: opus\nmaxTurns: 5\n---\nBody\n",
    );
    write(folder.path(), ".claude/agents/explore.md", "---\nname: explore\ndescription: Mine\n---\nBody\n");
    let output = homing(folder.path(), "agents --json").output().unwrap();
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let find = |name: &str| all.as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap();
    let scout = find("scout");
    for key in ["name", "description", "source", "shadows", "model", "tools", "limits", "diagnostics"] {
        assert!(scout.get(key).is_some(), "{key}");
    }
    assert_eq!(scout["source"]["kind"], "project");
    assert_eq!(scout["source"]["dialect"], "claude-code");
    assert_eq!((&scout["model"], &scout["limits"]["turns"]), (&"opus".into(), &5.into()));
    assert_eq!(scout["tools"], serde_json::json!(["read"]));
    let explore = find("explore");
    assert_eq!((&explore["source"]["kind"], &explore["shadows"][0]["kind"]), (&"built_in".into(), &"project".into()));
}

#[test]
fn r7_unknown_agent_is_an_error_that_lists_the_known_ones() {
    homing(folder().path(), "agents explor").assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: there is no agent named `explor` (did you mean `explore`?); there are: code, code-review, explore, general, plan
hint: `homing agents` lists the available agents

"#]]);
}

#[test]
fn check_shows_the_line_and_a_hint() {
    let folder = folder();
    write(folder.path(), ".claude/agents/bad.md", BAD);
    homing(folder.path(), "check").assert().code(1).stderr_eq("").stdout_eq(str![[r#"
warning: the name `Bad Name` was changed to `bad-name`: names consist of lower-case letters, digits and hyphens
 --> .claude/agents/bad.md:2:7
  |
2 | name: Bad Name
  |       ^^^
  |
  = help: write `name: bad-name`

warning: `description` is not valid YAML without quotes: read as text
 --> .claude/agents/bad.md:3:14
  |
3 | description: Use this: now
  |              ^^^
  |
  = help: put the value in quotes

warning: unknown tool `Bassh`: ignored
 --> .claude/agents/bad.md:4:14
  |
4 | tools: Read, Bassh
  |              ^^^^^
  |
  = help: did you mean `bash`?

error: `maxTurns`: `$5` is not a whole number such as 20, or none
 --> .claude/agents/bad.md:5:11
  |
5 | maxTurns: $5
  |           ^^
  |
  = help: write a whole number such as 20, or none

1 error, 3 warnings: 0 agent files, 0 skills, 0 ignored (1 file)

"#]]);
}

#[test]
fn check_json_has_the_documented_fields() {
    let folder = folder();
    write(folder.path(), "any/where/agents/bad.md", BAD);
    write(folder.path(), "any/README.md", "# Read me\n");
    write(folder.path(), "package.json", "{\"name\": \"x\"}");
    write(folder.path(), "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Reads\n---\nBody\n");
    let output = homing(folder.path(), "check --json .").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["files", "agents", "skills", "ignored"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [3, 0, 1, 1]);
    let error = &report["errors"][0];
    assert_eq!((&error["line"], &error["column"], &error["field"]), (&5.into(), &11.into(), &"maxTurns".into()));
    assert!(error["path"].as_str().unwrap().ends_with("bad.md") && error["message"].is_string());
    assert_eq!(report["warnings"].as_array().unwrap().len(), 3);
}

#[test]
fn check_for_github_prints_annotations() {
    let folder = folder();
    write(folder.path(), ".claude/agents/a.md", "---\nname: a\ndescription: 100%: done\n---\nBody\n");
    homing(folder.path(), "check --format github").assert().success().stdout_eq(str![[r#"
::warning file=.claude/agents/a.md,line=3,col=14::`description` is not valid YAML without quotes: read as text%0Ahint: put the value in quotes

"#]]);
}

#[test]
fn check_strict_counts_repairs_as_errors() {
    let folder = folder();
    write(folder.path(), ".claude/agents/a.md", "---\nname: a\ndescription: one: two\n---\nBody\n");
    homing(folder.path(), "check").assert().code(0);
    homing(folder.path(), "check --strict").assert().code(1);
    homing(folder.path(), "check --strict .claude").assert().code(1);
}

#[test]
fn check_of_an_empty_folder_passes_and_of_a_missing_path_fails() {
    homing(folder().path(), "check").assert().success().stdout_eq(str![[r#"
0 errors, 0 warnings: 0 agent files, 0 skills, 0 ignored (0 files)

"#]]);
    homing(folder().path(), "check nowhere").assert().code(2).stderr_eq(str![[r#"
error: there is no file or folder nowhere

"#]]);
}

#[test]
fn r12_init_never_overwrites_files() {
    let folder = folder();
    write(folder.path(), ".homing/agents/researcher.md", "mine");
    homing(folder.path(), "init")
        .assert()
        .success()
        .stdout_eq(str![[r#"
.homing/agents/code-reviewer.md
.homing/agents/test-writer.md
.homing/agents/api-designer.md

"#]])
        .stderr_eq(str![[r#"
.homing/agents/researcher.md already exists; not changed
3 agents written. Next:
  homing agents                  list all agents
  homing agents code-reviewer    explain one
  homing check                   check the files after changing them
  homing run --agent researcher --network on "…"    let one read web pages

"#]]);
    assert_eq!(fs::read_to_string(folder.path().join(".homing/agents/researcher.md")).unwrap(), "mine");
}

#[test]
fn r12_init_uses_the_claude_folder_if_there_is_one() {
    let folder = folder();
    fs::create_dir_all(folder.path().join(".claude/agents")).unwrap();
    homing(folder.path(), "init").assert().success();
    homing(folder.path(), "check --strict").assert().success().stdout_eq(str![[r#"
0 errors, 0 warnings: 4 agent files, 0 skills, 0 ignored (4 files)

"#]]);
}

#[cfg(unix)]
#[test]
fn read_only_folder_can_be_listed_but_not_initialised() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    write(folder.path(), ".claude/agents/a.md", "---\nname: a\ndescription: d\n---\nBody\n");
    for path in ["", ".claude", ".claude/agents"] {
        fs::set_permissions(folder.path().join(path), fs::Permissions::from_mode(0o555)).unwrap();
    }
    homing(folder.path(), "agents a").assert().success();
    homing(folder.path(), "check").assert().success();
    // Root may write everywhere.
    let root = fs::write(folder.path().join("probe"), "").is_ok();
    if !root {
        homing(folder.path(), "init").assert().code(1).stdout_eq("").stderr_eq("error: cannot write [..]\n");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path().join(".claude"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path().join(".claude/agents"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn inv44_names_and_descriptions_cannot_control_the_terminal() {
    let folder = folder();
    let text = "---\nname: \"a\\e]0;x\\a\"\ndescription: \"\\e[31mred\\u202E\"\nweird\\ekey: 1\n---\nBody\n";
    write(folder.path(), ".claude/agents/a.md", text);
    for line in ["agents", "agents a-0-x", "agents --json", "check", "check --json", "check --format github", "check ."]
    {
        let output = homing(folder.path(), line).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{line}: {shown:?}");
        assert!(!line.contains("json") || serde_json::from_str::<serde_json::Value>(&shown).is_ok(), "{shown}");
    }
}

#[cfg(unix)]
#[test]
fn closed_pipe_is_not_an_error() {
    use std::process::Stdio;
    let mut child = std::process::Command::new(cargo_bin!("homing"))
        .args(["agents", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn r11_agents_from_the_command_line_and_from_a_plugin() {
    let folder = folder();
    write(folder.path(), "kit/agents/helper.md", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    let json = r#"{"typed":{"description":"Typed","prompt":"p"}}"#;
    homing(folder.path(), "agents --plugin kit --agents").arg(json).assert().success().stdout_eq(str![[r#"
...
helper       plugin        Helps
...
typed        command line  Typed

"#]]);
}

/// Checks printed JSON against the schema in the repository.
fn valid_json(folder: &Path, line: &str, schema: &str) {
    let output = homing(folder, line).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(schema);
    let schema: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let errors: Vec<String> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&value).map(|it| it.to_string()).collect();
    assert_eq!(errors, [] as [&str; 0], "{line}");
}

#[test]
fn json_matches_the_published_schemas() {
    let folder = folder();
    write(folder.path(), ".claude/agents/bad.md", BAD);
    let text =
        "---\nname: b\ndescription: d\nmodel: [x, y]\nmaxTurns: 3\nmaxCost: none\ntools: Read, Bassh\n---\nBody\n";
    write(folder.path(), ".claude/agents/b.md", text);
    valid_json(folder.path(), "agents --json", "agents.json");
    valid_json(folder.path(), "check --json", "check.json");
    valid_json(folder.path(), "check --json .", "check.json");
    valid_json(folder.path(), "convert b --to claude --json", "convert.json");
}

#[test]
fn r3_invalid_json_agents_are_a_usage_error() {
    homing(folder().path(), "agents --agents {").assert().code(2).stdout_eq("");
}

/// Loading a hostile project starts no process and opens no connection. Skipped without strace.
#[cfg(target_os = "linux")]
#[test]
fn inv36_loading_a_hostile_project_runs_and_connects_nothing() {
    use std::process::Command;
    let folder = folder();
    let hooks = "hooks: {SessionStart: [{hooks: [{type: command, command: touch evil}]}]}\nmcpServers: {evil: {command: sh, args: [-c, touch evil]}}";
    let text =
        format!("---\nname: a\ndescription: d $(touch evil) `touch evil` ${{HOME}}\n{hooks}\n---\n!`touch evil`\n");
    write(folder.path(), ".claude/agents/a.md", &text);
    write(folder.path(), ".claude/skills/s/SKILL.md", "---\nname: s\ndescription: d\n---\n!`touch evil`\n");
    for line in ["agents", "agents a", "check", "check ."] {
        let trace = Command::new("strace")
            .args(["-f", "-e", "trace=execve,execveat,connect,socket", "-o", "trace.txt"])
            .arg(cargo_bin!("homing"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .env_remove("HOME")
            .output();
        if !trace.is_ok_and(|it| it.status.success()) {
            return eprintln!("skipped: strace is not here, or may not trace");
        }
        let trace = fs::read_to_string(folder.path().join("trace.txt")).unwrap();
        let calls: Vec<&str> = trace.lines().filter(|line| line.contains('(') && !line.contains("+++")).collect();
        assert_eq!(calls.len(), 1, "{line}: only its own start\n{trace}");
    }
    assert!(!folder.path().join("evil").exists());
}

#[cfg(unix)]
#[test]
fn f16_files_outside_the_project_are_not_shown() {
    let (project, outside) = (folder(), folder());
    write(outside.path(), "secret.yaml", "key: [s3cret\n");
    fs::create_dir_all(project.path().join(".homing/agents")).unwrap();
    for link in [".homing/agents/x.yaml", ".roomodes"] {
        std::os::unix::fs::symlink(outside.path().join("secret.yaml"), project.path().join(link)).unwrap();
    }
    for line in ["check", "check .", "check --json ."] {
        let output = homing(project.path(), line).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(!shown.contains("s3cret") && shown.contains("link out of the project"), "{line}: {shown}");
    }
}
