//! The program of a team that is a workflow script.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{
    Script, default_agent_name,
    engine::{
        self, AgentCall, AgentEnding, AgentResult, CallId, Execution, Progress, ScriptEnd, ScriptError, ScriptState,
    },
};
use crate::{
    history::{History, JobResult},
    limit_fields::LimitFields,
    program::{DelegateCall, Move, TeamCall, TeamScript, wait_for_any},
    team::Team,
};

/// The most agents of a script that work at the same time; more wait for their turn.
const MAX_CONCURRENT: usize = 16;

/// A script as the program of a team.
pub(crate) struct ScriptProgram {
    script: Script,
    default_agent: String,
    parameters: Map<String, Value>,
    budget: u64,
}

impl ScriptProgram {
    pub(crate) fn new(script: &Script, team: &Team) -> Self {
        Self {
            script: script.clone(),
            default_agent: default_agent_name(&team.name),
            parameters: team.parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            budget: team.limits.max_tokens.unwrap_or_default(),
        }
    }

    /// The value of `args`: the task, as data if it is a JSON object, list or null, with the parameters.
    fn args(&self, task: &str) -> Value {
        let data = serde_json::from_str::<Value>(task).ok();
        let data = data.filter(|data| data.is_object() || data.is_array() || data.is_null());
        let value = data.unwrap_or_else(|| json!(task));
        if self.parameters.is_empty() {
            return value;
        }
        let mut args = self.parameters.clone();
        match value {
            Value::Object(given) => args.extend(given),
            Value::Null => (),
            other => drop(args.insert("task".to_owned(), other)),
        }
        Value::Object(args)
    }

    fn execute(&self, history: &History<'_>, open: usize) -> Result<Progress, ScriptError> {
        let endings: Vec<(CallId, AgentEnding)> =
            history.endings().into_iter().filter_map(|(id, job)| Some((CallId::parse(id)?, ending(job)))).collect();
        let args = self.args(history.own_task);
        let execution = Execution { source: &self.script.source, args: &args, budget: self.budget, endings: &endings };
        let started: HashSet<usize> = history.calls().filter_map(CallId::parse).map(|id| id.index).collect();
        let is_open = |index: &usize| !started.contains(index);
        engine::execute(&execution, |count| (0..count).filter(is_open).take(open).collect())
    }

    fn state(&self, history: &History<'_>) -> ScriptState {
        self.execute(history, 0).map(|progress| progress.state).unwrap_or_default()
    }

    fn call(&self, index: usize, call: &AgentCall) -> TeamCall {
        let delegate = DelegateCall {
            agent: call.agent.as_deref().unwrap_or(&self.default_agent),
            task: call.task.clone(),
            schema: call.schema.as_ref(),
            limits: &LimitFields::default(),
            background: true,
        };
        let mut delegate = delegate.call(CallId::new(index, call).to_string());
        let changes = [
            ("model", call.model.as_ref().map(|model| json!(model))),
            ("effort", call.effort.as_ref().map(|effort| json!(effort))),
            ("isolation", call.isolation.as_ref().map(|isolation| json!(isolation))),
            ("denied", call.deny.as_ref().map(|tools| json!(tools))),
        ];
        let changes: Map<String, Value> =
            changes.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        if !changes.is_empty() {
            delegate.args["changes"] = Value::Object(changes);
        }
        delegate
    }
}

/// The ending of an agent as the script sees it.
fn ending(job: JobResult) -> AgentEnding {
    let tokens = job.tokens;
    let result = match (job.place.is_some(), job.is_done()) {
        (true, true) => AgentResult::Value(job.data.unwrap_or_else(|| json!(job.output))),
        (true, false) => AgentResult::Failed(job.why()),
        (false, _) => AgentResult::Refused(job.why()),
    };
    AgentEnding { result, tokens }
}

/// The lines that the script logged since the last step, and the agents that are started now.
fn words(history: &History<'_>, state: &ScriptState, calls: &[(usize, AgentCall)]) -> String {
    let known = state.logs.iter().map(|line| (line.after, line.text.as_str()));
    let known_before = history.endings().len().saturating_sub(history.new_endings());
    let is_first = history.is_empty();
    let mut lines: Vec<String> = known
        .filter(|(after, _)| is_first || (history.new_endings() > 0 && *after > known_before))
        .map(|(_, text)| text.to_owned())
        .collect();
    if !calls.is_empty() {
        let name = |(_, call): &(usize, AgentCall)| match &call.phase {
            Some(phase) => format!("{phase}: {}", call.label),
            None => call.label.clone(),
        };
        lines.push(format!("Next: {}", calls.iter().map(name).collect::<Vec<_>>().join(", ")));
    }
    lines.join("\n")
}

impl TeamScript for ScriptProgram {
    fn next(&self, history: &History<'_>) -> Move {
        let running = history.running();
        let progress = self.execute(history, MAX_CONCURRENT.saturating_sub(running.len()));
        let fail = |error: &ScriptError| Move::Fail {
            why: format!("{}{}", self.script.at(error.position()), error.message()),
        };
        let Progress { state, calls } = match progress {
            Ok(progress) => progress,
            Err(error) => return fail(&error),
        };
        match &state.end {
            Some(ScriptEnd::Value(value)) => return Move::Answer { text: text(value), data: None },
            Some(ScriptEnd::Error(error)) => return fail(error),
            None => (),
        }
        let words = words(history, &state, &calls);
        if !calls.is_empty() {
            let calls = calls.iter().map(|(index, call)| self.call(*index, call)).collect();
            return Move::Act { words, calls };
        }
        if running.is_empty() {
            let why = format!("{}the script waits for something that never happens", self.script.at(None));
            return Move::Fail { why };
        }
        Move::Act { words, calls: vec![wait_for_any(running)] }
    }

    fn so_far(&self, history: &History<'_>) -> String {
        match self.state(history).end {
            Some(ScriptEnd::Value(value)) => text(&value),
            Some(ScriptEnd::Error(_)) | None => {
                let endings = history.endings();
                let done = endings.iter().filter(|(_, job)| job.is_done()).map(|(_, job)| job.output.as_str());
                done.collect::<Vec<_>>().join("\n\n")
            }
        }
    }

    fn results(&self, history: &History<'_>) -> Value {
        let state = self.state(history);
        let result = match state.end {
            Some(ScriptEnd::Value(value)) => value,
            Some(ScriptEnd::Error(_)) | None => Value::Null,
        };
        let logs: Vec<String> = state.logs.into_iter().map(|line| line.text).collect();
        json!({"result": result, "agents": state.agents, "failures": state.failures, "logs": logs})
    }
}

/// The result of a script as text.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    }
}
