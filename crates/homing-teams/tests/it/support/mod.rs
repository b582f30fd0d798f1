//! Hosts for tests of teams: scripted members, a journal in memory, and a journal that is cut at every record.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{collections::HashSet, sync::Arc};

use homing_core::{
    definition::AgentDefinition,
    envelope::Envelope,
    fact::{Fact, Record},
    limits::Limits,
    message::Reply,
    model::{AskFailure, ModelError, ModelRequest, SingleModel},
    scripted_model::{FunctionModel, last_words},
};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use homing_teams::{Team, install};

/// A request to a member: its name and its task.
pub(crate) struct MemberRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) task: String,
    pub(crate) request: ModelRequest<'a>,
}

impl MemberRequest<'_> {
    /// Returns whether a structured answer is requested.
    pub(crate) fn wants_data(&self) -> bool {
        self.request.tools.specs.iter().any(|spec| spec.name == "answer")
    }

    /// Its first user message.
    pub(crate) fn first_words(&self) -> String {
        last_words(&self.request.messages(&self.request.messages[..1]))
    }
}

/// Agents whose prompt is their name, by which the scripted model identifies them.
pub(crate) fn agents<const N: usize>(names: [&str; N]) -> Vec<AgentDefinition> {
    names.into_iter().map(|name| AgentDefinition::new(name, format!("the {name}"), name)).collect()
}

/// A model for all members.
pub(crate) fn scripted(script: impl Fn(MemberRequest<'_>) -> Reply + Send + Sync + 'static) -> Arc<SingleModel> {
    scripted_with_failures(move |member| Ok(script(member)))
}

/// A model for all members, some of which fail with these messages.
pub(crate) fn scripted_with_failures(
    script: impl Fn(MemberRequest<'_>) -> Result<Reply, &'static str> + Send + Sync + 'static,
) -> Arc<SingleModel> {
    let decide = move |request: ModelRequest<'_>| {
        let task = last_words(&request);
        let member =
            MemberRequest { name: request.system.split_whitespace().next().unwrap_or_default(), task, request };
        script(member).map_err(|reason| AskFailure::free(ModelError::Unusable { reason: reason.to_owned() }))
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/cast", decide))))
}

/// Builds the parts of a host with these members, teams and journal.
pub(crate) fn parts(
    journal: Arc<MemoryJournal>,
    members: Vec<AgentDefinition>,
    models: Arc<SingleModel>,
    teams: Vec<Team>,
) -> RuntimeParts {
    let mut parts = RuntimeParts::new(members.into_iter().collect(), models, journal);
    if let Err(problems) = install(&mut parts, teams) {
        panic!("{problems:#?}");
    }
    parts
}

/// Runs a team once, and returns what was recorded.
pub(crate) async fn run(
    make: &impl Fn(Arc<MemoryJournal>) -> RuntimeParts,
    agent: &str,
    task: &str,
) -> (Envelope, Vec<Arc<Record>>) {
    let journal = MemoryJournal::new();
    let runtime = Runtime::new(make(journal.clone()));
    let handle = runtime.spawn(Task::new(agent, task)).unwrap();
    let envelope = handle.wait().await;
    (envelope.clone(), journal.records(envelope.run))
}

/// Runs a team, then interrupts it after every fact and resumes it: the outcome is the same, and no member is started twice.
pub(crate) async fn cut_anywhere(
    make: impl Fn(Arc<MemoryJournal>) -> RuntimeParts,
    agent: &str,
    task: &str,
) -> Envelope {
    let (whole, records) = run(&make, agent, task).await;
    assert!(records.len() > 5, "there is something to cut");
    for cut in 1..records.len() {
        let journal = MemoryJournal::with(records[..cut].iter().cloned());
        let runtime = Runtime::new(make(journal.clone()));
        let handle = runtime.resume(whole.run, Claim::IfGone, Limits::default()).await.unwrap();
        let again = handle.wait().await;
        assert_eq!(
            (again.status, &again.output, &again.data, &again.error),
            (whole.status, &whole.output, &whole.data, &whole.error),
            "cut after {cut}"
        );
        let calls = children(&journal.records(whole.run));
        let once: HashSet<_> = calls.iter().collect();
        assert_eq!(once.len(), calls.len(), "cut after {cut}: a member was started twice");
        assert_eq!(calls.len(), children(&records).len(), "cut after {cut}: as many as without the cut");
    }
    whole
}

/// The calls that became runs.
pub(crate) fn children(records: &[Arc<Record>]) -> Vec<String> {
    let calls = records.iter().filter_map(|record| match &record.fact {
        Fact::Spawned(spawned) => spawned.parent_call.map(|key| key.to_string()),
        _ => None,
    });
    calls.collect()
}

/// The agents of all child runs, in the order of the tree.
pub(crate) fn agent_names(envelope: &Envelope) -> Vec<&str> {
    envelope.all().into_iter().skip(1).map(|it| it.agent.as_str()).collect()
}

/// The tool `ask`, as hosts have it.
pub(crate) struct AskTool(homing_core::tool::ToolSpec);

impl AskTool {
    pub(crate) fn new() -> Arc<Self> {
        let schema = serde_json::json!({"type": "object", "required": ["question"]});
        let spec = homing_core::tool::ToolSpec::new("ask", "Asks the user.", schema);
        Arc::new(Self(spec.replay(homing_core::tool::Replay::Safe)))
    }
}

impl homing_core::tool::Tool for AskTool {
    fn spec(&self) -> &homing_core::tool::ToolSpec {
        &self.0
    }

    fn call<'a>(
        &'a self,
        context: &'a homing_core::tool::ToolContext,
        args: serde_json::Value,
    ) -> homing_core::BoxFuture<'a, homing_core::tool::ToolOutput> {
        use homing_core::{question::Answer, tool::ToolOutput};
        Box::pin(async move {
            let options = args["options"].as_array().into_iter().flatten().filter_map(|option| option.as_str());
            let question =
                homing_core::question::Question::new(args["question"].as_str().unwrap_or_default(), context.key)
                    .options(options.map(str::to_owned).collect());
            match context.ask(question).await {
                Answer::Text(text) => ToolOutput::text(text),
                Answer::Yes => ToolOutput::text("Yes."),
                Answer::No => ToolOutput::text("No."),
                _ => ToolOutput::error("no user is available"),
            }
        })
    }
}

/// Loads a team file that must be valid.
pub(crate) fn team(text: &str) -> Team {
    let loaded = homing_teams::load(text, None);
    assert!(loaded.diagnostics.is_empty(), "{:#?}", loaded.diagnostics);
    loaded.ready().unwrap_or_else(|problems| panic!("{problems:#?}"))
}
