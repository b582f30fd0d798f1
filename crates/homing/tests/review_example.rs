//! The README's program: the built-in reviewer reads the last commit through a sandboxed command.

use std::{path::Path, process::Command};

use homing_testing::{FakeProvider, FakeResponse};

const SOURCE: &str = include_str!("../examples/10_review.rs");
const README: &str = include_str!("../../../README.md");

fn git(folder: &Path, args: &[&str]) {
    let name = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    let done = Command::new("git").args(name).args(args).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn readme_shows_the_example_as_it_is() {
    let body = |text: &str| {
        let start = text.find("async fn main()").expect("a main function");
        let end = text[start..].find("\n}\n").expect("its end");
        text[start..start + end].to_owned()
    };
    assert_eq!(body(README), body(SOURCE));
}

#[tokio::test(flavor = "multi_thread")]
async fn r48_library_example_reviews_the_last_commit() {
    let (project, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    git(project.path(), &["init", "-q"]);
    std::fs::write(project.path().join("lib.rs"), "fn marker_of_the_commit() {}\n").unwrap();
    git(project.path(), &["add", "."]);
    git(project.path(), &["commit", "-qm", "Add the marker"]);
    let provider = FakeProvider::start(|number, _| match number {
        0 => FakeResponse::chat_calls(&[("bash", r#"{"command": "git show HEAD"}"#)]),
        _ => FakeResponse::chat_text("Looks fine."),
    })
    .await;
    // Examples are built beside the tests of a crate.
    let program = std::env::current_exe().unwrap().with_file_name("../examples/10_review");
    let ran = Command::new(program)
        .current_dir(project.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("OPENAI_BASE_URL", provider.url())
        .env("OPENAI_API_KEY", "test-key")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(out.starts_with("Looks fine."), "{out}{err}");
    let second = &provider.requests()[1];
    assert!(second.body.contains("marker_of_the_commit"), "{}", second.body);
}
