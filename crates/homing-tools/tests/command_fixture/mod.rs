//! A workspace, a folder outside, and commands with the back-ends of this machine, for tests that run real processes.
#![allow(dead_code, unreachable_pub, clippy::print_stderr)]

pub mod isolated;

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
use homing_sandbox::{
    Backend, CommandEnv, SandboxOptions, Sandboxes,
    process::{CommandSpec, Input, ProcessLimits, Streams},
};
use homing_tools::shell::{bash::Bash, commands::Commands};
use serde_json::{Value, json};

pub const HELPER: &str = env!("CARGO_BIN_EXE_homing-helper");

/// Names a copy of the helper, for a user without access to the build folder.
const HELPER_COPY: &str = "HOMING_TEST_HELPER";

pub fn helper() -> PathBuf {
    std::env::var_os(HELPER_COPY).map_or(HELPER.into(), PathBuf::from)
}

/// The command that a job in JSON describes. A job without `protected` protects nothing.
pub fn command_of(job: &Value) -> CommandSpec {
    let part = |name: &str| job[name].clone();
    CommandSpec {
        argv: serde_json::from_value(part("argv")).unwrap(),
        workdir: serde_json::from_value(part("workdir")).unwrap(),
        env: serde_json::from_value(part("env")).unwrap(),
        input: Input::Nothing,
        confinement: serde_json::from_value(part("confinement")).unwrap(),
        limits: ProcessLimits::default(),
        protected: serde_json::from_value::<Option<_>>(part("protected")).unwrap().unwrap_or_default(),
        streams: Streams::Together,
        proxy: None,
    }
}

pub struct CommandFixture {
    pub folder: tempfile::TempDir,
    pub workspace: PathBuf,
    pub outside: PathBuf,
    pub commands: Arc<Commands>,
}

pub fn host_env() -> CommandEnv {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    let home = env.get("HOME").map_or("/nonexistent".into(), PathBuf::from);
    CommandEnv { home, env }
}

/// Returns the back-ends of this machine, and prints the missing ones.
pub async fn sandboxes() -> Sandboxes {
    let scratch = tempfile::tempdir().unwrap();
    let found = Sandboxes::probe(&helper(), &host_env(), scratch.path()).await;
    for why in &found.failed {
        eprintln!("not tested on this machine: {why}");
    }
    found
}

/// Creates a fixture for each back-end of this machine.
pub async fn each() -> Vec<(&'static str, CommandFixture)> {
    let found = sandboxes().await;
    let mut fixtures = Vec::new();
    for backend in &found.ready {
        let name = match backend {
            Backend::Bubblewrap { .. } => "bubblewrap",
            Backend::Landlock { .. } => "landlock",
            Backend::Seatbelt { .. } => "seatbelt",
        };
        fixtures.push((name, CommandFixture::with(found.only(|other| other == backend), |commands| commands)));
    }
    fixtures
}

/// Creates a fixture for the best back-end of this machine.
pub async fn best() -> Option<CommandFixture> {
    let found = sandboxes().await;
    found.best()?;
    Some(CommandFixture::with(found, |commands| commands))
}

impl CommandFixture {
    pub fn with(sandboxes: Sandboxes, change: impl FnOnce(Commands) -> Commands) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (workspace, outside) = (root.join("workspace"), root.join("outside"));
        for path in [&workspace, &outside] {
            fs::create_dir(path).unwrap();
        }
        let commands = Commands::new(helper(), host_env(), SandboxOptions::default(), root.join("private"));
        let commands = Arc::new(change(commands).with_sandboxes(sandboxes));
        Self { folder, workspace, outside, commands }
    }

    pub fn grant(&self, sandbox: Sandbox) -> Grant {
        Grant::new(vec![Arc::new(Layer::everything("test"))])
            .read(vec![self.workspace.clone()])
            .write(vec![self.workspace.clone()])
            .network(Network::Off)
            .sandbox(sandbox)
    }

    pub fn context(&self, grant: Grant) -> ToolContext {
        let grant = Arc::new(grant);
        ToolContext::new(
            CallKey { run: uuid::Uuid::new_v4(), turn: 1, index: 0 },
            Place::root(),
            "test",
            self.workspace.clone(),
            Arc::new(Authority { own: grant.clone(), grant }),
            Arc::default(),
            Arc::new(NoUser),
        )
    }

    pub async fn bash(&self, command: &str) -> ToolOutput {
        self.bash_in(Sandbox::WorkspaceWrite, command).await
    }

    pub async fn bash_in(&self, sandbox: Sandbox, command: &str) -> ToolOutput {
        self.bash_with(&self.context(self.grant(sandbox)), command).await
    }

    /// Runs a command in a context that several calls share.
    pub async fn bash_with(&self, context: &ToolContext, command: &str) -> ToolOutput {
        Bash::new(self.commands.clone()).call(context, json!({"command": command, "timeout": 60})).await
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

/// Runs tests of a module of this binary again as the user `nobody`; prints a message if that is not possible.
pub fn again_as_ordinary_user(module: &str, tests: &[&str]) {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can switch users; the tests already ran as an ordinary user");
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        // By another process: a command that another test starts meanwhile would keep this one's file open for writing for a
        // moment, and a file that is open for writing cannot be executed.
        assert!(std::process::Command::new("cp").arg(from).arg(&to).status().unwrap().success());
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let test = copy(&std::env::current_exe().unwrap(), "test");
    let helper = copy(Path::new(HELPER), "helper");
    let (home, temp) = (folder.path().join("home"), folder.path().join("tmp"));
    for path in [&home, &temp] {
        fs::create_dir(path).unwrap();
        std::os::unix::fs::chown(path, Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let id = ORDINARY_USER.to_string();
    let prefix = module.split_once("::").map(|(_, module)| format!("{module}::")).unwrap_or_default();
    let names = tests.iter().map(|test| format!("{prefix}{test}"));
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(test).arg("--exact").args(names);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &home).env("TMPDIR", &temp);
    let Ok(output) = command.env(HELPER_COPY, helper).current_dir("/").output() else {
        return eprintln!("skipped: setpriv is not installed");
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as an ordinary user: {stdout}{stderr}");
    assert!(stdout.contains(&format!("{} passed", tests.len())), "as an ordinary user: {stdout}{stderr}");
}

/// The user ID of `nobody`.
pub const ORDINARY_USER: u32 = 65_534;

/// A host without a user, which never cancels.
pub struct NoUser;

impl CallHost for NoUser {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn progress(&self, _: &str) {}

    fn ask(&self, _: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async { Answer::Unavailable })
    }
}

/// Returns the processes whose environment or arguments contain `marker`.
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

/// Waits until no process carries the marker, up to `time`; returns the remaining ones.
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
