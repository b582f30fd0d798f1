//! `homing map`: one run per file or line, results as JSON lines in the order of the input.
//!
//! A map is one tree with a key that is made of everything that was typed, so that the same map started again goes on.
//! What is not done when a tree is over is taken up by the next generation of the map.

use std::{
    collections::BTreeMap,
    io::{BufRead, stdin},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing::Task;
use homing_core::{
    envelope::{Envelope, Status},
    fact::{CancelledBy, Record},
    message::{FNV_START, fnv},
};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::SqliteJournal;
use homing_teams::{LimitFields, Map, Team};
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::printer::{Positions, Printer, Results, line};
use crate::{
    cli::map_team_args::MapArgs,
    exit::{Exit, Trouble},
    session::{Session, SessionRequest, no_journal},
    signals::Signals,
    terminal,
    watch::Show,
};

mod printer;

/// A map of more is a mistake, or work for several.
const MOST: usize = 10_000;

pub(crate) async fn run(args: &MapArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let items = items(args)?;
    let schema = args.schema.as_deref().map(super::run::schema).transpose()?;
    let mut signals = Signals::new()?;
    let name = name(args, &items);
    let journal = super::runs::open(&args.with.journal)?;
    let (done, generation) = if args.fresh { (vec![None; items.len()], 0) } else { earlier(&journal, &name, &items)? };
    drop(journal);
    let open: Vec<usize> = (0..items.len()).filter(|at| !is_done(done[*at].as_ref())).collect();
    if open.is_empty() {
        terminal::say("everything was done before; --fresh begins anew");
        Printer::new(items, done, open, 0).finish([])?;
        return Ok(Exit::Done);
    }
    let map = Map { schema, retries: args.retries, limits: per_item(args)?, ..Map::new(&args.agent, each(args)) };
    let team = Team::new("map", map.items(open.iter().map(|at| items[*at].clone())));
    let wanted = SessionRequest {
        agent: Some(&args.agent),
        teams: vec![team],
        needs_journal: true,
        telemetry,
        ..SessionRequest::default()
    };
    let session = Session::open(&args.with, wanted).await?;
    let agent = session.homing.registry().get(&args.agent).map_err(|it| Trouble::from(homing::SpawnError::from(it)))?;
    session.choose_model(agent, false)?;
    let mut task = session.bounded(Task::new("map", format!("{} items", open.len())), args.limits.limits());
    task.key = Some(key(&name, generation, args.fresh));
    task.tags = [("map".to_owned(), name)].into();
    task.account.clone_from(&args.with.account);
    let printer = Arc::new(Mutex::new(Printer::new(items, done, open.clone(), args.retries)));
    let taker = printer.clone();
    session.homing.runtime().on_complete(Arc::new(move |envelope| lock(&taker).take(envelope)));
    let show = if terminal::is_watched() { Show::Bar(open.len()) } else { Show::Lines };
    let mut learn = |record: &Record| lock(&printer).learn(record);
    let seen = tokio::select! {
        seen = super::run::follow(&session, task, show, &mut signals, &mut learn) => seen?,
        never = stop_when_down(&session) => match never {},
    };
    let lines = lines(session.homing.journal().ok_or_else(no_journal)?, &seen.envelope)?;
    let mut printer = lock(&printer);
    printer.finish(lines)?;
    terminal::say(&summary(printer.items(), printer.results(), &seen.envelope));
    Ok(match seen.signal {
        Some(_) => seen.exit(),
        None => exit(printer.results(), &seen.envelope),
    })
}

fn lock(printer: &Mutex<Printer>) -> MutexGuard<'_, Printer> {
    printer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A provider that is down fails one item after another: once it has, no new ones are begun.
async fn stop_when_down(session: &Session) -> std::convert::Infallible {
    let down = Arc::new(Notify::new());
    let tell = down.clone();
    session.homing.runtime().on_complete(Arc::new(move |envelope| {
        if envelope.place.depth() == 1 && Exit::of(envelope) == Exit::Unavailable {
            tell.notify_one();
        }
    }));
    down.notified().await;
    terminal::say("the provider cannot be reached: no more items are begun");
    session.homing.runtime().cancel_all(&CancelledBy::Other("a provider that is down".to_owned()));
    std::future::pending().await
}

fn items(args: &MapArgs) -> Result<Vec<String>, Trouble> {
    let items: Vec<String> = match args.each.as_str() {
        "-" => {
            let lines: Result<Vec<String>, _> = stdin().lock().lines().collect();
            let lines = lines.map_err(|error| Trouble::usage(format!("standard input cannot be read: {error}")))?;
            lines.into_iter().filter(|it| !it.trim().is_empty()).collect()
        }
        pattern => files(&crate::session::working_folder(args.with.cwd.as_deref())?, pattern)?,
    };
    match items.len() {
        0 => Err(Trouble::usage(format!("there are no items: nothing fits `{}`", args.each))),
        1..=MOST => Ok(items),
        many => Err(Trouble::usage(format!("{many} items are too many for one map: {MOST} is the most"))),
    }
}

/// Files that match, as git would list them, in the order of their paths.
fn files(folder: &Path, pattern: &str) -> Result<Vec<String>, Trouble> {
    let glob = globset::GlobBuilder::new(pattern.trim_start_matches("./")).literal_separator(true).build();
    let glob = glob.map_err(|error| Trouble::usage(format!("--each: {error}")))?.compile_matcher();
    let mut found: Vec<String> = ignore::WalkBuilder::new(folder)
        .hidden(true)
        .require_git(false)
        .build()
        .filter_map(Result::ok)
        .filter(|it| it.file_type().is_some_and(|it| it.is_file()))
        .filter_map(|it| Some(it.path().strip_prefix(folder).ok()?.to_str()?.to_owned()))
        .filter(|it| glob.is_match(it))
        .collect();
    found.sort();
    Ok(found)
}

/// The task of each item: a template that names it.
fn each(args: &MapArgs) -> String {
    let task = args.task.join(" ");
    match task.contains("{{") {
        true => task,
        false => format!("{task}\n\n{{{{ item }}}}"),
    }
}

fn per_item(args: &MapArgs) -> Result<LimitFields, Trouble> {
    let object: serde_json::Map<String, Value> = args
        .per_item
        .iter()
        .map(|(name, value)| {
            let number = value.parse::<serde_json::Number>().map(Value::Number);
            (name.trim_start_matches("--").replace('-', "_"), number.unwrap_or_else(|_| json!(value)))
        })
        .collect();
    let wrong = |what: String| Trouble::usage(format!("--per-item: {what}"));
    let bounds: LimitFields =
        serde_json::from_value(Value::Object(object)).map_err(|error| wrong(error.to_string()))?;
    bounds.limits().map_err(wrong)?;
    Ok(bounds)
}

/// The same words to the same model over the same items are the same map.
fn name(args: &MapArgs, items: &[String]) -> String {
    let model = args.with.model.as_deref().unwrap_or_default();
    let schema = args.schema.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    let parts = [args.agent.as_str(), &args.each, model, &schema].into_iter();
    let whole = parts.chain(args.task.iter().map(String::as_str)).chain(items.iter().map(String::as_str));
    let hash = whole.fold(FNV_START, |hash, part| fnv(fnv(hash, part.as_bytes()), b"\0"));
    format!("{hash:016x}")
}

fn key(name: &str, generation: usize, fresh: bool) -> String {
    match fresh {
        true => format!("map:{name}:{}", uuid::Uuid::now_v7()),
        false => format!("map:{name}:{generation}"),
    }
}

/// What earlier generations of this map have done, and the number of the next one. A tree that is not over yet is the
/// next one itself: its key leads back to it.
fn earlier(journal: &SqliteJournal, name: &str, items: &[String]) -> Result<(Results, usize), Trouble> {
    let mut done: Results = vec![None; items.len()];
    for generation in 0.. {
        let Ok(found) = journal.find(&key(name, generation, false)) else { return Ok((done, generation)) };
        let envelope = journal.envelope(found.tree)?;
        if !envelope.status.is_over() {
            return Ok((done, generation));
        }
        let open: Vec<usize> = (0..items.len()).filter(|at| !is_done(done[*at].as_ref())).collect();
        for (at, line) in lines(journal, &envelope)? {
            if let Some(item) = open.get(at).filter(|_| is_done(Some(&line))) {
                done[*item] = Some(line);
            }
        }
    }
    Ok((done, 0))
}

fn is_done(line: Option<&Value>) -> bool {
    line.is_some_and(|it| it["status"] == "done")
}

/// What came of each item, by its position in the map: the last try counts.
fn lines(journal: &SqliteJournal, envelope: &Envelope) -> Result<BTreeMap<usize, Value>, Trouble> {
    let mut positions = Positions::default();
    for record in journal.follow(envelope.run, 0)? {
        positions.learn(&record);
    }
    Ok(envelope.children.iter().filter_map(|child| Some((positions.of(child.run)?, line(child)))).collect())
}

fn summary(items: &[String], results: &Results, envelope: &Envelope) -> String {
    let done = results.iter().filter(|it| is_done(it.as_ref())).count();
    let more = if done < items.len() { "; the same command takes up the rest" } else { "" };
    format!("{done} of {} items done{more} · {}", items.len(), crate::print_result::cost_line(envelope))
}

fn exit(results: &Results, envelope: &Envelope) -> Exit {
    if results.iter().all(|it| is_done(it.as_ref())) {
        return Exit::Done;
    }
    let down = |it: &Envelope| Exit::of(it) == Exit::Unavailable;
    match envelope.status {
        _ if envelope.children.iter().any(down) => Exit::Unavailable,
        Status::Exhausted | Status::TimedOut => Exit::Limit,
        Status::Queued
        | Status::Running
        | Status::Waiting
        | Status::Interrupted
        | Status::Done
        | Status::Cancelled
        | Status::Failed => Exit::Failed,
    }
}
