//! The job with rig-core 0.44 and rig-agent 0.44, its agent runtime, over chat completions. An agent that delegates is an
//! agent whose tool prompts another agent.

use std::convert::Infallible;

use bench_job::{ANSWER, Job, RESULT, TASK, TOOL, TOOL_DESCRIPTION};
use rig_agent::{
    prelude::*,
    tool::{Tool, ToolContext},
};
use rig_core::providers::openai::{OpenAI, OpenAIConfig};
use serde::Deserialize;
use tokio::task::JoinSet;

fn main() {
    let job = Job::from_args();
    job.block_on(drive(&job));
}

async fn drive(job: &Job) {
    let openai = OpenAIConfig::new("key").with_base_url(format!("{}/v1", job.url)).client();
    job.measure(|round| do_round(openai.clone(), round)).await;
}

async fn do_round(openai: OpenAI, job: Job) {
    // As its documentation has it: an agent is built once and prompted many times.
    let worker = worker(&openai, &job);
    let mut agents = JoinSet::new();
    match job.children {
        0 => {
            for _ in 0..job.agents {
                let run = worker.prompt(TASK).max_turns(job.steps + 5);
                agents.spawn(async move { run.await.expect("an answer").output().to_owned() });
            }
        }
        children => {
            let lead = AgentBuilder::new(openai.chat("bench"))
                .preamble(job.lead_prompt())
                .max_tokens(8192)
                .tool(Delegate { worker, turns: job.steps + 5 })
                .build();
            let at_once = if job.one_at_a_time { 1 } else { children };
            agents.spawn(async move {
                let run = lead.prompt(TASK).max_turns(5).tool_concurrency(at_once);
                run.await.expect("an answer").output().to_owned()
            });
        }
    }
    while let Some(answer) = agents.join_next().await {
        assert_eq!(answer.expect("no panic"), ANSWER);
    }
}

fn worker(openai: &OpenAI, job: &Job) -> Agent {
    AgentBuilder::new(openai.chat("bench")).preamble(job.worker_prompt()).max_tokens(8192).tool(Step).build()
}

#[derive(Deserialize)]
struct StepArgs {
    #[expect(dead_code, reason = "the model sends it, and the step needs nothing")]
    n: u64,
}

struct Step;

impl Tool for Step {
    const NAME: &'static str = TOOL;
    type Args = StepArgs;
    type Output = String;
    type Error = Infallible;

    fn description(&self) -> String {
        TOOL_DESCRIPTION.to_owned()
    }

    fn parameters(&self) -> serde_json::Value {
        serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}})
    }

    async fn call(&self, _: &mut ToolContext, _: Self::Args) -> Result<Self::Output, Self::Error> {
        Ok(RESULT.to_owned())
    }
}

#[derive(Deserialize)]
struct DelegateArgs {
    task: String,
}

struct Delegate {
    worker: Agent,
    turns: usize,
}

impl Tool for Delegate {
    const NAME: &'static str = "delegate";
    type Args = DelegateArgs;
    type Output = String;
    type Error = Infallible;

    fn description(&self) -> String {
        "Sends out an agent.".to_owned()
    }

    fn parameters(&self) -> serde_json::Value {
        serde_json::json!({
            "type": "object",
            "properties": {"agent": {"type": "string"}, "task": {"type": "string"}}
        })
    }

    async fn call(&self, _: &mut ToolContext, args: Self::Args) -> Result<Self::Output, Self::Error> {
        let run = self.worker.prompt(args.task).max_turns(self.turns);
        Ok(run.await.expect("an answer").output().to_owned())
    }
}
