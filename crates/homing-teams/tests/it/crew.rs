//! Crews: order, context, conditions, failures, the manager, the memory, and resuming after a crash.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{MemberRequest, agent_names, agents, cut_anywhere, parts, run, scripted};
use homing_core::{
    BoxFuture,
    definition::AgentDefinition,
    envelope::Status,
    limits::Limits,
    message::Reply,
    model::{AskFailure, Model, ModelCard, ModelError, ModelRequest, OnDelta, SingleModel},
    scripted_model::{FunctionModel, call, last_words, say},
    tool::{Effect, Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use homing_teams::{
    Chat, Crew, CrewTask, LimitFields, OnTaskFailure, Pattern, TaskCheck, Team, TeamResult, function, install,
};
use serde_json::json;

fn report_crew(process: Crew) -> Team {
    let crew = process
        .task(CrewTask::new("research", "researcher", "Research {{ task }}"))
        .task(CrewTask::new("write", "writer", "Write about {{ topic }}").context(["research"]).expects("one page"))
        .task(CrewTask::new("review", "reviewer", "Review").context(["research", "write"]));
    Team::new("report", crew).parameter("topic", "ants")
}

fn echo(member: MemberRequest<'_>) -> Reply {
    say(format!("<{}: {}>", member.name, member.task.replace('\n', " ")))
}

fn host(team: Team) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    move |journal| {
        parts(journal, agents(["researcher", "writer", "reviewer", "boss"]), scripted(echo), vec![team.clone()])
    }
}

#[tokio::test(start_paused = true)]
async fn r44_context_contains_the_results_of_other_tasks() {
    let (result, _) = run(&host(report_crew(Crew::sequential())), "report", "ants in winter").await;
    assert_eq!(result.status, Status::Done, "{result:#?}");
    assert_eq!(agent_names(&result), ["researcher", "writer", "reviewer"]);
    let writer = &result.children[1].output;
    assert!(writer.contains("Write about ants  Expected result: one page"), "{writer}");
    assert!(writer.contains("## research <researcher: Research ants in winter>"), "{writer}");
    assert!(result.output.starts_with("<reviewer: Review"), "{}", result.output);
    let summary = TeamResult::from(&result);
    assert_eq!((summary.executions.len(), summary.total_steps() > 3), (3, true));
}

#[tokio::test(start_paused = true)]
async fn r44_sequential_crew_resumes_the_same_after_every_event() {
    let whole = cut_anywhere(host(report_crew(Crew::sequential())), "report", "ants").await;
    assert_eq!(whole.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn r44_parallel_crew_resumes_the_same_after_every_event() {
    let crew = Crew::parallel()
        .task(CrewTask::new("a", "researcher", "A"))
        .task(CrewTask::new("b", "researcher", "B"))
        .task(CrewTask::new("c", "writer", "C").context(["a", "b"]))
        .task(CrewTask::new("d", "writer", "D").context(["b"]));
    let whole = cut_anywhere(host(Team::new("report", crew)), "report", "ants").await;
    assert_eq!(whole.output.lines().filter(|line| line.starts_with("## ")).collect::<Vec<_>>(), ["## c", "## d"]);
}

fn manager(member: MemberRequest<'_>) -> Reply {
    match member.name {
        "boss" if !member.wants_data() => say("hm"),
        "boss" if member.first_words().contains("Choose the member") => {
            call([("answer", json!({"agent": "writer", "instructions": "be brief"}))])
        }
        "boss" if member.first_words().contains("round 1") => {
            call([("answer", json!({"accepted": false, "feedback": "too long"}))])
        }
        "boss" => call([("answer", json!({"accepted": true}))]),
        _ => echo(member),
    }
}

#[tokio::test(start_paused = true)]
async fn r44_manager_assigns_and_accepts_or_rejects() {
    let mut crew = Crew::hierarchical("boss").task(CrewTask::unassigned("text", "Write"));
    crew.members = vec!["researcher".into(), "writer".into()];
    let team = Team::new("report", crew);
    let make =
        move |journal| parts(journal, agents(["researcher", "writer", "boss"]), scripted(manager), vec![team.clone()]);
    let whole = cut_anywhere(make, "report", "ants").await;
    assert_eq!(agent_names(&whole), ["boss", "writer", "boss", "writer", "boss"]);
    assert!(whole.output.contains("be brief") && whole.output.contains("sent back: too long"), "{}", whole.output);
}

#[tokio::test(start_paused = true)]
async fn r44_rounds_of_a_manager_that_never_accepts_are_limited() {
    let mut crew = Crew::hierarchical("boss").task(CrewTask::new("text", "writer", "Write"));
    crew.max_rounds = 2;
    let never = |member: MemberRequest<'_>| match member.name {
        "boss" => call([("answer", json!({"accepted": false}))]),
        _ => echo(member),
    };
    let team = Team::new("report", crew);
    let make = move |journal| parts(journal, agents(["writer", "boss"]), scripted(never), vec![team.clone()]);
    let (result, _) = run(&make, "report", "ants").await;
    assert_eq!((result.status, agent_names(&result)), (Status::Done, vec!["writer", "boss", "writer"]));
}

#[tokio::test(start_paused = true)]
async fn task_is_skipped_if_its_condition_does_not_hold() {
    let crew = Crew::sequential()
        .task(CrewTask::new("judge", "reviewer", "Judge").schema(json!({"type": "object", "required": ["good"]})))
        .task(CrewTask::new("mend", "writer", "Mend").when("not results.judge.data.good"))
        .task(CrewTask::new("praise", "writer", "Praise").context(["judge"]).when("results.judge.data.good"));
    let script = |member: MemberRequest<'_>| match member.name {
        "reviewer" => call([("answer", json!({"good": true}))]),
        _ => echo(member),
    };
    let team = Team::new("report", crew);
    let make = move |journal| parts(journal, agents(["writer", "reviewer"]), scripted(script), vec![team.clone()]);
    let whole = cut_anywhere(make, "report", "ants").await;
    assert_eq!(agent_names(&whole), ["reviewer", "writer"]);
    assert!(whole.output.starts_with("<writer: Praise"), "{}", whole.output);
}

fn failing(policy: OnTaskFailure, retries: u32) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    let crew = Crew::sequential()
        .task(CrewTask::new("research", "researcher", "Research").retries(retries).on_failure(policy))
        .task(CrewTask::new("write", "writer", "Write").context(["research"]));
    let team = Team::new("report", crew);
    move |journal| {
        let model = FunctionModel::new("script/cast", |request: ModelRequest<'_>| match request.system {
            "researcher" => Err(AskFailure::free(ModelError::Unusable { reason: "no books".into() })),
            _ => Ok(say(format!("<writer: {}>", last_words(&request)))),
        });
        parts(journal, agents(["researcher", "writer"]), Arc::new(SingleModel(Arc::new(model))), vec![team.clone()])
    }
}

#[tokio::test(start_paused = true)]
async fn failure_is_retried_then_reported_skipped_or_final() {
    let reported = cut_anywhere(failing(OnTaskFailure::Report, 2), "report", "ants").await;
    assert_eq!(
        (reported.status, agent_names(&reported)),
        (Status::Failed, vec!["researcher", "researcher", "researcher", "writer"])
    );
    assert!(reported.output.contains("## research (not done: failed (model)"), "{}", reported.output);

    let skipped = cut_anywhere(failing(OnTaskFailure::Skip, 0), "report", "ants").await;
    assert_eq!((skipped.status, skipped.output.as_str()), (Status::Done, "<writer: Write>"));

    let failed = cut_anywhere(failing(OnTaskFailure::Fail, 0), "report", "ants").await;
    assert_eq!((failed.status, agent_names(&failed)), (Status::Failed, vec!["researcher"]));
    assert!(
        failed.error.as_ref().unwrap().message.contains("task `research` (run 1.1): failed (model)"),
        "{failed:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn retries_wait_longer_each_time() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let model = FunctionModel::new("script/cast", move |_: ModelRequest<'_>| {
        log.lock().unwrap().push(tokio::time::Instant::now());
        Err(AskFailure::free(ModelError::Unusable { reason: "no books".into() }))
    });
    let crew = Crew::sequential().task(CrewTask::new("research", "researcher", "Research").retries(3));
    let models = Arc::new(SingleModel(Arc::new(model)));
    let parts = parts(MemoryJournal::new(), agents(["researcher"]), models, vec![Team::new("report", crew)]);
    let result = Runtime::new(parts).spawn(Task::new("report", "ants")).unwrap().wait().await;
    assert_eq!(result.status, Status::Failed);
    let asked = asked.lock().unwrap();
    let pauses: Vec<u64> = asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_task_only_narrow() {
    let crew = Crew::sequential().task(
        CrewTask::new("research", "researcher", "Research")
            .limits(LimitFields { max_turns: Some(2), ..LimitFields::default() }),
    );
    let team = Team::new("report", crew);
    let make = move |journal: Arc<MemoryJournal>| {
        let endless = |member: MemberRequest<'_>| match member.request.choice {
            homing_core::model::ToolChoice::Off => say("had to stop"),
            _ => call([("nothing", json!({"n": member.request.messages.len()}))]),
        };
        parts(journal, agents(["researcher"]), scripted(endless), vec![team.clone()])
    };
    let (result, _) = run(&make, "report", "ants").await;
    assert_eq!(result.children[0].status, Status::Exhausted);
    assert_eq!(result.children[0].usage.turns, 2);
    assert_eq!(result.status, Status::Failed, "the last task was not done");
    assert!(result.output.contains("had to stop"), "the partial output is kept: {}", result.output);
}

#[tokio::test(start_paused = true)]
async fn agents_can_delegate_to_a_team() {
    let team = report_crew(Crew::sequential());
    let make = move |journal: Arc<MemoryJournal>| {
        let script = |member: MemberRequest<'_>| match member.name {
            "boss" if member.request.messages.len() == 1 => {
                call([("delegate", json!({"agent": "report", "task": "ants"}))])
            }
            "boss" => say("I have a report"),
            _ => echo(member),
        };
        let members = agents(["researcher", "writer", "reviewer", "boss"]);
        parts(journal, members, scripted(script), vec![team.clone()])
    };
    let whole = cut_anywhere(make, "boss", "get a report").await;
    assert_eq!(agent_names(&whole), ["report", "researcher", "writer", "reviewer"]);
    assert_eq!(whole.children[0].children[0].model, "script/cast", "members do not inherit the team's program");
}

#[tokio::test(start_paused = true)]
async fn r44_shared_memory_survives_a_crash_and_names_the_writer() {
    let crew = Crew::sequential()
        .task(CrewTask::new("note", "writer", "Note it"))
        .task(CrewTask::new("read", "reviewer", "Read it"));
    let team = Team::new("report", crew).with_memory();
    let make = move |journal: Arc<MemoryJournal>| {
        let script = |member: MemberRequest<'_>| match (member.name, member.request.messages.len()) {
            ("writer", 1) => call([("memory_set", json!({"key": "fact", "value": "ants sleep"}))]),
            ("reviewer", 1) => call([("memory_get", json!({"key": "fact"})), ("memory_list", json!({}))]),
            ("reviewer", _) => {
                let homing_core::message::Message::Tool(found) = &member.request.messages[2].message else { panic!() };
                say(found.text.clone())
            }
            _ => say("noted"),
        };
        parts(journal, agents(["writer", "reviewer"]), scripted(script), vec![team.clone()])
    };
    let whole = cut_anywhere(make, "report", "ants").await;
    assert_eq!(whole.output, "[written by writer (run 1.1)]\nants sleep");
}

/// A member whose replies take as long as its task says.
struct Sleeper(ModelCard);

impl Model for Sleeper {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn reply<'a>(&'a self, request: ModelRequest<'a>, _: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let words = last_words(&request);
        let millis: u64 =
            words.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of milliseconds");
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok(say("slept"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn r44_crew_of_200_tasks_takes_as_long_as_its_critical_path() {
    let mut seed = 7_u64;
    let mut roll = move |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let mut crew = Crew::parallel();
    let mut ends: Vec<u64> = Vec::new();
    for at in 0..200_u64 {
        let before: Vec<u64> = (0..roll(4)).map(|_| roll(at.max(1))).filter(|before| *before < at).collect();
        let millis = 1_000 + roll(9_000);
        let begins = before.iter().map(|task| ends[usize::try_from(*task).unwrap()]).max().unwrap_or(0);
        ends.push(begins + millis);
        let context: Vec<String> = before.iter().map(|task| format!("t{task}")).collect();
        let task = CrewTask::new(format!("t{at}"), "worker", format!("{millis} ms"));
        crew = crew.task(task.context(context.iter().map(String::as_str)));
    }
    let critical = *ends.iter().max().unwrap();
    let sleeper = Arc::new(SingleModel(Arc::new(Sleeper(ModelCard::free("script/sleeper")))));
    let mut parts = parts(MemoryJournal::new(), agents(["worker"]), sleeper, vec![Team::new("dag", crew)]);
    (parts.config.max_runs, parts.config.max_asks) = (256, 256);
    let begun = tokio::time::Instant::now();
    let result = Runtime::new(parts).spawn(Task::new("dag", "go")).unwrap().wait().await;
    let took = u64::try_from(begun.elapsed().as_millis()).unwrap();
    assert_eq!(result.status, Status::Done, "{:?} {}", result.error, result.output);
    assert_eq!(result.children.len(), 200);
    assert!(took >= critical && took * 100 <= critical * 105, "critical path {critical} ms, took {took} ms");
}

#[tokio::test(start_paused = true)]
async fn team_at_its_token_limit_reports_partial_results() {
    let crew =
        Crew::sequential().task(CrewTask::new("one", "writer", "One")).task(CrewTask::new("two", "writer", "Two"));
    let team = Team::new("report", crew).limits(LimitFields { max_tokens: Some(9_500), ..LimitFields::default() });
    let make = move |journal: Arc<MemoryJournal>| {
        let script = |member: MemberRequest<'_>| {
            let mut reply = echo(member);
            reply.usage.input = 9_000;
            reply
        };
        parts(journal, agents(["writer"]), scripted(script), vec![team.clone()])
    };
    let (result, records) = run(&make, "report", "ants").await;
    assert!(result.output.contains("## one\n<writer: One>"), "{result:#?}");
    assert_eq!((result.status, result.resumable), (Status::Exhausted, true));

    let runtime = Runtime::new(make(MemoryJournal::with(records)));
    let more = Limits::default().tokens(20_000);
    let again = runtime.resume(result.run, Claim::IfGone, more).await.unwrap().wait().await;
    assert_eq!(again.status, Status::Done, "{again:#?}");
    assert_eq!(
        agent_names(&again),
        ["writer", "writer", "writer"],
        "the first task is not repeated, the second one is"
    );
    assert!(again.output.starts_with("<writer: Two"), "{}", again.output);
}

#[tokio::test(start_paused = true)]
async fn team_that_ran_out_of_children_continues_with_a_larger_limit() {
    let crew = Crew::parallel()
        .task(CrewTask::new("a", "writer", "A"))
        .task(CrewTask::new("b", "writer", "B"))
        .task(CrewTask::new("c", "writer", "C").context(["a", "b"]));
    let team = Team::new("report", crew).limits(LimitFields { max_children: Some(2), ..LimitFields::default() });
    let make =
        move |journal: Arc<MemoryJournal>| parts(journal, agents(["writer"]), scripted(echo), vec![team.clone()]);
    let (result, records) = run(&make, "report", "ants").await;
    assert_eq!(result.status, Status::Exhausted, "{result:#?}");
    assert!(result.output.contains("## a\n<writer: A>"), "{}", result.output);

    let runtime = Runtime::new(make(MemoryJournal::with(records)));
    let more = Limits::default().children(5);
    let again = runtime.resume(result.run, Claim::IfGone, more).await.unwrap().wait().await;
    assert_eq!((again.status, again.children.len()), (Status::Done, 3), "{again:#?}");
}

#[tokio::test(start_paused = true)]
async fn answer_of_a_crew_has_the_schema_of_its_last_task() {
    let schema = json!({"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]});
    let crew = Crew::sequential().task(CrewTask::new("judge", "reviewer", "Judge").schema(schema));
    let team = Team::new("report", crew);
    let make = move |journal: Arc<MemoryJournal>| {
        let script = |_: MemberRequest<'_>| call([("answer", json!({"score": 7}))]);
        parts(journal, agents(["reviewer"]), scripted(script), vec![team.clone()])
    };
    let whole = cut_anywhere(make, "report", "ants").await;
    assert_eq!((whole.status, whole.data), (Status::Done, Some(json!({"score": 7}).into())));
}

#[test]
fn agents_of_a_team_are_installed_with_it() {
    let crew = Crew::sequential().task(CrewTask::new("a", "own", "A"));
    let team = Team::new("report", crew).agent(AgentDefinition::new("own", "d", "p"));
    let parts = parts(MemoryJournal::new(), Vec::new(), scripted(echo), vec![team]);
    assert!(parts.registry.has("own") && parts.registry.has("report"));
}

#[tokio::test(start_paused = true)]
async fn manager_sees_the_descriptions_of_members() {
    let script = |member: MemberRequest<'_>| match member.name {
        "boss" if member.first_words().contains("- ada: the ada\n- bob: the bob") => {
            call([("answer", json!({"agent": "bob", "accepted": true}))])
        }
        "boss" => call([("answer", json!({"agent": "ada", "accepted": true}))]),
        who => say(who.to_owned()),
    };
    let mut crew = Crew::hierarchical("boss").task(CrewTask::unassigned("work", "Do it"));
    crew.members = vec!["ada".to_owned(), "bob".to_owned()];
    let make = move |journal: Arc<MemoryJournal>| {
        parts(journal, agents(["boss", "ada", "bob"]), scripted(script), vec![Team::new("crew", crew.clone())])
    };
    let (result, _) = run(&make, "crew", "x").await;
    assert_eq!(result.output, "bob");
}

#[tokio::test(start_paused = true)]
async fn structured_answer_of_a_crew_is_its_output_too() {
    let script = |_: MemberRequest<'_>| call([("answer", json!({"n": 3}))]);
    let crew = Crew::sequential().task(CrewTask::new("count", "ada", "Count").schema(json!({"type": "object"})));
    let make = move |journal: Arc<MemoryJournal>| {
        parts(journal, agents(["ada"]), scripted(script), vec![Team::new("crew", crew.clone())])
    };
    let whole = cut_anywhere(make, "crew", "x").await;
    assert_eq!((whole.output.as_str(), whole.data), ("{\n  \"n\": 3\n}", Some(json!({"n": 3}).into())));
}

#[tokio::test(start_paused = true)]
async fn members_without_tools_get_those_of_their_role() {
    let names = |member: &MemberRequest<'_>| {
        member.request.tools.specs.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>().join(",")
    };
    let script = move |member: MemberRequest<'_>| say(format!("has {}", names(&member)));
    let tool = |name: &str, effect| -> Arc<dyn Tool> {
        struct Named(ToolSpec);
        impl Tool for Named {
            fn spec(&self) -> &ToolSpec {
                &self.0
            }

            fn call<'a>(&'a self, _: &'a ToolContext, _: serde_json::Value) -> BoxFuture<'a, ToolOutput> {
                Box::pin(std::future::ready(ToolOutput::text("")))
            }
        }
        Arc::new(Named(ToolSpec::new(name, "", json!({"type": "object"})).effect(effect)))
    };
    let tools_of = async |pattern: Pattern| {
        let mut parts = RuntimeParts::new(Vec::new().into_iter().collect(), scripted(script), MemoryJournal::new());
        parts.tools = vec![tool("peek", Effect::Reads), tool("poke", Effect::Changes)];
        let mut team = Team::new("team", pattern);
        team.agents = agents(["ada", "bob"]);
        install(&mut parts, [team]).unwrap();
        Runtime::new(parts).spawn(Task::new("team", "go")).unwrap().wait().await.output
    };
    assert_eq!(tools_of(Crew::sequential().task(CrewTask::new("a", "ada", "x")).into()).await, "has peek,poke");
    assert_eq!(tools_of(Chat::new(["ada"]).max_rounds(1).into()).await, "has peek");
    assert_eq!(tools_of(Chat::new(["ada"]).max_rounds(1).summary("bob").into()).await, "has ");
}

fn checked_crew(check: TaskCheck) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    let script = |member: MemberRequest<'_>| {
        let words = member.first_words();
        match member.name {
            "judge" if words.contains("Result:\n{\"n\": 2}") => call([("answer", json!({"accepted": true}))]),
            "judge" => call([("answer", json!({"accepted": false, "feedback": "too small"}))]),
            _ if words.contains("was sent back") => say("{\"n\": 2}"),
            _ => say("{\"n\": 1}"),
        }
    };
    let crew = Crew::sequential().task(CrewTask::new("count", "ada", "Count").check(check));
    move |journal| {
        let passes = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let bash = function("bash", Replay::Safe, move |_| {
            let was = passes.swap(true, std::sync::atomic::Ordering::SeqCst);
            if was { Ok(json!("fine")) } else { Err("1 test failed".to_owned()) }
        });
        let team = Team::new("crew", crew.clone()).tool(bash);
        parts(journal, agents(["ada", "judge"]), scripted(script), vec![team])
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_result_goes_back_to_the_worker_with_feedback() {
    let judged = cut_anywhere(checked_crew(TaskCheck::agent("judge")), "crew", "x").await;
    assert_eq!((judged.output.as_str(), agent_names(&judged)), ("{\"n\": 2}", vec!["ada", "judge", "ada", "judge"]));
    let schema = TaskCheck::schema(json!({"properties": {"n": {"minimum": 2}}}));
    let fits = cut_anywhere(checked_crew(schema), "crew", "x").await;
    assert_eq!((fits.output.as_str(), agent_names(&fits)), ("{\"n\": 2}", vec!["ada", "ada"]));
    let (tested, records) = run(&checked_crew(TaskCheck::command("cargo test")), "crew", "x").await;
    assert_eq!((tested.status, tested.output.as_str()), (Status::Done, "{\"n\": 2}"));
    let mut briefs = records.iter().filter_map(|record| match &record.fact {
        homing_core::fact::Fact::Spawned(spawned) => Some(spawned.task.clone()),
        _ => None,
    });
    assert!(briefs.next_back().unwrap().contains("was sent back: `cargo test` failed:\n1 test failed"));
}

#[tokio::test(start_paused = true)]
async fn task_whose_last_try_is_rejected_failed() {
    let schema = TaskCheck::schema(json!({"properties": {"n": {"minimum": 3}}})).tries(2);
    let failed = cut_anywhere(checked_crew(schema), "crew", "x").await;
    let message = failed.error.unwrap().message;
    assert_eq!((failed.status, failed.children.len()), (Status::Failed, 2));
    assert!(
        message.contains("not accepted after 2 tries: the result does not match its schema: 2 is less than"),
        "{message}"
    );
}
