//! Failures of teams: a team that did not deliver is `failed`, names the parts that failed, and keeps the other results.

use std::sync::Arc;

use crate::support::{MemberRequest, agent_names, agents, cut_anywhere, parts, run, scripted_with_failures};
use homing_core::{
    definition::{AgentDefinition, OnFailure as MembersOwn},
    envelope::{Envelope, Status},
    message::Reply,
    model::ToolChoice,
    scripted_model::{call, say},
    tool::Replay,
};
use homing_runtime::{RuntimeParts, journal::MemoryJournal};
use homing_teams::{
    Chat, Crew, CrewTask, Edge, FieldType, Graph, LimitFields, Map, Node, OnTaskFailure, Reducer, Team, TeamResult,
    function, load, map_results,
};
use serde_json::json;

/// `mute` always fails, `tired` is stopped by its own limit; the others repeat their task.
fn script(member: MemberRequest<'_>) -> Result<Reply, &'static str> {
    match member.name {
        "mute" => Err("no voice"),
        "tired" if member.request.choice == ToolChoice::Off => Ok(say("half of it")),
        "tired" => Ok(call([("nothing", json!({"n": member.request.messages.len()}))])),
        "ada" if member.task.contains("poison") => Err("poisoned"),
        _ if member.wants_data() => Ok(call([("answer", json!({"speaker": "ada", "accepted": true, "agent": "ada"}))])),
        who => Ok(say(format!("<{who}: {}>", member.task.lines().next().unwrap_or_default()))),
    }
}

fn host_with(team: Team, own: MembersOwn) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    move |journal| {
        let mut members = agents(["ada", "bob", "mute", "tired"]);
        members.iter_mut().for_each(|member| match member.name.as_str() {
            "mute" => member.task.on_failure = own,
            "tired" => member.limits = member.limits.turns(2),
            _ => (),
        });
        parts(journal, members, scripted_with_failures(script), vec![team.clone()])
    }
}

fn host(team: Team) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    host_with(team, MembersOwn::Report)
}

/// The outcome of a team, which must be the same after every interruption.
async fn outcome(team: Team) -> Envelope {
    let name = team.name.clone();
    cut_anywhere(host(team), &name, "ants").await
}

/// The message of the team's own failure.
fn why(envelope: &Envelope) -> &str {
    assert_eq!(envelope.status, Status::Failed, "{envelope:#?}");
    let error = envelope.error.as_ref().unwrap();
    assert_eq!((error.kind.as_str(), error.retryable, envelope.partial), ("team", false, true), "{error:?}");
    assert!(!error.hint.as_ref().unwrap().contains("another model"), "{error:?}");
    &error.message
}

const NO_VOICE: &str = "failed (model): the model cannot be used: no voice";

fn one_node(agent: &str) -> Graph {
    Graph::starting_at("only").node(Node::agent("only", agent, "Work"))
}

#[tokio::test(start_paused = true)]
async fn graph_whose_only_node_failed_is_failed() {
    let failed = outcome(Team::new("g", one_node("mute"))).await;
    assert_eq!(why(&failed), format!("node `only` (run 1.1): {NO_VOICE}"));
    let result = TeamResult::from(&failed);
    assert_eq!((result.status, result.error), (Status::Failed, failed.error));
}

fn two_nodes(first: &str, last: &str, policy: OnTaskFailure) -> Team {
    let graph = Graph::starting_at("first")
        .field("draft", FieldType::String, Reducer::Replace, "nothing yet")
        .node(Node::agent("first", first, "Draft").writes("draft").on_failure(policy))
        .node(Node::agent("last", last, "Polish {{ state.draft }}").on_failure(policy))
        .edge(Edge::new("first", "last"));
    Team::new("g", graph)
}

#[tokio::test(start_paused = true)]
async fn graph_whose_last_node_failed_keeps_its_state() {
    let failed = outcome(two_nodes("ada", "mute", OnTaskFailure::Report)).await;
    assert_eq!(why(&failed), format!("node `last` (run 1.2): {NO_VOICE}"));
    assert!(failed.output.contains("<ada: Draft>"), "{}", failed.output);
    let skipped = outcome(two_nodes("ada", "mute", OnTaskFailure::Skip)).await;
    assert_eq!((skipped.status, skipped.error), (Status::Done, None));
}

#[tokio::test(start_paused = true)]
async fn graph_goes_on_after_a_failure_but_ends_failed_with_its_answer() {
    let failed = outcome(two_nodes("mute", "bob", OnTaskFailure::Report)).await;
    assert_eq!(why(&failed), format!("node `first` (run 1.1): {NO_VOICE}"));
    assert_eq!(failed.output, "<bob: Polish nothing yet>", "the answer that there is is kept");
    let skipped = outcome(two_nodes("mute", "bob", OnTaskFailure::Skip)).await;
    assert_eq!((skipped.status, skipped.output.as_str()), (Status::Done, "<bob: Polish nothing yet>"));
    let stopped = outcome(two_nodes("mute", "bob", OnTaskFailure::Fail)).await;
    assert_eq!(
        (why(&stopped), agent_names(&stopped)),
        (format!("node `first` (run 1.1): {NO_VOICE}").as_str(), vec!["mute"])
    );
}

#[tokio::test(start_paused = true)]
async fn edge_that_asks_about_a_failure_handles_it() {
    let with = |edges: [Edge; 2]| {
        let [one, other] = edges;
        let graph = Graph::starting_at("f")
            .node(Node::agent("f", "mute", "Try"))
            .node(Node::agent("mend", "ada", "Mend"))
            .edge(one)
            .edge(other);
        Team::new("g", graph)
    };
    let asks = |to: &str, test: &str| Edge::new("f", to).when(format!("failures.f is {test}"));
    let handled = outcome(with([asks("mend", "defined"), asks("end", "undefined")])).await;
    assert_eq!((handled.status, handled.output.as_str()), (Status::Done, "<ada: Mend>"));
    let by_else = outcome(with([asks("end", "undefined"), Edge::new("f", "mend").otherwise()])).await;
    assert_eq!((by_else.status, by_else.output.as_str()), (Status::Done, "<ada: Mend>"));
    let in_general = Edge::new("f", "mend").when("failures | length > 0");
    assert_eq!(outcome(with([in_general, asks("end", "undefined")])).await.status, Status::Done);
    let not_taken = outcome(with([asks("mend", "undefined"), Edge::new("f", "end").when("step > 5")])).await;
    assert!(why(&not_taken).contains("node `f` (run 1.1)"), "{not_taken:#?}");
    let again = asks("f", "defined").limit(2);
    let used_up = outcome(with([again, Edge::new("f", "mend").otherwise()])).await;
    assert!(why(&used_up).contains("node `f` (run 1.3)"), "an edge at its limit handles nothing: {used_up:#?}");
    assert_eq!(used_up.output, "<ada: Mend>");
}

#[tokio::test(start_paused = true)]
async fn node_that_succeeds_in_a_later_round_has_not_failed() {
    let graph = Graph::starting_at("f")
        .field("n", FieldType::Number, Reducer::Add, 0)
        .node(Node::agent("f", "ada", "{{ ['poison', 'good'][state.n] }}"))
        .node(Node::tool("count", "one", json!({})).writes("n"))
        .edge(Edge::new("f", "count").limit(1))
        .edge(Edge::new("count", "f"));
    let team = Team::new("g", graph).tool(function("one", Replay::Safe, |_| Ok(json!(1))));
    let whole = outcome(team).await;
    assert_eq!((whole.status, whole.output.as_str()), (Status::Done, "<ada: good>"), "{whole:#?}");
}

#[tokio::test(start_paused = true)]
async fn items_of_a_node_and_functions_are_named_in_its_failure() {
    let graph = Graph::starting_at("study")
        .field("list", FieldType::List, Reducer::Replace, json!(["ants", "poison", "bees"]))
        .field("notes", FieldType::List, Reducer::Append, json!([]))
        .node(Node::agent("study", "ada", "{{ item }}").each("state.list").writes("notes"))
        .node(Node::tool("print", "print", json!({})))
        .edge(Edge::new("study", "print"))
        .output("{{ state.notes | join(' ') }}");
    let team = Team::new("g", graph).tool(function("print", Replay::Safe, |_| Err("out of ink".to_owned())));
    let failed = outcome(team).await;
    let message = why(&failed);
    assert!(message.starts_with("node `print`: out of ink; node `study`, item 1 (run 1.2): failed"), "{message}");
    assert_eq!(failed.output, "<ada: ants> <ada: bees>");
}

fn map_of<const N: usize>(items: [&str; N], policy: OnTaskFailure) -> Map {
    Map::new("ada", "{{ item }}").items(items).on_failure(policy)
}

#[tokio::test(start_paused = true)]
async fn map_with_a_failed_item_is_failed_with_all_results() {
    let failed = outcome(Team::new("m", map_of(["ants", "poison", "bees"], OnTaskFailure::Report))).await;
    let part = "item 1, \"poison\" (run 1.2): failed (model): the model cannot be used: poisoned";
    assert_eq!(why(&failed), format!("1 of 3 items failed: {part}"));
    let kept: Vec<(String, String)> =
        map_results(&failed).into_iter().map(|result| (result.status, result.output)).collect();
    let line = |status: &str, output: &str| (status.to_owned(), output.to_owned());
    assert_eq!(kept, [line("done", "<ada: ants>"), line("failed", ""), line("done", "<ada: bees>")]);
}

#[tokio::test(start_paused = true)]
async fn map_whose_items_all_failed_is_failed_unless_they_do_not_count() {
    let items = ["poison 1", "poison 2", "poison 3", "poison 4", "poison 5", "poison 6", "poison 7"];
    let (failed, _) = run(&host(Team::new("m", map_of(items, OnTaskFailure::Report))), "m", "go").await;
    assert!(why(&failed).starts_with("7 of 7 items failed: item 0, \"poison 1\" (run 1.1): "), "{failed:#?}");
    assert!(why(&failed).ends_with("; and 2 more"), "{failed:#?}");
    assert_eq!(map_results(&failed).len(), 7);
    let skipped = outcome(Team::new("m", map_of(["poison 1", "poison 2"], OnTaskFailure::Skip))).await;
    assert_eq!(skipped.status, Status::Done);
    assert!(map_results(&skipped).iter().all(|result| result.status == "failed"), "{}", skipped.output);
}

#[tokio::test(start_paused = true)]
async fn reduced_map_counts_its_items_too() {
    let reduced = |items: [&str; 2], policy| Team::new("m", map_of(items, policy).reduce("bob", "Sum up"));
    let failed = outcome(reduced(["ants", "poison"], OnTaskFailure::Report)).await;
    assert!(why(&failed).starts_with("1 of 2 items failed: item 1"), "{failed:#?}");
    assert_eq!((agent_names(&failed), map_results(&failed).len()), (vec!["ada", "ada", "bob"], 2));
    assert!(failed.output.starts_with("<bob: Sum up>\n"), "{}", failed.output);
    let nothing = outcome(reduced(["poison", "poison"], OnTaskFailure::Report)).await;
    assert_eq!(
        (nothing.status, agent_names(&nothing)),
        (Status::Failed, vec!["ada", "ada"]),
        "there is nothing to reduce"
    );
    let stopped = outcome(reduced(["ants", "poison"], OnTaskFailure::Fail)).await;
    assert_eq!((stopped.status, agent_names(&stopped)), (Status::Failed, vec!["ada", "ada"]));
    let skipped = outcome(reduced(["ants", "poison"], OnTaskFailure::Skip)).await;
    assert_eq!((skipped.status, skipped.output.as_str()), (Status::Done, "<bob: Sum up>"));
    let no_reducer = outcome(Team::new("m", map_of(["ants"], OnTaskFailure::Skip).reduce("mute", "Sum up"))).await;
    assert_eq!(why(&no_reducer), format!("reduce (run 1.2): {NO_VOICE}"));
    let both =
        outcome(Team::new("m", map_of(["ants", "poison"], OnTaskFailure::Report).reduce("mute", "Sum up"))).await;
    assert!(why(&both).starts_with(&format!("reduce (run 1.3): {NO_VOICE}; 1 of 2 items failed: item 1")), "{both:#?}");
}

fn talk(policy: OnTaskFailure) -> Chat {
    Chat::new(["ada", "mute"]).max_rounds(2).on_failure(policy)
}

#[tokio::test(start_paused = true)]
async fn chat_whose_last_speaker_failed_is_failed_with_the_conversation() {
    let failed = outcome(Team::new("talk", talk(OnTaskFailure::Report))).await;
    assert_eq!(why(&failed), format!("`mute` in round 1 (run 1.2): {NO_VOICE}"));
    assert!(failed.output.starts_with("[ada] <ada: You are `ada`"), "{}", failed.output);
    let skipped = outcome(Team::new("talk", talk(OnTaskFailure::Skip))).await;
    assert_eq!(skipped.status, Status::Done);
    assert!(
        skipped.output.starts_with("<ada: You are `ada`"),
        "the last contribution that succeeded: {}",
        skipped.output
    );
    let earlier = outcome(Team::new("talk", talk(OnTaskFailure::Report).max_rounds(3))).await;
    assert_eq!(earlier.status, Status::Done, "an earlier failure is part of the conversation: {earlier:#?}");
    let at_once = outcome(Team::new("talk", talk(OnTaskFailure::Fail).max_rounds(3))).await;
    assert_eq!((at_once.status, agent_names(&at_once)), (Status::Failed, vec!["ada", "mute"]));
}

#[tokio::test(start_paused = true)]
async fn summary_is_what_a_chat_delivers_if_it_has_one() {
    let whole = outcome(Team::new("talk", talk(OnTaskFailure::Report).summary("bob"))).await;
    assert_eq!((whole.status, agent_names(&whole)), (Status::Done, vec!["ada", "mute", "bob"]));
    let failed = outcome(Team::new("talk", talk(OnTaskFailure::Skip).summary("mute"))).await;
    assert_eq!(why(&failed), format!("summary (run 1.3): {NO_VOICE}"));
}

#[tokio::test(start_paused = true)]
async fn chat_whose_selector_failed_is_failed() {
    let chat = |policy| Chat::new(["ada", "bob"]).selected_by("mute").max_rounds(2).on_failure(policy);
    let failed = outcome(Team::new("talk", chat(OnTaskFailure::Report))).await;
    assert_eq!(why(&failed), format!("the selector `mute` in round 0 (run 1.1): {NO_VOICE}"));
    let skipped = outcome(Team::new("talk", chat(OnTaskFailure::Skip))).await;
    assert_eq!((skipped.status, agent_names(&skipped)), (Status::Done, vec!["mute", "ada", "mute", "bob"]));
}

#[tokio::test(start_paused = true)]
async fn chat_without_any_contribution_is_failed_even_with_skip() {
    let chat = Chat::new(["mute", "ada"]).max_rounds(1).on_failure(OnTaskFailure::Skip);
    let failed = outcome(Team::new("talk", chat)).await;
    assert_eq!(why(&failed), format!("all contributions failed: `mute` in round 0 (run 1.1): {NO_VOICE}"));
}

fn crew_of(first: &str, last: &str, policy: OnTaskFailure) -> Team {
    let crew = Crew::sequential()
        .task(CrewTask::new("find", first, "Find").on_failure(policy))
        .task(CrewTask::new("write", last, "Write").on_failure(policy));
    Team::new("crew", crew)
}

#[tokio::test(start_paused = true)]
async fn crew_fails_with_a_task_that_others_need_or_that_is_the_last() {
    let needed = outcome(crew_of("mute", "bob", OnTaskFailure::Report)).await;
    assert_eq!(why(&needed), format!("task `find` (run 1.1): {NO_VOICE}"));
    assert_eq!(agent_names(&needed), ["mute", "bob"], "the others still read of it and work");
    assert!(needed.output.contains("## write\n<bob: Write>"), "{}", needed.output);
    let last = outcome(crew_of("ada", "mute", OnTaskFailure::Report)).await;
    assert_eq!(why(&last), format!("task `write` (run 1.2): {NO_VOICE}"));
    assert!(last.output.contains("## find\n<ada: Find>"), "{}", last.output);
    let both = outcome(crew_of("mute", "mute", OnTaskFailure::Report)).await;
    assert_eq!(why(&both), format!("task `find` (run 1.1): {NO_VOICE}; task `write` (run 1.2): {NO_VOICE}"));
    for team in [crew_of("mute", "bob", OnTaskFailure::Skip), crew_of("ada", "mute", OnTaskFailure::Skip)] {
        assert_eq!(outcome(team).await.status, Status::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn task_without_dependents_does_not_fail_its_crew() {
    let side = CrewTask::new("side", "mute", "Look aside").context([]);
    let crew = Crew::sequential().task(side).task(CrewTask::new("write", "ada", "Write").context([]));
    let whole = outcome(Team::new("crew", crew)).await;
    assert_eq!((whole.status, whole.output.as_str()), (Status::Done, "<ada: Write>"));
}

#[tokio::test(start_paused = true)]
async fn parallel_crew_names_every_last_task_that_failed() {
    let crew = Crew::parallel()
        .task(CrewTask::new("a", "ada", "A"))
        .task(CrewTask::new("b", "mute", "B"))
        .task(CrewTask::new("c", "mute", "C").on_failure(OnTaskFailure::Skip));
    let failed = outcome(Team::new("crew", crew)).await;
    assert_eq!(why(&failed), format!("task `b` (run 1.2): {NO_VOICE}"));
    assert!(failed.output.contains("## a\n<ada: A>"), "{}", failed.output);
}

#[tokio::test(start_paused = true)]
async fn crew_whose_manager_failed_is_failed_and_keeps_the_result() {
    let crew = Crew::hierarchical("mute").task(CrewTask::new("text", "ada", "Write"));
    let failed = outcome(Team::new("crew", crew)).await;
    let expected = format!("task `text` (run 1.2): the manager could not review the result: {NO_VOICE}");
    assert_eq!(why(&failed), expected);
    assert!(failed.output.contains("<ada: Write>"), "{}", failed.output);
    let mut crew = Crew::hierarchical("mute").task(CrewTask::unassigned("text", "Write"));
    crew.members = vec!["ada".into()];
    let make = |own| host_with(Team::new("crew", crew.clone()), own);
    let (unassigned, _) = run(&make(MembersOwn::Report), "crew", "go").await;
    assert!(why(&unassigned).contains("(run 1.1): the manager could not choose an agent"), "{unassigned:#?}");
    let (excused, _) = run(&make(MembersOwn::Skip), "crew", "go").await;
    assert_eq!((excused.status, agent_names(&excused)), (Status::Done, vec!["mute", "ada", "mute"]));
}

#[tokio::test(start_paused = true)]
async fn inner_team_that_failed_is_named_by_the_outer_team() {
    let inner = Team::new("inner", Crew::sequential().task(CrewTask::new("a", "mute", "A")));
    let outer = |policy| {
        let node = Node::team("sub", "inner", "Go");
        Team::new("outer", Graph::starting_at("sub").node(node.on_failure(policy))).team(inner.clone())
    };
    let failed = outcome(outer(OnTaskFailure::Report)).await;
    assert_eq!(why(&failed), format!("node `sub` (run 1.1): failed (team): task `a` (run 1.1.1): {NO_VOICE}"));
    assert_eq!(outcome(outer(OnTaskFailure::Skip)).await.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn inner_team_that_misses_the_schema_fails_the_outer_team() {
    let schema = json!({"type": "object", "required": ["speaker"]});
    let inner = |agent: &str| {
        let task = CrewTask::new("a", agent, "A").schema(schema.clone());
        Team::new("inner", Crew::sequential().task(task))
    };
    let outer = |inner: Team| {
        let node = Node::team("sub", "inner", "Go");
        Team::new("outer", Graph::starting_at("sub").node(node.schema(schema.clone()))).team(inner)
    };
    let other = Graph::starting_at("only").node(Node::agent("only", "ada", "A"));
    let other = outcome(outer(Team::new("inner", other))).await;
    assert!(why(&other).starts_with("node `sub` (run 1.1): failed (schema): "), "{other:#?}");
    let mute = outcome(outer(inner("mute"))).await;
    assert!(why(&mute).contains("failed (team): task `a` (run 1.1.1)"), "{mute:#?}");
    assert_eq!(outcome(outer(inner("ada"))).await.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn hierarchical_crew_that_fails_at_once_keeps_what_was_done() {
    let crew = Crew::hierarchical("bob")
        .task(CrewTask::new("find", "ada", "Find"))
        .task(CrewTask::new("write", "mute", "Write").on_failure(OnTaskFailure::Fail));
    let failed = outcome(Team::new("crew", crew)).await;
    assert_eq!(why(&failed), format!("task `write` (run 1.3): {NO_VOICE}"));
    assert!(failed.output.contains("## find\n<ada: Find>"), "{}", failed.output);
}

#[tokio::test(start_paused = true)]
async fn member_that_its_own_limit_stopped_has_not_delivered() {
    let stopped = "exhausted: turns limit 2 of run 1.1, spent 1";
    let teams = |policy| {
        [
            Team::new("t", Crew::sequential().task(CrewTask::new("x", "tired", "X").on_failure(policy))),
            Team::new("t", Graph::starting_at("x").node(Node::agent("x", "tired", "X").on_failure(policy))),
            Team::new("t", Map::new("tired", "{{ item }}").items(["x"]).on_failure(policy)),
        ]
    };
    for team in teams(OnTaskFailure::Report) {
        let failed = outcome(team).await;
        assert!(why(&failed).contains(&format!("(run 1.1): {stopped}")), "{failed:#?}");
        assert!(failed.children[0].output.contains("half of it"), "{failed:#?}");
    }
    for team in teams(OnTaskFailure::Skip) {
        assert_eq!(outcome(team).await.status, Status::Done);
    }
    let chat = |policy| Team::new("t", Chat::new(["ada", "tired"]).max_rounds(2).on_failure(policy));
    assert!(why(&outcome(chat(OnTaskFailure::Report)).await).contains("`tired` in round 1 (run 1.2): exhausted"));
    assert_eq!(outcome(chat(OnTaskFailure::Skip)).await.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn teams_own_limit_still_ends_it_exhausted() {
    let team = two_nodes("ada", "bob", OnTaskFailure::Report)
        .limits(LimitFields { max_children: Some(1), ..LimitFields::default() });
    let (result, _) = run(&host(team), "g", "go").await;
    assert_eq!((result.status, result.resumable), (Status::Exhausted, true), "{result:#?}");
    assert!(result.output.contains("<ada: Draft>"), "{}", result.output);
}

#[tokio::test(start_paused = true)]
async fn member_whose_own_definition_says_skip_does_not_count_anywhere() {
    let teams = [
        crew_of("mute", "ada", OnTaskFailure::Report),
        Team::new("g", one_node("mute")),
        Team::new("m", Map::new("mute", "{{ item }}").items(["a", "b"])),
        Team::new("talk", talk(OnTaskFailure::Report)),
    ];
    for team in teams {
        let name = team.name.clone();
        let whole = cut_anywhere(host_with(team, MembersOwn::Skip), &name, "ants").await;
        assert_eq!((whole.status, &whole.error), (Status::Done, &None), "{name}: {whole:#?}");
    }
    let strict = host_with(crew_of("mute", "ada", OnTaskFailure::Fail), MembersOwn::Skip);
    assert_eq!(run(&strict, "crew", "ants").await.0.status, Status::Failed, "the task has the last word");
}

#[tokio::test(start_paused = true)]
async fn crew_has_no_schema_if_its_last_agent_may_fail() {
    let schema = json!({"type": "object", "required": ["speaker"]});
    let crew = Crew::sequential().task(CrewTask::new("a", "mute", "A").schema(schema));
    let whole = cut_anywhere(host_with(Team::new("crew", crew), MembersOwn::Skip), "crew", "ants").await;
    assert_eq!((whole.status, whole.output.as_str()), (Status::Done, "No task has ended."), "{whole:#?}");
}

#[test]
fn files_can_exclude_failures() {
    let text = "name: t\nagents:\n  - {name: a, description: d, prompt: a, on_failure: skip}\n  - {name: b, description: d, prompt: b, on_failure: report}\n";
    let own = |text: String| -> Vec<MembersOwn> {
        let loaded = load(&text, None);
        assert!(loaded.diagnostics.is_empty(), "{:#?}", loaded.diagnostics);
        loaded.team.unwrap().agents.iter().map(|agent: &AgentDefinition| agent.task.on_failure).collect()
    };
    let chat = own(format!("{text}chat: {{members: [a, b], on_failure: skip}}\n"));
    assert_eq!(chat, [MembersOwn::Skip, MembersOwn::Report]);
    own(format!("{text}map: {{agent: a, each: x, items: [1], on_failure: skip}}\n"));
    let wrong = load("name: t\nmap: {agent: a, each: x, on_failure: ignore}\n", None);
    assert!(wrong.diagnostics[0].message.contains("unknown variant"), "{:?}", wrong.diagnostics);
}
