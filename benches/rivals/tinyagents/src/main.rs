//! The job with tinyagents 2.1, over chat completions. An agent that delegates is an agent whose tool invokes another agent.

use std::sync::Arc;

use async_trait::async_trait;
use bench_job::{ANSWER, Job, RESULT, TASK, TOOL, TOOL_DESCRIPTION};
use serde_json::json;
use tinyagents::harness::{
    limits::RunLimits,
    message::Message,
    providers::openai::OpenAiModel,
    runtime::{AgentHarness, RunPolicy},
    tool::{Tool, ToolCall, ToolResult, ToolSchema},
};
use tokio::{sync::Semaphore, task::JoinSet};

fn main() {
    let job = Job::from_args();
    job.block_on(drive(&job));
}

async fn drive(job: &Job) {
    let model = OpenAiModel::new("key").with_base_url(format!("{}/v1", job.url)).with_model("bench");
    let model = Arc::new(model);
    job.measure(|round| do_round(model.clone(), round)).await;
}

async fn do_round(model: Arc<OpenAiModel>, job: Job) {
    // An agent is built once and invoked many times.
    let worker = Arc::new(harness(&model, &job, Arc::new(Step)));
    let mut agents = JoinSet::new();
    match job.children {
        0 => {
            for _ in 0..job.agents {
                agents.spawn(invoke(worker.clone(), job.worker_prompt()));
            }
        }
        _ => {
            let at_once = Semaphore::new(if job.one_at_a_time { 1 } else { job.children });
            let delegate = Arc::new(Delegate { worker, prompt: job.worker_prompt(), at_once });
            agents.spawn(invoke(Arc::new(harness(&model, &job, delegate)), job.lead_prompt()));
        }
    }
    while let Some(answer) = agents.join_next().await {
        assert_eq!(answer.expect("no panic"), ANSWER);
    }
}

fn harness(model: &Arc<OpenAiModel>, job: &Job, tool: Arc<dyn Tool<()>>) -> AgentHarness<()> {
    let mut harness = AgentHarness::new();
    let most = job.steps + job.children + 10;
    let limits = RunLimits::default().with_max_model_calls(most).with_max_tool_calls(most);
    harness.register_model("bench", model.clone()).set_default_model("bench").register_tool(tool);
    harness.with_policy(RunPolicy { limits, ..RunPolicy::default() });
    harness
}

async fn invoke(harness: Arc<AgentHarness<()>>, prompt: String) -> String {
    let run = harness.invoke_default(&(), vec![Message::system(prompt), Message::user(TASK)]).await;
    run.expect("an answer").text().unwrap_or_default()
}

struct Step;

#[async_trait]
impl Tool<()> for Step {
    fn name(&self) -> &str {
        TOOL
    }

    fn description(&self) -> &str {
        TOOL_DESCRIPTION
    }

    fn schema(&self) -> ToolSchema {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        ToolSchema::new(TOOL, TOOL_DESCRIPTION, schema)
    }

    async fn call(&self, _: &(), call: ToolCall) -> tinyagents::Result<ToolResult> {
        Ok(ToolResult::text(call.id, TOOL, RESULT.to_owned()))
    }
}

struct Delegate {
    worker: Arc<AgentHarness<()>>,
    prompt: String,
    at_once: Semaphore,
}

#[async_trait]
impl Tool<()> for Delegate {
    fn name(&self) -> &str {
        "delegate"
    }

    fn description(&self) -> &str {
        "Gives a task to a worker."
    }

    fn schema(&self) -> ToolSchema {
        let schema = json!({"type": "object", "properties": {"agent": {"type": "string"}, "task": {"type": "string"}}});
        ToolSchema::new("delegate", "Gives a task to a worker.", schema)
    }

    async fn call(&self, _: &(), call: ToolCall) -> tinyagents::Result<ToolResult> {
        let _turn = self.at_once.acquire().await.expect("it stays open");
        let answer = invoke(self.worker.clone(), self.prompt.clone()).await;
        Ok(ToolResult::text(call.id, "delegate", answer))
    }
}
