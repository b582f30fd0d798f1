//! `homing run` in a real terminal: tmux is the terminal, a provider on the loopback keeps the run busy.

use std::{
    cell::Cell,
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
    /// The number of the program that runs, as its last line shows it.
    running: Cell<Option<usize>>,
    started: Cell<usize>,
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
        let screen =
            Self { socket, folder, provider, running: Cell::default(), started: Cell::default(), _runtime: runtime };
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
        let number = self.started.get() + 1;
        self.started.set(number);
        self.running.set(Some(number));
        let script = format!(
            "env -i HOME={home} TERM=screen LC_ALL=C.UTF-8 PATH=\"$PATH\" OPENAI_BASE_URL={url} {program} {args}; echo \"left with $? ({number})\""
        );
        std::fs::write(self.folder.path().join("go"), script).unwrap();
        self.send("clear; . ./go");
    }

    pub(crate) fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows this, and returns it.
    pub(crate) fn wait_for(&self, what: &str) -> String {
        self.wait_until(what, |shown| shown.contains(what))
    }

    /// Waits until the screen is so, and returns it. Fails at once if the program has exited, so that the time limit, which must not
    /// fail a test on a busy machine, can be generous.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shows();
            let has_left = self.running.get().is_some_and(|number| has_left(&shown, number));
            if is_so(&shown) {
                if has_left {
                    self.running.set(None);
                }
                return shown;
            }
            assert!(!has_left, "the program has exited without `{what}`:\n{shown}");
            assert!(begun.elapsed() < TIME_LIMIT, "`{what}` never came:\n{shown}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Exports the variables that the program needs to the shell, and returns the program: for jobs of the shell.
    pub(crate) fn shell_with_jobs(&self) -> String {
        let (home, url) = (self.folder.path().display(), self.provider.url());
        self.send(&format!("export HOME={home} OPENAI_BASE_URL={url} OPENAI_API_KEY=k; set -m; clear"));
        snapbox::cmd::cargo_bin!("homing").display().to_string()
    }

    /// Writes the user's configuration.
    pub(crate) fn configure(&self, text: &str) -> std::path::PathBuf {
        let path = self.folder.path().join(".config/homing/config.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Maximum time that a test waits for the screen.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Returns whether the shell shows that the program with this number has exited.
fn has_left(shown: &str, number: usize) -> bool {
    let end = format!("({number})");
    shown.lines().any(|line| line.starts_with("left with ") && line.trim_end().ends_with(&end))
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
    screen.wait_until("a small tree", |small| small.contains("● explore") && !small.contains("tok"));
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
    let config = screen.configure("[rules]\nask = ['write']\n");
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
    screen.configure("[rules]\nask = ['bash(git push *)']\n");
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

#[test]
fn answer_is_streamed_once_and_shown_above_the_costs() {
    let Some(screen) =
        Screen::open(80, 24, |_, _| FakeResponse::chat_text("The first line of it.\nThe second line of it."))
    else {
        return;
    };
    screen.homing("run --model openai/gpt-4.1 tell me");
    let shown = screen.wait_for("left with 0");
    assert_eq!(shown.matches("The first line of it.").count(), 1, "{shown}");
    assert_eq!(shown.matches("The second line of it.").count(), 1, "{shown}");
    assert!(shown.contains("done · 1 run · 1 turn") || shown.contains("done · 1 turn"), "{shown}");
}

#[test]
fn text_before_calls_stands_apart_from_the_answer() {
    let Some(screen) = Screen::open(80, 24, |_, seen| {
        if seen.body.contains("\"role\":\"tool\"") {
            FakeResponse::chat_text("Here it is.")
        } else {
            FakeResponse::chat_text_and_calls("I look.", &[("ls", "{}")])
        }
    }) else {
        return;
    };
    screen.homing("run --model openai/gpt-4.1 go");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("I look.\n\nHere it is.\n\ndone · 2 turns"), "{shown}");
}

#[test]
fn steps_of_a_team_are_not_part_of_its_answer() {
    let Some(screen) = Screen::open(100, 40, |_, _| FakeResponse::chat_text("the verdict")) else { return };
    let crew = "name: court\ndescription: Decides.\nagents:\n  - { name: judge, description: Decides, prompt: Decide., tools: [] }\n\
                crew:\n  tasks:\n    - { name: verdict, agent: judge, description: Decide. }\n";
    std::fs::write(screen.folder.path().join("court.yaml"), crew).unwrap();
    screen.homing("team court.yaml --model openai/gpt-4.1 guilty?");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("\nthe verdict\n") && !shown.contains("Next:"), "{shown}");
}

/// A run that wants to write a file, and says so afterwards.
fn writes() -> impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static {
    |_, seen| {
        if seen.body.contains("\"role\":\"tool\"") {
            FakeResponse::chat_text("went on")
        } else {
            FakeResponse::chat_calls(&[("write", r#"{"path":"a.txt","content":"x"}"#)])
        }
    }
}

#[test]
fn question_of_a_background_job_waits_for_the_foreground() {
    let Some(screen) = Screen::open(100, 24, writes()) else { return };
    screen.configure("[rules]\nask = ['write']\n");
    let program = screen.shell_with_jobs();
    screen.send(&format!("{program} run --model openai/gpt-4.1 go &"));
    let shown = screen.wait_for("bring this process to the foreground with `fg`");
    assert!(shown.contains("allow general to use write on a.txt?"), "{shown}");
    // A process that reads from the terminal in the background is stopped by SIGTTIN, so it must not try.
    screen.send("clear; jobs; echo jo''bs");
    let shown = screen.wait_for("jobs\n");
    assert!(shown.contains("Running") && !shown.contains("Stopped"), "{shown}");
    assert!(!screen.folder.path().join("a.txt").exists());
    screen.send("fg; echo left with $?");
    screen.wait_for("[y]es, [n]o, [a]lways");
    screen.send("y");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("went on") && screen.folder.path().join("a.txt").exists(), "{shown}");
}

#[test]
fn question_is_asked_again_after_a_job_came_back_to_the_foreground() {
    let Some(screen) = Screen::open(100, 24, writes()) else { return };
    screen.configure("[rules]\nask = ['write']\n");
    let program = screen.shell_with_jobs();
    screen.send(&format!("{program} run --model openai/gpt-4.1 go"));
    screen.wait_for("[y]es, [n]o, [a]lways");
    screen.tmux(&["send-keys", "C-z"]);
    screen.wait_for("Stopped");
    screen.send("clear; bg");
    screen.wait_for("bring this process to the foreground with `fg`");
    screen.send("clear; jobs; echo jo''bs");
    let shown = screen.wait_for("jobs\n");
    assert!(shown.contains("Running") && !shown.contains("Stopped"), "{shown}");
    screen.send("clear; fg; echo left with $?");
    screen.wait_for("[y]es, [n]o, [a]lways");
    screen.send("n");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("the user declined") && !screen.folder.path().join("a.txt").exists(), "{shown}");
}

#[test]
fn bell_message_and_command_tell_of_a_question_and_of_the_end() {
    let Some(screen) = Screen::open(100, 24, writes()) else { return };
    let (raw, log) = (screen.folder.path().join("raw"), screen.folder.path().join("log"));
    let command = format!("echo \"$HOMING_EVENT $HOMING_STATUS $HOMING_MESSAGE\" >> {}", log.display());
    let notify = |more: &str| {
        screen.configure(&format!(
            "[notify]\nbell = true\nosc9 = true\n{more}command = '{command}'\n[rules]\nask = ['write']\n"
        ))
    };
    notify("");
    // Everything that the program writes to the terminal, with the sequences that the screen does not show.
    screen.tmux(&["pipe-pane", "-o", &format!("cat >> {}", raw.display())]);
    let written = || String::from_utf8_lossy(&std::fs::read(&raw).unwrap_or_default()).into_owned();
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    screen.homing("run --model openai/gpt-4.1 go");
    screen.wait_for("[y]es, [n]o, [a]lways");
    let question = "allow general to use write on a.txt?";
    screen.wait_until("the notice of the question", |_| logged().starts_with(&format!("question waiting {question}")));
    screen.wait_until("the message of the question", |_| written().contains(&format!("\x1b]9;homing: {question}")));
    screen.send("y");
    screen.wait_for("left with 0");
    let is_told =
        || written().contains("\x1b]9;homing: general done\x07\x07") && logged().ends_with("end done general done\n");
    crate::world::wait_until("the notices of the end", is_told);
    // A short run is not worth a notice of its end; a question always is.
    notify("after = \"1h\"\n");
    std::fs::remove_file(&log).unwrap();
    std::fs::remove_file(screen.folder.path().join("a.txt")).unwrap();
    screen.homing("run --model openai/gpt-4.1 go again");
    screen.wait_for("[y]es, [n]o, [a]lways");
    screen.send("y");
    screen.wait_for("left with 0");
    assert!(logged().starts_with("question waiting ") && !logged().contains("end"), "{}", logged());
    assert_eq!(written().matches("\x1b]9;").count(), 3, "two questions and one end");
}

#[test]
fn ctrl_z_suspends_and_fg_continues() {
    let Some(screen) = Screen::open(80, 24, |_, _| FakeResponse::chat_text("late").after(Duration::from_secs(3)))
    else {
        return;
    };
    let program = screen.shell_with_jobs();
    screen.send(&format!("{program} run --model openai/gpt-4.1 x"));
    screen.wait_for("waiting for gpt-4.1");
    screen.tmux(&["send-keys", "C-z"]);
    screen.wait_for("Stopped");
    screen.send("clear; fg; echo left with $?");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("late"), "{shown}");
}
