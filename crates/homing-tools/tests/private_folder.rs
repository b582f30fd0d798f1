//! The parent of the runs' private folders: it must belong to this user alone, and links to it are not followed.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a skipped test says why; a role tells its parent")]

mod command_fixture;

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use command_fixture::{
    CommandFixture, ORDINARY_USER, again_as_ordinary_user, each, helper, host_env, isolated::git, sandboxes,
};
use homing_core::{authority::Sandbox, tool::ToolOutput, workspace::Workspaces};
use homing_sandbox::{PrivateFolder, SandboxOptions, Sandboxes, private_folder::sweep};
use homing_tools::{shell::commands::Commands, worktree::GitWorktrees};

/// Creates a folder outside for links to point to.
fn victim(fixture: &CommandFixture) -> std::path::PathBuf {
    let victim = fixture.outside.join("victim");
    fs::create_dir(&victim).unwrap();
    victim
}

fn is_refused(name: &str, output: &ToolOutput, why: &str) {
    assert!(output.is_error && output.text.contains("private folder"), "{name}: {}", output.text);
    assert!(output.text.contains(why), "{name}: {}", output.text);
}

#[tokio::test]
async fn private_folder_that_is_a_link_is_refused() {
    for (name, fixture) in each().await {
        let victim = victim(&fixture);
        symlink(&victim, &fixture.commands.private).unwrap();
        for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::Off] {
            is_refused(name, &fixture.bash_in(sandbox, "echo ran > here").await, "link");
        }
        assert!(fixture.files(&victim).is_empty() && fixture.files(&fixture.workspace).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn private_folder_others_can_write_to_is_refused() {
    for (name, fixture) in each().await {
        fs::create_dir(&fixture.commands.private).unwrap();
        for mode in [0o777, 0o770, 0o1777] {
            fs::set_permissions(&fixture.commands.private, Permissions::from_mode(mode)).unwrap();
            is_refused(name, &fixture.bash("true").await, "other users");
        }
        assert!(fixture.files(&fixture.commands.private).is_empty(), "{name}");
        fs::set_permissions(&fixture.commands.private, Permissions::from_mode(0o700)).unwrap();
        assert!(!fixture.bash("true").await.is_error, "{name}");
    }
}

#[tokio::test]
async fn private_folder_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can give a folder away");
    }
    for (name, fixture) in each().await {
        fs::create_dir(&fixture.commands.private).unwrap();
        fs::set_permissions(&fixture.commands.private, Permissions::from_mode(0o700)).unwrap();
        chown(&fixture.commands.private, Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
        is_refused(name, &fixture.bash("true").await, "another user");
        assert!(fixture.files(&fixture.commands.private).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn private_folder_of_a_run_that_is_a_link_is_refused() {
    for (name, fixture) in each().await {
        let victim = victim(&fixture);
        let context = fixture.context(fixture.grant(Sandbox::WorkspaceWrite));
        assert!(!fixture.bash("true").await.is_error, "{name}");
        let mode = fs::metadata(&fixture.commands.private).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "{name}");
        symlink(&victim, fixture.commands.private.join(context.key.run.to_string())).unwrap();
        is_refused(name, &fixture.bash_with(&context, "true").await, "link");
        assert!(fixture.files(&victim).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn link_in_the_private_folder_is_not_followed() {
    let found = sandboxes().await;
    for backend in &found.ready {
        let fixture = CommandFixture::with(found.only(|other| other == backend), |commands| {
            let mut host_env = command_fixture::host_env();
            let cargo = commands.private.with_file_name("cargo-home");
            fs::create_dir_all(cargo.join("registry/index")).unwrap();
            host_env.env.insert("CARGO_HOME".to_owned(), cargo.display().to_string());
            Commands::new(helper(), host_env, SandboxOptions::default(), commands.private)
        });
        let victim = victim(&fixture);
        let context = fixture.context(fixture.grant(Sandbox::WorkspaceWrite));
        let swap =
            format!("rm -r $CARGO_HOME/registry && ln -s {} $CARGO_HOME/registry && echo swapped", victim.display());
        let output = fixture.bash_with(&context, &swap).await;
        assert_eq!(output.text, "swapped", "{backend:?}");
        fixture.bash_with(&context, "true").await;
        assert!(fixture.files(&victim).is_empty(), "{backend:?}: {:?}", fixture.files(&victim));
    }
}

#[tokio::test]
async fn worktrees_are_not_made_through_a_link() {
    for (name, fixture) in each().await {
        git(&fixture.workspace, &["init", "-q"]);
        git(&fixture.workspace, &["commit", "-q", "--allow-empty", "-m", "a"]);
        let (victim, folder) = (victim(&fixture), fixture.workspace.with_file_name("trees"));
        symlink(&victim, &folder).unwrap();
        let worktrees = GitWorktrees { commands: fixture.commands.clone(), folder, sandbox: Sandbox::WorkspaceWrite };
        let run = uuid::Uuid::new_v4();
        let why = worktrees.enter(run, &fixture.workspace).await.unwrap_err();
        assert!(why.contains("link"), "{name}: {why}");
        // Not even into a folder that already exists.
        fs::create_dir(victim.join(run.to_string())).unwrap();
        assert!(worktrees.enter(run, &fixture.workspace).await.is_err(), "{name}");
        assert!(fixture.files(&victim.join(run.to_string())).is_empty(), "{name}");
    }
}

/// Prepares private folders of every kind in a process that is then killed; returns their names.
fn leave_folders(private: &Path) -> Vec<String> {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "role_that_is_killed", "--nocapture", "--test-threads=1"])
        .env("HOMING_TEST_PRIVATE", private);
    let mut process = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let names = lines.filter_map(|line| Some(line.strip_prefix("left ")?.to_owned())).take(4).collect();
    process.kill().unwrap();
    process.wait().unwrap();
    names
}

#[test]
fn role_that_is_killed() {
    let Some(private) = std::env::var_os("HOMING_TEST_PRIVATE") else { return };
    for prefix in ["", "hooks-", "git-", "probe-"] {
        let name = format!("{prefix}{}", uuid::Uuid::new_v4());
        PrivateFolder { root: Path::new(&private).join(&name) }.prepare(&host_env()).unwrap();
        println!("\nleft {name}");
    }
    std::thread::sleep(std::time::Duration::from_secs(300));
}

#[tokio::test]
async fn folders_of_killed_processes_are_swept() {
    let fixture = CommandFixture::with(Sandboxes::none(helper()), |commands| commands);
    let private = fixture.commands.private.clone();
    let mut left = leave_folders(&private);
    assert_eq!(left.len(), 4);
    let living = uuid::Uuid::new_v4().to_string();
    PrivateFolder { root: private.join(&living) }.prepare(&host_env()).unwrap();
    for name in ["worktrees", "restore", "other"] {
        fs::create_dir(private.join(name)).unwrap();
    }
    // The first command of a process starts the sweeping.
    let context = fixture.context(fixture.grant(Sandbox::Off));
    let output = fixture.bash_with(&context, "true").await;
    assert!(!output.is_error, "{}", output.text);
    let since = std::time::Instant::now();
    while !left.is_empty() && since.elapsed() < std::time::Duration::from_secs(20) {
        left.retain(|name| private.join(name).exists());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(left.is_empty(), "{left:?}");
    let mut expected = vec![living, "worktrees".into(), "restore".into(), "other".into(), context.key.run.to_string()];
    expected.sort();
    assert_eq!(fixture.files(&private), expected);
}

#[test]
fn sweeping_follows_no_link() {
    let fixture = CommandFixture::with(Sandboxes::none(helper()), |commands| commands);
    let (victim, private) = (victim(&fixture), fixture.commands.private.clone());
    leave_folders(&victim);
    symlink(&victim, &private).unwrap();
    sweep(&private);
    assert_eq!(fixture.files(&victim).len(), 4);
    fs::remove_file(&private).unwrap();
    fs::create_dir(&private).unwrap();
    symlink(victim.join(&fixture.files(&victim)[0]), private.join(uuid::Uuid::new_v4().to_string())).unwrap();
    sweep(&private);
    assert_eq!(fixture.files(&victim).len(), 4);
    sweep(&victim);
    assert!(fixture.files(&victim).is_empty());
}

#[test]
fn only_a_folder_of_mode_0700_is_private() {
    use homing_sandbox::is_private;
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
    assert!(is_private(&at("alone")));
    for name in ["shown", "open", "link", "file", "missing"] {
        assert!(!is_private(&at(name)), "{name}");
    }
    if rustix::process::geteuid().is_root() {
        chown(at("alone"), Some(ORDINARY_USER), None).unwrap();
        assert!(!is_private(&at("alone")));
    } else {
        assert!(!is_private(Path::new("/root")));
    }
}

#[test]
fn private_folders_are_checked_for_an_ordinary_user() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "private_folder_that_is_a_link_is_refused",
            "private_folder_others_can_write_to_is_refused",
            "private_folder_of_a_run_that_is_a_link_is_refused",
            "link_in_the_private_folder_is_not_followed",
            "worktrees_are_not_made_through_a_link",
            "sweeping_follows_no_link",
            "folders_of_killed_processes_are_swept",
            "only_a_folder_of_mode_0700_is_private",
        ],
    );
}
