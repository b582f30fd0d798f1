//! What commands can touch, under every back-end that this machine has.

mod workshop;

use std::fs;

use homing_core::authority::Sandbox;
use homing_tools::sandbox::Sandboxes;
use workshop::{HELPER, Workshop, each};

#[tokio::test]
async fn commands_work_in_the_workspace() {
    for (name, shop) in each().await {
        let output = shop.bash("echo hello > a; cat a; pwd; exit 3").await;
        let expected = format!("hello\n{}\n[exit code 3]", shop.workspace.display());
        assert_eq!(output.text, expected, "{name}");
        assert!(output.is_error);
        assert_eq!(shop.files(&shop.workspace), ["a"], "{name}");
    }
}

#[tokio::test]
async fn inv35_without_a_sandbox_nothing_runs() {
    let shop = Workshop::with(Sandboxes::none(HELPER), |it| it);
    for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite] {
        let output = shop.bash_in(sandbox, "touch here").await;
        assert!(output.is_error && output.text.contains("--sandbox off"), "{}", output.text);
    }
    assert!(shop.files(&shop.workspace).is_empty());
    let output = shop.bash_in(Sandbox::Off, "touch here").await;
    assert!(!output.is_error, "{}", output.text);
    assert_eq!(shop.files(&shop.workspace), ["here"]);
}

#[tokio::test]
async fn read_only_means_that_nothing_can_be_changed() {
    for (name, shop) in each().await {
        fs::write(shop.workspace.join("a"), "x").unwrap();
        let output = shop.bash_in(Sandbox::ReadOnly, "cat a; echo y > a; rm a; touch b; mkdir c; ls").await;
        assert!(output.text.starts_with('x'), "{name}: {}", output.text);
        assert_eq!(shop.files(&shop.workspace), ["a"], "{name}: {}", output.text);
        assert_eq!(fs::read_to_string(shop.workspace.join("a")).unwrap(), "x", "{name}");
    }
}
