//! Diagram and plan of every pattern. No model is called.

use crate::support::{MemberRequest, agents, parts, scripted};
use homing_runtime::journal::MemoryJournal;
use homing_teams::{Chat, Crew, CrewTask, Edge, Graph, Map, Node, Orchestrator, Team, mermaid, plan};
use insta::assert_snapshot;

/// The diagram, and the plan for a host that knows only the researcher and the writer.
fn look(team: &Team) -> String {
    let never = scripted(|_: MemberRequest<'_>| panic!("a plan calls no model"));
    let parts = parts(MemoryJournal::new(), agents(["researcher", "writer"]), never, Vec::new());
    format!("{}\n{}", mermaid(team).trim_end(), plan(team, &parts))
}

fn tasks(crew: Crew) -> Crew {
    crew.task(CrewTask::new("research", "researcher", "Research {{ task }}"))
        .task(CrewTask::new("write", "writer", "Write").context(["research"]).when("research != \"\"").retries(1))
        .task(CrewTask::new("review", "reviewer", "Review").context(["write"]))
}

#[test]
fn r46_sequential_crew() {
    assert_snapshot!(look(&Team::new("report", tasks(Crew::sequential()))), @r###"
    flowchart TD
      t0["research<br/>researcher"]
      t1["write<br/>writer"]
      t0 -->|"research != #quot;#quot;"| t1
      t2["review<br/>reviewer"]
      t1 --> t2
    report (sequential crew)
      research: researcher · script/cast · at most 1×
      write: writer · script/cast · at most 2× · after research · if research != ""
      review: reviewer · at most 1× · after write
    worst case: $5.00
      $5.00 is the team's own limit
      review: unknown agent
    "###);
}

#[test]
fn r46_crew_with_a_manager() {
    let crew = Crew::hierarchical("writer").task(CrewTask::unassigned("research", "Find out"));
    assert_snapshot!(look(&Team::new("managed", crew)), @r###"
    flowchart TD
      t0["research<br/>chosen by the manager"]
    managed (hierarchical crew)
      research: ? · at most 3×
      manager: writer · script/cast · at most 4×
    worst case: $5.00
      $5.00 is the team's own limit
      research: unknown agent
    "###);
}

#[test]
fn r46_parallel_crew() {
    let crew = Crew::parallel()
        .task(CrewTask::new("one", "researcher", "Look here"))
        .task(CrewTask::new("two", "writer", "Say \"so\"").context(["one"]));
    assert_snapshot!(look(&Team::new("parallel", crew)), @r###"
    flowchart TD
      t0["one<br/>researcher"]
      t1["two<br/>writer"]
      t0 --> t1
    parallel (parallel crew)
      one: researcher · script/cast · at most 1×
      two: writer · script/cast · at most 1× · after one
    worst case: $5.00
      $5.00 is the team's own limit
    "###);
}

#[test]
fn r46_orchestrator() {
    let team = Team::new("orchestra", Orchestrator::new("writer").worker("researcher").worker("helper"));
    assert_snapshot!(look(&team), @r###"
    flowchart TD
      m["writer"]
      m <--> w0["researcher"]
      m <--> w1["helper"]
    orchestra (orchestrator)
      coordinator: writer · script/cast · at most 1×
      researcher: researcher · script/cast · number bounded by the team's limits
      helper: helper · number bounded by the team's limits
    worst case: $5.00
      $5.00 is the team's own limit
      helper: unknown agent
    "###);
}

#[test]
fn r46_chat() {
    let chat = Chat::new(["researcher", "writer"]).max_rounds(4).selected_by("writer").summary("writer");
    assert_snapshot!(look(&Team::new("talk", chat)), @r###"
    flowchart TD
      m["conversation"]
      m <--> w0["researcher"]
      m <--> w1["writer"]
    talk (chat)
      researcher: researcher · script/cast · at most 4×
      writer: writer · script/cast · at most 4×
      selector: writer · script/cast · at most 4×
      summary: writer · script/cast · at most 1×
    worst case: $5.00
      $5.00 is the team's own limit
    "###);
}

#[test]
fn r46_map_with_reduction() {
    let map = Map::new("researcher", "{{ item }}").items(["a", "b"]).reduce("writer", "Sum up");
    assert_snapshot!(look(&Team::new("each", map)), @r###"
    flowchart TD
      each["each item"] --> agent["researcher"]
      agent --> reduce["writer"]
    each (map)
      each item: researcher · script/cast · at most 2×
      reduce: writer · script/cast · at most 1×
    worst case: $5.00
      $5.00 is the team's own limit
    "###);
}

#[test]
fn r46_graph() {
    let graph = Graph::starting_at("look")
        .node(Node::agent("look", "researcher", "Look"))
        .node(Node::tool("count", "count", serde_json::json!({})))
        .edge(Edge::new("look", "count"));
    assert_snapshot!(look(&Team::new("way", graph)), @r###"
    flowchart TD
      begin((start)) --> n0
      n0["look<br/>researcher"]
      n1[/"count<br/>count"/]
      n0 --> n1
    way (graph)
      look: researcher · script/cast · at most 100×
    worst case: $5.00
      $5.00 is the team's own limit
    "###);
}
