use std::sync::Arc;

use homing_core::{
    authority::{Authority, Grant, Network, Sandbox},
    definition::AgentDefinition,
    message::{Args, ToolCall},
    tool::{CallKey, Replay},
};
use ratatui_crossterm::crossterm::event::KeyModifiers;
use serde_json::json;
use snapbox::{assert_data_eq, str};
use unicode_width::UnicodeWidthStr;
use uuid::Uuid;

use super::{view::view, *};
use crate::screen::testing::drawn;

pub(crate) fn id(place: &str) -> Uuid {
    Uuid::from_u128(place.bytes().fold(7, |sum, byte| sum * 131 + u128::from(byte)))
}

fn fact(place: &str, at: u64, fact: Fact) -> Event {
    let (run, place) = (id(place), place.parse().unwrap());
    Event::Fact(Arc::new(Record { tree: id("1"), seq: 0, at, epoch: 1, run, place, fact }))
}

pub(crate) fn spawned(place: &str, agent: &str, task: &str) -> Event {
    let agent = AgentDefinition::new(agent, "Works.", "Work.");
    let (layers, read, write) = (Vec::new(), Vec::new(), Vec::new());
    let policy = Grant::new(layers).read(read).write(write).network(Network::Off).sandbox(Sandbox::ReadOnly);
    let authority = Authority::root(policy, &agent);
    let limits = homing_core::limits::Limits::default();
    let value = json!({"agent": agent, "system": "", "task": task, "workdir": "/w", "authority": authority,
        "limits": limits, "models": ["openai/gpt-4.1"]});
    fact(place, 1_000, Fact::Spawned(serde_json::from_value(value).unwrap()))
}

/// A fact about the run at a place.
pub(crate) fn fact_at(place: &str, what: Fact) -> Event {
    fact(place, 4_000, what)
}

fn called(place: &str, name: &str, args: serde_json::Value) -> Event {
    let call = ToolCall { id: "1".to_owned(), name: name.to_owned(), args: Args::Json(args) };
    let key = CallKey { run: id(place), turn: 1, index: 0 };
    let called = homing_core::fact::Called {
        key,
        call: call.into(),
        replay: Replay::Safe,
        allowed_by: String::new(),
        origin: None,
    };
    fact(place, 2_000, Fact::Called(Box::new(called)))
}

fn text(piece: &str) -> Event {
    let kind = TransientKind::Text(piece.to_owned());
    Event::Transient(Arc::new(Transient { tree: id("1"), run: id("1"), place: Place::root(), at: 3_000, kind }))
}

fn chat() -> Chat {
    let mut chat = Chat { now: 5_000, ..Chat::default() };
    chat.about = About {
        agent: "general".into(),
        model: "openai/gpt-4.1".into(),
        folder: "~/project".into(),
        agents: vec!["explore".into(), "general".into()],
    };
    chat
}

/// A turn with children, text that is arriving, and a line that the user is writing.
fn busy(children: usize) -> Chat {
    let mut chat = chat();
    chat.begin(Some("Where are model calls retried?".into()), Cap::At(5_000_000));
    chat.take(&spawned("1", "general", "Where are model calls retried?"));
    chat.take(&called("1", "delegate", json!({"agent": "explore", "task": "find the retries"})));
    for child in 1..=children {
        chat.take(&spawned(&format!("1.{child}"), "explore", &format!("look at part {child} of 日本語")));
    }
    chat.take(&text("They are retried in `model_call.rs`:\n\n- **waits** for the provider\n- 日本語 and 👩‍🚀"));
    chat.editor = Editor::with("and the tests?");
    chat
}

fn press(chat: &mut Chat, code: KeyCode, modifiers: KeyModifiers) -> Option<Wish> {
    chat.key(KeyEvent::new(code, modifiers))
}

fn type_line(chat: &mut Chat, line: &str) -> Option<Wish> {
    for character in line.chars() {
        press(chat, KeyCode::Char(character), KeyModifiers::NONE);
    }
    press(chat, KeyCode::Enter, KeyModifiers::NONE)
}

#[test]
fn narrow_screen_shows_the_tree_below_the_text() {
    assert_data_eq!(
        drawn(80, 24, |frame| view(&mut busy(3), frame)),
        str![[r#"
general · openai/gpt-4.1 · ~/project                                  0 tok · $0
› Where are model calls retried?

● delegate to explore: find the retries

They are retried in model_call.rs:

• waits for the provider
• 日本語 and 👩‍🚀







─ runs ─────────────────────────────────────────────────────────────────────────
○ 1 general  - 日本語 and 👩‍🚀                               0 tok       $0   1.0s
  · 1.1 explore  look at part 1 of 日本語                  0 tok       $0   0.0s
  · 1.2 explore  look at part 2 of 日本語                  0 tok       $0   0.0s
  · 1.3 explore  look at part 3 of 日本語                  0 tok       $0   0.0s
─ ● answering ───────────────────────────────────────────── $0 of $5.00 · 0.0s ─
› and the tests?
Enter: message to the agent · Esc: stop · /help
"#]]
    );
}

#[test]
fn wide_screen_shows_the_tree_beside_the_text() {
    assert_data_eq!(
        drawn(130, 16, |frame| view(&mut busy(3), frame)),
        str![[r#"
general · openai/gpt-4.1 · ~/project                                                                                    0 tok · $0
› Where are model calls retried?                                               │ ○ 1 general  - 日本語 and 👩‍🚀                 1.0s
                                                                               │   · 1.1 explore  look at part 1 of 日本語    0.0s
● delegate to explore: find the retries                                        │   · 1.2 explore  look at part 2 of 日本語    0.0s
                                                                               │   · 1.3 explore  look at part 3 of 日本語    0.0s
They are retried in model_call.rs:                                             │
                                                                               │
• waits for the provider                                                       │
• 日本語 and 👩‍🚀                                                                │
                                                                               │
                                                                               │
                                                                               │
                                                                               │
─ ● answering ─────────────────────────────────────────────────────────────────────────────────────────────── $0 of $5.00 · 0.0s ─
› and the tests?
Enter: message to the agent · Esc: stop · /help
"#]]
    );
}

#[test]
fn fifty_children_and_any_size_fit() {
    for (width, height) in [(80, 24), (200, 50), (20, 6), (4, 3), (1, 1), (300, 8)] {
        let shown = drawn(width, height, |frame| view(&mut busy(50), frame));
        assert!(shown.lines().all(|line| line.width() <= usize::from(width)), "{shown}");
        if height >= 24 {
            assert!(shown.contains("explore") && shown.contains("› and the tests?"), "{shown}");
        }
    }
}

#[test]
fn hostile_text_is_inert() {
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}evil\r\u{8}";
    let mut chat = chat();
    chat.about.agent = hostile.to_owned();
    chat.begin(Some(hostile.to_owned()), Cap::Unlimited);
    chat.take(&spawned("1", hostile, hostile));
    chat.take(&called("1", hostile, json!({"command": hostile})));
    chat.take(&spawned("1.1", hostile, hostile));
    chat.take(&text(hostile));
    chat.problem(hostile);
    chat.cells.push(Entry::Plain(hostile.to_owned()));
    let shown = drawn(80, 24, |frame| view(&mut chat, frame));
    assert!(shown.contains("evil") && !shown.contains('\u{202e}') && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn ctrl_c_stops_the_turn_and_twice_leaves() {
    let mut chat = busy(0);
    assert_eq!(press(&mut chat, KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Stop));
    chat.now += 3_000;
    assert_eq!(press(&mut chat, KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Stop), "the first was long ago");
    chat.now += 500;
    assert_eq!(press(&mut chat, KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Leave));
    let mut idle = super::tests::chat();
    idle.editor = Editor::with("half a message");
    assert_eq!(press(&mut idle, KeyCode::Char('c'), KeyModifiers::CONTROL), None);
    assert!(idle.editor.text().is_empty() && !idle.is_leaving(), "the first one only clears the line");
    assert_eq!(press(&mut idle, KeyCode::Char('c'), KeyModifiers::CONTROL), None);
    assert!(idle.is_leaving());
    press(&mut idle, KeyCode::Char('x'), KeyModifiers::NONE);
    assert!(!idle.is_leaving(), "the user goes on");
    let mut idle = super::tests::chat();
    press(&mut idle, KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut idle, KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Leave));
}

#[test]
fn escape_scrolls_to_the_end_and_then_stops_the_turn() {
    let mut chat = busy(0);
    chat.scroll = 5;
    assert_eq!(press(&mut chat, KeyCode::Esc, KeyModifiers::NONE), None);
    assert_eq!((chat.scroll, press(&mut chat, KeyCode::Esc, KeyModifiers::NONE)), (0, Some(Wish::Stop)));
    assert_eq!(press(&mut super::tests::chat(), KeyCode::Esc, KeyModifiers::NONE), None);
}

#[test]
fn tab_asks_for_the_path_at_the_end_of_a_message() {
    let mut chat = chat();
    chat.editor = Editor::with("compare @src/m");
    let wish = press(&mut chat, KeyCode::Tab, KeyModifiers::NONE);
    assert_eq!(wish, Some(Wish::CompletePath("src/m".into())));
    chat.complete_path("src/m", "src/main.rs");
    assert_eq!(chat.editor.text(), "compare @src/main.rs");
}

#[test]
fn messages_and_commands_are_told_apart_and_remembered() {
    let mut chat = chat();
    assert_eq!(type_line(&mut chat, "hello"), Some(Wish::Send("hello".into())));
    assert_eq!(type_line(&mut chat, "/cost"), Some(Wish::Slash(Slash::Cost)));
    assert_eq!(type_line(&mut chat, "/tell 1.2"), None);
    assert!(drawn(80, 12, |frame| view(&mut chat, frame)).contains("usage: /tell PLACE TEXT"));
    press(&mut chat, KeyCode::Up, KeyModifiers::NONE);
    press(&mut chat, KeyCode::Up, KeyModifiers::NONE);
    press(&mut chat, KeyCode::Up, KeyModifiers::NONE);
    assert_eq!(chat.editor.text(), "hello");
    for _ in 0..3 {
        press(&mut chat, KeyCode::Down, KeyModifiers::NONE);
    }
    assert_eq!(chat.editor.text(), "");
    type_line(&mut chat, "two\\");
    assert_eq!(type_line(&mut chat, "lines"), Some(Wish::Send("two\nlines".into())));
    assert_eq!(chat.paste("/tmp/a b.png"), Some(Wish::Slash(Slash::Attach("/tmp/a b.png".into()))));
    let quoted = "'/tmp/a b.pdf'";
    assert_eq!(chat.paste(quoted), Some(Wish::Slash(Slash::Attach(quoted.into()))));
    assert_eq!(dropped_path("'/tmp/a b.png'"), PathBuf::from("/tmp/a b.png"));
    assert_eq!(chat.paste("see /tmp/a.png\nand that"), None);
    assert_eq!(chat.editor.text(), "see /tmp/a.png\nand that");
}

#[test]
fn scrolling_stops_at_the_beginning() {
    let mut chat = chat();
    (0..100).for_each(|number| chat.note(format!("line {number}")));
    assert!(drawn(40, 12, |frame| view(&mut chat, frame)).contains("line 99"));
    for _ in 0..50 {
        press(&mut chat, KeyCode::PageUp, KeyModifiers::NONE);
    }
    assert!(drawn(40, 12, |frame| view(&mut chat, frame)).contains("line 0\n"));
    press(&mut chat, KeyCode::PageDown, KeyModifiers::NONE);
    assert!(drawn(40, 12, |frame| view(&mut chat, frame)).contains("line 10\n"));
    press(&mut chat, KeyCode::Esc, KeyModifiers::NONE);
    assert!(drawn(40, 12, |frame| view(&mut chat, frame)).contains("line 99"));
}
