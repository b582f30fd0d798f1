//! `homing run`: the main job.

use std::{
    fs,
    io::{IsTerminal, Read, stdin},
    path::Path,
    sync::Arc,
};

use homing::{Cached, Claim, Envelope, RunHandle, Submission, Task};
use homing_core::{authority::Sandbox, fact::Record, limits::Limits};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::{Cassette, Replay};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    cli::run::{RunArgs, WithArgs},
    exit::{Exit, Trouble, TroubleKind},
    print_result::{self, Form},
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::{SeenSignals, Show, watch, watch_with},
};

mod keyed;
mod plan;

/// No model reads more than this.
const MOST: usize = 4 * 1024 * 1024;

pub(crate) async fn run(args: &RunArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let text = task_text(&args.task)?;
    // From here on a signal is an orderly stop.
    let mut signals = Signals::new()?;
    let replay = args.replay.as_deref().map(read_cassette).transpose()?;
    let needs_journal = args.record.is_some() || args.key.is_some();
    // What is played again costs nothing and happened before: it is not told.
    let telemetry = telemetry.filter(|_| replay.is_none());
    let wanted = SessionRequest {
        agent: Some(&args.agent),
        replay: replay.clone(),
        needs_journal,
        telemetry,
        ..SessionRequest::default()
    };
    let session = Session::open(&args.with, wanted).await?;
    let task = task(args, text, &session, replay.is_some())?;
    let (spawned, _) = session.homing.runtime().plan(task.clone()).map_err(Trouble::from)?;
    if let (true, Some(first)) = (args.with.strict, spawned.warnings.first()) {
        return Err(Trouble::config(format!("{first} (--strict)")).into());
    }
    if args.until.is_some() {
        sandbox_must_work(&session, &args.with).await?;
    }
    if args.plan {
        return plan::show(&session, task, args.json);
    }
    let show = Show::choose(args.events);
    let seen = match args.cache {
        true => match session.homing.spawn_cached(task).await.map_err(Trouble::from)? {
            Cached::Now(run, keep) => {
                let seen = watch(&session.homing, &run, show, &session.asker, &mut signals).await;
                // After a signal nobody waits any longer.
                if seen.signal.is_none()
                    && let Err(error) = keep.keep().await
                {
                    terminal::say(&format!("warning: the result is not kept for the next time: {error}"));
                }
                seen
            }
            Cached::Before(envelope) => return Ok(from_cache(args, &envelope)),
        },
        false => follow(&session, task, show, &mut signals, &mut |_| ()).await?,
    };
    if let Some(path) = &args.record {
        record(&session, seen.envelope.run, path)?;
    }
    print_result::tell(&seen.envelope, Form::of(args.json, args.events), session.homing.journal().is_some());
    if let Some(replay) = replay {
        say_divergences(&replay);
    }
    Ok(seen.exit())
}

/// A result that was paid for before, and says so.
fn from_cache(args: &RunArgs, envelope: &Envelope) -> Exit {
    terminal::say(&format!("from the cache: run {} did the same before; nothing was asked", envelope.run));
    print_result::tell(envelope, Form::of(args.json, args.events), true);
    Exit::of(envelope)
}

/// A check that cannot run is refused before anything is spent.
async fn sandbox_must_work(session: &Session, with: &WithArgs) -> Result<(), Trouble> {
    if session.config.sandbox(with.sandbox.map(Into::into)) == Sandbox::Off {
        return Ok(());
    }
    let standard = homing::CodingSetup::from_env(&crate::session::working_folder(with.cwd.as_deref())?);
    let found = super::doctor::sandboxes(&standard).await;
    match found.as_ref().map(|it| (it.best().is_some(), it.why_not())) {
        Some((true, _)) => Ok(()),
        Some((false, why)) => {
            Err(Trouble::new(TroubleKind::Refused, format!("--until needs a sandbox, and none works here: {why}"))
                .hint("`homing doctor` says more; --sandbox off runs commands unconfined"))
        }
        None => Err(Trouble::new(TroubleKind::Refused, "--until needs a sandbox, and this program cannot find itself")),
    }
}

/// A run of this process, or one that is found in the journal under the same key.
enum Started {
    Here(RunHandle),
    Elsewhere(Uuid),
}

async fn submit(session: &Session, task: Task) -> anyhow::Result<Started> {
    if task.key.is_none() {
        return Ok(Started::Here(session.homing.spawn(task).map_err(Trouble::from)?));
    }
    Ok(match session.homing.submit(task).await.map_err(Trouble::from)? {
        Submission::New(run) => Started::Here(run),
        Submission::Earlier(tree) => match session.resume(tree, Claim::IfGone, Limits::default()).await {
            // Its process is gone, or it is over: going on costs nothing that was paid already.
            Ok(run) => Started::Here(run),
            Err(homing::SpawnError::Journal(homing::JournalError::Owned { .. })) => Started::Elsewhere(tree),
            Err(error) => return Err(Trouble::from(error).into()),
        },
    })
}

/// Starts a task, or finds the run that its key means, and watches it to its end. `learn` is shown every fact of a run of this
/// process.
pub(crate) async fn follow(
    session: &Session,
    task: Task,
    show: Show,
    signals: &mut Signals,
    learn: &mut dyn FnMut(&Record),
) -> anyhow::Result<SeenSignals> {
    match submit(session, task).await? {
        Started::Here(run) => Ok(watch_with(&session.homing, &run, show, &session.asker, signals, learn).await),
        Started::Elsewhere(tree) => keyed::attach(session, tree, signals).await,
    }
}

fn task(args: &RunArgs, text: String, session: &Session, is_replay: bool) -> Result<Task, Trouble> {
    let agent =
        session.homing.registry().get(&args.agent).map_err(|error| Trouble::from(homing::SpawnError::from(error)))?;
    if text.trim().is_empty() && agent.initial_prompt.is_none() {
        return Err(homing::SpawnError::EmptyTask.into());
    }
    if !is_replay {
        // Words are for people, JSON is for programs; a program must not take a keyword search for a model's answer.
        let person_reads = !args.json && !args.events;
        session.choose_model(agent, person_reads)?;
    }
    let mut task = session.bounded(Task::new(agent.name.clone(), text), args.limits.limits());
    task.model = session.model.clone().filter(|_| !is_replay);
    task.schema = args.schema.as_deref().map(schema).transpose()?;
    task.until.clone_from(&args.until);
    task.key.clone_from(&args.key);
    task.account.clone_from(&args.with.account);
    task.tags = args.tags.iter().cloned().collect();
    task.context = args.set.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect();
    Ok(task)
}

pub(crate) fn schema(path: &Path) -> Result<Value, Trouble> {
    let wrong = |what: String| Trouble::config(format!("--schema {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("this is no JSON: {error}")))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(wrong("a JSON schema is an object".to_owned())),
    }
}

/// Words, standard input, or words with what is piped in behind them.
pub(crate) fn task_text(words: &[String]) -> Result<String, Trouble> {
    let is_dash = matches!(words, [one] if one == "-");
    let text = words.join(" ");
    let text = match (is_dash, words.is_empty()) {
        (true, _) => piped_text()?,
        (false, true) if !stdin().is_terminal() => piped_text()?,
        (false, true) => String::new(),
        (false, false) if is_piped() => {
            let input = read_input()?;
            let input = String::from_utf8_lossy(&input);
            if input.contains('\u{fffd}') {
                terminal::say("warning: some of standard input is no UTF-8 text; it was replaced by �");
            }
            if input.trim().is_empty() { text } else { format!("{text}\n\n{}", input.trim_end()) }
        }
        (false, false) => text,
    };
    match text.len() {
        0..=MOST => Ok(text),
        much => Err(Trouble::usage(format!("the task has {:.1} MB, which no model reads", much as f64 / 1e6))
            .hint("put it into a file, and name the file in the task")),
    }
}

fn piped_text() -> Result<String, Trouble> {
    String::from_utf8(read_input()?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Trouble::usage(format!("standard input is no UTF-8 text: byte {at} fits nothing"))
    })
}

/// Whether somebody pipes or redirects something in. A closed or inherited device is nobody.
fn is_piped() -> bool {
    use std::os::{fd::AsFd, unix::fs::FileTypeExt};
    let Ok(stdin) = stdin().as_fd().try_clone_to_owned() else { return false };
    fs::File::from(stdin).metadata().is_ok_and(|it| it.file_type().is_fifo() || it.is_file())
}

fn read_input() -> Result<Vec<u8>, Trouble> {
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let hint = std::thread::spawn(move || {
        if waiting.recv_timeout(std::time::Duration::from_secs(1)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            terminal::say("reading standard input… (redirect it with </dev/null if there is none)");
        }
    });
    let mut bytes = Vec::new();
    let read = stdin().lock().take(MOST as u64 * 4).read_to_end(&mut bytes);
    drop(done);
    let _ = hint.join();
    read.map_err(|error| Trouble::usage(format!("standard input cannot be read: {error}")))?;
    Ok(bytes)
}

fn read_cassette(path: &Path) -> Result<Arc<Replay>, Trouble> {
    let wrong = |what: String| Trouble::config(format!("--replay {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let cassette = Cassette::read(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(Replay::new(&cassette))
}

/// Writes the tree as a cassette. Keys of providers never reach the journal, and are looked for once more.
fn record(session: &Session, tree: Uuid, path: &Path) -> Result<(), Trouble> {
    let wrong = |what: String| Trouble::config(format!("--record {}: {what}", path.display()));
    let journal = session.homing.journal().ok_or_else(crate::session::no_journal)?;
    let cassette = journal.cassette(tree).map_err(|error| wrong(error.to_string()))?;
    let text = cassette.write(&session.redactor()).map_err(|error| wrong(error.to_string()))?;
    fs::write(path, text).map_err(|error| wrong(error.to_string()))
}

pub(crate) fn say_divergences(replay: &Replay) {
    for it in replay.divergences().iter().chain(&replay.unplayed()) {
        let place = it.place.as_ref().map(|it| format!("run {it}, ")).unwrap_or_default();
        terminal::say(&format!("differs from the recording: {place}turn {}: {}", it.turn, it.what));
    }
}
