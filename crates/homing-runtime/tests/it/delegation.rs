//! Delegation to another agent: its prompt, context, tools, limits and report.

use std::sync::Arc;

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, Inherit, OfferedTo, OnFailure},
    envelope::Status,
    limits::Limits,
    message::Message,
    model::{AskFailure, ModelError},
    scripted_model::{call, last_words, say},
};
use homing_runtime::Task;
use serde_json::json;

use crate::support::{TestModel, TestSetup, TestTool, agent, agent_with, root_id, summary};

/// A lead that delegates one task to a scout and repeats the answer.
fn lead_and_scout() -> Arc<TestModel> {
    TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
            ("lead", _) => say(format!("lead got: {}", last_words(&request))),
            _ => say("all quiet"),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn delegation_is_recorded_in_order() {
    let setup = TestSetup::new([agent("lead"), agent("scout")], lead_and_scout());
    let (envelope, journal) = setup.run(Task::new("lead", "go")).await;
    assert_eq!(envelope.status, Status::Done);
    insta::assert_snapshot!(summary(&journal.records(root_id())), @r"
    1 spawned
    1 asked Turn
    1 replied
    1 called delegate
    1.1 spawned
    1.1 asked Turn
    1.1 replied
    1.1 ended done
    1 returned delegate
    1 asked Turn
    1 replied
    1 ended done
    ");
}

#[tokio::test(start_paused = true)]
async fn r20_parent_reads_agent_outcome_counts_and_answer() {
    let setup = TestSetup::new([agent("lead"), agent("scout")], lead_and_scout());
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    insta::assert_snapshot!(envelope.output, @r"
    lead got: [scout · run 1.1 · done · 1 turns, 0 tool calls]
    all quiet
    ");
}

#[tokio::test(start_paused = true)]
async fn r16_delegate_tool_lists_every_agent() {
    let model = TestModel::new(|request| {
        let delegate = request.tools.specs.iter().find(|spec| spec.name == "delegate").unwrap();
        assert!(delegate.description.contains("- scout: the scout"), "{}", delegate.description);
        assert_eq!(delegate.schema["properties"]["agent"]["enum"], json!(["lead", "scout"]));
        Ok(say("seen"))
    });
    let (envelope, _) = TestSetup::new([agent("lead"), agent("scout")], model).run(Task::new("lead", "go")).await;
    assert_eq!(envelope.output, "seen");
}

#[tokio::test(start_paused = true)]
async fn r22_unknown_agent_is_an_error_that_lists_the_agents() {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => call([("delegate", json!({"agent": "scoot", "task": "look"}))]),
            _ => say(last_words(&request)),
        })
    });
    let (envelope, _) = TestSetup::new([agent("lead"), agent("scout")], model).run(Task::new("lead", "go")).await;
    assert_eq!(envelope.output, "there is no agent named `scoot` (did you mean `scout`?); there are: lead, scout");
    assert!(envelope.children.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r22_delegation_with_a_timeout_times_out() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look", "timeout": 5}))]),
            ("lead", _) => say(last_words(&request)),
            _ => call([("slow", json!({"n": request.messages.len()}))]),
        })
    });
    let slow = TestTool::new("slow", Default::default(), std::time::Duration::from_secs(60), |_| Default::default());
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([slow]);
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    assert_eq!(envelope.status, Status::Done);
    assert_eq!(envelope.children[0].status, Status::TimedOut);
    assert_eq!(envelope.children[0].limit.as_ref().unwrap().limit, 5_000);
    assert!(envelope.output.contains("timed out: wall limit 5 s"), "{}", envelope.output);
}

#[tokio::test(start_paused = true)]
async fn r17_child_gets_tools_its_definition_and_parent_share() {
    let model = TestModel::new(|request| {
        let tools: Vec<&str> = request.tools.specs.iter().map(|spec| spec.name.as_str()).collect();
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
            ("lead", _) => say(last_words(&request)),
            _ => say(tools.join(" ")),
        })
    });
    let agents = [agent_with("lead", &["read", "grep", "delegate"]), agent_with("scout", &["grep", "bash"])];
    let setup = TestSetup::new(agents, model).tools(["read", "grep", "bash"].map(TestTool::simple));
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    assert_eq!(envelope.children[0].output, "grep");
}

#[tokio::test(start_paused = true)]
async fn child_without_tools_gets_a_warning_with_a_remedy() {
    let agents = [agent_with("lead", &["read", "delegate"]), agent_with("scout", &["bash"])];
    let setup = TestSetup::new(agents, lead_and_scout()).tools(["read", "bash"].map(TestTool::simple));
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    let warnings = envelope.children[0].warnings.join("\n");
    assert!(warnings.contains("has no tools") && warnings.contains("delegates"), "{warnings}");
}

#[tokio::test(start_paused = true)]
async fn r23_tool_can_be_allowed_by_pattern() {
    let agents = [agent_with("lead", &["delegate(scout)"]), agent("scout"), agent("hacker")];
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "hacker", "task": "x"}))]),
            ("lead", _) => say(last_words(&request)),
            _ => say("never"),
        })
    });
    let (envelope, _) = TestSetup::new(agents, model).run(Task::new("lead", "go")).await;
    let denial = "denied: delegate `hacker`: agent lead allows only delegate(scout)";
    assert_eq!((envelope.output.as_str(), envelope.denied), (denial, vec![denial.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn r18_task_is_first_message_and_fills_the_prompt() {
    let model = TestModel::new(|request| Ok(say(format!("{} / {}", request.system, last_words(&request)))));
    let prompted = AgentDefinition::new("x", "d", "Work on {{task}} as {{role}}");
    let task = Task::new("x", "the door").set("role", "smith");
    let (envelope, _) = TestSetup::new([prompted], model).run(task).await;
    assert!(envelope.output.starts_with("Work on the door as smith"), "{}", envelope.output);
    assert!(envelope.output.ends_with("/ the door"), "{}", envelope.output);
}

#[tokio::test(start_paused = true)]
async fn r21_depth_limit_stops_recursive_delegation() {
    let model = TestModel::new(|request| {
        let can = request.tools.specs.iter().any(|spec| spec.name == "delegate");
        Ok(match (can, request.messages.len()) {
            (true, 1) => call([("delegate", json!({"agent": "a", "task": "deeper"}))]),
            (true, _) => say("back"),
            // The tool is hidden at the limit; a model that calls it anyway gets an error.
            (false, 1) => call([("delegate", json!({"agent": "a", "task": "too deep"}))]),
            (false, _) => say(last_words(&request)),
        })
    });
    let (envelope, _) = TestSetup::new([agent("a")], model).run(Task::new("a", "go")).await;
    let all = envelope.all();
    assert_eq!(all.last().unwrap().place.to_string(), "1.1.1.1");
    assert!(
        all.last().unwrap().output.starts_with("there is no tool `delegate` here"),
        "{}",
        all.last().unwrap().output
    );
    assert_eq!(all.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn r19_model_is_inherited_over_any_number_of_levels() {
    let (envelope, _) =
        TestSetup::new([agent("lead"), agent("scout")], lead_and_scout()).run(Task::new("lead", "x")).await;
    assert!(envelope.all().iter().all(|run| run.model == "script/model"));
}

#[tokio::test(start_paused = true)]
async fn r36_only_named_context_keys_are_shared() {
    let mut scout = agent("scout");
    scout.context.shared_context = vec!["user".into()];
    let model = TestModel::new(|request| {
        Ok(match (request.system.starts_with("lead"), request.messages.len()) {
            (true, 1) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
            (true, _) => say("done"),
            _ => say(request.system),
        })
    });
    let task = Task::new("lead", "go").set("user", "ada").set("secret", "x");
    let (envelope, _) = TestSetup::new([agent("lead"), scout], model).run(task).await;
    let seen = &envelope.children[0].output;
    assert!(seen.contains("user: ada") && !seen.contains("secret"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn r37_child_can_inherit_its_parents_messages() {
    for (inherit, expected) in [(Inherit::None, 1), (Inherit::All, 5), (Inherit::Last(1), 1), (Inherit::Last(2), 3)] {
        let mut scout = agent("scout");
        scout.context.inherit = inherit;
        let model = TestModel::new(|request| {
            let is_scout = last_words(&request) == "look";
            Ok(match (is_scout, request.messages.len()) {
                (false, 1) => call([("read", json!({}))]),
                (false, 3) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
                (false, _) => say(last_words(&request)),
                (true, _) => {
                    assert!(!matches!(request.messages[0].message, Message::Tool(_)), "a result without its call");
                    say(request.messages.len().to_string())
                }
            })
        });
        let setup = TestSetup::new([agent("lead"), scout], model).tools([TestTool::simple("read")]);
        let (envelope, _) = setup.run(Task::new("lead", "go")).await;
        assert_eq!(envelope.children[0].output, expected.to_string(), "{inherit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r38_parent_and_depth_are_tracked_on_every_run() {
    let setup = TestSetup::new([agent("lead"), agent("scout")], lead_and_scout());
    let (runtime, _) = setup.open();
    let run = runtime.spawn(Task::new("lead", "go")).unwrap();
    crate::support::wait_for(&run).await;
    let tree = run.tree();
    let child = &tree.runs()[1];
    assert_eq!((child.spawned.parent, child.place.depth()), (Some(run.id()), 1));
}

/// Runs a lead whose scout fails, and returns the result and the number of scouts.
async fn with_failing_scout(policy: OnFailure) -> (homing_core::envelope::Envelope, usize) {
    let model = TestModel::new(|request| match (request.system, request.messages.len()) {
        ("lead", 1) => Ok(call([("delegate", json!({"agent": "scout", "task": "look"}))])),
        ("lead", _) => Ok(say(format!("lead continues: {}", last_words(&request)))),
        _ => Err(AskFailure::free(ModelError::Unusable { reason: "no such model".into() })),
    });
    let mut scout = agent("scout");
    scout.task.on_failure = policy;
    let setup = TestSetup::new([agent("lead"), scout], model.clone());
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    let scouts = model.asked.lock().unwrap().iter().filter(|system| *system == "scout").count();
    (envelope, scouts)
}

#[tokio::test(start_paused = true)]
async fn r28_failed_child_does_not_fail_its_parent() {
    let (envelope, scouts) = with_failing_scout(OnFailure::Report).await;
    assert_eq!((envelope.status, scouts), (Status::Done, 1));
    assert!(envelope.output.contains("failed (model): the model cannot be used: no such model"), "{}", envelope.output);
}

#[tokio::test(start_paused = true)]
async fn r28_failed_child_can_be_retried_skipped_or_fatal() {
    let (envelope, scouts) = with_failing_scout(OnFailure::Retry(2)).await;
    assert_eq!((envelope.status, scouts, envelope.children.len()), (Status::Done, 3, 3));
    let (envelope, _) = with_failing_scout(OnFailure::Skip).await;
    assert_eq!(envelope.output, "lead continues: [scout: skipped, because it failed]");
    let (envelope, _) = with_failing_scout(OnFailure::FailParent).await;
    assert_eq!(envelope.status, Status::Failed);
    assert!(envelope.error.unwrap().message.contains("child agent `"));
}

#[tokio::test(start_paused = true)]
async fn long_answer_is_cut_and_the_rest_can_be_read() {
    let long: String = (1..=9_000).map(|n| format!("line {n}\n")).collect();
    let model = TestModel::new(move |request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
            ("lead", 3) => {
                assert!(last_words(&request).len() < 30_000 && last_words(&request).contains("run:1.1"));
                call([("read", json!({"path": "run:1.1", "offset": 8_999, "limit": 1}))])
            }
            ("lead", _) => say(last_words(&request)),
            _ => say(long.clone()),
        })
    });
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([TestTool::simple("read")]);
    let (envelope, _) = setup.run(Task::new("lead", "go").limits(Limits::default())).await;
    assert_eq!(envelope.output, "line 8999");
}

#[tokio::test(start_paused = true)]
async fn agent_of_the_user_alone_is_not_offered_to_models() {
    let model = TestModel::new(|request| {
        let offered =
            request.tools.specs.iter().any(|tool| tool.name == "delegate" && tool.description.contains("scout"));
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look", "report": "facts"}))]),
            ("lead", _) => say(format!("offered: {offered}; got: {}", last_words(&request))),
            _ => say("all quiet"),
        })
    });
    let mut scout = agent("scout");
    scout.execution.offered_to = OfferedTo::User;
    let setup = TestSetup::new([agent("lead"), agent("other"), scout], model);
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    assert_eq!(envelope.output, "offered: false; got: denied: delegate `scout`: only the user can start this agent");
    let (envelope, _) = setup.run(Task::new("scout", "go")).await;
    assert_eq!(envelope.status, Status::Done, "the user can start it");
}

#[tokio::test(start_paused = true)]
async fn rules_about_agents_hold_under_each_of_their_names() {
    let writer = || {
        let mut writer = agent("writer");
        writer.title = Some("Code Writer".into());
        writer.aliases = vec!["kit:writer".into()];
        writer
    };
    // It claims a name that leads to another agent.
    let mut rival = agent("rival");
    rival.aliases = vec!["scout".into()];
    let offered = |denied: &'static str, allowed: &'static str| {
        let mut lead = agent("lead");
        if !denied.is_empty() {
            lead.tools.denied = vec![denied.parse().unwrap()];
        }
        if !allowed.is_empty() {
            lead.tools.allowed = Allow::Only(vec![allowed.parse().unwrap()]);
        }
        let agents = [lead, writer(), agent("scout"), rival.clone()];
        let model = TestModel::new(|request| {
            let delegate = request.tools.specs.iter().find(|spec| spec.name == "delegate");
            Ok(say(delegate.map_or_else(String::new, |spec| spec.schema["properties"]["agent"]["enum"].to_string())))
        });
        async move { TestSetup::new(agents, model).run(Task::new("lead", "go")).await.0.output }
    };
    for name in ["delegate(writer)", "delegate(Writer)", "delegate(code writer)", "delegate(kit:writer)"] {
        assert_eq!(offered(name, "").await, r#"["lead","rival","scout"]"#, "{name}");
        assert_eq!(offered("", name).await, r#"["writer"]"#, "{name}");
    }
    assert_eq!(offered("", "delegate(scout)").await, r#"["scout"]"#, "not the rival");
}
