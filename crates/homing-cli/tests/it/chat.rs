//! `homing chat` and `homing continue` in a real terminal.

use std::{process::Command, time::Duration};

use homing_testing::{FakeResponse, ReceivedRequest, ResponseStep};

use crate::{
    terminal::Screen,
    world::{World, code, err},
};

const CHAT: &str = "chat --sandbox off --model openai/gpt-4.1";

/// Returns whether the last user message of a request contains this text.
fn last_says(seen: &ReceivedRequest, text: &str) -> bool {
    seen.body.rfind("\"role\":\"user\"").is_some_and(|at| seen.body[at..].contains(text))
}

/// A reply that begins to arrive and then stalls.
fn stalled(text: &str) -> FakeResponse {
    let delta =
        format!("data: {{\"model\":\"fake\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text:?}}}}}]}}\n\n");
    FakeResponse::open_stream(vec![ResponseStep::Bytes(delta.into_bytes()), ResponseStep::Stall])
}

impl Screen {
    /// Waits until the program waits for keys, then types a line.
    fn say(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// The process of the program that the shell runs.
    fn program(&self) -> String {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"]);
        let found = Command::new("pgrep").args(["-P", shell.trim()]).output().expect("pgrep runs");
        String::from_utf8_lossy(&found.stdout).lines().next().expect("a program runs").to_owned()
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.program()]).status().unwrap().success());
    }

    /// Checks that the terminal is as a shell needs it.
    fn is_restored(&self) {
        self.say("clear; stty -a | tr ' ' '\\n' | grep -x -e icanon -e echo | tr '\\n' ' '; echo e''nd");
        let shown = self.wait_for("end\n");
        assert!(shown.contains("icanon echo") || shown.contains("echo icanon"), "{shown}");
        assert_eq!(self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }
}

#[test]
fn r65_conversation_is_streamed_rendered_recorded_and_continued() {
    let Some(screen) = Screen::open(80, 24, |_, seen| match () {
        () if last_says(seen, "first question") => {
            FakeResponse::chat_text("# Heading\n\nA **bold** `word` 日本語 👩‍🚀\n\n- one\n- two\u{1b}[31m\u{7}")
        }
        () if last_says(seen, "second") => stalled("half of the second ans"),
        () => FakeResponse::chat_text("the third answer"),
    }) else {
        return;
    };
    screen.homing(CHAT);
    screen.wait_for("You are talking to general");
    screen.say("first question");
    let shown = screen.wait_for("done · 1 turn");
    assert!(shown.contains("› first question") && shown.contains("• one\n• two�[31m�"), "{shown}");
    assert!(shown.contains("Heading\n\nA bold word 日本語 👩‍🚀") && !shown.contains("**"), "{shown}");
    screen.say("second");
    screen.wait_for("half of the second ans");
    screen.tmux(&["resize-window", "-x", "200", "-y", "50"]);
    // The old screen shows it, too: a key that comes with the change of size may be read only with the next one.
    screen.wait_until("the wide screen", |shown| {
        shown.lines().any(|line| line.starts_with("─ ● answering") && line.chars().count() > 150)
    });
    screen.key("C-c");
    let shown = screen.wait_for("cancelled · ");
    assert!(shown.contains("general · openai/gpt-4.1 · ~"), "{shown}");
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    screen.key("C-d");
    let shown = screen.wait_for("left with 0");
    assert!(shown.contains("continue with: homing continue"), "{shown}");
    screen.is_restored();

    screen.homing("continue --sandbox off");
    // The earlier messages may be shown before the line below them.
    screen.wait_until("the earlier messages and the model", |shown| {
        ["› second", "• one", "general · openai/gpt-4.1"].iter().all(|text| shown.contains(text))
    });
    screen.say("third");
    screen.wait_for("the third answer");
    let last = screen.provider.requests().pop().unwrap();
    assert!(last.body.contains("first question") && last.body.contains("second") && last.body.contains("third"));
    // The messages of earlier sessions are in the history.
    screen.key("Up");
    screen.key("Up");
    screen.key("Up");
    screen.wait_for("\n› first question");
    // The first one clears the line.
    screen.key("C-c");
    screen.wait_until("the line is empty", |shown| !shown.contains("\n› first question"));
    screen.key("C-c");
    screen.key("C-c");
    screen.wait_for("left with 0");
}

#[test]
fn question_is_asked_inline_and_the_reason_reaches_the_model() {
    let Some(screen) = Screen::open(80, 24, |_, seen| match () {
        () if last_says(seen, "again") && !seen.body.contains("\"content\":\"x\\n") && !seen.body.ends_with("tool") => {
            if seen.body.matches("\"role\":\"tool\"").count() >= 2 {
                FakeResponse::chat_text("written now")
            } else {
                FakeResponse::chat_calls(&[("write", r#"{"path":"new.txt","content":"x"}"#)])
            }
        }
        () if seen.body.contains("the user declined: because it is Friday") => FakeResponse::chat_text("I wait"),
        () => FakeResponse::chat_calls(&[("write", r#"{"path":"new.txt","content":"x"}"#)]),
    }) else {
        return;
    };
    let config = screen.folder.path().join(".config/homing/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[rules]\nask = ['write']\n").unwrap();
    screen.homing(CHAT);
    screen.wait_for("You are talking to general");
    screen.say("write it");
    let shown = screen.wait_for("waiting for your answer");
    assert!(shown.contains("? allow general to use write on new.txt?") && shown.contains("+x"), "{shown}");
    screen.say("perhaps");
    screen.wait_for("to tell the agent why not");
    screen.say("no, because it is Friday");
    let shown = screen.wait_for("done · ");
    assert!(shown.contains("I wait") && shown.contains("the user declined: because it is Friday"), "{shown}");
    assert!(!screen.folder.path().join("new.txt").exists());
    screen.say("again");
    screen.wait_for("waiting for your answer");
    screen.say("a");
    screen.wait_for("only this call, only in this project");
    screen.say("y");
    screen.wait_for("written now");
    assert!(screen.folder.path().join("new.txt").exists());
    assert!(std::fs::read_to_string(&config).unwrap().contains("allow = [\"write(=new.txt)\"]"));
    screen.say("/diff");
    let shown = screen.wait_for("created new.txt");
    assert!(shown.contains("+x"), "{shown}");
}

#[test]
fn killed_conversation_is_taken_up_with_its_turn() {
    let Some(screen) = Screen::open(80, 24, |number, _| match number {
        0 => stalled("never finished"),
        2 => stalled("interrupted again"),
        _ => FakeResponse::chat_text("finished after all"),
    }) else {
        return;
    };
    screen.homing(CHAT);
    screen.wait_for("You are talking to general");
    screen.say("do it");
    screen.wait_for("never finished");
    screen.signal("-KILL");
    screen.wait_for("left with 137");
    // No program can restore the terminal after this signal; the user does.
    screen.tmux(&["send-keys", "-R", "stty sane; printf '\\033[?1049l\\033[?2004l'; clear; echo re''stored", "C-j"]);
    screen.wait_for("restored");
    screen.homing("continue --sandbox off");
    let shown = screen.wait_for("finished after all");
    assert!(shown.contains("› do it"), "{shown}");
    // A terminal that is closed leaves the turn for later, too.
    screen.wait_for("done · ");
    screen.say("and now this");
    screen.wait_for("interrupted again");
    screen.tmux(&["respawn-pane", "-k", "sh"]);
    screen.send("PS1='$ '; clear");
    screen.homing("continue --sandbox off");
    screen.wait_until("the second turn is finished, too", |shown| shown.matches("finished after all").count() == 2);
    screen.signal("-TERM");
    screen.wait_for("left with 143");
    screen.is_restored();
}

#[test]
fn suspended_conversation_comes_back() {
    let Some(screen) = Screen::open(80, 24, |_, _| FakeResponse::chat_text("fine")) else { return };
    screen.homing(CHAT);
    screen.wait_for("You are talking to general");
    screen.tmux(&["send-keys", "-l", "half a message"]);
    screen.wait_for("half a message");
    screen.key("C-z");
    screen.wait_for("Stopped");
    screen.is_restored();
    screen.say("fg");
    screen.wait_for("› half a message");
    screen.key("Enter");
    screen.wait_for("fine");
}

#[test]
fn message_reaches_the_running_agent_and_children_are_shown() {
    let Some(screen) = Screen::open(200, 50, |_, seen| match () {
        () if seen.body.contains("stop it now") => FakeResponse::chat_text("I stop"),
        () if last_says(seen, "part ") => FakeResponse::chat_text("late").after(Duration::from_secs(600)),
        () => {
            let task = |at: usize| format!("{{\"agent\":\"explore\",\"task\":\"part {at}\",\"background\":true}}");
            let calls: Vec<String> = (1..=50).map(task).collect();
            let calls: Vec<(&str, &str)> = calls.iter().map(|args| ("delegate", args.as_str())).collect();
            if seen.body.contains("\"role\":\"tool\"") {
                FakeResponse::chat_calls(&[("wait", "{}")])
            } else {
                FakeResponse::chat_calls(&calls)
            }
        }
    }) else {
        return;
    };
    screen.homing(&format!("{CHAT} --max-children 100"));
    screen.wait_for("You are talking to general");
    screen.say("lead them");
    screen.wait_for("│   ● 1.1 explore");
    screen.wait_until("many children are shown", |shown| shown.matches("explore").count() > 30);
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    screen.wait_for("─ runs ─");
    screen.say("/cancel 1.1");
    screen.say("/tell 1.99 x");
    screen.wait_for("there is no run 1.99");
    screen.key("C-c");
    screen.wait_for("cancelled · 51 runs");
}

#[test]
fn without_a_terminal_chat_is_refused_and_bare_homing_prints_help() {
    let world = World::saying("x");
    for command in [&["chat"][..], &["continue"]] {
        let refused = world.homing(command);
        assert_eq!(code(&refused), 2);
        assert!(
            err(&refused).contains("needs a terminal, and standard input or output is not one"),
            "{}",
            err(&refused)
        );
    }
    let bare = world.homing(&[]);
    assert_eq!(code(&bare), 2);
    assert!(err(&bare).contains("Usage: homing"), "{}", err(&bare));
}

#[test]
fn pictures_are_attached_and_a_stopped_call_does_not_spoil_the_next_message() {
    let Some(screen) = Screen::open(80, 24, |_, seen| match () {
        () if last_says(seen, "wait") && !last_says(seen, "go on") => {
            FakeResponse::chat_calls(&[("bash", r#"{"command":"sleep 600"}"#)])
        }
        () => FakeResponse::chat_text("seen"),
    }) else {
        return;
    };
    std::fs::write(screen.folder.path().join("a.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    std::fs::write(screen.folder.path().join("my picture.png"), b"\x89PNG\r\n\x1a\nx").unwrap();
    screen.homing(CHAT);
    screen.wait_for("You are talking to general");
    let dropped = format!("'{}/my picture.png'", screen.folder.path().display());
    screen.tmux(&["set-buffer", &dropped]);
    screen.tmux(&["paste-buffer", "-p"]);
    screen.wait_for("attached: my picture.png");
    screen.say("compare it with @a.png");
    screen.wait_for("done · ");
    let body = screen.provider.requests().pop().unwrap().body;
    assert!(body.contains("iVBORw0KGgo=") && body.contains("iVBORw0KGgp4"), "{body}");
    screen.say("wait");
    screen.wait_for("● bash sleep 600");
    screen.key("C-c");
    let shown = screen.wait_for("cancelled · ");
    assert_eq!(shown.matches("\nseen\n").count(), 1, "the answer before is not the result of this turn:\n{shown}");
    screen.say("go on");
    screen.wait_until("the next turn is done", |shown| shown.matches("seen").count() == 2);
    screen.say("/cost");
    screen.wait_for("openai/gpt-4.1 │");
}
