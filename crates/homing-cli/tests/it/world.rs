//! A user with a home, a project and a provider, and helpers to inspect results.

use std::{
    fs,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use homing_testing::{FakeProvider, FakeResponse, ReceivedRequest};
use serde_json::Value;
use tempfile::TempDir;

/// A user with a home, a project and a provider.
pub struct World {
    pub home: TempDir,
    pub project: TempDir,
    pub provider: FakeProvider,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    pub fn new(script: impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(FakeProvider::start(script));
        let folder = || TempDir::new().expect("a temporary folder");
        let world = Self { home: folder(), project: folder(), provider, _runtime: runtime };
        world.configure("");
        world
    }

    /// Writes the user's configuration. A server on this machine would be free and get ten minutes for its first content, so it
    /// gets the prices and the patience of the real one.
    pub fn configure(&self, text: &str) {
        let folder = self.home.path().join(".config/homing");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), format!("{text}\n{PRICED}")).unwrap();
    }

    /// Answers every request with this text.
    pub fn saying(words: &'static str) -> Self {
        Self::new(move |_, _| FakeResponse::chat_text(words))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(snapbox::cmd::cargo_bin!("homing"));
        command.args(args).current_dir(self.project.path()).env_clear();
        command.env("HOME", self.home.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("OPENAI_BASE_URL", self.provider.url()).env("OPENAI_API_KEY", "sk-secret-of-the-test");
        // With coverage measurement, the program's profile must not be written to the project.
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|path| ("LLVM_PROFILE_FILE", path)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn homing(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("homing runs")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.project.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).unwrap();
        fs::write(path, text).unwrap();
    }
}

const PRICED: &str = r#"[providers.openai]
patience = 60
prices = { "gpt-4.1" = { input = 2, cached = 0.5, output = 8 } }
"#;

pub const MODEL: [&str; 2] = ["--model", "openai/gpt-4.1"];

pub fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["run"].iter().chain(&MODEL).chain(more).copied().collect()
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("JSON on stdout: {} {}", out(output), err(output)))
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

pub fn task_of(seen: &ReceivedRequest) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let user = messages.iter().find(|message| message["role"] == "user").cloned().unwrap_or_default();
    user["content"].as_str().map_or_else(|| user["content"].to_string(), str::to_owned)
}

pub fn has_results(seen: &ReceivedRequest) -> bool {
    seen.body.contains("\"role\":\"tool\"")
}
