//! `homing run`: runs an agent on a task.

use std::{
    cell::OnceCell,
    fs,
    io::{IsTerminal, Read, stdin},
    path::Path,
    sync::Arc,
};

use homing::{Cached, Claim, Envelope, Keep, RunHandle, Submission, Task};
use homing_core::{
    authority::{Allow, Sandbox},
    definition::AgentDefinition,
    fact::Record,
    limits::Limits,
    rule::Rule,
    tool::ToolSpec,
    tool_names,
    tree::RunTree,
};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::{Cassette, CassetteReplay, SqliteJournal, begin_close};
use serde_json::Value;
use uuid::Uuid;

use self::skill_task::skill_task;
use crate::{
    cli::run::{DEFAULT_AGENT, RunArgs, WithArgs},
    commands::on_restate::{self, RemoteTask},
    exit::{Exit, Trouble, TroubleKind},
    print_result,
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::{Show, WatchResult, watch, watch_with},
};

pub(crate) mod attach;
mod detach;
mod keyed;
pub(crate) mod plan;
pub(crate) mod skill_task;

/// Maximum size of a task in bytes.
const MAX_TASK: usize = 4 * 1024 * 1024;

/// The journal of a run that has ended, while it is being closed.
pub(crate) type Closing = OnceCell<Arc<SqliteJournal>>;

/// Runs an agent, and leaves its journal in `closing`.
pub(crate) async fn run(args: &RunArgs, telemetry: Option<Telemetry>, closing: &Closing) -> anyhow::Result<Exit> {
    if args.background.detach {
        return detach::start(args);
    }
    let (given, args) = (args, &detach::in_background(args)?);
    let text = task_text(&args.input.task)?;
    // Signals are handled from here on.
    let mut signals = Signals::new()?;
    let replay = args.recording.replay.as_deref().map(read_cassette).transpose()?;
    let needs_journal = args.recording.record.is_some() || args.key.is_some() || args.background.detached;
    // A replay costs nothing and happened before, so it is not exported.
    let telemetry = telemetry.filter(|_| replay.is_none());
    let request = SessionRequest {
        agent: Some(&args.agent),
        plugins: args.plugin.clone(),
        replay: replay.clone(),
        needs_journal,
        closes_after_run: true,
        telemetry,
        ..SessionRequest::default()
    };
    let session = Session::open(&args.with, request).await?;
    let is_remote = args.input.place.is_remote(&session.config.user.restate);
    if is_remote {
        on_restate::refuse_run_options(given)?;
    }
    let task = task(args, text, &session, replay.is_some()).await?;
    check_flags(args, &session, &task).await?;
    if args.plan {
        return plan::show(&session, task, args.output.json);
    }
    // For other agents the plan is left out: spawning makes the same checks, and spends nothing if they fail.
    if is_remote || may_have_only_servers(&session, &task) {
        servers_must_be_approved(&session, &task)?;
    }
    let show = detach::show(args);
    let result = if is_remote {
        run_remote(args, &session, task, show, &mut signals).await?
    } else if args.cache {
        match session.homing.spawn_cached(task).await.map_err(Trouble::from)? {
            Cached::Now(run, keep) => watch_and_keep(&session, &run, keep, show, &mut signals).await,
            Cached::Before(envelope) => return Ok(print_cached(args, &envelope)),
        }
    } else {
        let mut announce = detach::announcer(args);
        follow(&session, task, args.key.clone(), show, &mut signals, &mut |record| announce(record)).await?
    };
    if let Some(path) = &args.recording.record {
        record(&session, result.envelope.run, path)?;
    }
    close_journal(&session, closing);
    print_result::print_watched(&result, args.output.form(), session.homing.journal().is_some());
    if let Some(replay) = replay {
        print_divergences(&replay);
    }
    Ok(result.exit())
}

/// Begins to close the journal, while the result is printed and everything else is dropped.
fn close_journal(session: &Session, closing: &Closing) {
    if let Some(journal) = session.homing.journal() {
        begin_close(journal);
        let _ = closing.set(journal.clone());
    }
}

/// Runs a task on workers.
async fn run_remote(
    args: &RunArgs,
    session: &Session,
    task: Task,
    show: Show,
    signals: &mut Signals,
) -> anyhow::Result<WatchResult> {
    let remote = RemoteTask { task, place: &args.input.place, key: args.key.clone(), show };
    let mut announce = detach::announcer(args);
    let mut on_record = |_: &RunTree, record: &Record| {
        announce(record);
        None
    };
    on_restate::run(remote, session, signals, &mut on_record).await
}

/// Follows a run to its end and stores its result for later runs.
async fn watch_and_keep(
    session: &Session,
    run: &RunHandle,
    keep: Keep,
    show: Show,
    signals: &mut Signals,
) -> WatchResult {
    let result = watch(&session.homing, run, show, &session.prompt, signals).await;
    if result.signal.is_none()
        && let Err(error) = keep.keep().await
    {
        terminal::say(&format!("warning: cannot store the result for later runs: {error}"));
    }
    result
}

/// Prints the recorded result of an earlier run.
fn print_cached(args: &RunArgs, envelope: &Envelope) -> Exit {
    terminal::say(&format!("cached result of run {}; no model was called", envelope.run));
    print_result::print_result(envelope, args.output.form(), true);
    Exit::of(envelope)
}

/// Checks what `--strict` and `--until` require.
async fn check_flags(args: &RunArgs, session: &Session, task: &Task) -> Result<(), Trouble> {
    if args.with.strict {
        plan_has_no_warnings(session, task)?;
    }
    if args.until.is_some() {
        sandbox_must_work(session, &args.with).await?;
    }
    Ok(())
}

/// Fails with the first warning about a run.
fn plan_has_no_warnings(session: &Session, task: &Task) -> Result<(), Trouble> {
    let (spawned, _) = session.homing.runtime().plan(task.clone())?;
    match spawned.warnings.first() {
        Some(first) => Err(Trouble::config(format!("{first} (--strict)"))),
        None => Ok(()),
    }
}

/// Returns whether all tools of the agent may belong to MCP servers.
fn may_have_only_servers(session: &Session, task: &Task) -> bool {
    session.homing.registry().get(&task.agent).map_or(true, |agent| only_servers(agent).is_some())
}

/// Returns the rules of an agent that lists tools of MCP servers and no others.
fn only_servers(agent: &AgentDefinition) -> Option<&[Rule]> {
    match &agent.tools.allowed {
        Allow::Only(rules) if !rules.is_empty() && rules.iter().all(|rule| rule.tool.starts_with("mcp__")) => {
            Some(rules)
        }
        Allow::Only(_) | Allow::All => None,
    }
}

/// Fails before anything is spent if an agent has only tools of MCP servers, and none of them is available. The warnings above
/// it name the servers that are not approved.
fn servers_must_be_approved(session: &Session, task: &Task) -> Result<(), Trouble> {
    let (spawned, tools) = session.homing.runtime().plan(task.clone())?;
    let is_left = |spec: &ToolSpec| !tool_names::is_answer_or_search(&spec.name);
    let agent = &spawned.agent;
    let Some(rules) = only_servers(agent).filter(|_| !tools.iter().any(is_left)) else { return Ok(()) };
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    let message = format!(
        "agent {} has no tools: it lists only tools of MCP servers, and none is available: {}",
        agent.name,
        rules.join(", ")
    );
    Err(Trouble::new(TroubleKind::Refused, message)
        .hint("approve the server with `homing trust --server NAME`, after `homing trust` if a project defines it"))
}

/// Fails before anything is spent if commands cannot run.
async fn sandbox_must_work(session: &Session, with: &WithArgs) -> Result<(), Trouble> {
    if session.config.sandbox(with.sandbox.map(Into::into)) == Sandbox::Off {
        return Ok(());
    }
    let setup = homing::CodingSetup::from_env(&crate::session::working_folder(with.cwd.as_deref())?);
    let found = super::doctor::sandboxes(&setup).await;
    match found.as_ref().map(|sandboxes| (sandboxes.best().is_some(), sandboxes.why_not())) {
        Some((true, _)) => Ok(()),
        Some((false, why)) => {
            Err(Trouble::new(TroubleKind::Refused, format!("--until needs a sandbox, and none is available: {why}"))
                .hint("`homing doctor` shows more; run commands unconfined with --sandbox off"))
        }
        None => Err(Trouble::new(TroubleKind::Refused, "--until needs a sandbox: cannot locate the homing executable")),
    }
}

/// A run of this process, or one of another process with the same key.
enum Started {
    Here(RunHandle),
    Elsewhere(Uuid),
}

async fn submit(session: &Session, task: Task, key: Option<String>) -> anyhow::Result<Started> {
    let Some(key) = key else {
        return Ok(Started::Here(session.homing.spawn(task).map_err(Trouble::from)?));
    };
    Ok(match session.homing.runtime().submit(key, task).await.map_err(Trouble::from)? {
        Submission::New(run) => Started::Here(run),
        Submission::Earlier(tree) => match session.resume(tree, Claim::IfGone, Limits::default()).await {
            // Its process is gone or it ended: resuming repeats nothing that was paid for.
            Ok(run) => Started::Here(run),
            Err(homing::SpawnError::Journal(homing::JournalError::Owned { .. })) => Started::Elsewhere(tree),
            Err(error) => return Err(Trouble::from(error).into()),
        },
    })
}

/// Starts a task, or finds the run with its key, and watches it until it ends. `on_record` is called with every record of a
/// run of this process.
pub(crate) async fn follow(
    session: &Session,
    task: Task,
    key: Option<String>,
    show: Show,
    signals: &mut Signals,
    on_record: &mut dyn FnMut(&Record),
) -> anyhow::Result<WatchResult> {
    match submit(session, task, key).await? {
        Started::Here(run) => Ok(watch_with(&session.homing, &run, show, &session.prompt, signals, on_record).await),
        Started::Elsewhere(tree) => keyed::attach(session, tree, signals).await,
    }
}

async fn task(args: &RunArgs, text: String, session: &Session, is_replay: bool) -> Result<Task, Trouble> {
    let skill = skill_task(&text, session)?;
    let (text, skill, skill_agent, skill_model) = match skill {
        Some(skill) => (skill.text, Some(skill.name), skill.agent, skill.model),
        None => (text, None, None, None),
    };
    let named = skill_agent.filter(|_| args.agent == DEFAULT_AGENT);
    let agent = &session.agent(named.as_deref().unwrap_or(&args.agent))?.definition;
    if text.trim().is_empty() && agent.task.initial_prompt.is_none() {
        return Err(homing::SpawnError::EmptyTask.into());
    }
    if !is_replay {
        // JSON is read by programs, which must not take a keyword search for a model's answer.
        let person_reads = !args.output.json && !args.output.events;
        session.choose_model(agent, person_reads).await?;
    }
    let mut task = session.bounded(Task::new(agent.name.clone(), text), args.limits.limits());
    // The model of a team is its program; the model that the user names is that of its members.
    task.model = session.model.clone().or(skill_model).filter(|_| !is_replay && !homing_teams::is_team_agent(agent));
    task.skill = skill;
    task.schema = args.schema.as_deref().map(schema).transpose()?;
    task.until.clone_from(&args.until);
    task.account.clone_from(&args.with.account);
    task.tags = args.tags.iter().cloned().collect();
    crate::telemetry::add_trace(&mut task);
    task.context = args.set.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect();
    attach::attach(task, args, session)
}

pub(crate) fn schema(path: &Path) -> Result<Value, Trouble> {
    let wrong = |what: String| Trouble::config(format!("--schema {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("not valid JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(wrong("a JSON schema must be an object".to_owned())) }
}

/// Returns the task: the arguments, standard input, or the arguments followed by piped input.
pub(crate) fn task_text(args: &[String]) -> Result<String, Trouble> {
    let is_dash = matches!(args, [one] if one == "-");
    let text = args.join(" ");
    let text = match (is_dash, args.is_empty()) {
        (true, _) => piped_text()?,
        (false, true) if !stdin().is_terminal() => piped_text()?,
        (false, true) => String::new(),
        (false, false) if is_piped() => {
            let input = read_input()?;
            let input = String::from_utf8_lossy(&input);
            if input.contains('\u{fffd}') {
                terminal::say("warning: standard input is not valid UTF-8; invalid bytes were replaced by �");
            }
            if input.trim().is_empty() { text } else { format!("{text}\n\n{}", input.trim_end()) }
        }
        (false, false) => text,
    };
    match text.len() {
        0..=MAX_TASK => Ok(text),
        much => Err(Trouble::usage(format!("the task is too large: {:.1} MB", much as f64 / 1e6))
            .hint("put it into a file and name the file in the task")),
    }
}

fn piped_text() -> Result<String, Trouble> {
    String::from_utf8(read_input()?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Trouble::usage(format!("standard input is not valid UTF-8 (at byte {at})"))
    })
}

/// Returns whether standard input is a pipe or a file, not a device.
fn is_piped() -> bool {
    use std::os::{fd::AsFd, unix::fs::FileTypeExt};
    let Ok(stdin) = stdin().as_fd().try_clone_to_owned() else { return false };
    fs::File::from(stdin).metadata().is_ok_and(|metadata| metadata.file_type().is_fifo() || metadata.is_file())
}

fn read_input() -> Result<Vec<u8>, Trouble> {
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let hint = std::thread::spawn(move || {
        if waiting.recv_timeout(std::time::Duration::from_secs(1)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            terminal::say("reading standard input… (redirect it with </dev/null if there is none)");
        }
    });
    let mut bytes = Vec::new();
    let read = stdin().lock().take(MAX_TASK as u64 * 4).read_to_end(&mut bytes);
    drop(done);
    let _ = hint.join();
    read.map_err(|error| Trouble::usage(format!("cannot read standard input: {error}")))?;
    Ok(bytes)
}

fn read_cassette(path: &Path) -> Result<Arc<CassetteReplay>, Trouble> {
    let wrong = |what: String| Trouble::config(format!("--replay {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let cassette = Cassette::read(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(CassetteReplay::new(&cassette))
}

/// Writes the run tree as a cassette, with providers' keys removed.
fn record(session: &Session, tree: Uuid, path: &Path) -> Result<(), Trouble> {
    let wrong = |what: String| Trouble::config(format!("--record {}: {what}", path.display()));
    let journal = session.homing.journal().ok_or_else(crate::session::no_journal)?;
    let cassette = journal.cassette(tree).map_err(|error| wrong(error.to_string()))?;
    let text = cassette.write(&session.redactor()).map_err(|error| wrong(error.to_string()))?;
    fs::write(path, text).map_err(|error| wrong(error.to_string()))
}

pub(crate) fn print_divergences(replay: &CassetteReplay) {
    for difference in replay.divergences().iter().chain(&replay.unplayed()) {
        let place = difference.place.as_ref().map(|place| format!("run {place}, ")).unwrap_or_default();
        terminal::say(&format!("differs from the recording: {place}turn {}: {}", difference.turn, difference.what));
    }
}
