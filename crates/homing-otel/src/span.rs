//! Converts finished activities to OpenTelemetry spans. Span IDs are derived from what they describe, so that a resumed tree
//! continues in the same trace.

use homing_core::{
    fact::{CallRefusal, Outcome},
    message::{Args, FNV_START, StopReason, fnv},
    model::ModelError,
    tool::CallKey,
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    activity::{Activity, AskActivity, CallActivity, RunActivity},
    fold::FinishedActivity,
    names,
};

/// Maximum length of a text in a span in bytes. Collectors refuse much larger ones.
const MAX_TEXT: usize = 32 * 1024;

/// The ID of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// Returns the ID for a run; `continuations` counts how often it was continued after an end.
    pub fn of_run(run: Uuid, continuations: u32) -> Self {
        Self::of(&[b"run", run.as_bytes(), &continuations.to_be_bytes()])
    }

    /// Returns the ID for the model call that was answered at this position of the tree's journal.
    pub fn of_ask(run: Uuid, seq: u64) -> Self {
        Self::of(&[b"ask", run.as_bytes(), &seq.to_be_bytes()])
    }

    /// Returns the ID for a tool call.
    pub fn of_call(key: CallKey) -> Self {
        Self::of(&[b"call", key.run.as_bytes(), &key.turn.to_be_bytes(), &key.index.to_be_bytes()])
    }

    fn of(parts: &[&[u8]]) -> Self {
        let hash = parts.iter().fold(FNV_START, |hash, part| fnv(hash, part));
        // Zero means "no span" in the protocol.
        Self(hash.max(1).to_be_bytes())
    }
}

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
    /// The tree. All its spans are in one trace.
    pub trace: Uuid,
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
    /// Converts an activity to a span; `None` for the steps of a team's program, which calls no model.
    pub fn of(finished: &FinishedActivity, bodies: SpanBodies) -> Option<Self> {
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
        Self {
            trace: activity.tree,
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
    let mut attributes = vec![(names::OPERATION, text(names::INVOKE_AGENT)), (names::STATUS, text(status(run)))];
    if let Some(model) = run.spawned.models.first().filter(|model| !names::is_program(model)) {
        attributes.extend(names::model(model));
    }
    attributes.extend(usage(used));
    attributes.extend(queued_ms.map(|ms| (names::QUEUED, Attribute::Double(ms as f64 / 1e3))));
    let tags = run.spawned.tags.iter().map(|(name, value)| format!("{name}={value}"));
    attributes.extend(list(names::TAGS, tags.collect()));
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
        attributes.push((names::SYSTEM, json_text(json!([{"type": "text", "content": &*run.spawned.system}]))));
        attributes.push((names::INPUT, json_text(message("user", &run.spawned.task))));
        attributes.push((names::OUTPUT, json_text(message("assistant", &ended.text))));
    }
    let name = format!("{} {}", names::INVOKE_AGENT, run.spawned.agent.name);
    Span::new(run, name, SpanKind::Internal, attributes, error)
}

/// Returns the name of a run's status.
pub(crate) fn status(run: &Activity<RunActivity>) -> &'static str {
    run.detail.ended.outcome.status()
}

fn of_ask(ask: &Activity<AskActivity>, bodies: SpanBodies) -> Span {
    let AskActivity { asked, answer, used } = &ask.detail;
    let mut attributes = vec![(names::OPERATION, text(names::CHAT))];
    attributes.extend(names::model(&asked.model));
    attributes.push((names::MAX_TOKENS, int(asked.max_output)));
    attributes.extend(usage(used));
    let error = match answer {
        Ok(reply) => {
            attributes.extend(reply.model.as_ref().map(|model| (names::RESPONSE_MODEL, text(model))));
            attributes.push((names::FINISH, Attribute::List(vec![finish(&reply.stop).to_owned()])));
            if bodies == SpanBodies::Included {
                attributes.push((names::OUTPUT, json_text(json!([reply]))));
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

fn of_call(call: &Activity<CallActivity>, bodies: SpanBodies) -> Span {
    let CallActivity { key, called, result, refused } = &call.detail;
    let mut attributes = vec![
        (names::OPERATION, text(names::EXECUTE_TOOL)),
        (names::TOOL, text(&result.name)),
        (names::TOOL_TYPE, text("function")),
        (names::CALL_ID, text(key)),
    ];
    let failed = tool_error(refused.as_ref(), result.is_error);
    attributes.extend(failed.map(|kind| (names::ERROR, text(kind))));
    if bodies == SpanBodies::Included {
        let args = called.as_ref().map(|called| match &called.call.args {
            Args::Json(value) => value.to_string(),
            Args::Malformed(text) => text.clone(),
        });
        attributes.extend(args.map(|args| (names::ARGUMENTS, text(cut(&args)))));
        attributes.push((names::RESULT, text(cut(&result.text))));
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

fn finish(stop: &StopReason) -> &str {
    match stop {
        StopReason::End => "stop",
        StopReason::Calls => "tool_call",
        StopReason::Length => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Other(other) => other,
        _ => "other",
    }
}

fn message(role: &str, content: &str) -> serde_json::Value {
    json!([{"role": role, "parts": [{"type": "text", "content": content}]}])
}

fn json_text(value: serde_json::Value) -> Attribute {
    Attribute::Text(cut(&value.to_string()))
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

fn cut(text: &str) -> String {
    if text.len() > MAX_TEXT { format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)]) } else { text.to_owned() }
}
