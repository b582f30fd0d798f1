//! Orchestrators and maps.

use std::sync::Arc;

use crate::support::{MemberRequest, agent_names, agents, cut_anywhere, parts, run, scripted};
use homing_core::{
    definition::AgentDefinition,
    envelope::Status,
    model::{ModelCard, SingleModel},
    rule::Rule,
    scripted_model::{FunctionModel, call, last_words, say},
};
use homing_runtime::{RuntimeParts, journal::MemoryJournal};
use homing_teams::{LimitFields, Map, Orchestrator, Team, TeamResult, map_results, plan};
use serde_json::json;

fn orchestra() -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    let mut planner = AgentDefinition::new("planner", "plans", "planner");
    planner.tools.allowed = homing_core::authority::Allow::Only(vec![Rule::tool("read")]);
    let team =
        Team::new("orchestra", Orchestrator::new("planner").worker("researcher").worker("writer")).agent(planner);
    move |journal| {
        let script = |member: MemberRequest<'_>| match (member.name, member.request.messages.len()) {
            ("planner", 1) => call([
                ("delegate", json!({"agent": "researcher", "task": "find out"})),
                ("delegate", json!({"agent": "writer", "task": "write"})),
                ("delegate", json!({"agent": "outsider", "task": "spy"})),
            ]),
            ("planner", _) => say("the report"),
            (who, _) => say(format!("{who} did it")),
        };
        parts(journal, agents(["researcher", "writer", "outsider"]), scripted(script), vec![team.clone()])
    }
}

#[tokio::test(start_paused = true)]
async fn r43_coordinator_can_delegate_only_to_its_workers() {
    let whole = cut_anywhere(orchestra(), "orchestra", "write a report").await;
    let result = TeamResult::from(&whole);
    assert_eq!((result.status, result.answer.as_str()), (Status::Done, "the report"));
    let mut workers: Vec<(&str, &str)> =
        result.executions.iter().map(|run| (run.agent.as_str(), run.output.as_str())).collect();
    workers.sort_unstable();
    assert_eq!(workers, [("researcher", "researcher did it"), ("writer", "writer did it")]);
    assert_eq!((result.total_tokens(), result.total_steps()), (60, 4));
    assert!(result.tree.contains("1.2"), "{}", result.tree);
}

fn map_team(map: Map) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    let team = Team::new("each", map);
    move |journal| {
        let script = |member: MemberRequest<'_>| match member.name {
            "writer" => say(format!("summary of {} lines", member.task.lines().count() - 3)),
            _ => say(format!("[{}]", member.task)),
        };
        parts(journal, agents(["researcher", "writer"]), scripted(script), vec![team.clone()])
    }
}

#[tokio::test(start_paused = true)]
async fn map_returns_results_in_the_order_of_its_items() {
    let map =
        Map::new("researcher", "{{ index }}: {{ item.name }}").items([json!({"name": "a"}), json!({"name": "b"})]);
    let whole = cut_anywhere(map_team(map), "each", "go").await;
    let results = map_results(&whole);
    assert_eq!(results.iter().map(|it| it.output.as_str()).collect::<Vec<_>>(), ["[0: a]", "[1: b]"]);
    assert!(results.iter().all(|result| result.status == "done"));
}

#[tokio::test(start_paused = true)]
async fn map_takes_items_from_the_task_and_reduces_them() {
    let map = Map::new("researcher", "{{ item }}").reduce("writer", "Sum up");
    let whole = cut_anywhere(map_team(map), "each", "one\n\ntwo\nthree\n").await;
    assert_eq!((agent_names(&whole).len(), whole.output.as_str()), (4, "summary of 3 lines"));
}

#[tokio::test(start_paused = true)]
async fn map_of_200_items_is_not_stopped_by_default_limits() {
    let map = Map::new("researcher", "{{ item }}").items(0..200);
    let (result, _) = run(&map_team(map), "each", "go").await;
    assert_eq!((result.status, map_results(&result).len()), (Status::Done, 200));
}

#[tokio::test(start_paused = true)]
async fn map_of_a_long_task_has_no_hidden_limit() {
    let lines: Vec<String> = (0..1_200).map(|line| line.to_string()).collect();
    let (result, _) = run(&map_team(Map::new("researcher", "{{ item }}")), "each", &lines.join("\n")).await;
    assert_eq!((result.status, map_results(&result).len(), result.children.len()), (Status::Done, 1_200, 1_200));
    let data = result.data.unwrap();
    assert_eq!((&data["items"][1_199]["output"], &data["reduced"]), (&json!("[1199]"), &json!(null)));
}

#[tokio::test(start_paused = true)]
async fn map_at_its_limit_returns_partial_results_in_order() {
    let team = Team::new("each", Map::new("researcher", "{{ item }}").items(["a", "b", "c", "d"]))
        .limits(LimitFields { max_children: Some(2), ..LimitFields::default() });
    let make = move |journal: Arc<MemoryJournal>| {
        parts(
            journal,
            agents(["researcher"]),
            scripted(|member: MemberRequest<'_>| say(member.task.clone())),
            vec![team.clone()],
        )
    };
    let (result, _) = run(&make, "each", "go").await;
    let results = map_results(&result);
    assert_eq!(results.iter().map(|it| it.status.as_str()).collect::<Vec<_>>(), ["done", "done", "failed", "failed"]);
    assert!(results[2].error.as_ref().unwrap().contains("children limit of 2"), "{results:#?}");
}

#[test]
fn plan_lists_runs_and_worst_case_cost() {
    let bounds = |cost: &str| serde_json::from_value::<LimitFields>(json!({"max_cost": cost})).unwrap();
    let map = Map::new("researcher", "{{ item }}").items(["a", "b"]).limits(bounds("0.25"));
    let team = Team::new("each", map);
    let never = scripted(|_: MemberRequest<'_>| panic!("a plan calls no model"));
    let parts = parts(MemoryJournal::new(), agents(["researcher"]), never, Vec::new());
    let planned = plan(&team, &parts);
    assert_eq!(planned.runs.len(), 1);
    assert_eq!(
        (planned.runs[0].at_most, planned.runs[0].models.as_slice()),
        (Some(2), &["script/cast".to_owned()][..])
    );
    assert_eq!(planned.worst_cost_micros, Some(500_000));
    insta::assert_snapshot!(planned, @r###"
    each (map)
      each item: researcher · script/cast · at most 2× · $0.25 each
    worst case: $0.50
      $0.50 is the sum of all member limits
    "###);
    let dear = plan(&team.limits(bounds("0.10")), &parts);
    assert_eq!((dear.worst_cost_micros, dear.notes[0].as_str()), (Some(100_000), "$0.10 is the team's own limit"));
}

#[tokio::test(start_paused = true)]
async fn map_without_a_known_price_is_limited_by_tokens() {
    let team = Team::new("each", Map::new("researcher", "look at {{ item }}").items(["a".to_owned(), "b".to_owned()]));
    let make = move |journal| {
        let card = ModelCard::free("script/unpriced").rates(None);
        let model = FunctionModel::with_card(card, |request| Ok(say(last_words(&request))));
        parts(journal, agents(["researcher"]), Arc::new(SingleModel(Arc::new(model))), vec![team.clone()])
    };
    let (envelope, _) = run(&make, "each", "all").await;
    assert_eq!((envelope.status, envelope.children.len()), (Status::Done, 2), "{envelope:?}");
    for child in &envelope.children {
        assert_eq!(child.status, Status::Done);
        assert!(child.warnings.iter().any(|warning| warning.contains("tokens instead of a cost")), "{child:?}");
    }
}
