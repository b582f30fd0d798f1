//! Measures a command under each sandbox back-end, compared with the same command without supervision. Run with
//! `cargo bench -p homing-tools --bench commands`.
#![allow(clippy::print_stdout)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use homing_core::authority::{Grant, Network, Sandbox};
use homing_sandbox::{CommandEnv, PrivateFolder, SandboxOptions, Sandboxes};
use homing_tools::shell::commands::{Commands, ShellCommand};

const HELPER: &str = env!("CARGO_BIN_EXE_homing-helper");
const TIMES: u32 = 50;

/// Returns the CPU time of this process and its finished children, which is more stable than wall time on a busy machine.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11).take(4);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let env: std::collections::BTreeMap<String, String> = std::env::vars().collect();
    let home = env.get("HOME").map_or("/".into(), PathBuf::from);
    let host_env = CommandEnv { home, env };
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("it exists");
    let found = Sandboxes::probe(Path::new(HELPER), &host_env, &root).await;
    let (since, before) = (Instant::now(), processor());
    for _ in 0..TIMES {
        Command::new("bash").args(["--noprofile", "--norc", "-c", "true"]).status().expect("bash");
    }
    println!("plain bash: {:?} per command, {:?} CPU time", since.elapsed() / TIMES, (processor() - before) / TIMES);
    let workspace = root.join("workspace");
    std::fs::create_dir(&workspace).expect("a workspace");
    let levels = found
        .ready
        .iter()
        .map(|backend| (format!("{backend:?}"), found.only(|other| other == backend), Sandbox::WorkspaceWrite));
    for (name, sandboxes, sandbox) in levels.chain([("supervised, no sandbox".to_owned(), found.clone(), Sandbox::Off)])
    {
        let commands = Commands::new(HELPER.into(), host_env.clone(), SandboxOptions::default(), root.join("private"))
            .with_sandboxes(sandboxes);
        let (clock, computing) = one(&commands, &workspace, sandbox).await;
        println!("{name}: {clock:?} per command, {computing:?} CPU time");
    }
}

async fn one(commands: &Commands, workspace: &Path, sandbox: Sandbox) -> (Duration, Duration) {
    let roots = vec![workspace.to_owned()];
    let grant = Grant::new(Vec::new()).read(roots.clone()).write(roots).network(Network::Off).sandbox(sandbox);
    let private = PrivateFolder { root: commands.private.join("bench") };
    let (since, before) = (Instant::now(), processor());
    for _ in 0..TIMES {
        let time = Duration::from_secs(60);
        let command = ShellCommand { command: "true", workdir: workspace, grant: &grant, time, trace: None };
        let finished = commands.run(command, &private, std::future::pending(), &mut |_| ()).await;
        assert!(finished.is_ok(), "{finished:?}");
    }
    (since.elapsed() / TIMES, (processor() - before) / TIMES)
}
