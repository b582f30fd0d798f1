//! Races, quorums, agents chosen by a value, joins by count, caches, and functions as selectors and reducers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::support::{MemberRequest, agent_names, agents, cut_anywhere, parts, run, scripted_with_failures, team};
use homing_core::{
    envelope::{Envelope, Status},
    scripted_model::say,
};
use homing_runtime::RuntimeParts;
use homing_teams::{Chat, Edge, FieldType, Graph, Node, Reducer, Team};
use serde_json::json;

fn host(journal: Arc<homing_runtime::journal::MemoryJournal>, team: Team) -> RuntimeParts {
    let models = scripted_with_failures(|member: MemberRequest<'_>| match member.name {
        "mute" => Err("no voice"),
        name => Ok(say(format!("{name}: {}", member.task))),
    });
    parts(journal, agents(["ada", "bob", "eve", "mute"]), models, vec![team])
}

async fn result(team: &Team) -> Envelope {
    run(&|journal| host(journal, team.clone()), "t", "ants").await.0
}

#[tokio::test(start_paused = true)]
async fn race_takes_the_first_result_and_a_failure_does_not_win() {
    let text = "name: t\ngraph:\n  start: race\n  state: {winner: {type: string}}\n  nodes: [{name: race, agents: {first: 1, of: [mute, ada]}, task: \
                'Find {{ task }}', writes: winner}]\n  output: '{{ state.winner }}'";
    let envelope = cut_anywhere(|journal| host(journal, team(text)), "t", "ants").await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "ada: Find ants"));
}

#[tokio::test(start_paused = true)]
async fn losers_of_a_race_are_cancelled() {
    let text =
        "name: t\ngraph:\n  start: race\n  nodes: [{name: race, agents: {first: 1, of: [ada, sleeper]}, task: Go.}]";
    let models = scripted_with_failures(|member: MemberRequest<'_>| match member.name {
        "sleeper" => Ok(homing_core::scripted_model::call([("sleep", json!({}))])),
        name => Ok(say(name.to_owned())),
    });
    let make = |journal| {
        let mut parts = parts(journal, agents(["ada", "sleeper"]), models.clone(), vec![team(text)]);
        parts.tools.push(Arc::new(Sleep(homing_core::tool::ToolSpec::new("sleep", "d", json!({"type": "object"})))));
        parts
    };
    let (envelope, _) = run(&make, "t", "x").await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "ada"));
    assert_eq!(envelope.children[1].status, Status::Cancelled, "{envelope:#?}");
}

/// A tool that never returns by itself.
struct Sleep(homing_core::tool::ToolSpec);

impl homing_core::tool::Tool for Sleep {
    fn spec(&self) -> &homing_core::tool::ToolSpec {
        &self.0
    }

    fn call<'a>(
        &'a self,
        context: &'a homing_core::tool::ToolContext,
        _: serde_json::Value,
    ) -> homing_core::BoxFuture<'a, homing_core::tool::ToolOutput> {
        Box::pin(async move {
            context.cancelled().await;
            homing_core::tool::ToolOutput::error("woken")
        })
    }
}

#[tokio::test(start_paused = true)]
async fn quorum_collects_as_many_results_and_fails_without_them() {
    let graph = |of: &str| {
        team(&format!(
            "name: t\ngraph:\n  start: vote\n  state: {{votes: {{type: list}}}}\n  nodes: [{{name: vote, agents: {{first: 2, of: {of}}}, task: \
             Vote., writes: votes}}]"
        ))
    };
    let envelope = result(&graph("[ada, mute, bob]")).await;
    assert_eq!(
        (envelope.status, &envelope.data.unwrap()["votes"]),
        (Status::Done, &json!(["ada: Vote.", "bob: Vote."]))
    );
    let envelope = result(&graph("[ada, mute, mute]")).await;
    assert_eq!(envelope.status, Status::Failed);
    assert!(envelope.error.unwrap().message.contains("node `vote`"));
}

#[tokio::test(start_paused = true)]
async fn value_chooses_the_agent_of_each_item() {
    let text = "name: t\nparameters: {jobs: [{who: ada, what: sing}, {who: bob, what: dance}]}\ngraph:\n  start: work\n  state: {done: {type: \
                list}}\n  nodes: [{name: work, each: jobs, agent: '{{ item.who }}', agents: [ada, bob], task: '{{ item.what }}', writes: done}]";
    let envelope = result(&team(text)).await;
    assert_eq!(envelope.data.unwrap()["done"], json!(["ada: sing", "bob: dance"]));
    let envelope = result(&team(&text.replace("who: bob", "who: eve"))).await;
    assert!(envelope.error.unwrap().message.contains("`eve` is not one of the agents ada, bob"));
}

#[tokio::test(start_paused = true)]
async fn join_starts_with_the_first_branches_and_only_once() {
    let text = "name: t\ngraph:\n  start: s\n  state: {log: {type: list, reducer: append}}\n  nodes:\n    - {name: s, agent: ada, task: s}\n    - {name: \
                short, agent: ada, task: short}\n    - {name: long, agent: ada, task: long}\n    - {name: longer, agent: ada, task: longer}\n    - \
                {name: meet, agent: bob, task: meet, writes: log, join: {first: 1, of: [short, longer]}}\n  edges:\n    - {from: s, to: short}\n    - {from: \
                s, to: long}\n    - {from: long, to: longer}\n    - {from: short, to: meet}\n    - {from: longer, to: meet}";
    let envelope = cut_anywhere(|journal| host(journal, team(text)), "t", "x").await;
    assert_eq!(envelope.data.as_ref().unwrap()["log"], json!(["bob: meet"]), "{envelope:#?}");
    assert_eq!(agent_names(&envelope).iter().filter(|name| **name == "bob").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cached_node_does_the_same_task_once() {
    let text = "name: t\ngraph:\n  start: look\n  state: {n: {type: number, reducer: add}}\n  nodes:\n    - {name: look, agent: ada, task: 'Look at {{ \
                task }}', cache: true}\n    - {name: think, agent: bob, task: 'Think {{ step }}'}\n  edges:\n    - {from: look, to: think}\n    - {from: \
                think, to: look, limit: 2}";
    let envelope = cut_anywhere(|journal| host(journal, team(text)), "t", "ants").await;
    assert_eq!(agent_names(&envelope), ["ada", "bob", "bob", "bob"]);
}

#[tokio::test(start_paused = true)]
async fn functions_select_speakers_and_reduce_values() {
    let chat = Chat::new(["ada", "bob"]).max_rounds(3).selected_with(|said| {
        let last = said.last().map(|message| message.speaker.as_str());
        (last == Some("ada")).then(|| "ada".to_owned())
    });
    let envelope = result(&Team::new("t", chat)).await;
    assert_eq!(agent_names(&envelope), ["ada", "ada", "ada"]);

    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let graph = Graph::starting_at("a")
        .field("longest", FieldType::String, Reducer::Replace, "")
        .reduce_with("longest", move |old, new| {
            counted.fetch_add(1, Ordering::Relaxed);
            let length = |value: &serde_json::Value| value.as_str().map_or(0, str::len);
            Ok(if length(old) >= length(&new) { old.clone() } else { new })
        })
        .node(Node::agent("a", "ada", "a long task").writes("longest"))
        .node(Node::agent("b", "bob", "x").writes("longest"))
        .edge(Edge::new("a", "b"))
        .output("{{ state.longest }}");
    let envelope = result(&Team::new("t", graph)).await;
    assert_eq!((envelope.output.as_str(), calls.load(Ordering::Relaxed) > 0), ("ada: a long task", true));
}

#[test]
fn check_finds_mistakes_in_races_and_joins() {
    let problems = |node: &str| {
        let text = format!("name: t\ngraph: {{start: n, nodes: [{{name: n, task: x, {node}}}]}}");
        homing_teams::load(&text, None).diagnostics.into_iter().map(|problem| problem.message).collect::<Vec<_>>()
    };
    assert!(problems("agents: {first: 3, of: [ada, bob]}")[0].contains("a quorum of 3 needs"));
    assert!(problems("agent: '{{ task }}'")[0].contains("needs `agents` to choose from"));
    assert!(problems("agent: ada, agents: [bob]")[0].contains("`agents` has no effect"));
    assert!(problems("agent: '{{ unknown_thing }}', agents: [ada]")[0].contains("unknown name `unknown_thing`"));
    assert!(problems("agent: ada, join: {first: 2, of: [n]}").iter().any(|problem| problem.contains("first 2 of 1")));
}
