//! The arguments of `delegate`, as models and programs spell them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use homing_core::{
    definition::{AgentDefinition, Isolation, ModelChoice},
    limits::Limits,
    message::Args,
    model::Effort,
    registry::Registry,
    rule::Rule,
    tool_names,
};
use serde::Deserialize;
use serde_json::Value;

use crate::agent_loop::call_record::RefusedCall;

/// The names under which models pass the agent.
const AGENT_KEYS: [&str; 7] = ["agent", "subagent_type", "agent_type", "subagent", "type", "agent_name", "name"];

/// The names under which models pass the task.
const TASK_KEYS: [&str; 5] = ["task", "prompt", "message", "description", "instructions"];

/// The arguments of `delegate`.
pub(super) struct DelegateArgs {
    pub(super) agent: Arc<AgentDefinition>,
    pub(super) task: String,
    pub(super) limits: Limits,
    pub(super) background: bool,
    pub(super) schema: Option<Value>,
    pub(super) context: BTreeMap<String, Value>,
    pub(super) reader: ReportReader,
    /// Milliseconds before the child's first step.
    pub(super) delay_ms: u64,
}

/// The reader of a child's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportReader {
    /// A language model: text with a head line, long answers cut.
    Model,
    /// A program, which asked for `report: "facts"`: the whole answer as text, and a
    /// [`ChildReport`](super::ChildReport) as data.
    Program,
}

impl ReportReader {
    pub(super) fn of(args: &Value) -> Self {
        match args.get("report").and_then(Value::as_str) {
            Some("facts") => Self::Program,
            Some(_) | None => Self::Model,
        }
    }
}

impl DelegateArgs {
    pub(super) fn parse(args: &Value, registry: &Registry) -> Result<Self, RefusedCall> {
        let text = |keys: &[&str]| keys.iter().find_map(|key| args.get(*key)?.as_str()).map(str::trim);
        let name = text(&AGENT_KEYS).ok_or_else(|| {
            let names = registry.offered().map(|agent| agent.definition.name.as_str()).collect::<Vec<_>>().join(", ");
            RefusedCall::mistake(format!("`agent` is missing; there are: {names}"))
        })?;
        let task = text(&TASK_KEYS).filter(|task| !task.is_empty());
        let task = task.ok_or_else(|| RefusedCall::mistake("`task` is missing: describe what the agent must do"))?;
        let agent = registry.get(name).map_err(|mut unknown| {
            unknown.known = registry.offered().map(|agent| agent.definition.name.clone()).collect();
            RefusedCall::mistake(unknown.to_string())
        })?;
        let agent = agent.clone();
        let background = args.get("background").or_else(|| args.get("run_in_background")).and_then(Value::as_bool);
        let context = args.get("context").and_then(Value::as_object).cloned().unwrap_or_default();
        Ok(Self {
            task: task.to_owned(),
            limits: child_limits(args, &agent)?,
            background: background.unwrap_or(agent.execution.background),
            schema: args.get("schema").filter(|schema| schema.is_object()).cloned(),
            context: context.into_iter().collect(),
            reader: ReportReader::of(args),
            delay_ms: 0,
            agent,
        })
    }
}

/// The changes to an agent that a program makes for one call. They are part of the definition that is recorded for the run.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgentChanges {
    /// Model to use.
    model: Option<String>,
    /// Reasoning effort.
    effort: Option<Effort>,
    /// Isolation of its files.
    isolation: Option<Isolation>,
    /// Tools that it may not use.
    denied: Vec<String>,
}

impl DelegateArgs {
    /// Applies what only programs may ask for in a call: a delay, and changes to the agent.
    pub(super) fn read_program(&mut self, args: &Value) -> Result<(), RefusedCall> {
        self.delay_ms = args.get("delay_ms").and_then(Value::as_u64).unwrap_or(0);
        let Some(changes) = args.get("changes") else { return Ok(()) };
        let changes = AgentChanges::deserialize(changes);
        let changes = changes.map_err(|error| RefusedCall::mistake(format!("`changes`: {error}")))?;
        let agent = Arc::make_mut(&mut self.agent);
        if let Some(model) = changes.model {
            agent.model.choice = ModelChoice::Named(vec![model]);
        }
        agent.model.effort = changes.effort.or(agent.model.effort);
        agent.execution.isolation = changes.isolation.unwrap_or(agent.execution.isolation);
        let denied = changes.denied.iter().map(|tool| Rule::tool(tool_names::canonical(tool).unwrap_or(tool)));
        agent.tools.denied.extend(denied);
        Ok(())
    }
}

/// The name of the agent that a call delegates to, if the arguments name one.
pub(crate) fn agent_name(args: &Args, registry: &Registry) -> Option<String> {
    let Args::Json(args) = args else { return None };
    let name = AGENT_KEYS.iter().find_map(|key| args.get(*key)?.as_str())?;
    Some(registry.get(name.trim()).ok()?.name.clone())
}

/// The limits that the caller sets for this one child: they narrow those of the agent's definition, and never widen
/// them.
fn child_limits(args: &Value, agent: &AgentDefinition) -> Result<Limits, RefusedCall> {
    let limits = match args.get("limits").filter(|limits| !limits.is_null()) {
        None => Limits::default(),
        Some(limits) => {
            let limits = serde_json::from_value::<Limits>(limits.clone());
            limits.map_err(|error| RefusedCall::mistake(format!("`limits`: {error}")))?.tighter(agent.limits)
        }
    };
    let Some(seconds) = args.get("timeout").and_then(Value::as_f64) else { return Ok(limits) };
    let valid = seconds.is_finite() && seconds > 0.0;
    if !valid {
        return Err(RefusedCall::mistake("`timeout` must be a number of seconds above 0"));
    }
    Ok(limits.wall(Duration::from_secs_f64(seconds.min(1e9))))
}
