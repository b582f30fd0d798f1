//! The job with adk-rust 2.3, over chat completions, with its sessions in memory. An agent that delegates is an agent whose tool
//! runs another agent.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use adk_rust::{
    Agent, Content, Part, Tool, ToolContext, ToolExecutionStrategy,
    agent::LlmAgentBuilder,
    async_trait,
    model::openai::{OpenAIClient, OpenAIConfig},
    runner::Runner,
    session::{CreateRequest, InMemorySessionService, SessionService},
};
use bench_job::{ANSWER, Job, RESULT, TASK, TOOL, TOOL_DESCRIPTION};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn main() {
    let job = Job::from_args();
    job.block_on(drive(&job));
}

async fn drive(job: &Job) {
    let config = OpenAIConfig::compatible("key", format!("{}/v1", job.url), "bench");
    let model = Arc::new(OpenAIClient::new(config).expect("a client"));
    job.measure(|round| do_round(model.clone(), round)).await;
}

async fn do_round(model: Arc<OpenAIClient>, job: Job) {
    // An agent is built once and run many times, each time in a session of its own.
    let worker = Arc::new(Agents::new(&model, &job, &job.worker_prompt(), Arc::new(Step)));
    let mut agents = JoinSet::new();
    match job.children {
        0 => {
            for _ in 0..job.agents {
                let worker = worker.clone();
                agents.spawn(async move { worker.run().await });
            }
        }
        _ => {
            let lead = Agents::new(&model, &job, &job.lead_prompt(), Arc::new(Delegate { worker }));
            agents.spawn(async move { lead.run().await });
        }
    }
    while let Some(answer) = agents.join_next().await {
        assert_eq!(answer.expect("no panic"), ANSWER);
    }
}

/// An agent with its runner and its sessions.
struct Agents {
    runner: Runner,
    sessions: Arc<InMemorySessionService>,
    count: AtomicU64,
}

impl Agents {
    fn new(model: &Arc<OpenAIClient>, job: &Job, prompt: &str, tool: Arc<dyn Tool>) -> Self {
        let agent = LlmAgentBuilder::new("agent")
            .description("Takes part in the comparison")
            .instruction(prompt)
            .model(model.clone())
            .tool(tool)
            .tool_execution_strategy(if job.one_at_a_time {
                ToolExecutionStrategy::Sequential
            } else {
                ToolExecutionStrategy::Parallel
            })
            .max_iterations(u32::try_from(job.steps + 10).expect("few steps"));
        let agent: Arc<dyn Agent> = Arc::new(agent.build().expect("an agent"));
        let sessions = Arc::new(InMemorySessionService::new());
        let runner = Runner::builder().app_name("bench").agent(agent).session_service(sessions.clone()).build();
        Self { runner: runner.expect("a runner"), sessions, count: AtomicU64::new(0) }
    }

    /// Runs the agent in a new session and returns its answer.
    async fn run(&self) -> String {
        let id = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        let request = CreateRequest {
            app_name: "bench".to_owned(),
            user_id: "user".to_owned(),
            session_id: Some(id.clone()),
            state: Default::default(),
        };
        self.sessions.create(request).await.expect("a session");
        let mut events = self.runner.run_str("user", &id, Content::new("user").with_text(TASK)).await.expect("it starts");
        let mut answer = String::new();
        while let Some(event) = events.next().await {
            let response = event.expect("an event").llm_response;
            // The whole text follows its pieces.
            if response.partial {
                continue;
            }
            for part in response.content.into_iter().flat_map(|content| content.parts) {
                match part {
                    Part::Text { text } => answer.push_str(&text),
                    _ => answer.clear(),
                }
            }
        }
        answer
    }
}

struct Step;

#[async_trait]
impl Tool for Step {
    fn name(&self) -> &str {
        TOOL
    }

    fn description(&self) -> &str {
        TOOL_DESCRIPTION
    }

    fn parameters_schema(&self) -> Option<Value> {
        Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    }

    async fn execute(&self, _: Arc<dyn ToolContext>, _: Value) -> adk_rust::Result<Value> {
        Ok(Value::from(RESULT))
    }
}

struct Delegate {
    worker: Arc<Agents>,
}

#[async_trait]
impl Tool for Delegate {
    fn name(&self) -> &str {
        "delegate"
    }

    fn description(&self) -> &str {
        "Gives a task to a worker."
    }

    fn parameters_schema(&self) -> Option<Value> {
        Some(json!({"type": "object", "properties": {"agent": {"type": "string"}, "task": {"type": "string"}}}))
    }

    async fn execute(&self, _: Arc<dyn ToolContext>, _: Value) -> adk_rust::Result<Value> {
        Ok(Value::from(self.worker.run().await))
    }
}
