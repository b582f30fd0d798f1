//! One tree as lists show it: its root, how its runs stand, what it spends, and what is wrong with it.

use std::collections::BTreeMap;

use homing::{
    Cap, Envelope, EnvelopeUsage, Limit, Limits, Status,
    crates::{
        core::{
            envelope::status,
            fact::{Fact, Outcome, Record, Reservation},
            message::{Args, ToolCall},
            run::Run,
            sanitize,
            tool::Replay,
            tool_names,
            tree::RunTree,
        },
        runtime::journal::sqlite::RunRow,
    },
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

/// Maximum number of characters of an action or a trouble.
const MAX_TEXT: usize = 200;

/// One tree in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TreeRow {
    /// ID of the root run.
    #[schemars(with = "String")]
    pub(crate) run: Uuid,
    /// ID of the tree, which is that of its root.
    #[schemars(with = "String")]
    pub(crate) tree: Uuid,
    /// Place of the root.
    pub(crate) place: String,
    /// Agent of the root.
    pub(crate) agent: String,
    /// The last model that the root called.
    pub(crate) model: String,
    /// The beginning of the task.
    pub(crate) task: String,
    /// Status of the root.
    #[schemars(with = "String")]
    pub(crate) status: Status,
    /// Milliseconds since 1970.
    pub(crate) started: u64,
    /// Usage of the whole tree.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub(crate) usage: EnvelopeUsage,
    /// Tags.
    pub(crate) tags: BTreeMap<String, String>,
    /// Submission key.
    pub(crate) key: Option<String>,
    /// Number of runs that wait for budget.
    pub(crate) waiting_for_budget: u64,
    #[serde(flatten)]
    pub(crate) summary: TreeSummary,
    /// The process that drives the tree; none if it is gone or the tree has ended.
    pub(crate) owner: Option<Owner>,
}

/// The part of a [`TreeRow`] that is folded from the records of the tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TreeSummary {
    /// Status of the root by its records, which show that it waits.
    #[serde(skip)]
    root_status: Option<Status>,
    /// The project folder.
    pub(crate) project: String,
    /// Number of runs by status.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Limits of the tree. Those that are absent do not apply.
    pub(crate) limits: BTreeMap<&'static str, u64>,
    /// Micro-dollars that are reserved for calls in progress and for landings.
    pub(crate) held_micros: u64,
    /// The latest action in a few words.
    pub(crate) last_action: String,
    /// Time of the latest record in milliseconds since 1970.
    pub(crate) last_at: u64,
    /// Number of open questions.
    pub(crate) questions: u64,
    /// The failure or the limit that needs attention, if there is one.
    pub(crate) trouble: Option<String>,
    /// The limit that ended the root, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<ReachedLimit>,
    /// Calls that were under way when the process died and may have had an effect, if nothing drives the tree.
    pub(crate) unknown: Vec<UnknownCall>,
}

/// A limit that ended a run, and what the next model call may need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ReachedLimit {
    /// Name of the limit.
    pub(crate) name: &'static str,
    /// Its value: micro-dollars, milliseconds or a number.
    pub(crate) limit: u64,
    /// The amount that was used.
    pub(crate) spent: u64,
    /// Micro-dollars that the next model call may cost, by what the last one reserved.
    pub(crate) next_call_micros: u64,
    /// Tokens that it may use.
    pub(crate) next_call_tokens: u64,
}

/// A call that may have had an effect before its process died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct UnknownCall {
    /// The run.
    #[schemars(with = "String")]
    pub(crate) run: Uuid,
    /// Its agent.
    pub(crate) agent: String,
    /// The tool and its most telling argument.
    pub(crate) call: String,
}

/// The process that drives a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Owner {
    /// Process ID.
    pub(crate) pid: u32,
    /// Machine.
    pub(crate) host: String,
    /// True: processes that are gone own nothing.
    pub(crate) alive: bool,
}

impl TreeRow {
    pub(crate) fn new(row: RunRow, summary: TreeSummary, owner: Option<(u32, String)>) -> Self {
        let mut summary = summary;
        if row.status == Status::Interrupted {
            // Nothing works on the runs that have not ended.
            let open = |name: &str| name.parse::<Status>().is_ok_and(|status| !status.is_over());
            let interrupted: u64 = summary.counts.iter().filter(|(name, _)| open(name)).map(|(_, count)| count).sum();
            summary.counts.retain(|name, _| !open(name));
            summary.counts.insert(Status::Interrupted.name(), interrupted);
            summary.trouble.get_or_insert_with(|| "its process is gone; it can be resumed".to_owned());
        } else {
            summary.unknown.clear();
        }
        let status = match (row.status, summary.root_status) {
            (Status::Queued | Status::Running, Some(status @ Status::Waiting)) => status,
            (status, _) => status,
        };
        Self {
            run: row.run,
            tree: row.tree,
            place: row.place.to_string(),
            agent: row.agent,
            model: row.model,
            task: row.task,
            status,
            started: row.started,
            usage: row.usage,
            tags: row.tags,
            key: row.key,
            waiting_for_budget: row.waiting_for_budget,
            summary,
            owner: owner.map(|(pid, host)| Owner { pid, host, alive: true }),
        }
    }
}

impl TreeSummary {
    /// Sums up a tree. `last` is its latest action and the time of its latest record, `hold` what its latest call reserved.
    pub(crate) fn new(tree: &RunTree, last: &(String, u64), hold: Reservation) -> Self {
        let mut counts = BTreeMap::new();
        for run in tree.runs() {
            *counts.entry(status(run).name()).or_default() += 1;
        }
        let root = tree.root();
        Self {
            root_status: root.map(status),
            project: root
                .map(|root| root.spawned.project.as_ref().unwrap_or(&root.spawned.workdir).display().to_string())
                .unwrap_or_default(),
            counts,
            limits: root.map(|root| limits(&root.limits)).unwrap_or_default(),
            held_micros: root.map_or(0, |root| root.held.cost_micros),
            last_action: last.0.clone(),
            last_at: last.1,
            questions: tree.open_questions().len() as u64,
            trouble: trouble(tree),
            limit: root.and_then(|root| reached_limit(root, hold)),
            unknown: tree.runs().iter().flat_map(unknown_calls).collect(),
        }
    }

    /// Sums up a tree whose records were pruned.
    pub(crate) fn pruned(envelope: &Envelope) -> Self {
        let mut counts = BTreeMap::new();
        for run in envelope.all() {
            *counts.entry(run.status.name()).or_default() += 1;
        }
        let trouble = envelope.error.as_ref().map(|error| cut(&error.message));
        Self { counts, last_action: "its records were deleted".to_owned(), trouble, ..Self::default() }
    }
}

/// Returns the limits that apply, by their names with units.
pub(crate) fn limits(limits: &Limits) -> BTreeMap<&'static str, u64> {
    let value = |limit: Limit| match limits.cap(limit) {
        Cap::At(value) => Some((limit_key(limit), value)),
        Cap::Default | Cap::Unlimited => None,
    };
    Limit::SETTABLE.into_iter().filter_map(value).collect()
}

fn limit_key(limit: Limit) -> &'static str {
    match limit {
        Limit::Cost => "cost_micros",
        Limit::Wall => "wall_ms",
        Limit::Work => "work_ms",
        other => other.name(),
    }
}

/// Describes a record in a few words; `None` if the action before it says more.
pub(crate) fn action(tree: &RunTree, record: &Record) -> Option<String> {
    let agent = tree.get(record.run).map(|run| run.spawned.agent.name.as_str()).unwrap_or_default();
    let text = match &record.fact {
        Fact::Spawned(_) => format!("{agent} started"),
        Fact::Asked(asked) => format!("{agent} is waiting for {}", asked.model),
        Fact::Replied { reply, .. } => match reply.text().trim() {
            "" => return None,
            text => format!("{agent}: {text}"),
        },
        Fact::AskFailed { failure, .. } => format!("{agent}: {}", failure.error),
        Fact::Called(called) => format!("{agent}: {}", call_words(&called.call)),
        Fact::Returned { .. } => return None,
        Fact::Questioned { question, .. } => format!("{agent} asks: {}", question.text),
        Fact::Answered { by, .. } => format!("{by} answered {agent}"),
        Fact::Told { message, .. } => format!("{agent} was told: {message}"),
        Fact::Halted { .. } => format!("{agent} is stopping"),
        Fact::Compacted { .. } => format!("{agent} summarised its history"),
        Fact::Extended { .. } => format!("the limits of {agent} were raised"),
        Fact::Ended(ended) => format!("{agent} {}", Status::from(&ended.outcome).name().replace('_', " ")),
    };
    Some(cut(&text))
}

/// Returns what is wrong in a tree: the root's own trouble first, then that of the first run below it.
fn trouble(tree: &RunTree) -> Option<String> {
    let of_root = tree.root().and_then(run_trouble);
    let below = || {
        let (run, trouble) = tree.runs().iter().skip(1).find_map(|run| Some((run, run_trouble(run)?)))?;
        Some(format!("{} {}: {trouble}", run.place, run.spawned.agent.name))
    };
    of_root.or_else(below).map(|text| cut(&text))
}

fn run_trouble(run: &Run) -> Option<String> {
    match run.ended.as_ref().map(|ended| &ended.outcome) {
        Some(Outcome::Failed { message, .. }) => Some(message.clone()),
        Some(Outcome::Exhausted(hit) | Outcome::TimedOut(hit)) => Some(format!("the limit of {} is reached", hit.name)),
        Some(Outcome::Done | Outcome::Cancelled { .. }) | None => None,
    }
}

fn reached_limit(root: &Run, hold: Reservation) -> Option<ReachedLimit> {
    let (Outcome::Exhausted(hit) | Outcome::TimedOut(hit)) = &root.ended.as_ref()?.outcome else { return None };
    Some(ReachedLimit {
        name: hit.name.name(),
        limit: hit.limit,
        spent: hit.spent,
        next_call_micros: hold.cost_micros,
        next_call_tokens: hold.tokens,
    })
}

/// Returns the calls of a run that are under way and must not be repeated without knowing their outcome.
fn unknown_calls(run: &Run) -> Vec<UnknownCall> {
    if run.ended.is_some() {
        return Vec::new();
    }
    let calls = run.open_calls();
    let at_risk = calls
        .iter()
        .filter(|state| state.begun == Some(Replay::Unsafe) && !tool_names::is_delegation(&state.call.name));
    let agent = &run.spawned.agent.name;
    at_risk
        .map(|state| UnknownCall { run: run.id, agent: agent.clone(), call: cut(&call_words(&state.call)) })
        .collect()
}

/// Returns a tool and the argument that says most about its call.
fn call_words(call: &ToolCall) -> String {
    let argument = |key: &&str| match &call.args {
        Args::Json(args) => args.get(*key).and_then(Value::as_str),
        Args::Malformed(_) => None,
    };
    let subject = ["command", "path", "url", "query", "pattern", "agent", "task"].iter().find_map(argument);
    format!("{} {}", call.name, subject.unwrap_or_default())
}

/// Makes a text one line of limited length.
pub(crate) fn cut(text: &str) -> String {
    let line = sanitize::inert_line(text.trim());
    if line.chars().count() <= MAX_TEXT {
        return line;
    }
    line.chars().take(MAX_TEXT - 1).chain(['…']).collect()
}
