//! Converts finished activities to OpenTelemetry spans. Span IDs are derived from what they describe, so that a resumed tree
//! continues in the same trace.

use homing_core::{
    definition::AgentDefinition,
    fact::{CallRefusal, Outcome},
    message::{FNV_START, Message, fnv},
    model::ModelError,
    trace_context::{SpanId, TRACEPARENT, TRACESTATE},
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    activity::{Activity, AskActivity, CallActivity, RunActivity},
    fold::FinishedActivity,
    messages::{self, cut},
    names,
};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A count.
    Int(i64),
    /// A measurement.
    Double(f64),
    /// A list of texts.
    List(Vec<String>),
}

/// Names and values, in order.
pub type Attributes = Vec<(&'static str, Attribute)>;

/// The side of the network on which the work of a span is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanKind {
    /// This process.
    Internal,
    /// A server that this process called.
    Client,
}

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Span {
    /// The trace: that of the caller if it sent one, otherwise the tree's own.
    pub trace: Uuid,
    /// Data of other tracing systems, which the caller sent.
    pub trace_state: Option<String>,
    /// Its id.
    pub id: SpanId,
    /// The span around it.
    pub parent: Option<SpanId>,
    /// Such as `chat gpt-5`.
    pub name: String,
    /// The side on which the work is done.
    pub kind: SpanKind,
    /// Start, in milliseconds since 1970.
    pub from_ms: u64,
    /// End, in milliseconds since 1970.
    pub to_ms: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// The error message, if it failed.
    pub error: Option<String>,
}

/// Setting for prompts, answers, arguments and results in spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanBodies {
    /// Spans do not contain them.
    #[default]
    Omitted,
    /// Spans contain them.
    Included,
}

impl Span {
    /// Converts an activity to a span; `None` for the steps of a team's program, which calls no model, and if the caller
    /// decided that its trace is not recorded.
    pub fn of(finished: &FinishedActivity, bodies: SpanBodies) -> Option<Self> {
        let sent = match finished {
            FinishedActivity::Run(run) => &run.sent,
            FinishedActivity::Ask(ask) => &ask.sent,
            FinishedActivity::Call(call) => &call.sent,
        };
        if sent.as_ref().is_some_and(|sent| !sent.sampled) {
            return None;
        }
        match finished {
            FinishedActivity::Run(run) => Some(of_run(run, bodies)),
            FinishedActivity::Ask(ask) if names::is_program(&ask.detail.asked.model) => None,
            FinishedActivity::Ask(ask) => Some(of_ask(ask, bodies)),
            FinishedActivity::Call(call) => Some(of_call(call, bodies)),
        }
    }

    fn new<T>(
        activity: &Activity<T>,
        name: String,
        kind: SpanKind,
        attributes: Attributes,
        error: Option<String>,
    ) -> Self {
        let sent = activity.sent.as_deref();
        Self {
            trace: sent.map_or(activity.tree, |sent| sent.trace),
            trace_state: sent.and_then(|sent| sent.state.clone()),
            id: activity.id,
            parent: activity.parent,
            name,
            kind,
            from_ms: activity.from,
            to_ms: activity.to,
            attributes: [attributes, run_attributes(activity)].concat(),
            error: error.map(|text| cut(&text)),
        }
    }

    /// Returns about how many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        let value = |value: &Attribute| match value {
            Attribute::Text(text) => text.len(),
            Attribute::List(list) => list.iter().map(String::len).sum(),
            Attribute::Int(_) | Attribute::Double(_) => 8,
        };
        512 + self.attributes.iter().map(|(_, attribute)| value(attribute)).sum::<usize>()
    }
}

/// Returns the attributes that identify the run of a span.
fn run_attributes<T>(activity: &Activity<T>) -> Attributes {
    vec![
        (names::AGENT, text(&activity.spawned.agent.name)),
        (names::CONVERSATION, text(activity.tree)),
        (names::RUN, text(activity.run)),
        (names::PLACE, text(&activity.place)),
    ]
}

fn of_run(run: &Activity<RunActivity>, bodies: SpanBodies) -> Span {
    let RunActivity { ended, used, queued_ms } = &run.detail;
    let agent = &run.spawned.agent;
    let model = run.spawned.models.first();
    let is_workflow = model.is_some_and(|model| names::is_workflow(model));
    let operation = if is_workflow { names::INVOKE_WORKFLOW } else { names::INVOKE_AGENT };
    let mut attributes = vec![(names::OPERATION, text(operation)), (names::STATUS, text(status(run)))];
    if is_workflow {
        attributes.extend([(names::WORKFLOW, text(&agent.name)), (names::OPENINFERENCE_KIND, text("CHAIN"))]);
    } else {
        attributes.extend([(names::AGENT_ID, text(agent_id(agent))), (names::AGENT_VERSION, text(version(agent)))]);
    }
    if let Some(model) = model.filter(|model| !names::is_program(model)) {
        attributes.extend(names::model(model));
    }
    attributes.extend(usage(used));
    attributes.extend(queued_ms.map(|ms| (names::QUEUED, seconds(ms))));
    let own = |name: &str| name == TRACEPARENT || name == TRACESTATE;
    let tags = run.spawned.tags.iter().filter(|(name, _)| !own(name));
    attributes.extend(list(names::TAGS, tags.map(|(name, value)| format!("{name}={value}")).collect()));
    let error = match &ended.outcome {
        Outcome::Failed { kind, message, .. } => {
            attributes.push((names::ERROR, text(kind.name())));
            Some(message.clone())
        }
        Outcome::Exhausted(hit) | Outcome::TimedOut(hit) => {
            attributes.push((names::LIMIT, text(hit.name)));
            None
        }
        Outcome::Done | Outcome::Cancelled { .. } => None,
    };
    if bodies == SpanBodies::Included {
        let (task, answer) = (&run.spawned.task, &ended.text);
        let finish = match &ended.outcome {
            Outcome::Done => "stop",
            Outcome::Exhausted(_) | Outcome::TimedOut(_) => "length",
            Outcome::Cancelled { .. } | Outcome::Failed { .. } => "error",
        };
        attributes.push((names::SYSTEM, text(messages::instructions(&run.spawned.system))));
        attributes.push((names::INPUT, json_text(messages::one_text("user", task))));
        attributes.push((names::OUTPUT, json_text(messages::answer(answer, finish))));
        attributes.extend([(names::INPUT_VALUE, text(cut(task))), (names::OUTPUT_VALUE, text(cut(answer)))]);
    }
    let name = format!("{operation} {}", agent.name);
    Span::new(run, name, SpanKind::Internal, attributes, error)
}

/// Returns the identity of an agent: the scope of its definition, because a project may have an agent of the same name as the
/// user, and its name.
fn agent_id(agent: &AgentDefinition) -> String {
    let scope = serde_json::to_value(agent.source.kind).unwrap_or_default();
    format!("{}/{}", scope.as_str().unwrap_or_default(), agent.name)
}

/// Returns the version of an agent: the one in its file, or a fingerprint of its definition.
fn version(agent: &AgentDefinition) -> String {
    let fields = &agent.extra;
    match fields.metadata.get("version").or_else(|| fields.unknown.get("version")) {
        Some(Value::String(version)) => cut(version),
        Some(Value::Number(version)) => version.to_string(),
        _ => format!("{:016x}", fnv(FNV_START, &serde_json::to_vec(agent).unwrap_or_default())),
    }
}

/// Returns the name of a run's status.
pub(crate) fn status(run: &Activity<RunActivity>) -> &'static str {
    run.detail.ended.outcome.status()
}

fn of_ask(ask: &Activity<AskActivity>, bodies: SpanBodies) -> Span {
    let AskActivity { asked, answer, used, first_token_ms, input } = &ask.detail;
    let mut attributes = vec![(names::OPERATION, text(names::CHAT))];
    attributes.extend(names::model(&asked.model));
    attributes.push((names::MAX_TOKENS, int(asked.max_output)));
    attributes.extend(usage(used));
    attributes.extend(first_token_ms.map(|ms| (names::FIRST_CHUNK, seconds(ms))));
    if let Some(input) = input {
        attributes.push((names::SYSTEM, text(messages::instructions(&ask.spawned.system))));
        attributes.push((names::INPUT, json_text(messages::input(input))));
        attributes.extend(input.last().map(|entry| (names::INPUT_VALUE, text(cut(last_words(&entry.message))))));
    }
    let error = match answer {
        Ok(reply) => {
            attributes.extend(reply.model.as_ref().map(|model| (names::RESPONSE_MODEL, text(model))));
            attributes.push((names::FINISH, Attribute::List(vec![messages::finish(&reply.stop).to_owned()])));
            if bodies == SpanBodies::Included {
                let calls = || reply.calls().map(messages::call_text).collect::<Vec<_>>().join("\n");
                let words = Some(reply.text()).filter(|text| !text.is_empty()).unwrap_or_else(calls);
                attributes.push((names::OUTPUT, json_text(messages::output(reply))));
                attributes.push((names::OUTPUT_VALUE, text(cut(&words))));
            }
            None
        }
        Err(failure) => {
            attributes.push((names::ERROR, text(error_type(&failure.error))));
            Some(failure.error.to_string())
        }
    };
    let name = format!("{} {}", names::CHAT, names::split(&asked.model).1);
    Span::new(ask, name, SpanKind::Client, attributes, error)
}

/// Returns the text of the newest message of a request.
fn last_words(message: &Message) -> &str {
    match message {
        Message::User { text, .. } => text,
        Message::Assistant(_) => "",
        Message::Tool(result) => &result.text,
    }
}

fn of_call(call: &Activity<CallActivity>, bodies: SpanBodies) -> Span {
    let CallActivity { key, called, result, refused } = &call.detail;
    // Providers may omit the ID of a call; its key identifies it in any case.
    let id = Some(result.call_id.clone()).filter(|id| !id.is_empty()).unwrap_or_else(|| key.to_string());
    let mut attributes = vec![
        (names::OPERATION, text(names::EXECUTE_TOOL)),
        (names::TOOL, text(&result.name)),
        (names::TOOL_TYPE, text("function")),
        (names::CALL_ID, text(id)),
        (names::CALL, text(key)),
    ];
    let failed = tool_error(refused.as_ref(), result.is_error);
    attributes.extend(failed.map(|kind| (names::ERROR, text(kind))));
    if bodies == SpanBodies::Included {
        if let Some(called) = called {
            let args = messages::arguments_text(&called.call.args);
            attributes.extend([(names::ARGUMENTS, text(&args)), (names::INPUT_VALUE, text(args))]);
        }
        let result = cut(&result.text);
        attributes.extend([(names::RESULT, text(&result)), (names::OUTPUT_VALUE, text(result))]);
    }
    // The output of a tool can contain anything, so it counts as a body; the kind of its failure does not.
    let error = failed.map(str::to_owned);
    Span::new(call, format!("{} {}", names::EXECUTE_TOOL, result.name), SpanKind::Internal, attributes, error)
}

fn usage(used: &homing_core::message::Usage) -> Attributes {
    vec![
        (names::INPUT_TOKENS, int(used.input)),
        (names::OUTPUT_TOKENS, int(used.output)),
        (names::CACHED_TOKENS, int(used.cached)),
        (names::CACHE_WRITE_TOKENS, int(used.cache_write)),
        (names::REASONING_TOKENS, int(used.reasoning)),
        (names::COST, Attribute::Double(used.cost_micros as f64 / 1e6)),
    ]
}

/// Returns the name of a failure in spans and metrics.
pub(crate) fn error_type(error: &ModelError) -> &'static str {
    match error {
        ModelError::Busy { .. } => "busy",
        ModelError::Broken { .. } => "broken",
        ModelError::ContextFull { .. } => "context_full",
        ModelError::Refused { .. } => "refused",
        ModelError::Unauthorized { .. } => "unauthorized",
        ModelError::Unusable { .. } => "unusable",
        ModelError::Team { .. } => "team",
        ModelError::OutOfTime => "timeout",
        _ => "other",
    }
}

fn tool_error(refused: Option<&CallRefusal>, is_error: bool) -> Option<&'static str> {
    match refused {
        Some(CallRefusal::Mistake) => Some("mistake"),
        Some(CallRefusal::Denied) => Some("denied"),
        Some(CallRefusal::NoApprover { .. }) => Some("no_approver"),
        Some(CallRefusal::Limit(_)) => Some("limit"),
        Some(CallRefusal::OutcomeUnknown) => Some("outcome_unknown"),
        Some(CallRefusal::NoTool) | None => is_error.then_some("tool_error"),
    }
}

fn json_text(value: Vec<Value>) -> Attribute {
    Attribute::Text(Value::Array(value).to_string())
}

fn seconds(ms: u64) -> Attribute {
    Attribute::Double(ms as f64 / 1e3)
}

pub(crate) fn text(value: impl ToString) -> Attribute {
    Attribute::Text(value.to_string())
}

fn int(value: u64) -> Attribute {
    Attribute::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn list(name: &'static str, list: Vec<String>) -> Option<(&'static str, Attribute)> {
    (!list.is_empty()).then_some((name, Attribute::List(list)))
}
