//! The job with autoagents 0.4: direct agents with its ReAct executor over chat completions. It has no delegation of its
//! own; its documentation shows agents as tools, and so does this.

use std::sync::Arc;

use autoagents::{
    async_trait,
    core::{
        agent::{
            AgentBuilder, AgentDeriveT, AgentHooks, DirectAgent,
            memory::SlidingWindowMemory,
            prebuilt::executor::{ReActAgent, ReActAgentOutput},
            task::Task,
        },
        tool::{ToolCallError, ToolRuntime, ToolT},
    },
    llm::{
        LLMProvider,
        backends::openai::{OpenAI, OpenAIApiMode},
        builder::LLMBuilder,
    },
};
use bench_job::{ANSWER, Job, RESULT, TASK, TOOL, TOOL_DESCRIPTION};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn main() {
    let job = Job::from_args();
    job.block_on(drive(&job));
}

async fn drive(job: &Job) {
    let model = LLMBuilder::<OpenAI>::new()
        .api_key("key")
        .base_url(format!("{}/v1/", job.url))
        .model("bench")
        .max_tokens(8192)
        .api_mode(OpenAIApiMode::ChatCompletions)
        .build()
        .expect("a model");
    job.measure(|round| do_round(model.clone(), round)).await;
}

async fn do_round(model: Arc<OpenAI>, job: Job) {
    let mut agents = JoinSet::new();
    match job.children {
        0 => (0..job.agents).for_each(|_| _ = agents.spawn(worker(model.clone(), job.clone()))),
        _ => _ = agents.spawn(lead(model, job)),
    }
    while let Some(answer) = agents.join_next().await {
        assert_eq!(answer.expect("no panic"), ANSWER);
    }
}

async fn worker(model: Arc<OpenAI>, job: Job) -> String {
    run(model, &job, Member { prompt: job.worker_prompt(), delegates: None }).await
}

async fn lead(model: Arc<OpenAI>, job: Job) -> String {
    let delegates = Some(Delegate { model: model.clone(), job: Job { children: 0, ..job.clone() } });
    run(model, &job, Member { prompt: job.lead_prompt(), delegates }).await
}

async fn run(model: Arc<dyn LLMProvider>, job: &Job, member: Member) -> String {
    // Nothing may fall out of its memory: a call and its result in each step, and what surrounds them.
    let memory = SlidingWindowMemory::new(2 * (job.steps + job.children) + 10);
    let handle = AgentBuilder::<_, DirectAgent>::new(ReActAgent::with_max_turns(member, job.steps + 5))
        .llm(model)
        .memory(Box::new(memory))
        .build()
        .await
        .expect("an agent");
    // Its events are not consumed; a full channel would stop it.
    let agent = handle.agent;
    drop(handle.rx);
    agent.run(Task::new(TASK)).await.expect("an answer").0
}

#[derive(Clone, Debug)]
struct Member {
    prompt: String,
    delegates: Option<Delegate>,
}

/// A member's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Said(String);

impl autoagents::core::agent::AgentOutputT for Said {
    fn output_schema() -> &'static str {
        "{}"
    }

    fn structured_output_format() -> Value {
        Value::Null
    }
}

impl From<ReActAgentOutput> for Said {
    fn from(output: ReActAgentOutput) -> Self {
        Self(output.response)
    }
}

impl AgentDeriveT for Member {
    type Output = Said;

    fn description(&self) -> &str {
        &self.prompt
    }

    fn output_schema(&self) -> Option<Value> {
        None
    }

    fn name(&self) -> &str {
        "member"
    }

    fn tools(&self) -> Vec<Box<dyn ToolT>> {
        match &self.delegates {
            Some(delegate) => vec![Box::new(delegate.clone())],
            None => vec![Box::new(Step)],
        }
    }
}

#[async_trait]
impl AgentHooks for Member {}

#[derive(Debug)]
struct Step;

impl ToolT for Step {
    fn name(&self) -> &str {
        TOOL
    }

    fn description(&self) -> &str {
        TOOL_DESCRIPTION
    }

    fn args_schema(&self) -> Value {
        json!({"type": "object", "properties": {"n": {"type": "integer"}}})
    }
}

#[async_trait]
impl ToolRuntime for Step {
    async fn execute(&self, _: Value) -> Result<Value, ToolCallError> {
        Ok(RESULT.into())
    }
}

#[derive(Clone)]
struct Delegate {
    model: Arc<OpenAI>,
    job: Job,
}

impl std::fmt::Debug for Delegate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delegate")
    }
}

impl ToolT for Delegate {
    fn name(&self) -> &str {
        "delegate"
    }

    fn description(&self) -> &str {
        "Sends out an agent."
    }

    fn args_schema(&self) -> Value {
        json!({"type": "object", "properties": {"agent": {"type": "string"}, "task": {"type": "string"}}})
    }
}

#[async_trait]
impl ToolRuntime for Delegate {
    async fn execute(&self, _: Value) -> Result<Value, ToolCallError> {
        Ok(worker(self.model.clone(), self.job.clone()).await.into())
    }
}
