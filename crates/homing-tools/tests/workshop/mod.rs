//! A workspace, an outside, and commands with the back-ends of this machine, for tests that run real processes.
#![allow(dead_code, unreachable_pub, clippy::print_stderr)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homing_core::{
    BoxFuture,
    authority::{Authority, Grant, Layer, Network, Sandbox},
    place::Place,
    tool::{Answer, CallHost, CallKey, Question, Tool, ToolContext, ToolOutput},
};
use homing_tools::{
    bash::Bash,
    commands::Commands,
    sandbox::{Backend, SandboxOptions, Sandboxes, Surroundings},
};
use serde_json::json;

pub const HELPER: &str = env!("CARGO_BIN_EXE_homing-helper");

pub struct Workshop {
    pub folder: tempfile::TempDir,
    pub workspace: PathBuf,
    pub outside: PathBuf,
    pub commands: Arc<Commands>,
}

pub fn surroundings() -> Surroundings {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    let home = env.get("HOME").map_or("/nonexistent".into(), PathBuf::from);
    Surroundings { home, env }
}

/// The back-ends of this machine; what is missing is said aloud.
pub async fn sandboxes() -> Sandboxes {
    let scratch = tempfile::tempdir().unwrap();
    let found = Sandboxes::probe(Path::new(HELPER), &surroundings(), scratch.path()).await;
    for why in &found.failed {
        eprintln!("not tested on this machine: {why}");
    }
    found
}

/// A workshop for each back-end that works here.
pub async fn each() -> Vec<(&'static str, Workshop)> {
    let found = sandboxes().await;
    let mut shops = Vec::new();
    for backend in &found.ready {
        let name = match backend {
            Backend::Bubblewrap { .. } => "bubblewrap",
            Backend::Landlock { .. } => "landlock",
        };
        shops.push((name, Workshop::with(found.only(|it| it == backend), |it| it)));
    }
    shops
}

/// A workshop for the back-end that would be used here.
pub async fn best() -> Option<Workshop> {
    let found = sandboxes().await;
    found.best()?;
    Some(Workshop::with(found, |it| it))
}

impl Workshop {
    pub fn with(sandboxes: Sandboxes, change: impl FnOnce(Commands) -> Commands) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (workspace, outside) = (root.join("workspace"), root.join("outside"));
        for path in [&workspace, &outside] {
            fs::create_dir(path).unwrap();
        }
        let commands = Commands::new(HELPER.into(), surroundings(), SandboxOptions::default(), root.join("private"));
        let commands = Arc::new(change(commands).with_sandboxes(sandboxes));
        Self { folder, workspace, outside, commands }
    }

    pub fn grant(&self, sandbox: Sandbox) -> Grant {
        Grant {
            layers: vec![Arc::new(Layer::everything("test"))],
            read: vec![self.workspace.clone()],
            write: vec![self.workspace.clone()],
            network: Network::Off,
            sandbox,
        }
    }

    pub fn context(&self, grant: Grant) -> ToolContext {
        let grant = Arc::new(grant);
        ToolContext {
            key: CallKey { run: uuid::Uuid::new_v4(), turn: 1, index: 0 },
            place: Place::root(),
            agent: "test".into(),
            workdir: self.workspace.clone(),
            authority: Arc::new(Authority { own: grant.clone(), grant }),
            state: Arc::default(),
            host: Arc::new(Nobody),
        }
    }

    pub async fn bash(&self, command: &str) -> ToolOutput {
        self.bash_in(Sandbox::WorkspaceWrite, command).await
    }

    pub async fn bash_in(&self, sandbox: Sandbox, command: &str) -> ToolOutput {
        let context = self.context(self.grant(sandbox));
        Bash::new(self.commands.clone()).call(&context, json!({"command": command, "timeout": 60})).await
    }

    pub fn files(&self, folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A host without a person, which never cancels.
pub struct Nobody;

impl CallHost for Nobody {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn progress(&self, _: &str) {}

    fn ask(&self, _: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async { Answer::Nobody })
    }
}

/// Processes whose environment or arguments hold `marker`.
pub fn marked(marker: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let holds = |file: &str| {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(marker)
        };
        *pid != std::process::id().cast_signed() && (holds("environ") || holds("cmdline"))
    })
    .collect()
}

/// Waits until nobody carries the marker any more, for so long at most; who still does.
pub fn gone_within(marker: &str, time: Duration) -> Vec<i32> {
    let since = std::time::Instant::now();
    loop {
        let left = marked(marker);
        if left.is_empty() || since.elapsed() > time {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
