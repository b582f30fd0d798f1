//! Spans: what is over, in OpenTelemetry's words. Their ids are made of what they stand for, so that a resumed tree goes on
//! in the same trace.

use homing_core::{
    fact::{CallRefusal, Outcome},
    message::{Args, FNV_START, StopReason, fnv},
    model::ModelError,
    tool::CallKey,
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    activity::{Activity, Ask, Call, Run},
    fold::Finished,
    names,
};

/// The longest text that a span carries, in bytes; collectors refuse much larger ones.
const LONGEST: usize = 32 * 1024;

/// A span's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// The span of a run; `again` counts how often it was given more after an end.
    pub fn of_run(run: Uuid, again: u32) -> Self {
        Self::of(&[b"run", run.as_bytes(), &again.to_be_bytes()])
    }

    /// The span of the ask that was answered at this position of the tree's log.
    pub fn of_ask(run: Uuid, seq: u64) -> Self {
        Self::of(&[b"ask", run.as_bytes(), &seq.to_be_bytes()])
    }

    /// The span of a call.
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
pub enum Attribute {
    /// Words.
    Text(String),
    /// A count.
    Int(i64),
    /// A measure.
    Double(f64),
    /// A list of words.
    List(Vec<String>),
}

/// Names and values, in order.
pub type Attributes = Vec<(&'static str, Attribute)>;

/// On whose side of the wire a span's work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Internal,
    /// Somebody else's, who was asked over the network.
    Client,
}

/// A span that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The tree: all its spans are one trace.
    pub trace: Uuid,
    /// Its id.
    pub id: SpanId,
    /// The span around it.
    pub parent: Option<SpanId>,
    /// Such as `chat gpt-5`.
    pub name: String,
    /// On whose side the work is done.
    pub kind: Kind,
    /// Milliseconds since 1970.
    pub from_ms: u64,
    /// Milliseconds since 1970.
    pub to_ms: u64,
    /// What is known of it.
    pub attributes: Attributes,
    /// What went wrong, for people.
    pub error: Option<String>,
}

/// Whether spans carry what was said: prompts, answers, arguments, results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    /// They do not.
    #[default]
    Left,
    /// They do.
    Carried,
}

impl Span {
    /// The span of something that is over; `None` for a program's decisions, which no model made.
    pub fn of(finished: &Finished, bodies: Bodies) -> Option<Self> {
        match finished {
            Finished::Run(run) => Some(of_run(run, bodies)),
            Finished::Ask(ask) if names::is_program(&ask.what.asked.model) => None,
            Finished::Ask(ask) => Some(of_ask(ask, bodies)),
            Finished::Call(call) => Some(of_call(call, bodies)),
        }
    }

    fn new<T>(activity: &Activity<T>, name: String, kind: Kind, attributes: Attributes, error: Option<String>) -> Self {
        Self {
            trace: activity.tree,
            id: activity.id,
            parent: activity.within,
            name,
            kind,
            from_ms: activity.from,
            to_ms: activity.to,
            attributes: [attributes, whose(activity)].concat(),
            error: error.map(|it| cut(&it)),
        }
    }
}

/// What every span says about the run that it belongs to.
fn whose<T>(activity: &Activity<T>) -> Attributes {
    vec![
        (names::AGENT, text(&activity.spawned.agent.name)),
        (names::CONVERSATION, text(activity.tree)),
        (names::RUN, text(activity.run)),
        (names::PLACE, text(&activity.place)),
    ]
}

fn of_run(run: &Activity<Run>, bodies: Bodies) -> Span {
    let Run { ended, used, queued_ms } = &run.what;
    let mut attributes = vec![(names::OPERATION, text(names::INVOKE_AGENT)), (names::STATUS, text(status(run)))];
    if let Some(model) = run.spawned.models.first().filter(|it| !names::is_program(it)) {
        attributes.extend(names::model(model));
    }
    attributes.extend(usage(used));
    attributes.extend(queued_ms.map(|it| (names::QUEUED, Attribute::Double(it as f64 / 1e3))));
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
    if bodies == Bodies::Carried {
        attributes.push((names::SYSTEM, said(json!([{"type": "text", "content": &*run.spawned.system}]))));
        attributes.push((names::INPUT, said(message("user", &run.spawned.task))));
        attributes.push((names::OUTPUT, said(message("assistant", &ended.text))));
    }
    let name = format!("{} {}", names::INVOKE_AGENT, run.spawned.agent.name);
    Span::new(run, name, Kind::Internal, attributes, error)
}

/// The name of a run's status.
pub(crate) fn status(run: &Activity<Run>) -> &'static str {
    run.what.ended.outcome.status()
}

fn of_ask(ask: &Activity<Ask>, bodies: Bodies) -> Span {
    let Ask { asked, answer, used } = &ask.what;
    let mut attributes = vec![(names::OPERATION, text(names::CHAT))];
    attributes.extend(names::model(&asked.model));
    attributes.push((names::MAX_TOKENS, int(asked.max_output)));
    attributes.extend(usage(used));
    let error = match answer {
        Ok(reply) => {
            attributes.extend(reply.model.as_ref().map(|it| (names::RESPONSE_MODEL, text(it))));
            attributes.push((names::FINISH, Attribute::List(vec![finish(&reply.stop).to_owned()])));
            if bodies == Bodies::Carried {
                attributes.push((names::OUTPUT, said(json!([reply]))));
            }
            None
        }
        Err(failure) => {
            attributes.push((names::ERROR, text(error_type(&failure.error))));
            Some(failure.error.to_string())
        }
    };
    let name = format!("{} {}", names::CHAT, names::split(&asked.model).1);
    Span::new(ask, name, Kind::Client, attributes, error)
}

fn of_call(call: &Activity<Call>, bodies: Bodies) -> Span {
    let Call { key, called, result, refused } = &call.what;
    let mut attributes = vec![
        (names::OPERATION, text(names::EXECUTE_TOOL)),
        (names::TOOL, text(&result.name)),
        (names::TOOL_TYPE, text("function")),
        (names::CALL_ID, text(key)),
    ];
    let failed = tool_error(refused.as_ref(), result.is_error);
    attributes.extend(failed.map(|it| (names::ERROR, text(it))));
    if bodies == Bodies::Carried {
        let args = called.as_ref().map(|it| match &it.call.args {
            Args::Json(value) => value.to_string(),
            Args::Malformed(text) => text.clone(),
        });
        attributes.extend(args.map(|it| (names::ARGUMENTS, text(cut(&it)))));
        attributes.push((names::RESULT, text(cut(&result.text))));
    }
    // What a tool said may quote anything, so that it counts as a body; its kind of failure does not.
    let error = failed.map(str::to_owned);
    Span::new(call, format!("{} {}", names::EXECUTE_TOOL, result.name), Kind::Internal, attributes, error)
}

fn usage(used: &homing_core::message::Usage) -> Attributes {
    vec![
        (names::INPUT_TOKENS, int(used.input)),
        (names::OUTPUT_TOKENS, int(used.output)),
        (names::CACHED_TOKENS, int(used.cached)),
        (names::COST, Attribute::Double(used.cost_micros as f64 / 1e6)),
    ]
}

/// A failure's name; the same wherever it is counted.
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
    }
}

fn tool_error(refused: Option<&CallRefusal>, is_error: bool) -> Option<&'static str> {
    match refused {
        Some(CallRefusal::Mistake) => Some("mistake"),
        Some(CallRefusal::Denied) => Some("denied"),
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
    }
}

fn message(role: &str, content: &str) -> serde_json::Value {
    json!([{"role": role, "parts": [{"type": "text", "content": content}]}])
}

fn said(value: serde_json::Value) -> Attribute {
    Attribute::Text(cut(&value.to_string()))
}

pub(crate) fn text(it: impl ToString) -> Attribute {
    Attribute::Text(it.to_string())
}

fn int(it: u64) -> Attribute {
    Attribute::Int(i64::try_from(it).unwrap_or(i64::MAX))
}

fn list(name: &'static str, list: Vec<String>) -> Option<(&'static str, Attribute)> {
    (!list.is_empty()).then_some((name, Attribute::List(list)))
}

fn cut(text: &str) -> String {
    match text.len() > LONGEST {
        true => format!("{}…", &text[..text.floor_char_boundary(LONGEST)]),
        false => text.to_owned(),
    }
}
