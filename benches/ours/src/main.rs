//! Our driver: agents of the library, a real provider's wire, the journal off or on.

use std::sync::Arc;

use bench_job::{ANSWER, Job, RESULT, TASK, TOOL, TOOL_DESCRIPTION};
use homing::{AgentDefinition, Allow, Cap, Homing, HomingBuilder, Limit, Limits, Replay, Status, Task, tool_fn};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Step {
    /// The step.
    #[expect(dead_code, reason = "the tool has no use for it; the schema has")]
    n: u64,
}

fn main() {
    let job = Job::from_args();
    job.block_on(async {
        let homing = Arc::new(homing(&job));
        job.measure(|round| do_round(homing.clone(), round)).await;
    });
}

fn homing(job: &Job) -> Homing {
    let url = format!("{}/v1", job.url);
    let lookup = move |name: &str| match name {
        "OPENAI_BASE_URL" => Some(url.clone().into()),
        "OPENAI_API_KEY" => Some("key".to_owned().into()),
        _ => None,
    };
    let step = tool_fn(TOOL, TOOL_DESCRIPTION, Replay::Safe, |_, _: Step| async { Ok(RESULT.to_owned()) });
    let builder = Homing::builder()
        .agent(agent("worker", &job.worker_prompt(), &[TOOL]))
        .agent(agent("warm-up", &job.warm_up().worker_prompt(), &[TOOL]))
        // What a lead may not do its children may not do either.
        .agent(agent("lead", &job.lead_prompt(), &["delegate", TOOL]))
        .tool(step)
        .model("openai/bench")
        .keys(lookup)
        // A lead needs no slot while it waits.
        .parallel(if job.one_at_a_time { 1 } else { job.agents.max(job.children) + 1 });
    with_journal(builder, job).build().expect("everything is there")
}

#[cfg(feature = "journal")]
fn with_journal(builder: HomingBuilder, job: &Job) -> HomingBuilder {
    match &job.journal {
        Some(path) => builder.journal(path),
        None => builder,
    }
}

#[cfg(not(feature = "journal"))]
fn with_journal(builder: HomingBuilder, job: &Job) -> HomingBuilder {
    assert!(job.journal.is_none(), "this driver was built without the journal");
    builder
}

fn agent(name: &str, prompt: &str, tools: &[&str]) -> AgentDefinition {
    let mut agent = AgentDefinition::new(name, "Takes part in the comparison", prompt);
    agent.tools.allowed = Allow::Only(tools.iter().map(|tool| tool.parse().expect("a rule")).collect());
    agent
}

async fn do_round(homing: Arc<Homing>, job: Job) {
    let none = Cap::Unlimited;
    let limits = Limits::default()
        .with(Limit::Turns, none)
        .with(Limit::ToolCalls, none)
        .with(Limit::Children, none)
        .with(Limit::Tokens, none);
    let (name, count) = match (job.is_warm_up, job.children) {
        (true, _) => ("warm-up", 1),
        (false, 0) => ("worker", job.agents),
        (false, _) => ("lead", 1),
    };
    let tasks = (0..count).map(|_| Task::new(name, TASK).limits(limits));
    let runs: Vec<_> = homing.runtime().spawn_many(tasks).into_iter().map(|run| run.expect("it starts")).collect();
    for envelope in homing.runtime().wait_all(&runs).await {
        assert!(envelope.status == Status::Done && envelope.output == ANSWER, "{envelope:?}");
        assert!(job.is_warm_up || envelope.children.len() == job.children, "{}", envelope.tree());
    }
}
