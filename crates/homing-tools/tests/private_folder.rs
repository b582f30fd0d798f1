//! The parent of the runs' private folders: it must belong to this user alone, and links to it are not followed.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod workshop;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use homing_core::{authority::Sandbox, tool::ToolOutput, workspace::Workspaces};
use homing_sandbox::{SandboxOptions, Sandboxes};
use homing_tools::{shell::commands::Commands, worktree::GitWorktrees};
use workshop::{NOBODY, Workshop, again_as_ordinary_user, each, helper, isolated::git, sandboxes};

/// Creates a folder outside for links to point to.
fn victim(shop: &Workshop) -> std::path::PathBuf {
    let victim = shop.outside.join("victim");
    fs::create_dir(&victim).unwrap();
    victim
}

fn is_refused(name: &str, output: &ToolOutput, why: &str) {
    assert!(output.is_error && output.text.contains("private folder"), "{name}: {}", output.text);
    assert!(output.text.contains(why), "{name}: {}", output.text);
}

#[tokio::test]
async fn private_folder_that_is_a_link_is_refused() {
    for (name, shop) in each().await {
        let victim = victim(&shop);
        symlink(&victim, &shop.commands.private).unwrap();
        for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::Off] {
            is_refused(name, &shop.bash_in(sandbox, "echo ran > here").await, "link");
        }
        assert!(shop.files(&victim).is_empty() && shop.files(&shop.workspace).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn private_folder_others_can_write_to_is_refused() {
    for (name, shop) in each().await {
        fs::create_dir(&shop.commands.private).unwrap();
        for mode in [0o777, 0o770, 0o1777] {
            fs::set_permissions(&shop.commands.private, Permissions::from_mode(mode)).unwrap();
            is_refused(name, &shop.bash("true").await, "other users");
        }
        assert!(shop.files(&shop.commands.private).is_empty(), "{name}");
        fs::set_permissions(&shop.commands.private, Permissions::from_mode(0o700)).unwrap();
        assert!(!shop.bash("true").await.is_error, "{name}");
    }
}

#[tokio::test]
async fn private_folder_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can give a folder away");
    }
    for (name, shop) in each().await {
        fs::create_dir(&shop.commands.private).unwrap();
        fs::set_permissions(&shop.commands.private, Permissions::from_mode(0o700)).unwrap();
        chown(&shop.commands.private, Some(NOBODY), Some(NOBODY)).unwrap();
        is_refused(name, &shop.bash("true").await, "another user");
        assert!(shop.files(&shop.commands.private).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn private_folder_of_a_run_that_is_a_link_is_refused() {
    for (name, shop) in each().await {
        let victim = victim(&shop);
        let context = shop.context(shop.grant(Sandbox::WorkspaceWrite));
        assert!(!shop.bash("true").await.is_error, "{name}");
        let mode = fs::metadata(&shop.commands.private).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "{name}");
        symlink(&victim, shop.commands.private.join(context.key.run.to_string())).unwrap();
        is_refused(name, &shop.bash_with(&context, "true").await, "link");
        assert!(shop.files(&victim).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn link_in_the_private_folder_is_not_followed() {
    let found = sandboxes().await;
    for backend in &found.ready {
        let shop = Workshop::with(found.only(|it| it == backend), |it| {
            let mut host_env = workshop::host_env();
            let cargo = it.private.with_file_name("cargo-home");
            fs::create_dir_all(cargo.join("registry/index")).unwrap();
            host_env.env.insert("CARGO_HOME".to_owned(), cargo.display().to_string());
            Commands::new(helper(), host_env, SandboxOptions::default(), it.private)
        });
        let victim = victim(&shop);
        let context = shop.context(shop.grant(Sandbox::WorkspaceWrite));
        let swap =
            format!("rm -r $CARGO_HOME/registry && ln -s {} $CARGO_HOME/registry && echo swapped", victim.display());
        let output = shop.bash_with(&context, &swap).await;
        assert_eq!(output.text, "swapped", "{backend:?}");
        shop.bash_with(&context, "true").await;
        assert!(shop.files(&victim).is_empty(), "{backend:?}: {:?}", shop.files(&victim));
    }
}

#[tokio::test]
async fn worktrees_are_not_made_through_a_link() {
    for (name, shop) in each().await {
        git(&shop.workspace, &["init", "-q"]);
        git(&shop.workspace, &["commit", "-q", "--allow-empty", "-m", "a"]);
        let (victim, folder) = (victim(&shop), shop.workspace.with_file_name("trees"));
        symlink(&victim, &folder).unwrap();
        let worktrees = GitWorktrees { commands: shop.commands.clone(), folder, sandbox: Sandbox::WorkspaceWrite };
        let run = uuid::Uuid::new_v4();
        let why = worktrees.enter(run, &shop.workspace).await.unwrap_err();
        assert!(why.contains("link"), "{name}: {why}");
        // Not even into a folder that already exists.
        fs::create_dir(victim.join(run.to_string())).unwrap();
        assert!(worktrees.enter(run, &shop.workspace).await.is_err(), "{name}");
        assert!(shop.files(&victim.join(run.to_string())).is_empty(), "{name}");
    }
}

#[test]
fn sweeping_follows_no_link() {
    let shop = Workshop::with(Sandboxes::none(helper()), |it| it);
    let victim = victim(&shop);
    fs::create_dir(victim.join(uuid::Uuid::new_v4().to_string())).unwrap();
    symlink(&victim, &shop.commands.private).unwrap();
    shop.commands.sweep(|_| false);
    assert_eq!(shop.files(&victim).len(), 1);
    fs::remove_file(&shop.commands.private).unwrap();
    fs::rename(&victim, &shop.commands.private).unwrap();
    shop.commands.sweep(|_| false);
    assert!(shop.files(&shop.commands.private).is_empty());
}

#[test]
fn only_a_folder_of_mode_0700_is_private() {
    use homing_sandbox::is_users_alone;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let make = |path: &Path, mode: u32| {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    make(&at("alone"), 0o700);
    make(&at("shown"), 0o755);
    make(&at("open"), 0o777);
    symlink(at("alone"), at("link")).unwrap();
    fs::write(at("file"), "").unwrap();
    assert!(is_users_alone(&at("alone")));
    for name in ["shown", "open", "link", "file", "missing"] {
        assert!(!is_users_alone(&at(name)), "{name}");
    }
    if rustix::process::geteuid().is_root() {
        chown(at("alone"), Some(NOBODY), None).unwrap();
        assert!(!is_users_alone(&at("alone")));
    } else {
        assert!(!is_users_alone(Path::new("/root")));
    }
}

#[test]
fn private_folders_are_checked_for_an_ordinary_user() {
    again_as_ordinary_user(&[
        "private_folder_that_is_a_link_is_refused",
        "private_folder_others_can_write_to_is_refused",
        "private_folder_of_a_run_that_is_a_link_is_refused",
        "link_in_the_private_folder_is_not_followed",
        "worktrees_are_not_made_through_a_link",
        "sweeping_follows_no_link",
        "only_a_folder_of_mode_0700_is_private",
    ]);
}
