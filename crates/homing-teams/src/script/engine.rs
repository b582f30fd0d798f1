//! Executes a workflow script in an embedded JavaScript engine that has no files, network, clock or randomness.
//!
//! An execution begins at the beginning of the script and is told how its agents ended, in the recorded order. It ends when the
//! script returns or waits for agents that are still running. So the same endings always lead to the same calls.

use std::{fmt, thread};

use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime, context::EvalOptions, function::IntoArgs};
use serde::Deserialize;
use serde_json::{Value, json};

/// Memory of a script, with the answers of its agents.
const MAX_MEMORY: usize = 256 << 20;
/// Depth of its calls, in bytes of stack.
const MAX_STACK: usize = 1 << 20;
/// Stack of the thread: what the engine may use, and what it needs to report that there is no more.
const THREAD_STACK: usize = 4 << 20;
/// Work of one execution. The engine reports every ten thousand calls, backward jumps or steps of a built-in function, so this
/// depends on the script alone and not on the speed of the machine.
const MAX_WORK: u64 = 3_000;

/// The name of the script in stack traces.
const SCRIPT: &str = "workflow-script";
/// The name of the functions that scripts call, in stack traces.
const PRELUDE: &str = "prelude";
/// The script becomes a function, so that it can wait and return. It stays on its own lines.
const BEFORE: &str = "(async () => {'use strict'; ";
const AFTER: &str = "\n})";

/// One execution of a script.
pub(super) struct Execution<'a> {
    pub(super) source: &'a str,
    pub(super) args: &'a Value,
    /// The token budget; 0 for none.
    pub(super) budget: u64,
    /// Calls whose agents have ended, in the order in which the team learned of it.
    pub(super) endings: &'a [(CallId, AgentEnding)],
}

/// The ending of an agent, as the script sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentEnding {
    pub(super) result: AgentResult,
    /// Tokens that it used.
    pub(super) tokens: u64,
}

/// The result of `agent()`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AgentResult {
    /// Its text, or its data.
    Value(Value),
    /// The run failed: the script gets null.
    Failed(String),
    /// The call was not accepted: it throws.
    Refused(String),
}

/// The state of a script that has ended or waits for agents.
#[derive(Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) state: ScriptState,
    /// The calls that were chosen, with their numbers.
    pub(super) calls: Vec<(usize, AgentCall)>,
}

/// The part of the state that a script's own data consists of.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct ScriptState {
    pub(super) end: Option<ScriptEnd>,
    pub(super) logs: Vec<LogLine>,
    pub(super) failures: Vec<String>,
    pub(super) agents: usize,
}

/// The end of a script.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScriptEnd {
    Value(Value),
    Error(ScriptError),
}

/// A line that the script logged.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct LogLine {
    /// The number of endings that the script knew of.
    pub(super) after: usize,
    pub(super) text: String,
}

/// A call of `agent()` or `workflow()`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct AgentCall {
    pub(super) task: String,
    pub(super) label: String,
    pub(super) phase: Option<String>,
    pub(super) schema: Option<Value>,
    pub(super) agent: Option<String>,
    pub(super) model: Option<String>,
    pub(super) effort: Option<String>,
    pub(super) isolation: Option<String>,
    pub(super) deny: Option<Vec<String>>,
    /// Everything that the answer depends on, as text.
    asked: String,
}

/// The identity of a call: its number, and a fingerprint of what it asks for, so that an answer is never given to another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    pub(super) index: usize,
    fingerprint: u64,
}

impl CallId {
    pub(super) fn new(index: usize, call: &AgentCall) -> Self {
        // FNV-1a: the same in every build, because it is recorded.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self { index, fingerprint: call.asked.bytes().fold(0xcbf2_9ce4_8422_2325, mix) }
    }

    /// The identity from the ID of a recorded job.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (index, fingerprint) = id.strip_prefix("agent/")?.strip_suffix("#0")?.split_once('/')?;
        Some(Self { index: index.parse().ok()?, fingerprint: u64::from_str_radix(fingerprint, 16).ok()? })
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent/{}/{:016x}#0", self.index, self.fingerprint)
    }
}

/// An error of the script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ScriptError {
    message: String,
    stack: String,
}

impl ScriptError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), stack: String::new() }
    }

    /// The message, in plain words if it is about a limit of the engine.
    pub(super) fn message(&self) -> String {
        match self.message.as_str() {
            "InternalError: interrupted" => {
                format!("the script does not end: it did {}0 million steps of work", MAX_WORK / 1_000)
            }
            "InternalError: out of memory" => {
                format!("the script needs more than {} MiB of memory", MAX_MEMORY >> 20)
            }
            other => other.to_owned(),
        }
    }

    /// The line and column in the script, if they are known.
    pub(super) fn position(&self) -> Option<(u32, u32)> {
        let (_, after) = self.stack.split_once(&format!("{SCRIPT}:"))?;
        let mut numbers = after.split(|char: char| !char.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        let (line, column) = (number()?, number()?);
        let before = if line == 1 { u32::try_from(BEFORE.len()).unwrap_or_default() } else { 0 };
        Some((line, column.saturating_sub(before).max(1)))
    }
}

/// Checks that the engine understands the script.
pub(super) fn compile(source: &str) -> Result<(), ScriptError> {
    on_own_stack(|| {
        let engine = Engine::new()?;
        engine.with(|ctx| evaluate::<Function<'_>>(ctx, function(source), SCRIPT).map(drop))
    })
}

/// Executes the script until it has ended or waits. `choose` gets the number of its calls and returns those to report.
pub(super) fn execute(
    execution: &Execution<'_>,
    choose: impl FnOnce(usize) -> Vec<usize> + Send,
) -> Result<Progress, ScriptError> {
    on_own_stack(|| {
        let engine = Engine::new()?;
        let host = engine.start(execution)?;
        let progress = follow(&engine, &host, execution, choose);
        // The engine must outlive every value in it.
        drop(host);
        progress
    })
}

/// The functions of the prelude that the host calls.
type Host = Persistent<Object<'static>>;

fn follow(
    engine: &Engine,
    host: &Host,
    execution: &Execution<'_>,
    choose: impl FnOnce(usize) -> Vec<usize>,
) -> Result<Progress, ScriptError> {
    for (id, ending) in execution.endings {
        let count: usize = engine.call(host, "count", ())?;
        if id.index >= count || CallId::new(id.index, &call(engine, host, id.index)?) != *id {
            let number = id.index + 1;
            let why =
                format!("the script does not repeat its recorded calls: call {number} of agent() is another one now");
            return Err(ScriptError::new(why));
        }
        let () = engine.call(host, "settle", (id.index, ending.json().to_string()))?;
        engine.run_jobs()?;
    }
    let state: String = engine.call(host, "state", ())?;
    let state: ScriptState = serde_json::from_str(&state).map_err(unreadable)?;
    let mut calls = Vec::new();
    for index in choose(state.agents) {
        calls.push((index, call(engine, host, index)?));
    }
    Ok(Progress { state, calls })
}

/// One call of the script.
fn call(engine: &Engine, host: &Host, index: usize) -> Result<AgentCall, ScriptError> {
    let call: String = engine.call(host, "call", (index,))?;
    serde_json::from_str(&call).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> ScriptError {
    ScriptError::new(format!("the state of the script is not readable: {error}"))
}

impl AgentEnding {
    fn json(&self) -> Value {
        let tokens = self.tokens;
        match &self.result {
            AgentResult::Value(value) => json!({"value": value, "tokens": tokens}),
            AgentResult::Failed(why) => json!({"failed": why, "tokens": tokens}),
            AgentResult::Refused(why) => json!({"refused": why, "tokens": tokens}),
        }
    }
}

/// An engine with one context.
struct Engine {
    runtime: Runtime,
    context: Context,
}

impl Engine {
    fn new() -> Result<Self, ScriptError> {
        let failed = |error: rquickjs::Error| ScriptError::new(format!("the script engine does not start: {error}"));
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(MAX_MEMORY);
        runtime.set_max_stack_size(MAX_STACK);
        let mut work = 0;
        runtime.set_interrupt_handler(Some(Box::new(move || {
            work += 1;
            work > MAX_WORK
        })));
        let context = Context::full(&runtime).map_err(failed)?;
        Ok(Self { runtime, context })
    }

    /// Defines the functions that scripts call, and starts the script.
    fn start(&self, execution: &Execution<'_>) -> Result<Host, ScriptError> {
        let host = self.with(|ctx| {
            let prelude: Function<'_> = evaluate(ctx, include_str!("prelude.js").to_owned(), PRELUDE)?;
            let args = execution.args.to_string();
            // JavaScript numbers are exact up to 2^53, far above every budget.
            let host: Object<'_> = checked(ctx, prelude.call((args, execution.budget as f64)))?;
            let script: Function<'_> = evaluate(ctx, function(execution.source), SCRIPT)?;
            let run: Function<'_> = checked(ctx, host.get("run"))?;
            let () = checked(ctx, run.call((script,)))?;
            Ok(Persistent::save(ctx, host))
        })?;
        self.run_jobs().map(|()| host)
    }

    fn with<T>(&self, act: impl FnOnce(&Ctx<'_>) -> Result<T, ScriptError>) -> Result<T, ScriptError> {
        self.context.with(|ctx| act(&ctx))
    }

    /// Calls a function of the prelude.
    fn call<T, A>(&self, host: &Host, name: &str, args: A) -> Result<T, ScriptError>
    where
        T: for<'js> rquickjs::FromJs<'js>,
        A: for<'js> IntoArgs<'js>,
    {
        self.with(|ctx| {
            let host = checked(ctx, host.clone().restore(ctx))?;
            let function: Function<'_> = checked(ctx, host.get(name))?;
            checked(ctx, function.call(args))
        })
    }

    /// Runs what the script does until it waits.
    fn run_jobs(&self) -> Result<(), ScriptError> {
        loop {
            match self.runtime.execute_pending_job() {
                Ok(true) => (),
                Ok(false) => return Ok(()),
                Err(job) => return job.0.with(|ctx| Err(thrown(&ctx))),
            }
        }
    }
}

/// The script as a function. `export` and a `#!` line are not part of a function's body; they leave their places empty. The header
/// gets a semicolon, so that a line which begins with a bracket or a slash does not continue it.
fn function(source: &str) -> String {
    let mut body = source.to_owned();
    if body.starts_with("#!") {
        body.replace_range(..2, "//");
    }
    if let Ok((_, header)) = super::meta::Meta::parse(source) {
        body.insert(header.end, ';');
        body.replace_range(header.start..header.start + "export".len(), "      ");
    }
    format!("{BEFORE}{body}{AFTER}")
}

fn evaluate<'js, T: rquickjs::FromJs<'js>>(ctx: &Ctx<'js>, source: String, name: &str) -> Result<T, ScriptError> {
    let mut options = EvalOptions::default();
    options.filename = Some(name.to_owned());
    checked(ctx, ctx.eval_with_options(source, options))
}

fn checked<T>(ctx: &Ctx<'_>, result: rquickjs::Result<T>) -> Result<T, ScriptError> {
    result.map_err(|error| if error.is_exception() { thrown(ctx) } else { ScriptError::new(error.to_string()) })
}

/// The exception that was thrown.
fn thrown(ctx: &Ctx<'_>) -> ScriptError {
    let caught = ctx.catch();
    let field = |name: &str| caught.as_object().and_then(|error| error.get::<_, String>(name).ok()).unwrap_or_default();
    let (name, message, stack) = (field("name"), field("message"), field("stack"));
    ScriptError { message: format!("{name}: {message}"), stack }
}

/// Runs the engine on a thread of its own: the stack of the caller may be small.
fn on_own_stack<T: Send>(act: impl FnOnce() -> Result<T, ScriptError> + Send) -> Result<T, ScriptError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("workflow script".to_owned()).stack_size(THREAD_STACK);
        let running = thread.spawn_scoped(scope, act);
        let running =
            running.map_err(|error| ScriptError::new(format!("cannot start a thread for the script: {error}")))?;
        running.join().unwrap_or_else(|_| Err(ScriptError::new("the script engine failed")))
    })
}
