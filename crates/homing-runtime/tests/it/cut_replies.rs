//! Replies that the provider cut at its output limit: the model is told and continues; three cuts in a row end the run.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use homing_core::{
    envelope::{Envelope, Status},
    fact::{Fact, Purpose, Record},
    limits::Limits,
    message::{Args, Message, Part, Reply, StopReason, ToolCall, TranscriptEntry, Usage},
    model::{AskFailure, ModelError, ToolChoice},
    scripted_model::{call, last_words, say},
};
use homing_runtime::{
    Runtime, Task,
    journal::{Claim, MemoryJournal},
};
use serde_json::json;

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, root_id, wait_for};

/// A reply that was cut in its text, at five tokens.
pub fn cut(text: &str) -> Reply {
    say(text).stop(StopReason::Length)
}

/// A reply that was cut in its last call, as a model that does not drop such a call would give it.
pub fn cut_in_call(name: &str, args: &str) -> Reply {
    with_cut_call(say("").parts(Vec::new()), name, args)
}

fn with_cut_call(mut reply: Reply, name: &str, args: &str) -> Reply {
    let args = Args::Malformed(args.to_owned());
    reply.parts.push(Part::from(ToolCall { id: "cut".into(), name: name.into(), args }));
    reply.stop(StopReason::Length)
}

/// A model that gives these replies in order, and a log of the last message of each request.
fn replies(replies: impl IntoIterator<Item = Reply>) -> (Arc<TestModel>, Arc<Mutex<Vec<String>>>) {
    let replies = Mutex::new(replies.into_iter().collect::<Vec<_>>().into_iter());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    let model = TestModel::new(move |request| {
        log.lock().unwrap().push(last_words(&request));
        Ok(replies.lock().unwrap().next().expect("the script has a reply for every ask"))
    });
    (model, heard)
}

/// Runs these replies with a tool `write`; returns the envelope, the last message of each request, and the number of calls.
async fn run_replies(script: impl IntoIterator<Item = Reply>, task: Task) -> (Envelope, Vec<String>, usize) {
    let (model, heard) = replies(script);
    let write = TestTool::simple("write");
    let (envelope, _) = TestSetup::new([agent("a")], model).tools([write.clone()]).run(task).await;
    let heard = heard.lock().unwrap().clone();
    (envelope, heard, write.times_called())
}

fn task() -> Task {
    Task::new("a", "go")
}

fn limit_of(envelope: &Envelope) -> &'static str {
    envelope.limit.as_ref().map_or("none", |hit| hit.name.name())
}

#[tokio::test(start_paused = true)]
async fn r49_cut_text_is_continued_and_joined() {
    let (envelope, heard, _) = run_replies([cut("The answer is for"), say("ty-two.")], task()).await;
    assert_eq!((envelope.status, envelope.partial), (Status::Done, false));
    assert_eq!(envelope.output, "The answer is forty-two.");
    assert!(heard[1].starts_with("Your last reply was cut off at 5 output tokens."), "{}", heard[1]);
}

#[tokio::test(start_paused = true)]
async fn cut_call_is_not_executed_and_the_model_is_told() {
    let script = [cut_in_call("write", r#"{"path": "a", "content": "half"#), say("I gave up.")];
    let (envelope, heard, calls) = run_replies(script, task()).await;
    assert_eq!((envelope.status, envelope.output.as_str(), calls), (Status::Done, "I gave up.", 0));
    assert!(heard[1].contains("cut off at 5 output tokens"), "{}", heard[1]);
    assert!(heard[1].contains("`write`") && heard[1].contains("not executed"), "{}", heard[1]);
    assert!(!heard[1].contains("empty"), "{}", heard[1]);
}

#[tokio::test(start_paused = true)]
async fn whole_calls_of_a_cut_reply_are_executed() {
    let first = with_cut_call(call([("write", json!({"n": 1}))]), "write", "{\"n\"");
    let (model, heard) = replies([first, say("done")]);
    let write = TestTool::simple("write");
    let (envelope, journal) = TestSetup::new([agent("a")], model).tools([write.clone()]).run(task()).await;
    assert_eq!((envelope.status, write.times_called()), (Status::Done, 1));
    assert!(heard.lock().unwrap()[1].contains("not executed"));
    // Providers reject a transcript in which a call has no result.
    let fold = homing_runtime::journal::Journal::fold(&*journal, root_id()).await.unwrap();
    let transcript = fold.root().unwrap().transcript();
    let calls = transcript.iter().filter_map(|entry| match &entry.message {
        Message::Assistant(reply) => Some(reply.calls().count()),
        Message::User { .. } | Message::Tool(_) => None,
    });
    let results = transcript.iter().filter(|entry| matches!(entry.message, Message::Tool(_))).count();
    assert_eq!((calls.sum::<usize>(), results), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn r49_third_cut_in_a_row_ends_the_run_with_the_text_so_far() {
    let (envelope, heard, _) = run_replies([cut("one "), cut("two "), cut("three")], task()).await;
    assert_eq!((envelope.status, limit_of(&envelope)), (Status::Exhausted, "output"));
    assert_eq!((envelope.output.as_str(), envelope.partial, envelope.resumable), ("one two three", true, true));
    assert_eq!((heard.len(), envelope.limit.unwrap().spent), (3, 5));
}

#[tokio::test(start_paused = true)]
async fn whole_reply_resets_the_count_of_cuts() {
    let whole = call([("write", json!({"n": 1}))]);
    let script = [cut("a"), cut("b"), whole, cut("c"), cut("d"), say("e")];
    let (envelope, _, calls) = run_replies(script, task()).await;
    assert_eq!((envelope.status, envelope.output.as_str(), calls), (Status::Done, "cde", 1));
}

#[tokio::test(start_paused = true)]
async fn text_before_a_cut_call_is_not_part_of_the_answer() {
    let (envelope, ..) =
        run_replies([with_cut_call(say("I will write it."), "write", "{"), say("Done.")], task()).await;
    assert_eq!(envelope.output, "Done.");
}

#[tokio::test(start_paused = true)]
async fn cut_text_that_was_already_complete_is_the_answer() {
    let (envelope, ..) = run_replies([cut("All of it."), say("")], task()).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "All of it."));
}

#[tokio::test(start_paused = true)]
async fn reply_cut_before_any_text_is_reported_and_repeated() {
    let thoughts = || Part::Thinking { text: "hm".into(), signature: None, origin: None };
    let silent = Reply::new(vec![thoughts()]).stop(StopReason::Length);
    let (envelope, heard, _) = run_replies([silent, say("short")], task()).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "short"));
    // If the provider reports no usage, the cut is assumed at the permitted output.
    assert!(heard[1].contains("cut off at 8192 output tokens before it contained any text"), "{}", heard[1]);
}

#[tokio::test(start_paused = true)]
async fn cut_structured_answer_is_repeated_not_failed() {
    let schema = json!({"type": "object", "required": ["n"]});
    let half = || cut_in_call("answer", "{\"n\": ");
    let good = || call([("answer", json!({"n": 7}))]);
    let (envelope, heard, _) = run_replies([half(), half(), good()], task().schema(schema.clone())).await;
    assert_eq!((envelope.status, envelope.data), (Status::Done, Some(json!({"n": 7}).into())));
    assert!(heard[2].contains("`answer`"), "{}", heard[2]);
    let (envelope, ..) = run_replies([say("prose"), half(), good()], task().schema(schema.clone())).await;
    assert_eq!(envelope.status, Status::Done);
    let (envelope, ..) = run_replies([half(), half(), half()], task().schema(schema)).await;
    assert_eq!((envelope.status, limit_of(&envelope)), (Status::Exhausted, "output"));
}

#[tokio::test(start_paused = true)]
async fn cut_landing_stays_an_ending_and_continues_cut_text() {
    let limits = || Limits::default().turns(2);
    let (envelope, heard, _) = run_replies([cut("begun "), cut("and lan")], task().limits(limits())).await;
    assert_eq!((envelope.status, limit_of(&envelope)), (Status::Exhausted, "turns"));
    assert_eq!((envelope.output.as_str(), envelope.partial), ("begun and lan", true));
    assert!(heard[1].contains("cut off at 5 output tokens") && heard[1].contains("last turn"), "{}", heard[1]);
}

#[tokio::test(start_paused = true)]
async fn message_sent_meanwhile_does_not_hide_the_cut() {
    let (model, heard) = replies([cut("a"), say("b")]);
    let (runtime, _) = TestSetup::new([agent("a")], model).open();
    let run = runtime.spawn(task()).unwrap();
    // Time is paused: this is in the middle of the first model call.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(run.tell_if_open("and hurry"));
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "ab"));
    assert!(heard.lock().unwrap()[1].contains("cut off at"), "{:?}", heard.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn failed_continuation_is_reported_once_and_keeps_the_text() {
    let asks = Mutex::new(0);
    let model = TestModel::new(move |request| {
        let mut asks = asks.lock().unwrap();
        *asks += 1;
        let told =
            request.messages.iter().filter(|entry| format!("{:?}", entry.message).contains("cut off at")).count();
        match *asks {
            1 => Ok(cut("one ")),
            2 => {
                let error = ModelError::Broken { reason: "gone".into() };
                Err(AskFailure::free(error).partial("tw"))
            }
            _ => Ok(say(format!("told {told}"))),
        }
    });
    let (envelope, _) = TestSetup::new([agent("a")], model).run(task()).await;
    assert_eq!(envelope.output, "one told 1");
}

#[tokio::test(start_paused = true)]
async fn text_of_a_broken_continuation_is_joined() {
    let asks = Mutex::new(0);
    let model = TestModel::new(move |_| {
        let mut asks = asks.lock().unwrap();
        *asks += 1;
        let refused = ModelError::Refused { reason: "no".into() };
        if *asks == 1 { Ok(cut("one ")) } else { Err(AskFailure::free(refused).partial("two")) }
    });
    let (envelope, _) = TestSetup::new([agent("a")], model).run(task()).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Failed, "one two"));
}

#[tokio::test(start_paused = true)]
async fn run_cut_too_often_continues_with_a_larger_limit() {
    let (model, _) = replies([cut("one "), cut("two "), cut("three ")]);
    let (_, journal) = TestSetup::new([agent("a")], model).run(task()).await;
    let (model, heard) = replies([cut("four "), say("five")]);
    let journal = MemoryJournal::with(journal.records(root_id()));
    let runtime = Runtime::new(TestSetup::new([agent("a")], model).parts(journal, SimulatedWorld::after(9)));
    let run = runtime.resume(root_id(), Claim::IfGone, Limits::default().turns(5)).await.unwrap();
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "one two three four five"));
    assert!(heard.lock().unwrap()[0].contains("cut off at"), "{:?}", heard.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn cut_summary_is_used_and_marked_as_cut() {
    let model = TestModel::new(|request| {
        if request.system.starts_with("You keep the notes") {
            return Ok(cut("noted"));
        }
        let first = format!("{:?}", request.messages[0].message);
        match (first.contains("noted"), request.messages.len()) {
            (true, _) => Ok(say(first)),
            (false, n) if n > 9 => Err(AskFailure::free(ModelError::ContextFull { reason: "full".into() })),
            (false, n) => Ok(call([("look", json!({"n": n}))])),
        }
    });
    let (envelope, journal) = TestSetup::new([agent("a")], model).tools([TestTool::simple("look")]).run(task()).await;
    assert_eq!(envelope.status, Status::Done);
    assert!(envelope.output.contains("noted\\n[The summary was cut off here.]"), "{}", envelope.output);
    let compactions = journal
        .records(root_id())
        .into_iter()
        .filter(|record| matches!(&record.fact, Fact::Asked(asked) if asked.purpose == Purpose::Compaction));
    assert_eq!(compactions.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn third_cut_still_executes_its_whole_calls() {
    let third = with_cut_call(call([("write", json!({}))]), "write", "{");
    let (envelope, _, calls) = run_replies([cut("a"), cut("b"), third], task()).await;
    assert_eq!((envelope.status, limit_of(&envelope), calls), (Status::Exhausted, "output", 1));
}

#[tokio::test(start_paused = true)]
async fn single_turn_that_is_cut_is_not_done() {
    let model = TestModel::new(|request| {
        assert_eq!(request.choice, ToolChoice::Off);
        let usage = Usage::default().input(10).output(8_192);
        Ok(cut("half an ans").usage(usage))
    });
    let (envelope, _) = TestSetup::new([agent("a")], model).run(task().limits(Limits::default().turns(1))).await;
    assert_eq!((envelope.status, limit_of(&envelope)), (Status::Exhausted, "turns"));
    assert_eq!((envelope.output.as_str(), envelope.partial), ("half an ans", true));
}

/// A journal of an earlier version, without records about cuts, folds to the same conversation.
#[tokio::test(start_paused = true)]
async fn journal_of_an_earlier_version_folds_without_cut_messages() {
    let earlier: Reply = serde_json::from_value(json!({"parts": [], "stop": "length", "usage": {}})).unwrap();
    assert_eq!(earlier.cut_call, None);
    assert_eq!(serde_json::to_value(earlier).unwrap().get("cut_call"), None);
    let first = call([("write", json!({"n": 1}))]).stop(StopReason::Length);
    let (model, heard) = replies([first, say("done")]);
    let (_, journal) = TestSetup::new([agent("a")], model).tools([TestTool::simple("write")]).run(task()).await;
    assert!(heard.lock().unwrap()[1].contains("The calls in it were complete."), "{:?}", heard.lock().unwrap());
    let mut tree = homing_core::tree::RunTree::default();
    for record in journal.records(root_id()) {
        let mut record = Record::clone(&record);
        if let Fact::Asked(asked) = &mut record.fact {
            Arc::make_mut(asked).nudge = None;
        }
        tree.apply(&record).unwrap();
    }
    let transcript = tree.root().unwrap().transcript();
    let role = |entry: &Arc<TranscriptEntry>| {
        serde_json::to_value(&entry.message).unwrap()["role"].as_str().unwrap().to_owned()
    };
    assert_eq!(transcript.iter().map(role).collect::<Vec<_>>(), ["user", "assistant", "tool", "assistant"]);
}
