//! Error messages for invalid input.

use std::{fs, io::Write, path::Path, process::Stdio};

use snapbox::{
    cmd::{Command, cargo_bin},
    str,
};
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn homing(home: &Path) -> Command {
    let project = home.join("project");
    fs::create_dir_all(&project).expect("a project");
    Command::new(cargo_bin!("homing"))
        .current_dir(project)
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
}

fn run(home: &Path, args: &[&str]) -> Command {
    homing(home).arg("run").args(args)
}

#[test]
fn r22_unknown_agent_is_named_with_the_known_ones() {
    run(folder().path(), &["--agent", "explor", "x"]).assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: there is no agent named `explor` (did you mean `explore`?); there are: code, code-review, explore, general, plan
hint: `homing agents` lists the available agents

"#]]);
}

#[test]
fn unknown_model_is_not_replaced() {
    run(folder().path(), &["--model", "gtp-4", "x"]).assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: unknown model `gtp-4`
hint: write provider/model, such as anthropic/claude-sonnet-5-5; `homing doctor` lists the providers

"#]]);
}

#[test]
fn missing_key_exits_2_before_any_work() {
    run(folder().path(), &["--model", "openai/gpt-4.1", "x"]).assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: no API key for openai: set OPENAI_API_KEY
hint: `homing doctor` lists the providers

"#]]);
    let own = r#"{"own": {"description": "d", "prompt": "p"}}"#;
    run(folder().path(), &["--agents", own, "--agent", "own", "x"]).assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: no model available: no provider API key is set
hint: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key, or pass --model offline, which needs none; `homing doctor` lists the providers

"#]]);
}

fn envelope(command: Command) -> serde_json::Value {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    serde_json::from_slice(&output.stdout).expect("an envelope on stdout")
}

#[test]
fn programs_get_an_envelope_for_every_mistake() {
    let home = folder();
    for (args, kind) in [
        (vec!["--json", "x"], "auth"),
        (vec!["--json", "--agent", "missing", "x"], "usage"),
        (vec!["--json", "--max-cost", "lots", "x"], "usage"),
        (vec!["--json", "--model", "offline", "--schema", "missing.json", "x"], "config"),
        (vec!["--json", "--model", "offline", ""], "usage"),
        (vec!["--json", "--agents", "{no json", "--model", "offline", "x"], "config"),
    ] {
        let envelope = envelope(run(home.path(), &args));
        assert_eq!((&envelope["v"], &envelope["status"]), (&1.into(), &"failed".into()), "{args:?}");
        assert_eq!(envelope["error"]["kind"], kind, "{args:?} {envelope}");
    }
}

#[test]
fn errors_of_flag_values_show_a_valid_one() {
    let home = folder();
    for (args, word) in [
        (vec!["--max-cost", "lots", "x"], "0.50"),
        (vec!["--timeout", "soon", "x"], "90s"),
        (vec!["--max-turns=-1", "x"], "none"),
        (vec!["--network", "https://x", "--model", "offline", "x"], "host"),
        (vec!["--sandbox", "open", "x"], "workspace-write"),
        (vec!["--set", "novalue", "x"], "KEY=VALUE"),
        (vec!["--allow", "bash(git", "x"], "is not a rule"),
        (vec!["--model-map", "sonnet", "x"], "ASKED=GIVEN"),
        (vec!["--trust", "abc", "--model", "offline", "x"], "64 hexadecimal digits"),
        (vec!["--json", "--events", "x"], "cannot be used with"),
    ] {
        let output = run(home.path(), &args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?} {said}");
        assert!(said.contains(word), "{args:?} {said}");
    }
}

#[test]
fn invalid_configuration_is_shown_with_its_line() {
    let home = folder();
    let path = home.path().join(".config/homing");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("config.toml"), "model = 'x'\nmodle = 'y'\n").unwrap();
    let output = run(home.path(), &["x"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("config.toml") && said.contains("line 2") && said.contains("modle"), "{said}");
    fs::write(path.join("config.toml"), "[limits]\ncost = 'lots'\n").unwrap();
    let said = String::from_utf8_lossy(&run(home.path(), &["x"]).output().unwrap().stderr).into_owned();
    assert!(said.contains("limits") && said.contains("0.50"), "{said}");
}

#[test]
fn run_without_home_warns_that_it_is_not_recorded() {
    let home = folder();
    let output = run(home.path(), &["--model", "offline", "find homing"]).env_remove("HOME").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("HOME is not set, so this run is not recorded"), "{said}");
    let output = homing(home.path()).arg("runs").env_remove("HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

fn piped(home: &Path, args: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let mut child = std::process::Command::new(cargo_bin!("homing"))
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn invalid_tasks_are_rejected_with_a_reason() {
    let home = folder();
    let offline = ["run", "--model", "offline"];
    let (code, said) = piped(home.path(), &offline, b"ab\xff\xfe");
    assert!(code == Some(2) && said.contains("not valid UTF-8 (at byte 2)"), "{said}");
    let (code, said) = piped(home.path(), &offline, &vec![b'x'; 10_000_000]);
    assert!(code == Some(2) && said.contains("10.0 MB"), "{said}");
    let (code, said) = piped(home.path(), &offline, b"  \n");
    assert!(code == Some(2) && said.contains("the task is empty"), "{said}");
    let (code, said) = piped(home.path(), &["run", "--model", "offline", "find x in"], b"caf\xe9");
    assert!(code == Some(0) && said.contains("not valid UTF-8; invalid bytes were replaced"), "{said}");
}

#[test]
fn trust_covers_the_files_as_they_are() {
    let home = folder();
    let project = folder();
    fs::create_dir_all(project.path().join(".claude")).unwrap();
    fs::write(project.path().join(".claude/settings.json"), r#"{"hooks":{}}"#).unwrap();
    let trust = |args: &[&str]| {
        let output = homing(home.path()).current_dir(project.path()).arg("trust").args(args).output().unwrap();
        (
            output.status.code(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    let (code, said) = trust(&[]);
    assert!(code == Some(1) && said.contains(".claude/settings.json") && said.contains("--trust HASH"), "{said}");
    assert_eq!(trust(&["--yes"]).0, Some(0));
    assert!(trust(&["--show"]).1.contains("these files are trusted"));
    fs::write(project.path().join(".claude/settings.json"), r#"{"hooks":{"x":1}}"#).unwrap();
    assert!(trust(&["--show"]).1.contains("changed since they were trusted"));
    assert!(trust(&["--revoke"]).1.contains("trust revoked"));
}

#[test]
fn doctor_checks_everything() {
    let home = folder();
    let output = homing(home.path()).args(["doctor", "--journal"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for what in ["sandbox", "git", "journal", "model", "terminal", "config", "trust"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert!(said.contains("no damage"), "{said}");
}
