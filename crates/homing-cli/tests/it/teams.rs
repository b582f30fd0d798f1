//! `homing check` on team files.

use std::{path::Path, process::Command};

fn check(path: &Path) -> (Option<i32>, String) {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("check").arg(path).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").current_dir(home.path());
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn check_locates_an_unknown_agent_in_a_team_file() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../homing-teams/examples/teams");
    let (code, said) = check(&examples);
    assert_eq!((code, said.contains("4 team files, 0 ignored (4 files)")), (Some(0), true), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(examples.join("report.yaml")).unwrap();
    let bad = folder.path().join("bad.yaml");
    std::fs::write(&bad, text.replace("agent: writer", "agent: wrtier")).unwrap();
    let (code, said) = check(&bad);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("there is no agent named `wrtier` (did you mean `writer`?)") && said.contains("bad.yaml:"),
        "{said}"
    );
}
