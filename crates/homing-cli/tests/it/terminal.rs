//! `homing run` in a real terminal: tmux is the terminal, a provider on the loopback keeps the run busy.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use homing_testing::{FakeProvider, FakeResponse, ReceivedRequest};
use tempfile::TempDir;

/// A terminal with a shell, closed on drop.
pub(crate) struct Screen {
    socket: String,
    pub(crate) folder: TempDir,
    pub(crate) provider: FakeProvider,
    _runtime: tokio::runtime::Runtime,
}

impl Screen {
    /// Returns `None` if there is no tmux.
    pub(crate) fn open(
        columns: u32,
        lines: u32,
        script: impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static,
    ) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: there is no tmux here");
            return None;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(FakeProvider::start(script));
        let folder = TempDir::new().expect("a temporary folder");
        let socket = format!("homing-test-{}-{}", std::process::id(), provider.url().rsplit(':').next().unwrap());
        let screen = Self { socket, folder, provider, _runtime: runtime };
        let path = screen.folder.path().display().to_string();
        let size = [columns.to_string(), lines.to_string()];
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &size[0], "-y", &size[1], "-c", &path, "sh"]);
        screen.send("PS1='$ '; export LC_ALL=C.UTF-8; clear");
        Some(screen)
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(args).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn send(&self, line: &str) {
        self.tmux(&["send-keys", line, "Enter"]);
    }

    pub(crate) fn homing(&self, args: &str) {
        let program = snapbox::cmd::cargo_bin!("homing").display();
        let (home, url) = (self.folder.path().display(), self.provider.url());
        let script = format!(
            "env -i HOME={home} TERM=screen LC_ALL=C.UTF-8 PATH=\"$PATH\" OPENAI_BASE_URL={url} {program} {args}; echo \"left with $?\""
        );
        std::fs::write(self.folder.path().join("go"), script).unwrap();
        self.send("clear; . ./go");
    }

    pub(crate) fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    pub(crate) fn wait_for(&self, what: &str) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shows();
            if shown.contains(what) {
                return shown;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "`{what}` never came:\n{shown}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A lead with two children that never end by themselves.
fn slow(seen: &ReceivedRequest) -> FakeResponse {
    if seen.body.contains("take your time") && !seen.body.contains("lead them") {
        FakeResponse::chat_text("late").after(Duration::from_secs(600))
    } else {
        FakeResponse::chat_calls(&[
            ("delegate", r#"{"agent":"explore","task":"take your time"}"#),
            ("delegate", r#"{"agent":"explore","task":"take your time, too"}"#),
        ])
    }
}

const RUN: &str = "run --model openai/gpt-4.1 lead them";

#[test]
fn live_tree_follows_the_terminal_size_and_ctrl_c_stops() {
    let Some(screen) = Screen::open(90, 20, |_, seen| slow(seen)) else { return };
    screen.homing(RUN);
    let shown = screen.wait_for("explore  waiting for gpt-4.1");
    assert!(shown.contains("○ general") && shown.contains("● explore"), "{shown}");
    assert_eq!(shown.matches("general").count(), 1, "the tree is painted over itself:\n{shown}");
    screen.tmux(&["resize-window", "-x", "24", "-y", "8"]);
    std::thread::sleep(Duration::from_millis(700));
    let small = screen.shows();
    assert!(small.contains("● explore") && !small.contains("tok"), "{small}");
    screen.tmux(&["resize-window", "-x", "90", "-y", "20"]);
    screen.tmux(&["send-keys", "C-c"]);
    let shown = screen.wait_for("left with 130");
    assert!(shown.contains("– general") && shown.contains("cancelled · 3 runs"), "{shown}");
}

#[test]
fn second_ctrl_c_exits_at_once() {
    // The command ignores signals, so the first Ctrl-C waits.
    let Some(screen) = Screen::open(80, 20, |_, seen| {
        if seen.body.contains("\"role\":\"tool\"") {
            FakeResponse::chat_text("x")
        } else {
            FakeResponse::chat_calls(&[("bash", r#"{"command":"trap '' INT TERM; sleep 600"}"#)])
        }
    }) else {
        return;
    };
    screen.homing("run --sandbox off --model openai/gpt-4.1 wait");
    screen.wait_for("bash trap");
    screen.tmux(&["send-keys", "C-c"]);
    screen.tmux(&["send-keys", "C-c"]);
    let begun = Instant::now();
    screen.wait_for("left with 130");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn question_is_asked_and_always_is_remembered() {
    let Some(screen) = Screen::open(90, 24, |_, seen| {
        if seen.body.contains("\"role\":\"tool\"") {
            FakeResponse::chat_text("written")
        } else {
            FakeResponse::chat_calls(&[("write", r#"{"path":"new.txt","content":"x"}"#)])
        }
    }) else {
        return;
    };
    let agent = "---\nname: careful\ndescription: Asks.\npermissionMode: default\n---\nAsk.\n";
    let agents = screen.folder.path().join(".claude/agents");
    std::fs::create_dir_all(&agents).unwrap();
    std::fs::write(agents.join("careful.md"), agent).unwrap();
    let config = screen.folder.path().join(".config/homing/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[rules]\nask = ['write']\n").unwrap();
    screen.homing("run --agent careful --model openai/gpt-4.1 go");
    let shown = screen.wait_for("[y]es, [n]o, [a]lways");
    assert!(shown.contains("allow careful to use write on new.txt?") && shown.contains("+x"), "{shown}");
    screen.send("perhaps");
    screen.wait_for("to tell the agent why not, write: no, because …");
    screen.send("a");
    let shown = screen.wait_for("write it?");
    assert!(shown.contains("only this call, only in this project") && shown.contains("write(=new.txt)"), "{shown}");
    assert!(!std::fs::read_to_string(&config).unwrap().contains("allow"), "nothing is written before it is confirmed");
    screen.send("y");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("allowed from now on"), "{shown}");
    assert!(screen.folder.path().join("new.txt").exists());
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("[projects.") && text.contains("allow = [\"write(=new.txt)\"]"), "{text}");
    std::fs::remove_file(screen.folder.path().join("new.txt")).unwrap();
    screen.send("clear");
    screen.homing("run --agent careful --model openai/gpt-4.1 go again");
    let begun = Instant::now();
    while !screen.folder.path().join("new.txt").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the user is asked again:\n{}", screen.shows());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn reason_for_declining_reaches_the_model() {
    let Some(screen) = Screen::open(90, 24, |_, seen| {
        if seen.body.contains("the user declined: because it is Friday") {
            FakeResponse::chat_text("I wait until Monday")
        } else {
            FakeResponse::chat_calls(&[("bash", r#"{"command":"git push"}"#)])
        }
    }) else {
        return;
    };
    let config = screen.folder.path().join(".config/homing/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[rules]\nask = ['bash(git push *)']\n").unwrap();
    screen.homing("run --model openai/gpt-4.1 go");
    let shown = screen.wait_for("[y]es, [n]o, [a]lways");
    assert!(shown.contains("allow general to run this command (bash)?") && shown.contains("  git push"), "{shown}");
    assert!(shown.contains("asked by: bash(git push *)"), "{shown}");
    screen.send("no, because it is Friday");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("I wait until Monday"), "{shown}");
    assert!(shown.contains("denied: general: bash `git push`: the user declined: because it is Friday"), "{shown}");
}

#[test]
fn offline_model_is_used_and_announced_without_configuration() {
    let Some(screen) = Screen::open(100, 40, |_, _| FakeResponse::chat_text("x")) else { return };
    std::fs::write(screen.folder.path().join("retry.rs"), "fn retry_model_calls() {}\n").unwrap();
    let program = snapbox::cmd::cargo_bin!("homing").display();
    let home = screen.folder.path().display();
    let script = format!(
        "env -i HOME={home} TERM=screen PATH=\"$PATH\" {program} run 'where are model calls retried?'; echo \"left with $?\""
    );
    std::fs::write(screen.folder.path().join("go"), script).unwrap();
    screen.send("clear; . ./go");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("using the offline model") && shown.contains("retry.rs:1"), "{shown}");
    assert!(shown.contains("✓ explore") && shown.contains("done · 4 runs"), "{shown}");
}
