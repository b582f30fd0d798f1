//! A second turn: a team that has ended continues with its state.

use crate::support::{MemberRequest, agent_names, agents, parts, scripted, team};
use homing_core::{envelope::Envelope, message::Message, scripted_model::say};
use homing_runtime::{RunHandle, Runtime, Task, journal::MemoryJournal};

/// Runs one turn, with the messages of the turn before.
async fn turn(runtime: &Runtime, text: &str, before: Option<&RunHandle>) -> (RunHandle, Envelope) {
    let mut task = Task::new("t", text);
    task.history = before.map(history).unwrap_or_default();
    let run = runtime.spawn(task).unwrap();
    let envelope = run.wait().await;
    (run, envelope)
}

fn history(run: &RunHandle) -> Vec<Message> {
    let tree = run.tree();
    tree.get(run.id()).unwrap().messages().iter().map(|entry| entry.message.clone()).collect()
}

fn runtime(text: &str) -> Runtime {
    let models = scripted(|member: MemberRequest<'_>| match member.name {
        "triage" => say("That is for @refunds."),
        "refunds" if member.task.contains("[user] and the second?") => say("The second is refunded too. DONE"),
        "refunds" => say("Refunded. DONE"),
        "counter" => say(format!("seen {}", member.task)),
        name => say(name.to_owned()),
    });
    let members = agents(["triage", "refunds", "counter"]);
    Runtime::new(parts(MemoryJournal::new(), members, models, vec![team(text)]))
}

#[tokio::test(start_paused = true)]
async fn chat_remembers_who_was_speaking() {
    let runtime =
        runtime("name: t\nchat: {members: [triage, refunds], next: handoff, max_rounds: 4, stop_words: [DONE]}");
    let (first, envelope) = turn(&runtime, "my order", None).await;
    assert_eq!((envelope.output.as_str(), agent_names(&envelope)), ("Refunded.", vec!["triage", "refunds"]));
    let (second, envelope) = turn(&runtime, "and the second?", Some(&first)).await;
    assert_eq!((envelope.output.as_str(), agent_names(&envelope)), ("The second is refunded too.", vec!["refunds"]));
    let (_, envelope) = turn(&runtime, "@triage a new matter", Some(&second)).await;
    assert_eq!(agent_names(&envelope), ["triage", "refunds"], "the user hands over, too");
    let messages = envelope.data.unwrap()["messages"].as_array().unwrap().clone();
    let speakers: Vec<&str> = messages.iter().map(|message| message["speaker"].as_str().unwrap()).collect();
    assert_eq!(speakers, ["triage", "refunds", "user", "refunds", "user", "triage", "refunds"]);
}

#[tokio::test(start_paused = true)]
async fn graph_begins_with_the_state_of_the_turn_before() {
    let runtime = runtime(
        "name: t\ngraph:\n  start: note\n  state: {notes: {type: list, reducer: append}}\n  nodes: [{name: note, agent: counter, task: '{{ \
         state.notes | length }}', writes: notes}]\n  output: \"{{ state.notes | join(', ') }}\"",
    );
    let (first, envelope) = turn(&runtime, "one", None).await;
    assert_eq!(envelope.output, "seen 0");
    let (second, envelope) = turn(&runtime, "two", Some(&first)).await;
    assert_eq!(envelope.output, "seen 0, seen 1");
    assert_eq!(turn(&runtime, "three", Some(&second)).await.1.output, "seen 0, seen 1, seen 2");
}
