//! Deny rules on paths bind commands as well as the file tools.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{fs, os::unix::fs::symlink};

use crate::command_fixture::{CommandFixture, again_as_ordinary_user, each};
use homing_core::authority::{Grant, Layer, Sandbox};

fn denying(fixture: &CommandFixture, sandbox: Sandbox, rules: &[&str]) -> Grant {
    let deny = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    fixture.grant(sandbox).under(Layer::everything("test rules").deny(deny))
}

fn fill(fixture: &CommandFixture) {
    for name in [".env", "a/.env", "a/plain", "vendor/lib/x", "notes", "secrets/key"] {
        let path = fixture.workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("content of {name}\n")).unwrap();
    }
    symlink("a/.env", fixture.workspace.join("link")).unwrap();
}

/// Attempts to read a file whose content is known.
const READS: &str = "cat .env a/.env link secrets/key; cat < .env; cp a/.env copy; cat copy; dd if=.env of=copy2; cat copy2; \
    mv a b; cat b/.env; ln .env hard; cat hard; mv secrets s2; cat s2/key; tar c .env a secrets | strings | grep env; git hash-object .env; \
    chmod 600 .env; cat .env; rm -f .env; cat .env; python3 -c 'print(open(\".env\").read())'; cat /proc/self/root/$PWD/.env; true";

#[tokio::test]
async fn r55_files_that_a_rule_denies_to_read_are_unreadable_for_commands() {
    let rules = ["read(**/.env)", "read(secrets/**)"];
    for (name, fixture) in each().await {
        fill(&fixture);
        for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite] {
            let context = fixture.context(denying(&fixture, sandbox, &rules));
            let output = fixture.bash_with(&context, READS).await;
            assert!(!output.text.contains("content of secrets"), "{name}: {sandbox:?}: {}", output.text);
            assert!(
                !output.text.contains("content of .env") && !output.text.contains("content of a/.env"),
                "{name}: {sandbox:?}: {}",
                output.text
            );
            for path in [".env", "a/.env", "secrets/key"] {
                let kept = fs::read_to_string(fixture.workspace.join(path)).unwrap();
                assert_eq!(kept, format!("content of {path}\n"), "{name}: {sandbox:?}: {}", output.text);
            }
            let output = fixture.bash_with(&context, "cat a/plain notes; ls -A").await;
            match (name, sandbox) {
                ("landlock", Sandbox::WorkspaceWrite) => {
                    assert!(output.is_error && output.text.contains("install bubblewrap"), "{}", output.text);
                }
                _ => {
                    let expected = "content of a/plain\ncontent of notes\n";
                    assert!(output.text.starts_with(expected), "{name}: {sandbox:?}: {}", output.text);
                }
            }
        }
    }
}

#[tokio::test]
async fn denied_files_are_unreadable_under_a_second_name() {
    for (name, fixture) in each().await {
        fill(&fixture);
        let alias = fixture.outside.join("alias");
        symlink(&fixture.workspace, &alias).unwrap();
        let mut grant = denying(&fixture, Sandbox::ReadOnly, &["read(**/.env)"]);
        grant.read.push(alias.join("a"));
        let alias = alias.join("a").display().to_string();
        let command = format!("cat {alias}/.env; cat {alias}/plain");
        let output = fixture.bash_with(&fixture.context(grant), &command).await;
        assert!(!output.text.contains("content of a/.env"), "{name}: {}", output.text);
        assert!(output.text.contains("content of a/plain"), "{name}: {}", output.text);
    }
}

#[tokio::test]
async fn commands_work_beside_denied_files() {
    for (name, fixture) in each().await {
        fill(&fixture);
        fs::write(fixture.outside.join("secret"), "content").unwrap();
        // No file in the workspace matches these rules.
        let rules = ["read(**/*.pem)", &format!("read(/{}/**)", fixture.outside.display())];
        let rules = [rules[0], rules[1]];
        let context = fixture.context(denying(&fixture, Sandbox::WorkspaceWrite, &rules));
        let output = fixture.bash_with(&context, "echo new > a/new && cat a/new a/.env").await;
        assert_eq!(output.text, "new\ncontent of a/.env", "{name}");
        if name == "bubblewrap" {
            let context = fixture.context(denying(&fixture, Sandbox::WorkspaceWrite, &["read(**/.env)"]));
            let output = fixture
                .bash_with(&context, "echo new > a/new2 && cat a/new2 && mkdir c && mv notes c && cat c/notes")
                .await;
            assert_eq!(output.text, "new\ncontent of notes", "{name}");
        }
    }
}

#[tokio::test]
async fn files_that_a_rule_denies_to_edit_stay_unchanged() {
    let rules = ["edit(vendor/**)", "write(/notes)", "write(a/.env)", "edit(dist)"];
    for (name, fixture) in each().await {
        fill(&fixture);
        let context = fixture.context(denying(&fixture, Sandbox::WorkspaceWrite, &rules));
        let attack = "cat notes vendor/lib/x; echo evil > notes; echo evil > vendor/lib/x; echo evil > vendor/new; rm -rf vendor; \
            mv a b; mkdir a; echo evil > a/.env; mkdir dist; echo evil > dist/x; sed -i s/content/evil/ notes; echo fine > a/plain; true";
        let output = fixture.bash_with(&context, attack).await;
        assert!(output.text.starts_with("content of notes\ncontent of vendor/lib/x"), "{name}: {}", output.text);
        for path in ["notes", "vendor/lib/x", "a/.env"] {
            let kept = fs::read_to_string(fixture.workspace.join(path)).unwrap_or_default();
            assert_eq!(kept, format!("content of {path}\n"), "{name}: {}", output.text);
        }
        assert!(!fixture.workspace.join("vendor/new").exists(), "{name}: {}", output.text);
        assert!(!fixture.workspace.join("dist").exists(), "{name}: {}", output.text);
    }
}

#[test]
fn deny_rules_bind_commands_of_an_ordinary_user() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "r55_files_that_a_rule_denies_to_read_are_unreadable_for_commands",
            "commands_work_beside_denied_files",
            "denied_files_are_unreadable_under_a_second_name",
            "files_that_a_rule_denies_to_edit_stay_unchanged",
        ],
    );
}
