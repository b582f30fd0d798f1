//! The fold over facts: origins of messages, refused calls, totals and limits.

use std::sync::Arc;

use homing_core::{
    authority::{Authority, Grant, Network, Sandbox},
    definition::AgentDefinition,
    fact::{
        Asked, CallRefusal, Called, CancelledBy, Ended, Fact, LimitHit, Outcome, Purpose, Record, Reservation, Spawned,
    },
    ledger::{AskSize, Fit, Margin},
    limits::{Cap, Limit, Limits},
    message::{Args, MessageOrigin, ToolCall, ToolResult, Usage},
    model::{AskFailure, ModelError, Rates},
    place::Place,
    run::{Run, Step},
    scripted_model::{call, say},
    tool::{CallKey, Effect, Replay, ToolSpec},
    tree::{
        FoldError, RunTree, Share,
        segment::{Segment, segment_of, set_elsewhere},
    },
};
use serde_json::json;
use uuid::Uuid;

const ROOT: Uuid = Uuid::from_u128(1);
const CHILD: Uuid = Uuid::from_u128(2);

/// A tree under test that numbers its records itself.
#[derive(Default)]
struct Story {
    tree: RunTree,
    at: u64,
}

impl Story {
    fn new(limits: Limits) -> Self {
        let mut story = Self::default();
        story.record(ROOT, Fact::Spawned(Arc::new(spawned(None, limits))));
        story
    }

    fn record(&mut self, run: Uuid, fact: Fact) {
        let place = if run == ROOT { Place::root() } else { Place::root().child(1) };
        self.at += 10;
        let record = Record { tree: ROOT, seq: self.tree.next_seq(), at: self.at, epoch: 1, run, place, fact };
        self.tree.apply(&record).unwrap();
    }

    fn ask(&mut self, purpose: Purpose, nudge: Option<&str>) {
        let hold = Reservation { tokens: 100, cost_micros: 0 };
        let (model, nudge) = ("script/list".to_owned(), nudge.map(str::to_owned));
        let asked = Asked {
            purpose,
            model,
            max_output: 50,
            request_hash: 0,
            input_bound: 50,
            hold,
            landing: Reservation::default(),
            nudge,
        };
        self.record(ROOT, Fact::Asked(Arc::new(asked)));
    }

    fn root(&self) -> &Run {
        self.tree.root().unwrap()
    }

    fn origins(&self) -> Vec<MessageOrigin> {
        self.root().transcript().iter().map(|entry| entry.origin).collect()
    }
}

fn spawned(parent: Option<Uuid>, limits: Limits) -> Spawned {
    let agent = AgentDefinition::new("worker", "Works", "Work.");
    let (read, write) = (Vec::new(), Vec::new());
    let policy = Grant::new(Vec::new()).read(read).write(write).network(Network::Off).sandbox(Sandbox::ReadOnly);
    Spawned {
        parent,
        parent_call: None,
        continues: None,
        background: false,
        placed: false,
        authority: Authority::root(policy, &agent),
        agent: Arc::new(agent),
        system: "Work.".into(),
        task: "do it".to_owned(),
        attachments: Vec::new(),
        context: Default::default(),
        inherited: Vec::new(),
        workdir: "/work".into(),
        project: None,
        limits,
        default_cost: false,
        models: vec!["script/list".to_owned()],
        schema: None,
        until: None,
        delay_ms: 0,
        key: None,
        account: None,
        tags: Default::default(),
        warnings: Vec::new(),
    }
}

fn result(name: &str, text: &str) -> Arc<ToolResult> {
    let (name, text) = (name.to_owned(), text.to_owned());
    Arc::new(ToolResult { index: 0, call_id: "c0".into(), name, text, images: vec![], data: None, is_error: false })
}

#[test]
fn messages_carry_their_origin() {
    let mut story = Story::new(Limits::default().turns(9));
    story.record(ROOT, Fact::Told { from: None, message: "also this".to_owned() });
    story.ask(Purpose::Turn, Some("continue"));
    story.record(ROOT, Fact::Replied { reply: Arc::new(say("done")), first_token_ms: None });
    let hit = LimitHit { name: Limit::Turns, limit: 1, spent: 1, place: Place::root() };
    let ended = Ended { outcome: Outcome::Exhausted(hit), text: "done".to_owned(), data: None };
    story.record(ROOT, Fact::Ended(Arc::new(ended)));
    story.record(ROOT, Fact::Extended { more: Box::new(Limits::default().turns(3)) });
    use MessageOrigin::{Message, Model, MoreBudget, Nudge, Task};
    assert_eq!(story.origins(), [Task, Message, Nudge, Model, MoreBudget]);
    assert!(story.root().ended.is_none(), "the run continues");
    assert_eq!(story.root().limits.turns, Cap::At(12));
}

#[test]
fn continued_run_sees_earlier_budget_increases() {
    let mut story = Story::new(Limits::default().turns(9));
    let hit = LimitHit { name: Limit::Turns, limit: 1, spent: 1, place: Place::root() };
    let ended = Ended { outcome: Outcome::Exhausted(hit), text: String::new(), data: None };
    story.record(ROOT, Fact::Ended(Arc::new(ended)));
    story.record(ROOT, Fact::Extended { more: Box::new(Limits::default().turns(3)) });
    let inherited = story.root().transcript().iter().map(|entry| entry.message.clone()).collect();
    let next = Spawned { inherited, ..spawned(None, Limits::default()) };
    let mut next_story = Story::default();
    next_story.record(ROOT, Fact::Spawned(Arc::new(next)));
    assert_eq!(next_story.origins(), [MessageOrigin::Inherited, MessageOrigin::MoreBudget, MessageOrigin::Task]);
}

#[test]
fn refused_calls_keep_their_reason() {
    let mut story = Story::new(Limits::default());
    story.ask(Purpose::Turn, None);
    story.record(
        ROOT,
        Fact::Replied { reply: Arc::new(call([("bash", json!({"command": "ls"}))])), first_token_ms: None },
    );
    let key = CallKey { run: ROOT, turn: 1, index: 0 };
    let refused = Some(CallRefusal::OutcomeUnknown);
    story.record(
        ROOT,
        Fact::Returned { key, result: result("bash", "unknown"), refused: refused.clone(), denied: None },
    );
    assert_eq!(story.root().transcript().last().unwrap().refusal, refused);
    assert!(matches!(story.root().next_step(), Step::Ask { purpose: Purpose::Turn, nudge: None }));
}

#[test]
fn sixth_identical_call_leads_to_the_last_turn() {
    let mut story = Story::new(Limits::default());
    for turn in 1..=6 {
        story.ask(Purpose::Turn, None);
        story.record(
            ROOT,
            Fact::Replied { reply: Arc::new(call([("read", json!({"path": "a"}))])), first_token_ms: None },
        );
        let key = CallKey { run: ROOT, turn, index: 0 };
        let call = ToolCall { id: "c0".into(), name: "read".into(), args: Args::Json(json!({"path": "a"})) };
        let called = Called { key, call: call.into(), replay: Replay::Safe, allowed_by: "test".into(), origin: None };
        story.record(ROOT, Fact::Called(Box::new(called)));
        story.record(ROOT, Fact::Returned { key, result: result("read", "same"), refused: None, denied: None });
    }
    let Step::Ask { purpose: Purpose::Landing(hit), nudge: None } = story.root().next_step() else {
        panic!("{:?}", story.root().next_step())
    };
    assert_eq!((hit.name, hit.limit, hit.spent), (Limit::Repeats, 6, 6));
    story.ask(Purpose::Landing(hit), None);
    story.record(ROOT, Fact::Replied { reply: Arc::new(say("all I have")), first_token_ms: None });
    let Step::Stop(ended) = story.root().next_step() else { panic!("the last turn is over") };
    assert!(matches!(ended.outcome, Outcome::Exhausted(_)) && ended.text == "all I have");
}

#[test]
fn request_to_stop_wins_over_everything_else() {
    let mut story = Story::new(Limits::default());
    story.ask(Purpose::Turn, None);
    story.record(ROOT, Fact::Replied { reply: Arc::new(call([("bash", json!({}))])), first_token_ms: None });
    story.record(ROOT, Fact::Halted { by: CancelledBy::Host });
    let Step::Stop(ended) = story.root().next_step() else { panic!("cancelled") };
    assert_eq!(ended.outcome, Outcome::Cancelled { by: CancelledBy::Host });
    assert_eq!(story.root().halted(), Some(&CancelledBy::Host));
}

#[test]
fn reservations_count_at_every_ancestor_until_settled() {
    let mut story = Story::new(Limits::default().tokens(1_000));
    story.record(CHILD, Fact::Spawned(Arc::new(spawned(Some(ROOT), Limits::default()))));
    story.ask(Purpose::Turn, None);
    assert_eq!(story.root().held.tokens, 100);
    let size =
        AskSize { input: 500, output: 480, floor: 450, landing_output: 0, margin: Margin::default(), parallel: 4 };
    let fit = |story: &Story| story.tree.ledger().fit(CHILD, size, &Rates::default());
    assert_eq!(fit(&story), Fit::Later, "the root's reservation may be released");
    story.record(ROOT, Fact::Replied { reply: Arc::new(say("done")), first_token_ms: None });
    let hold = Reservation { tokens: 980, cost_micros: 0 };
    assert_eq!(fit(&story), Fit::Fits { max_output: 480, hold, landing: Reservation::default() });
    let large = AskSize { input: 999, ..size };
    assert!(
        matches!(story.tree.ledger().fit(CHILD, large, &Rates::default()), Fit::Full(hit) if hit.place == Place::root())
    );
}

#[test]
fn estimated_charge_leaves_the_rest_of_the_reservation_counted() {
    let mut story = Story::new(Limits::default().tokens(200));
    story.ask(Purpose::Turn, None);
    let charge = Usage::default().input(10).estimated(true);
    let failure = AskFailure::free(ModelError::Broken { reason: "cut".to_owned() });
    story.record(ROOT, Fact::AskFailed { failure: Box::new(failure), charge });
    let size =
        |input| AskSize { input, output: 0, floor: 0, landing_output: 0, margin: Margin::default(), parallel: 4 };
    let fits = |input| matches!(story.tree.ledger().fit(ROOT, size(input), &Rates::default()), Fit::Fits { .. });
    assert!(fits(100), "100 of 200 were reserved");
    assert!(!fits(101), "the provider may have billed all that was reserved");
    assert_eq!(story.root().subtree.usage.tokens(), 10, "only the estimate is shown as used");
}

#[test]
fn landing_is_held_at_every_ancestor_until_the_run_ends() {
    let mut story = Story::new(Limits::default().tokens(10_000));
    story.record(CHILD, Fact::Spawned(Arc::new(spawned(Some(ROOT), Limits::default()))));
    let tokens = |tokens| Reservation { tokens, cost_micros: 0 };
    let ask = |purpose, hold, landing| {
        let model = "script/list".to_owned();
        Fact::Asked(Arc::new(Asked {
            purpose,
            model,
            max_output: 50,
            request_hash: 0,
            input_bound: 50,
            hold,
            landing,
            nudge: None,
        }))
    };
    story.record(CHILD, ask(Purpose::Turn, tokens(100), tokens(30)));
    assert_eq!(story.root().held, tokens(130));
    story.record(CHILD, Fact::Replied { reply: Arc::new(call([("read", json!({}))])), first_token_ms: None });
    assert_eq!(story.root().held, tokens(30), "the landing stays reserved");
    let hit = LimitHit { name: Limit::Tokens, limit: 10_000, spent: 15, place: Place::root() };
    story.record(CHILD, ask(Purpose::Landing(hit.clone()), tokens(30), Reservation::default()));
    assert_eq!(story.root().held, tokens(30), "the call takes its place");
    let charge = Usage::default().input(10);
    let failure = AskFailure::free(ModelError::Broken { reason: "cut".to_owned() });
    story.record(CHILD, Fact::AskFailed { failure: Box::new(failure), charge });
    assert_eq!(story.root().held, tokens(20), "another run cannot take what the next attempt needs");
    let ended = Ended { outcome: Outcome::Exhausted(hit), text: String::new(), data: None };
    story.record(CHILD, Fact::Ended(Arc::new(ended)));
    assert!(story.root().held.is_zero());
}

#[test]
fn calls_recorded_before_landings_were_held_still_load() {
    let old = json!({"asked": {"purpose": "turn", "model": "m", "max_output": 9, "request_hash": 1, "input_bound": 2,
        "hold": {"tokens": 11, "cost_micros": 0}}});
    let Fact::Asked(asked) = serde_json::from_value(old.clone()).unwrap() else { panic!("a call") };
    assert!(asked.landing.is_zero());
    assert_eq!(serde_json::to_value(Fact::Asked(asked)).unwrap(), old);
}

#[test]
fn records_must_follow_each_other() {
    let mut tree = RunTree::default();
    let fact = Fact::Told { from: None, message: String::new() };
    let record = |seq| Record { tree: ROOT, seq, at: 0, epoch: 1, run: ROOT, place: Place::root(), fact: fact.clone() };
    assert_eq!(tree.apply(&record(1)), Err(FoldError::Gap { expected: 0, got: 1 }));
    assert_eq!(tree.apply(&record(0)), Err(FoldError::UnknownRun { seq: 0, run: ROOT }));
}

#[test]
fn old_tool_specifications_count_as_changes() {
    let old = json!({"name": "x", "description": "", "schema": {}, "replay": "safe"});
    let spec: ToolSpec = serde_json::from_value(old).unwrap();
    assert_eq!((spec.replay, spec.effect), (Replay::Safe, Effect::Changes));
    let fields = serde_json::to_value(&spec).unwrap();
    assert!(fields.get("effect").is_none(), "fingerprints of requests cover the serialized specification");
    assert_eq!(ToolSpec::new("x", "", json!({})).effect, Effect::Changes);
}

#[test]
fn segments_count_what_other_workers_use() {
    let mut story = Story::new(Limits::default().tokens(1_000));
    let placed = Spawned { placed: true, ..spawned(Some(ROOT), Limits::default()) };
    story.ask(Purpose::Turn, None);
    story.record(CHILD, Fact::Spawned(Arc::new(placed)));
    assert_eq!(segment_of(&story.tree, CHILD), Some(CHILD));
    assert_eq!(Segment::new(&story.tree, ROOT).shared_holders(), [ROOT], "the limit of the root is shared");
    assert_eq!(Segment::new(&story.tree, ROOT).own_share(ROOT).total().tokens, 100);

    let mut child = Segment::new(&story.tree, CHILD).fold().unwrap();
    assert_eq!(
        Segment::new(&child, CHILD).own_share(ROOT),
        Share::default(),
        "the ancestors' sums are those of the segment"
    );
    assert_eq!(Segment::new(&child, CHILD).shared_holders(), [ROOT]);
    let size =
        AskSize { input: 300, output: 300, floor: 300, landing_output: 0, margin: Margin::default(), parallel: 1 };
    let fit = |tree: &RunTree| tree.ledger().fit(CHILD, size, &Rates::default());
    assert!(matches!(fit(&child), Fit::Fits { .. }), "600 of 1,000 tokens");
    let tokens = |tokens| Reservation { tokens, cost_micros: 0 };
    let spent = Share { spent: tokens(500), ..Share::default() };
    set_elsewhere(&mut child, ROOT, CHILD, &spent);
    assert!(
        matches!(fit(&child), Fit::Full(LimitHit { spent: 500, .. })),
        "500 are spent elsewhere: {:?}",
        fit(&child)
    );
    set_elsewhere(&mut child, ROOT, CHILD, &Share { held: tokens(500), ..Share::default() });
    assert_eq!(fit(&child), Fit::Later, "500 are held elsewhere for a call");

    // The owner of the parent learns the same from the ledger and from the facts of the child, and counts it once.
    set_elsewhere(&mut story.tree, ROOT, ROOT, &Share { held: tokens(250), ..Share::default() });
    assert_eq!(Segment::new(&story.tree, ROOT).own_share(ROOT).total().tokens, 100);
}
