//! A command ends with its supervisor, and what it changed is restored, under every back-end.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod command_fixture;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use command_fixture::{CommandFixture, again_as_ordinary_user, each, gone_within, helper};
use homing_core::authority::{Network, Sandbox};
use homing_sandbox::{
    Access, GitHooks, PrivateFolder, SandboxOptions, SandboxPolicy,
    process::{Collector, Launcher, Running},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Changes protected files and one that is not, and leaves processes that a signal to the group would miss.
const ATTACK: &str = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > sub/.git/config; echo evil > .claude; \
    setsid sleep 300 & (setsid bash -c 'trap \"\" TERM HUP; (sleep 300 &) ; sleep 300' &) ; sleep 0.3; touch started; \
    while :; do echo evil > .git/config; sleep 0.01; done";

fn fill(workspace: &Path) {
    for name in [".git/config", "sub/.git/config"] {
        fs::create_dir_all(workspace.join(name).parent().unwrap()).unwrap();
        fs::write(workspace.join(name), "ours").unwrap();
    }
}

async fn job(fixture: &CommandFixture, network: Network) -> Value {
    let grant = fixture.grant(Sandbox::WorkspaceWrite).network(network);
    let options = SandboxOptions::default();
    let access = Access::of(&grant, &options);
    let private = PrivateFolder { root: fixture.folder.path().canonicalize().unwrap().join("private/victim") };
    let (host, found) = (command_fixture::host_env(), fixture.commands.sandboxes().await);
    let policy =
        SandboxPolicy::build(&access, found, &host, &options, &private, &fixture.workspace, GitHooks::Run).unwrap();
    json!({"argv": ["bash", "-c", ATTACK], "workdir": fixture.workspace, "env": policy.env,
        "confinement": policy.confinement, "protected": policy.protected})
}

async fn start(job: &Value) -> Running {
    Launcher { helper: helper() }.start(command_fixture::command_of(job)).await.unwrap()
}

async fn wait_for(path: &Path) {
    let since = Instant::now();
    while !path.exists() {
        assert!(since.elapsed() < Duration::from_secs(30), "{} does not appear", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
}

fn assert_restored(what: &str, workspace: &Path) {
    for name in [".git/config", "sub/.git/config"] {
        assert_eq!(fs::read_to_string(workspace.join(name)).unwrap(), "ours", "{what}: {name}");
    }
    assert!(!workspace.join(".git/hooks").exists() && !workspace.join(".claude").exists(), "{what}");
}

#[tokio::test]
async fn command_ends_with_a_killed_supervisor_and_its_changes_are_undone() {
    for (name, fixture) in each().await {
        for network in [Network::Off, Network::On] {
            let what = format!("{name}, network {network:?}");
            fill(&fixture.workspace);
            let running = start(&job(&fixture, network).await).await;
            wait_for(&fixture.workspace.join("started")).await;
            signal(running.supervisor().unwrap(), Signal::KILL);
            let collector = Collector::new(None);
            let finished =
                running.finish(collector, Duration::from_secs(60), std::future::pending(), &mut |_| ()).await;
            let marker = fixture.folder.path().display().to_string();
            assert_eq!(gone_within(&marker, Duration::from_secs(5)), Vec::<i32>::new(), "{what}");
            assert_restored(&what, &fixture.workspace);
            assert!(finished.reverted.iter().any(|path| path.ends_with("sub/.git/config")), "{what}: {finished:?}");
            fs::remove_file(fixture.workspace.join("started")).unwrap();
        }
    }
}

#[test]
fn role_in_a_separate_process() {
    let Ok(file) = std::env::var("HOMING_TEST_JOB") else { return };
    let job: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let running = start(&job).await;
        println!("\nsupervisor {}", running.supervisor().unwrap());
        tokio::time::sleep(Duration::from_secs(300)).await;
        drop(running);
    });
}

#[tokio::test]
async fn changes_are_undone_by_the_next_command_if_the_host_was_killed_too() {
    for (name, fixture) in each().await {
        fill(&fixture.workspace);
        let file = fixture.folder.path().join("job.json");
        fs::write(&file, job(&fixture, Network::Off).await.to_string()).unwrap();
        let mut host = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role_in_a_separate_process", "--nocapture", "--test-threads=1"])
            .env("HOMING_TEST_JOB", &file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(host.stdout.take().unwrap()).lines().map_while(Result::ok);
        let supervisor = lines.find_map(|line| line.strip_prefix("supervisor ")?.parse::<u32>().ok()).unwrap();
        wait_for(&fixture.workspace.join("started")).await;
        // Stopped first, so that it cannot restore anything when the host ends.
        signal(supervisor, Signal::STOP);
        host.kill().unwrap();
        host.wait().unwrap();
        signal(supervisor, Signal::KILL);
        let marker = fixture.folder.path().display().to_string();
        assert_eq!(gone_within(&marker, Duration::from_secs(5)), Vec::<i32>::new(), "{name}");
        assert_eq!(fs::read_to_string(fixture.workspace.join("sub/.git/config")).unwrap(), "evil\n", "{name}");
        let output = fixture.bash("cat .git/config sub/.git/config").await;
        assert!(output.text.starts_with("oursours"), "{name}: {}", output.text);
        assert!(output.text.contains("restored"), "{name}: {}", output.text);
        assert_restored(name, &fixture.workspace);
    }
}

#[test]
fn ordinary_users_commands_end_with_their_supervisor_too() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "command_ends_with_a_killed_supervisor_and_its_changes_are_undone",
            "changes_are_undone_by_the_next_command_if_the_host_was_killed_too",
        ],
    );
}
