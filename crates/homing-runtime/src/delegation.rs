//! The calls through which a run reaches other runs: delegate, wait, tell, cancel.

pub(crate) mod child_report;
use std::{collections::BTreeMap, sync::Arc};

use futures::future::try_join_all;
use homing_core::{
    authority::Decision,
    definition::{AgentDefinition, OnFailure},
    fact::{CallRefusal, CancelledBy, Ended, Fact, Outcome},
    limits::Limits,
    registry::Registry,
    rule::{Subject, Subjects},
    run::{CallState, Step},
    tool::{Replay, ToolOutput, ToolSpec},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    agent_loop::{
        Children, Interrupt,
        run_driver::RunDriver,
        tool_call::{Refused, result},
    },
    runtime::{SpawnError, SpawnOrder},
};

/// What `delegate` was asked to do.
struct Delegation {
    agent: Arc<AgentDefinition>,
    task: String,
    limits: Limits,
    background: bool,
    schema: Option<Value>,
    context: BTreeMap<String, Value>,
    reader: DelegateArgs,
}

/// Who reads what comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DelegateArgs {
    /// A language model: words with a head line, long answers cut.
    Model,
    /// A program, which asked for `report: "facts"`: the whole answer as text, and facts by name as data.
    Program,
}

impl DelegateArgs {
    fn of(args: &Value) -> Self {
        match args.get("report").and_then(Value::as_str) {
            Some("facts") => Self::Program,
            Some(_) | None => Self::Model,
        }
    }
}

impl Children for RunDriver {
    async fn family(&self, calls: Vec<CallState>) -> Result<(), Interrupt> {
        try_join_all(calls.into_iter().map(|state| self.relate(state))).await?;
        Ok(())
    }

    async fn news(&self) -> Result<(), Interrupt> {
        let heard = self.cell.wake.notified();
        match self.run(|run| run.next_step()) {
            Step::Await => self.waiting(heard).await,
            Step::Ask { .. } | Step::Act(_) | Step::Verify { .. } | Step::Supersede { .. } | Step::Stop(_) => Ok(()),
        }
    }
}

impl RunDriver {
    async fn relate(&self, state: CallState) -> Result<(), Interrupt> {
        let (name, args) = match self.find(&state) {
            Ok(found) => found,
            Err(refused) => return self.refuse(&state, &state.call.name, refused),
        };
        let done = match name.as_str() {
            "delegate" => self.delegate(&state, &args).await?,
            "wait" => self.wait(&state, &args).await?,
            "tell" => self.tell(&state, &args).await?,
            _ => self.cancel(&state, &args).await?,
        };
        match done {
            Ok(output) => {
                // A program is not asked to make do: what ended its member for want of its own means ends it, too.
                let is_program = DelegateArgs::of(&args) == DelegateArgs::Program;
                let facts = output.data.as_ref().filter(|_| is_program);
                let refused =
                    facts.and_then(|facts| child_report::own_limit(&self.cell.place, facts)).map(CallRefusal::Limit);
                let result = result(&state, name, output);
                self.record(Fact::Returned { key: state.key, result, refused });
                Ok(())
            }
            Err(refused) => self.refuse(&state, &name, refused),
        }
    }

    async fn delegate(&self, state: &CallState, args: &Value) -> Result<Result<ToolOutput, Refused>, Interrupt> {
        let delegation = match self.delegation(args) {
            Ok(delegation) => delegation,
            Err(refused) => return Ok(Err(refused)),
        };
        let allowed_by = match self.may_delegate(&delegation.agent.name) {
            Ok(by) => by,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = self.begin(state, "delegate", args, Replay::Keyed, allowed_by).await? {
            return Ok(Err(refused));
        }
        loop {
            let (last, sent) = self.book.look(|tree| {
                let mut runs = tree.spawned_by(state.key);
                (runs.next_back().map(|run| run.id), tree.spawned_by(state.key).count())
            });
            let child = match last {
                Some(child) => child,
                None => match self.send_out(state, &delegation).await? {
                    Ok(child) => child,
                    Err(error) => return Ok(not_delegated(error, delegation.reader)),
                },
            };
            if delegation.background {
                return Ok(Ok(self.sent_out(child, delegation.reader)));
            }
            let ended = self.come_back(child).await?;
            match (&ended.outcome, delegation.agent.on_failure) {
                (Outcome::Failed { .. }, OnFailure::Retry(times)) if sent.max(1) <= times as usize => {
                    if let Err(error) = self.send_out(state, &delegation).await? {
                        return Ok(not_delegated(error, delegation.reader));
                    }
                }
                (Outcome::Failed { .. }, OnFailure::Skip) if delegation.reader == DelegateArgs::Model => {
                    let text = format!("[{}: skipped, it failed]", delegation.agent.name);
                    return Ok(Ok(ToolOutput::text(text)));
                }
                _ => return Ok(Ok(self.told_of(child, &ended, delegation.reader))),
            }
        }
    }

    fn delegation(&self, args: &Value) -> Result<Delegation, Refused> {
        let text = |names: &[&str]| names.iter().find_map(|name| args.get(*name)?.as_str()).map(str::trim);
        let name = text(&["agent", "subagent_type", "agent_type", "subagent", "type", "agent_name", "name"]);
        let task = text(&["task", "prompt", "message", "description", "instructions"]).filter(|it| !it.is_empty());
        let registry = &self.inner.parts.registry;
        let name = name.ok_or_else(|| Refused::mistake(format!("`agent` is missing; {}", known(registry))))?;
        let task = task.ok_or_else(|| Refused::mistake("`task` is missing: say what is to be done"))?;
        let agent = registry.get(name).map_err(|unknown| Refused::mistake(unknown.to_string()))?.clone();
        let mut limits = own_limits(args, &agent)?;
        if let Some(seconds) = args.get("timeout").and_then(Value::as_f64) {
            let valid = seconds.is_finite() && seconds > 0.0;
            if !valid {
                return Err(Refused::mistake("`timeout` must be a number of seconds above 0"));
            }
            limits = limits.wall(std::time::Duration::from_secs_f64(seconds.min(1e9)));
        }
        let background = args.get("background").or_else(|| args.get("run_in_background")).and_then(Value::as_bool);
        let background = background.unwrap_or(agent.background);
        let schema = args.get("schema").filter(|schema| schema.is_object()).cloned();
        let context = args.get("context").and_then(Value::as_object).cloned().unwrap_or_default();
        let (context, reader) = (context.into_iter().collect(), DelegateArgs::of(args));
        Ok(Delegation { background, agent, task: task.to_owned(), limits, schema, context, reader })
    }

    fn may_delegate(&self, agent: &str) -> Result<String, Refused> {
        let subjects = Subjects::Parts(vec![Subject::Name(agent.to_owned())]);
        match self.run(|run| run.spawned.authority.own.decide("delegate", &subjects)) {
            Decision::Allow { by } | Decision::Ask { by } => Ok(by),
            Decision::Deny { why } => Err(Refused::denied(why)),
        }
    }

    /// Spawns a child.
    async fn send_out(
        &self,
        state: &CallState,
        delegation: &Delegation,
    ) -> Result<Result<Uuid, SpawnError>, Interrupt> {
        let order = SpawnOrder {
            agent: delegation.agent.clone(),
            text: delegation.task.clone(),
            limits: delegation.limits,
            call: Some(state.key),
            continues: None,
            background: delegation.background,
            schema: delegation.schema.clone(),
            context: delegation.context.clone(),
        };
        match self.inner.spawn_child(&self.book, self.cell.run, order).await {
            Ok((child, commit)) => {
                drop(commit);
                Ok(Ok(child))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    fn sent_out(&self, child: Uuid, reader: DelegateArgs) -> ToolOutput {
        let (agent, place) = self.book.look_at(child, |run| (run.spawned.agent.name.clone(), run.place.clone()));
        let text =
            format!("[{agent} · run {place} · started in the background; its result will be told to you when it ends]");
        // The child may have ended by now; the program learns that by waiting, as it does in every other case.
        let facts = json!({"run": child, "place": place.to_string(), "agent": agent, "status": "running"});
        ToolOutput { data: (reader == DelegateArgs::Program).then_some(facts), ..ToolOutput::text(text) }
    }

    /// Waits for a child, holding nothing.
    async fn come_back(&self, child: Uuid) -> Result<Arc<Ended>, Interrupt> {
        if let Some(cell) = self.book.cell(child) {
            self.waiting(cell.over.cancelled()).await?;
        }
        let ended = self.book.look_at(child, |run| run.ended.clone());
        ended.ok_or(Interrupt::Stopped)
    }

    fn told_of(&self, child: Uuid, ended: &Ended, reader: DelegateArgs) -> ToolOutput {
        let settings = &self.inner.parts.settings;
        let (text, data) = self.book.look_at(child, |run| match reader {
            DelegateArgs::Model => (child_report::of_child(run, ended, settings), ended.data.clone()),
            DelegateArgs::Program => (ended.text.clone(), Some(child_report::facts(run))),
        });
        ToolOutput { text, data, is_error: !ended.outcome.is_done(), ..ToolOutput::default() }
    }

    async fn wait(&self, state: &CallState, args: &Value) -> Result<Result<ToolOutput, Refused>, Interrupt> {
        let runs = match args.get("runs") {
            None | Some(Value::Null) => self.open_background(),
            Some(names) => {
                let names = names.as_array().cloned().unwrap_or_else(|| vec![names.clone()]);
                match names.iter().map(|name| self.descendant(name)).collect() {
                    Ok(runs) => runs,
                    Err(refused) => return Ok(Err(refused)),
                }
            }
        };
        if let Err(refused) = self.begin(state, "wait", args, Replay::Safe, "own descendants".to_owned()).await? {
            return Ok(Err(refused));
        }
        let any = args.get("any").and_then(Value::as_bool).unwrap_or(false);
        let homes: Vec<_> = runs.iter().filter_map(|run| self.book.cell(*run)).collect();
        if any && homes.len() == runs.len() && !homes.is_empty() {
            let first = futures::future::select_all(homes.iter().map(|cell| Box::pin(cell.over.cancelled())));
            self.waiting(first).await?;
        } else if !any {
            for cell in &homes {
                self.waiting(cell.over.cancelled()).await?;
            }
        }
        let line = |run: &Uuid| {
            self.book.look_at(*run, |run| {
                let how =
                    run.ended.as_ref().map_or_else(|| "still running".to_owned(), |it| child_report::how(&it.outcome));
                format!("{} {}: {how}", run.place, run.spawned.agent.name)
            })
        };
        let lines: Vec<String> = runs.iter().map(line).collect();
        let text = if lines.is_empty() { "there are no open background runs".to_owned() } else { lines.join("\n") };
        let over =
            |run: &Uuid| self.book.look_at(*run, |it| it.ended.is_some().then(|| child_report::facts_and_answer(it)));
        let data = (DelegateArgs::of(args) == DelegateArgs::Program)
            .then(|| json!({"runs": runs.iter().filter_map(over).collect::<Vec<_>>()}));
        Ok(Ok(ToolOutput { data, ..ToolOutput::text(text) }))
    }

    fn open_background(&self) -> Vec<Uuid> {
        self.book.look(|tree| {
            let open = |run: &&homing_core::run::Run| run.spawned.background && run.ended.is_none();
            tree.get(self.cell.run)
                .map_or_else(Vec::new, |run| tree.children(run).filter(open).map(|it| it.id).collect())
        })
    }

    /// A run below this one, by place or by the beginning of its id.
    fn descendant(&self, name: &Value) -> Result<Uuid, Refused> {
        let name = name.as_str().unwrap_or_default().trim().to_owned();
        self.book.look(|tree| {
            let named = |run: &&homing_core::run::Run| {
                run.place.to_string() == name || (name.len() >= 4 && run.id.to_string().starts_with(&name))
            };
            let mut below = tree.runs().iter().filter(|run| tree.is_below(run.id, self.cell.run));
            below.find(named).map(|run| run.id).ok_or_else(|| {
                Refused::mistake(format!("there is no run `{name}` below this one; name it by its place, such as 1.2"))
            })
        })
    }

    async fn tell(&self, state: &CallState, args: &Value) -> Result<Result<ToolOutput, Refused>, Interrupt> {
        let message = args.get("message").or_else(|| args.get("text")).and_then(Value::as_str).unwrap_or_default();
        let run = match self.descendant(args.get("run").unwrap_or(&Value::Null)) {
            Ok(run) if message.trim().is_empty() => {
                let _ = run;
                return Ok(Err(Refused::mistake("`message` is missing")));
            }
            Ok(run) => run,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = self.begin(state, "tell", args, Replay::Keyed, "own descendants".to_owned()).await? {
            return Ok(Err(refused));
        }
        if state.begun.is_none() && self.inner.tell(&self.book, run, Some(self.cell.run), message) {
            return Ok(Ok(ToolOutput::text("told; it will read it after its present step")));
        }
        // An ended run is continued by a new one.
        let sent = self.book.look(|tree| tree.spawned_by(state.key).next_back().map(|run| run.id));
        let child = match sent {
            Some(child) => child,
            None => match self.inner.continue_run(&self.book, self.cell.run, run, message, state.key).await {
                Ok(child) => child,
                Err(error) => return Ok(Ok(ToolOutput::error(format!("not continued: {error}")))),
            },
        };
        let ended = self.come_back(child).await?;
        Ok(Ok(self.told_of(child, &ended, DelegateArgs::of(args))))
    }

    async fn cancel(&self, state: &CallState, args: &Value) -> Result<Result<ToolOutput, Refused>, Interrupt> {
        let run = match self.descendant(args.get("run").unwrap_or(&Value::Null)) {
            Ok(run) => run,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = self.begin(state, "cancel", args, Replay::Safe, "own descendants".to_owned()).await? {
            return Ok(Err(refused));
        }
        self.halt(run, CancelledBy::Parent);
        let ended = self.come_back(run).await?;
        Ok(Ok(ToolOutput { is_error: false, ..self.told_of(run, &ended, DelegateArgs::of(args)) }))
    }
}

/// A model reads why and makes do; a program that has reached a limit comes to its end.
fn not_delegated(error: SpawnError, reader: DelegateArgs) -> Result<ToolOutput, Refused> {
    let text = format!("not delegated: {error}");
    match (error, reader) {
        (SpawnError::Limit(hit), DelegateArgs::Program) => Err(Refused { why: CallRefusal::Limit(hit), text }),
        _ => Ok(ToolOutput::error(text)),
    }
}

/// Limits that the caller sets for this one child: they narrow what the agent's definition says, never widen it.
fn own_limits(args: &Value, agent: &AgentDefinition) -> Result<Limits, Refused> {
    let Some(wanted) = args.get("limits").filter(|limits| !limits.is_null()) else { return Ok(Limits::default()) };
    let limits: Limits =
        serde_json::from_value(wanted.clone()).map_err(|error| Refused::mistake(format!("`limits`: {error}")))?;
    Ok(limits.tighter(agent.limits))
}

fn known(registry: &Registry) -> String {
    format!("there are: {}", registry.names().collect::<Vec<_>>().join(", "))
}

/// The faces of the family, for a run that may delegate to these agents.
pub(crate) fn specs<'a>(agents: impl Iterator<Item = &'a AgentDefinition>) -> Vec<ToolSpec> {
    let (mut names, mut lines) = (Vec::new(), String::new());
    for agent in agents {
        names.push(agent.name.clone());
        lines.push_str(&format!("\n- {}: {}", agent.name, brief(&agent.description)));
    }
    if names.is_empty() {
        return Vec::new();
    }
    let delegate = format!(
        "Hands a task to another agent, which works on its own and comes back with its answer. Several calls in one reply \
         work in parallel. The agent knows nothing of this conversation: put everything it needs into the task, and say \
         what it is to report.\n\nAgents:{lines}"
    );
    let run = json!({"type": "string", "description": "Place of a run you sent out, such as 1.2"});
    vec![
        spec(
            "delegate",
            delegate,
            Replay::Keyed,
            &["agent", "task"],
            json!({
                "agent": {"type": "string", "enum": names, "description": "Who is to do it"},
                "task": {"type": "string", "description": "What is to be done, complete in itself"},
                "timeout": {"type": "number", "description": "Seconds it may take"},
                "background": {"type": "boolean", "description": "Go on at once; the result is told to you later"},
            }),
        ),
        spec(
            "wait",
            "Waits for background runs. Their results are told to you when they end.".into(),
            Replay::Safe,
            &[],
            json!({
                "runs": {"type": "array", "items": run, "description": "Which; all by default"},
                "any": {"type": "boolean", "description": "Return when the first of them has ended"},
            }),
        ),
        spec(
            "tell",
            "Tells a run you sent out something more. An ended run goes on with it and answers again.".into(),
            Replay::Keyed,
            &["run", "message"],
            json!({"run": run, "message": {"type": "string"}}),
        ),
        spec(
            "cancel",
            "Stops a run you sent out and returns what it had.".into(),
            Replay::Safe,
            &["run"],
            json!({"run": run}),
        ),
    ]
}

fn spec(name: &str, description: String, replay: Replay, required: &[&str], properties: Value) -> ToolSpec {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolSpec { name: name.to_owned(), description, schema, replay, effect: homing_core::tool::Effect::Delegates }
}

/// The first sentences: descriptions in the wild are pages long, and every run pays for them at every turn.
fn brief(description: &str) -> String {
    let line = description.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    match line.len() > 400 {
        true => format!("{}…", &line[..line.floor_char_boundary(400)]),
        false => line,
    }
}
