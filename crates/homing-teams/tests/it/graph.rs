//! Graphs: state, reducers, conditions, fan-out and join, loops that end, functions, sub-teams.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::support::{MemberRequest, agent_names, agents, cut_anywhere, parts, run, scripted};
use homing_core::{
    BoxFuture,
    authority::Allow,
    definition::AgentDefinition,
    envelope::Status,
    message::Reply,
    rule::Rule,
    scripted_model::{call, say},
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{Crew, CrewTask, Edge, FieldType, Graph, Node, OnTaskFailure, Reducer, Team, function, mermaid};
use serde_json::{Value, json};

fn host(
    team: Team,
    script: impl Fn(MemberRequest<'_>) -> Reply + Send + Sync + Copy + 'static,
) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    move |journal| parts(journal, agents(["researcher", "writer", "reviewer"]), scripted(script), vec![team.clone()])
}

fn echo(member: MemberRequest<'_>) -> Reply {
    say(format!("<{}: {}>", member.name, member.task))
}

/// Write, review, and back to the writer until the reviewer accepts or the edge reaches its limit.
fn review_loop() -> Graph {
    Graph::starting_at("write")
        .field("draft", FieldType::String, Reducer::Replace, "")
        .field("ok", FieldType::Boolean, Reducer::Replace, false)
        .field("rounds", FieldType::Number, Reducer::Add, 0)
        .node(Node::agent("write", "writer", "Write {{ task }}, round {{ state.rounds }}").writes("draft"))
        .node(
            Node::agent("review", "reviewer", "Review {{ state.draft }}")
                .schema(json!({"type": "object", "required": ["ok", "rounds"]})),
        )
        .edge(Edge::new("write", "review"))
        .edge(Edge::new("review", "write").when("not state.ok").limit(3))
        .edge(Edge::end("review").otherwise())
        .output("{{ state.draft }} after {{ state.rounds }}")
}

fn content_after_two(member: MemberRequest<'_>) -> Reply {
    match member.name {
        "reviewer" => {
            let ok = member.first_words().contains("round 2");
            call([("answer", json!({"ok": ok, "rounds": 1}))])
        }
        _ => echo(member),
    }
}

#[tokio::test(start_paused = true)]
async fn r46_state_flows_along_edges_and_back() {
    let whole = cut_anywhere(host(Team::new("loop", review_loop()), content_after_two), "loop", "ants").await;
    assert_eq!(whole.status, Status::Done, "{whole:#?}");
    assert_eq!(whole.output, "<writer: Write ants, round 2> after 3");
    assert_eq!(agent_names(&whole), ["writer", "reviewer", "writer", "reviewer", "writer", "reviewer"]);
}

#[tokio::test(start_paused = true)]
async fn r46_loop_ends_at_the_limit_of_its_edge() {
    let never = |member: MemberRequest<'_>| match member.name {
        "reviewer" => call([("answer", json!({"ok": false, "rounds": 1}))]),
        _ => echo(member),
    };
    let (result, _) = run(&host(Team::new("loop", review_loop()), never), "loop", "ants").await;
    assert_eq!((result.status, result.output.as_str()), (Status::Done, "<writer: Write ants, round 3> after 4"));
}

#[tokio::test(start_paused = true)]
async fn r46_loop_without_a_limit_ends_at_max_steps() {
    let graph = Graph::starting_at("a")
        .node(Node::agent("a", "writer", "step {{ step }}"))
        .edge(Edge::new("a", "a").when("step >= 0"))
        .max_steps(7);
    let (result, _) = run(&host(Team::new("round", graph), echo), "round", "ants").await;
    assert_eq!((result.status, result.children.len()), (Status::Failed, 7));
    assert!(result.error.unwrap().message.contains("7 steps"));
}

#[tokio::test(start_paused = true)]
async fn r46_list_fans_out_and_joins_in_order() {
    let graph = Graph::starting_at("split")
        .field("parts", FieldType::List, Reducer::Replace, json!([]))
        .field("notes", FieldType::List, Reducer::Append, json!(["first"]))
        .node(Node::tool("split", "words", json!({"text": "{{ task }}"})).writes("parts"))
        .node(Node::agent("study", "researcher", "{{ index }}: {{ item }}").each("state.parts").writes("notes"))
        .node(Node::agent("left", "writer", "left"))
        .node(Node::agent("right", "reviewer", "right"))
        .node(Node::agent("more", "reviewer", "more"))
        .node(Node::agent("end-up", "writer", "{{ state.notes | join(',') }}").join(["left", "more"]))
        .edge(Edge::new("split", "study"))
        .edge(Edge::new("study", "left"))
        .edge(Edge::new("study", "right"))
        .edge(Edge::new("right", "more"))
        .edge(Edge::new("left", "end-up"))
        .edge(Edge::new("more", "end-up"));
    let words = function("words", Replay::Safe, |args| {
        Ok(json!(args["text"].as_str().unwrap_or_default().split(' ').collect::<Vec<_>>()))
    });
    let whole = cut_anywhere(host(Team::new("fan", graph).tool(words), echo), "fan", "ants bees").await;
    assert_eq!(agent_names(&whole).len(), 6, "the join waits for both: {:?}", agent_names(&whole));
    assert_eq!(whole.output, "<writer: first,<researcher: 0: ants>,<researcher: 1: bees>>");
}

#[tokio::test(start_paused = true)]
async fn r46_conditions_in_code_choose_edges() {
    let graph = Graph::starting_at("ask")
        .field("kind", FieldType::String, Reducer::Replace, "")
        .node(Node::agent("ask", "reviewer", "Which?").writes("kind"))
        .node(Node::agent("write", "writer", "W"))
        .node(Node::agent("research", "researcher", "R"))
        .edge(Edge::new("ask", "write").if_fn(|state| state["kind"] == "needs writing"))
        .edge(Edge::new("ask", "research").if_fn(|state| state["kind"] == "needs research"));
    let script =
        |member: MemberRequest<'_>| if member.name == "reviewer" { say("needs research") } else { echo(member) };
    let whole = cut_anywhere(host(Team::new("route", graph), script), "route", "ants").await;
    assert_eq!(whole.output, "<researcher: R>");
}

#[tokio::test(start_paused = true)]
async fn r46_team_can_be_a_node_of_another() {
    let inner = Team::new("inner", Crew::sequential().task(CrewTask::new("a", "researcher", "A {{ task }}")));
    let graph = Graph::starting_at("sub")
        .field("found", FieldType::Any, Reducer::Replace, json!(null))
        .node(Node::team("sub", "inner", "{{ task }}!").writes("found"))
        .node(Node::agent("write", "writer", "{{ state.found }}"))
        .edge(Edge::new("sub", "write"));
    let whole = cut_anywhere(host(Team::new("outer", graph).team(inner), echo), "outer", "ants").await;
    assert_eq!(agent_names(&whole), ["inner", "researcher", "writer"]);
    assert_eq!(whole.output, "<writer: <researcher: A ants!>>");
}

#[tokio::test(start_paused = true)]
async fn r46_failure_is_handled_by_an_edge_or_final() {
    let graph = |policy| {
        Graph::starting_at("f")
            .node(Node::tool("f", "broken", json!({})).on_failure(policy))
            .node(Node::agent("mend", "writer", "mend: {{ failures.f }}"))
            .edge(Edge::new("f", "mend").when("failures.f is defined"))
    };
    let team = |policy| {
        let broken = function("broken", Replay::Safe, |_| Err("out of ink".to_owned()));
        Team::new("g", graph(policy)).tool(broken)
    };
    let (mended, _) = run(&host(team(OnTaskFailure::Report), echo), "g", "x").await;
    assert_eq!(mended.output, "<writer: mend: out of ink>");
    let (failed, _) = run(&host(team(OnTaskFailure::Fail), echo), "g", "x").await;
    assert!(failed.error.unwrap().message.contains("node `f`: out of ink"));
}

#[tokio::test(start_paused = true)]
async fn fault_interrupted_unsafe_tool_is_never_called_twice() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let pay = function("pay", Replay::Unsafe, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(json!("paid"))
    });
    let graph =
        Graph::starting_at("pay").node(Node::tool("pay", "pay", json!({})).retries(3).on_failure(OnTaskFailure::Fail));
    let make = host(Team::new("g", graph).tool(pay), echo);
    let (_, records) = run(&make, "g", "x").await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let begun = records.iter().position(|record| record.fact.kind() == "called").unwrap();
    let journal = MemoryJournal::with(records[..=begun].iter().cloned());
    let runtime = homing_runtime::Runtime::new(make(journal));
    let claim = homing_runtime::journal::Claim::IfGone;
    let handle = runtime.resume(records[0].tree, claim, homing_core::limits::Limits::default()).await.unwrap();
    let again = handle.wait().await;
    assert_eq!(calls.load(Ordering::SeqCst), 1, "it may have been paid, so it is not paid again");
    assert!(again.error.unwrap().message.contains("outcome unknown"));
}

#[tokio::test(start_paused = true)]
async fn r46_value_of_the_wrong_type_is_reported() {
    let graph = Graph::starting_at("a")
        .field("n", FieldType::Number, Reducer::Replace, 0)
        .node(Node::agent("a", "writer", "A").writes("n"));
    let (result, _) = run(&host(Team::new("g", graph), echo), "g", "x").await;
    assert!(result.error.unwrap().message.contains("node `a`: `n` must be a number"));
}

#[tokio::test(start_paused = true)]
async fn team_gets_no_tools_that_its_parent_may_not_delegate() {
    let graph = Graph::starting_at("pay").node(Node::tool("pay", "pay", json!({})).on_failure(OnTaskFailure::Fail));
    let pay = function("pay", Replay::Unsafe, |_| Ok(json!("paid")));
    let team = Team::new("shop", graph).tool(pay);
    let make = move |rules: Vec<Rule>| {
        let script = |member: MemberRequest<'_>| match member.request.messages.len() {
            1 => call([("delegate", json!({"agent": "shop", "task": "buy"}))]),
            _ => say(member.task.clone()),
        };
        let mut boss = AgentDefinition::new("boss", "d", "boss");
        boss.tools.allowed = Allow::Only(rules);
        parts(MemoryJournal::new(), vec![boss], scripted(script), vec![team.clone()])
    };
    let spawn = |parts| Runtime::new(parts).spawn(Task::new("boss", "shop")).unwrap();
    let refused = spawn(make(vec![Rule::tool("delegate")])).wait().await;
    let shop = &refused.children[0];
    assert_eq!(shop.status, Status::Failed);
    assert!(shop.error.as_ref().unwrap().message.contains("there is no tool `pay` here"), "{shop:#?}");
    let allowed = spawn(make(vec![Rule::tool("delegate"), Rule::tool("pay")])).wait().await;
    assert_eq!(allowed.children[0].output, "paid");
}

/// A tool that returns text, and data about it, as commands do.
fn command(text: &'static str) -> Arc<dyn Tool> {
    struct Command(ToolSpec, &'static str);
    impl Tool for Command {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, ToolOutput> {
            let bytes = if self.1 == "[no output]" { 0 } else { self.1.len() };
            let data = Some(json!({"exit_code": 0, "bytes": bytes}));
            Box::pin(std::future::ready(ToolOutput::text(self.1).data(data)))
        }
    }
    Arc::new(Command(ToolSpec::new("command", "", json!({"type": "object"})), text))
}

#[tokio::test(start_paused = true)]
async fn r46_output_of_a_command_reaches_the_state() {
    let written = async |kind: FieldType, text: &'static str| {
        let graph = Graph::starting_at("look")
            .field("seen", kind, Reducer::Replace, json!(null))
            .node(Node::tool("look", "command", json!({})).writes("seen"));
        let (result, _) = run(&host(Team::new("g", graph).tool(command(text)), echo), "g", "x").await;
        result.data.unwrap()["seen"].clone()
    };
    assert_eq!(written(FieldType::String, "two files").await, "two files");
    assert_eq!(written(FieldType::String, "[no output]").await, "");
    assert_eq!(written(FieldType::Number, "12").await, 12);
    assert_eq!(written(FieldType::List, "[\"a\", 2]").await, json!(["a", 2]));
    assert_eq!(written(FieldType::Any, "two").await, json!({"exit_code": 0, "bytes": 3, "output": "two"}));
}

#[tokio::test(start_paused = true)]
async fn r46_two_branches_cannot_replace_the_same_value() {
    let graph = |reducer| {
        Graph::starting_at("split")
            .field("draft", FieldType::Any, reducer, json!(null))
            .node(Node::agent("split", "reviewer", "S"))
            .node(Node::agent("left", "writer", "L").writes("draft"))
            .node(Node::agent("right", "researcher", "R").writes("draft"))
            .edge(Edge::new("split", "left"))
            .edge(Edge::new("split", "right"))
    };
    let (lost, _) = run(&host(Team::new("g", graph(Reducer::Replace)), echo), "g", "x").await;
    assert_eq!(
        lost.error.unwrap().message,
        "node `right`: `draft` was already written in this step by node `left`: use a reducer other than `replace`"
    );
    let (kept, _) = run(&host(Team::new("g", graph(Reducer::Append)), echo), "g", "x").await;
    assert_eq!(kept.data.unwrap()["draft"], json!(["<writer: L>", "<researcher: R>"]));
}

#[tokio::test(start_paused = true)]
async fn r46_join_continues_without_a_branch_that_was_not_taken() {
    let graph = Graph::starting_at("split")
        .field("notes", FieldType::List, Reducer::Append, json!([]))
        .node(Node::agent("split", "reviewer", "S"))
        .node(Node::agent("left", "writer", "L").writes("notes"))
        .node(Node::agent("right", "researcher", "R").writes("notes"))
        .node(Node::agent("more", "researcher", "M").writes("notes"))
        .node(Node::agent("join", "writer", "{{ state.notes | join(' ') }}").join(["left", "more"]))
        .edge(Edge::new("split", "left").when("'only' not in task"))
        .edge(Edge::new("split", "right"))
        .edge(Edge::new("right", "more"))
        .edge(Edge::new("left", "join"))
        .edge(Edge::new("more", "join"));
    let whole = cut_anywhere(host(Team::new("g", graph.clone()), echo), "g", "only the right").await;
    assert_eq!(whole.output, "<writer: <researcher: R> <researcher: M>>");
    assert_eq!(agent_names(&whole).len(), 4, "the join runs once");
    let both = cut_anywhere(host(Team::new("g", graph), echo), "g", "both").await;
    assert_eq!(agent_names(&both).len(), 5, "a join waits for a branch that is on its way");
}

#[test]
fn r46_graph_has_a_diagram() {
    insta::assert_snapshot!(mermaid(&Team::new("loop", review_loop())), @r###"
    flowchart TD
      begin((start)) --> n0
      n0["write<br/>writer"]
      n1["review<br/>reviewer"]
      n0 --> n1
      n1 -->|"not state.ok, at most 3×"| n0
      n1 -->|"else"| finish
      finish((end))
    "###);
}
