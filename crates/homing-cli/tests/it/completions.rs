//! Completions in a real shell, and the manual pages.

use std::process::{Command, Output};

use crate::world::*;

/// Completes the last word of a line in bash, as a user's Tab does, and returns the candidates.
fn completed(world: &World, line: &[&str]) -> Vec<String> {
    let script = out(&world.homing(&["completions", "bash"]));
    let words: String = line.iter().map(|word| format!("'{word}' ")).collect();
    let ask = format!(
        "{script}\nCOMP_WORDS=({words})\nCOMP_CWORD={}\n_clap_complete_homing homing '{}' ''\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
        line.len() - 1,
        line[line.len() - 1]
    );
    out(&in_shell(world, "bash", &ask)).lines().map(str::to_owned).collect()
}

/// Runs a script in a shell of the user, with the program on the path.
fn in_shell(world: &World, shell: &str, script: &str) -> Output {
    let program = snapbox::cmd::cargo_bin!("homing");
    let path = std::env::join_paths(
        [program.parent().unwrap().to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let inner = world.command(&[]);
    let mut command = Command::new(shell);
    command.args(["-c", script]).current_dir(world.project.path()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", path.unwrap()).output().unwrap_or_else(|error| panic!("{shell} runs: {error}"))
}

#[test]
fn bash_completes_commands_agents_runs_and_models() {
    let world = World::saying("done");
    world.write(".claude/agents/night-watch.md", "---\nname: night-watch\ndescription: Watches.\n---\nWatch.\n");
    assert!(world.homing(&run(&["say it"])).status.success());
    let id = &json(&world.homing(&["runs", "--json"]))[0]["run"].as_str().unwrap()[28..].to_owned();
    assert_eq!(completed(&world, &["homing", "wor"]), ["worktrees", "worker"]);
    assert_eq!(completed(&world, &["homing", "run", "--agent", "night"]), ["night-watch"]);
    assert!(completed(&world, &["homing", "run", "--agent", ""]).contains(&"general".to_owned()));
    assert_eq!(completed(&world, &["homing", "chat", "expl"]), ["explore"]);
    assert_eq!(completed(&world, &["homing", "show", ""])[0], id.as_str(), "before the options");
    assert_eq!(completed(&world, &["homing", "cancel", &id[..2]]), [id.as_str()]);
    assert_eq!(completed(&world, &["homing", "run", "--model", "openai/gpt-4.1-m"]), ["openai/gpt-4.1-mini"]);
    assert!(completed(&world, &["homing", "run", "--model", ""]).contains(&"offline".to_owned()));
    assert_eq!(completed(&world, &["homing", "runs", "--status", "f"]), ["failed"]);
    assert_eq!(completed(&world, &["homing", "models", "anth"]), ["anthropic"]);
    assert_eq!(
        completed(&world, &["homing", "run", "--agent", "./.claude/agents/n"]),
        ["./.claude/agents/night-watch.md"]
    );
}

#[test]
fn completion_without_home_or_journal_is_silent_and_creates_nothing() {
    let world = World::saying("x");
    assert!(completed(&world, &["homing", "show", ""]).iter().all(|offered| offered.starts_with("--")));
    assert!(!world.home.path().join(".local").exists(), "completing creates no journal");
    let mut command = world.command(&["--", "homing", "show", ""]);
    command.env_remove("HOME").env("_HOMING_COMPLETE", "fish");
    let output = command.output().unwrap();
    assert!(code(&output) == 0 && err(&output).is_empty(), "{}", err(&output));
    assert!(out(&output).lines().all(|offered| offered.starts_with("--")), "{}", out(&output));
}

#[test]
fn scripts_of_all_shells_are_accepted_by_them() {
    let world = World::saying("x");
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = world.homing(&["completions", shell]);
        assert_eq!(code(&script), 0, "{}", err(&script));
        assert!(out(&script).contains("_HOMING_COMPLETE"), "{}", out(&script));
        let file = world.home.path().join(shell);
        std::fs::write(&file, out(&script)).unwrap();
        match Command::new(shell).arg(check).arg(&file).output() {
            Ok(checked) => assert!(checked.status.success(), "{shell}: {}", err(&checked)),
            Err(_) => eprintln!("skipped: there is no {shell} here"),
        }
    }
}

#[test]
fn manual_pages_cover_every_command_and_render() {
    let world = World::saying("x");
    let pages = world.home.path().join("man1");
    let written = world.homing(&["man", "--out", pages.to_str().unwrap()]);
    assert_eq!(code(&written), 0, "{}", err(&written));
    let has = |name: &str| pages.join(name).is_file();
    assert!(has("homing.1") && has("homing-run.1") && has("homing-mcp-add.1") && has("homing-worktrees-merge.1"));
    let help = out(&world.homing(&["--help"]));
    for page in std::fs::read_dir(&pages).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let name = name.trim_start_matches("homing-").trim_end_matches(".1");
        if name != "homing" && !name.contains('-') {
            assert!(help.contains(&format!("\n  {name} ")), "{name} is not in the help:\n{help}");
            let usage = world.homing(&[name, "--help"]);
            assert!(code(&usage) == 0 && out(&usage).contains("Usage: homing"), "{name}");
        }
    }
    assert!(help.lines().all(|line| line.chars().count() <= 80), "the list fits a narrow terminal:\n{help}");
    let page = out(&world.homing(&["man", "run"]));
    assert!(page.starts_with(".ie") || page.contains(".TH HOMING-RUN 1"), "{page}");
    assert!(
        page.contains("\\-\\-max\\-cost") && page.contains("homing run \"where are model calls retried?\""),
        "{page}"
    );
    let wrong = world.homing(&["man", "mcp", "ad"]);
    assert!(code(&wrong) == 2 && err(&wrong).contains("`homing mcp` has no command `ad`"), "{}", err(&wrong));
    match Command::new("man").args(["--warnings", "-E", "UTF-8", "-l"]).arg(pages.join("homing.1")).output() {
        Ok(shown) => assert!(shown.status.success() && err(&shown).is_empty(), "{}", err(&shown)),
        Err(_) => eprintln!("skipped: there is no man here"),
    }
}
