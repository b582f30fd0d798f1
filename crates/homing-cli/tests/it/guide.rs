//! Runs every command of the guide.

use std::fs;

use crate::world::*;

const SOURCE: &str = "/// Calls a model again when it was busy.\npub fn retry_model_call() {}\n";

/// Returns the code blocks of this kind.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let fence = format!("```{kind}\n");
    text.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn every_command_of_the_guide_works_in_order() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/GUIDE.md");
    let text = fs::read_to_string(path).unwrap();
    let world = World::saying("x");
    world.write("src/retry.rs", SOURCE);
    world.write("review.yaml", blocks(&text, "yaml")[0]);
    let commands: Vec<&str> = blocks(&text, "console")
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("$ homing "))
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        let homing = world.command(&[]);
        let mut shell = std::process::Command::new("sh");
        let script = format!("{} {command}", homing.get_program().display());
        shell.arg("-c").arg(script).current_dir(world.project.path()).env_clear();
        shell.env("HOME", world.home.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = shell.output().unwrap();
        // The doctor exits with 1 if this machine lacks something.
        let is_fine = code(&output) == 0 || (command == "doctor" && code(&output) == 1);
        assert!(is_fine, "homing {command}\n{}{}", out(&output), err(&output));
    }
    assert!(world.provider.requests().is_empty(), "the guide needs no key");
}
