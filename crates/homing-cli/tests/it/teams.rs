//! `homing check` on team files, and values in their commands.

use std::{path::Path, process::Command};

use crate::world::*;

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

const COMMAND: &str = "name: say
description: d
graph:
  start: say
  state: {}
  nodes:
    - name: say
      tool: bash
      args: {command: 'printf %s \"{{ task }}\" > said.txt'}
  edges: [{from: say, to: end}]
";

#[test]
fn value_in_a_teams_command_does_not_become_shell_code() {
    let world = World::saying("x");
    world.write("say.yaml", COMMAND);
    let task = "\"; touch pwned; echo \"$(touch pwned)";
    let output = world.homing(&["team", "--sandbox", "off", MODEL[0], MODEL[1], "say.yaml", task]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(!world.project.path().join("pwned").exists());
    assert_eq!(std::fs::read_to_string(world.project.path().join("said.txt")).unwrap(), task);

    world.write("raw.yaml", &COMMAND.replace("{{ task }}", "{{ task | safe }}"));
    let (code, said) = check(&world.project.path().join("raw.yaml"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("warning: `task | safe` is inserted as shell code") && said.contains("raw.yaml:"), "{said}");
    world.write("unclear.yaml", &COMMAND.replace("printf %s", "cat <<X"));
    let (code, said) = check(&world.project.path().join("unclear.yaml"));
    assert_eq!((code, said.contains("cannot be quoted safely")), (Some(1), true), "{said}");
}
