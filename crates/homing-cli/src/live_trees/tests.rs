use std::sync::Arc;

use homing_core::{
    fact::{Ended, Fact, Outcome},
    message::{Args, Part, Reply, ToolCall, Usage},
    question::Question,
    tool::CallKey,
};
use serde_json::json;
use snapbox::{assert_data_eq, str};

use unicode_width::UnicodeWidthStr;

use super::{view::view, *};
use crate::{
    chat::tests::{fact_at, id, spawned},
    screen::testing::drawn,
};

fn record(event: Event, tree: Uuid, seq: u64) -> Arc<Record> {
    let Event::Fact(record) = event else { panic!("not a fact") };
    Arc::new(Record { tree, seq, ..Record::clone(&record) })
}

/// A tree with this many children, one of which asks something.
fn tree(number: u128, children: usize, asks: bool) -> WatchedTree {
    let mut tree = WatchedTree::new(Uuid::from_u128(number), String::new());
    let mut events = vec![spawned("1", "general", "find the retries")];
    events.extend((1..=children).map(|at| spawned(&format!("1.{at}"), "explore", &format!("part {at} 日本語"))));
    if asks {
        let key = CallKey { run: id("1.1"), turn: 1, index: 0 };
        let rule = Some("bash(git push *) (your configuration)".to_owned());
        let question = Question::new("allow explore (1.1) to run this command (bash)?\n  git push", key).rule(rule);
        let asked = json!({"purpose": "turn", "model": "openai/gpt-4.1", "max_output": 100, "request_hash": 0,
            "input_bound": 10, "hold": {"tokens": 1_000, "cost_micros": 40_000}});
        let call = ToolCall { id: "1".into(), name: "bash".into(), args: Args::Json(json!({"command": "git push"})) };
        let usage = Usage::default().input(1_200).output(34).cost_micros(12_300);
        let reply = Reply::new(vec![Part::from(call)]).usage(usage);
        events.push(fact_at("1.1", Fact::Asked(serde_json::from_value(asked.clone()).unwrap())));
        events.push(fact_at("1.1", Fact::Replied { reply: Arc::new(reply), first_token_ms: None }));
        events.push(fact_at("1", Fact::Asked(serde_json::from_value(asked).unwrap())));
        events.push(fact_at("1.1", Fact::Questioned { id: question.id(), question: Box::new(question) }));
    }
    for (seq, event) in events.into_iter().enumerate() {
        tree.take(record(event, tree.id, seq as u64));
    }
    tree.owner = Some(4711);
    tree
}

fn state(trees: Vec<WatchedTree>) -> LiveTrees {
    let mut state = LiveTrees { trees, scope: "~/project".to_owned(), now: 9_000, ..LiveTrees::default() };
    state.refresh();
    state
}

fn press(state: &mut LiveTrees, code: KeyCode) -> Option<Wish> {
    state.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn trees_runs_money_and_reasons_for_waiting_are_shown() {
    let state = state(vec![tree(1, 0, false), tree(2, 3, true)]);
    assert_data_eq!(
        drawn(80, 20, |frame| view(&state, frame)),
        str![[r#"
2 live run trees · ~/project                                spent $0, held $0.04
● general      1 question  find the retries                 4/4 runs  $0    5.0s
· general      find the retries                             1/1 runs  $0    0.0s
─ 1 general · openai/gpt-4.1 · 0 tok · process 4711 · 00000002 ─────────────────
● 1 general  waiting for gpt-4.1                           0 tok       $0   5.0s
  ○ 1.1 explore  waiting for an answer                  1.2k tok  $0.0123   5.0s
  · 1.2 explore  part 2 日本語                             0 tok       $0   0.0s
  · 1.3 explore  part 3 日本語                             0 tok       $0   0.0s
────────────────────────────────────────────────────────────────────────────────
1 general: started: find the retries
1.1 explore: started: part 1 日本語
1.2 explore: started: part 2 日本語
1.3 explore: started: part 3 日本語
1.1 explore: question 2618634d: allow explore (1.1) to run this command (bash)?





↑↓: choose · Enter: runs · t: tell · c: cancel · a: answer · q: leave
"#]]
    );
}

#[test]
fn keys_choose_tell_cancel_and_answer() {
    let mut state = state(vec![tree(1, 0, false), tree(2, 3, true)]);
    assert_eq!(state.chosen().unwrap().id, Uuid::from_u128(2), "the newest comes first");
    press(&mut state, KeyCode::Char('a'));
    let shown = drawn(80, 20, |frame| view(&state, frame));
    assert!(shown.contains("? allow explore (1.1) to run this command (bash)?\n    git push"), "{shown}");
    assert!(shown.contains("because of bash(git push *)"), "{shown}");
    press(&mut state, KeyCode::Char('y'));
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Wish::Answer("y".into())));
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.chosen_place(), "1.2".parse().unwrap());
    press(&mut state, KeyCode::Char('t'));
    press(&mut state, KeyCode::Char('q'));
    let (tree, run) = (Uuid::from_u128(2), id("1.2"));
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Wish::Tell { tree, run, message: "q".into() }));
    press(&mut state, KeyCode::Char('c'));
    assert_eq!(press(&mut state, KeyCode::Char('n')), None);
    press(&mut state, KeyCode::Char('c'));
    assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Wish::Cancel { tree, run }));
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('a'));
    assert_eq!(state.note, "this run tree asks nothing");
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Wish::Leave));
}

#[test]
fn interrupted_tree_is_resumed_and_an_ended_run_is_not_told() {
    let mut gone = tree(1, 1, false);
    gone.owner = None;
    let mut state = state(vec![gone]);
    assert!(drawn(80, 20, |frame| view(&state, frame)).contains("· r: resume · q: leave"));
    assert_eq!(press(&mut state, KeyCode::Char('r')), Some(Wish::Resume(Uuid::from_u128(1))));
    state.trees[0].owner = Some(4711);
    assert_eq!(press(&mut state, KeyCode::Char('r')), None);
    assert_eq!(state.note, "only an interrupted run tree can be resumed");
    let ended = Fact::Ended(Arc::new(Ended { outcome: Outcome::Done, text: "x".into(), data: None }));
    let seq = state.trees[0].next_seq();
    let ended = record(fact_at("1.1", ended), Uuid::from_u128(1), seq);
    state.trees[0].take(ended);
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('t'));
    assert!(matches!(state.mode, Mode::Choosing) && state.note == "run 1.1 has ended", "{}", state.note);
}

#[test]
fn fifty_trees_of_fifty_children_fit_any_screen() {
    let mut state = state((1..=50).map(|number| tree(number, 50, number % 2 == 0)).collect());
    press(&mut state, KeyCode::Down);
    for (width, height) in [(80, 24), (200, 50), (20, 6), (4, 3), (1, 1)] {
        for mode in [Mode::Choosing, Mode::Telling(Editor::with("日本語".repeat(50))), Mode::Cancelling] {
            state.mode = mode;
            let shown = drawn(width, height, |frame| view(&state, frame));
            assert!(shown.lines().all(|line| line.width() <= usize::from(width)), "{shown}");
        }
    }
    state.mode = Mode::Choosing;
    let shown = drawn(200, 50, |frame| view(&state, frame));
    assert!(shown.starts_with("50 live run trees · ~/project") && shown.contains("1.10 explore"), "{shown}");
}

#[test]
fn hostile_text_is_inert() {
    let hostile = "\u{1b}[2J\u{9b}31m\u{202e}evil\r";
    let mut tree = WatchedTree::new(Uuid::from_u128(1), hostile.to_owned());
    tree.take(record(spawned("1", hostile, hostile), tree.id, 0));
    let shown = drawn(100, 12, |frame| view(&state(vec![tree]), frame));
    assert!(shown.contains("evil") && !shown.contains('\u{202e}'), "{shown}");
}
