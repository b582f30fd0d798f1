//! `homing map`: runs an agent once per file or line and prints results as JSON lines in input order.
//!
//! A map is one run tree whose key is derived from its arguments, so that the same command again continues it. Items that are
//! not done when a tree ends are taken over by the next generation of the map, which is another tree.

use std::{
    collections::BTreeMap,
    io::{BufRead, stdin},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing::Task;
use homing_core::{
    envelope::{Envelope, Status},
    fact::{CancelledBy, Fact, Record},
    limits::{Cap, Limit},
    tree::RunTree,
};
use homing_otel::Telemetry;
use homing_runtime::journal::sqlite::{JournalFeed, SqliteJournal};
use homing_teams::{LimitFields, Map, Team};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

use self::printer::{Positions, Printer, Results, line};
use super::on_restate::{self, RemoteTask};
use crate::{
    cli::map_team_args::MapArgs,
    exit::{Exit, Trouble},
    session::{Session, SessionRequest, no_journal},
    signals::Signals,
    terminal,
    watch::{Show, WatchResult},
};

mod printer;

/// Maximum number of items.
const MAX_ITEMS: usize = 10_000;

/// Records that are read at once.
const PAGE: u64 = 1_000;

pub(crate) async fn run(args: &MapArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let items = items(args)?;
    let schema = args.schema.as_deref().map(super::run::schema).transpose()?;
    let mut signals = Signals::new()?;
    let name = name(args, &items);
    let journal = super::runs::open(&args.with.journal)?;
    let (done, generation) = if args.fresh { (vec![None; items.len()], 0) } else { earlier(&journal, &name, &items)? };
    let key = key(&name, generation, args.fresh);
    let known = interrupted_lines(&journal, &key)?;
    drop(journal);
    let open: Vec<usize> = (0..items.len()).filter(|at| !is_done(done[*at].as_ref())).collect();
    if open.is_empty() {
        terminal::say("all items were already done; use --fresh to redo them");
        Printer::new(items, done, open, 0).finish()?;
        return Ok(Exit::Done);
    }
    let team = team(args, schema, open.iter().map(|at| items[*at].clone()))?;
    let request = SessionRequest {
        agent: Some(&args.agent),
        teams: vec![team],
        needs_journal: true,
        telemetry,
        ..SessionRequest::default()
    };
    let session = Session::open(&args.with, request).await?;
    let is_remote = args.place.is_remote(&session.config.user.restate);
    if is_remote {
        on_restate::refuse_options(&args.with)?;
    }
    let agent = &session.agent(&args.agent)?.definition;
    session.choose_model(agent, false).await?;
    let mut task = session.bounded(Task::new("map", format!("{} items", open.len())), args.limits.limits());
    replace_unenforceable_cost(&session, args, &mut task)?;
    task.tags = [("map".to_owned(), name)].into();
    crate::telemetry::add_trace(&mut task);
    task.account.clone_from(&args.with.account);
    let printer = Arc::new(Mutex::new(Printer::new(items, done, open.clone(), args.retries)));
    lock(&printer).add_known(known);
    let show = if terminal::is_watched() { Show::Bar(open.len()) } else { Show::Lines };
    let result = if is_remote {
        let remote = RemoteTask { task, place: &args.place, key: Some(key), show };
        follow_remote(remote, &session, &mut signals, &printer).await?
    } else {
        follow_here(task, key, show, &session, &mut signals, &printer).await?
    };
    let mut printer = lock(&printer);
    if !printer.knows_items_of(&result.envelope) {
        printer.use_positions(positions(session.homing.journal().ok_or_else(no_journal)?, result.envelope.run)?);
    }
    printer.add_final_results(&result.envelope);
    printer.finish()?;
    terminal::say(&summary(&printer, &result.envelope));
    Ok(match result.signal {
        Some(_) => result.exit(),
        None => exit(&printer, &result.envelope),
    })
}

/// Returns the team that works on these items.
fn team(args: &MapArgs, schema: Option<Value>, items: impl Iterator<Item = String>) -> Result<Team, Trouble> {
    let mut map = Map::new(&args.agent, each(args));
    map.schema = schema;
    map.retries = args.retries;
    map.limits = per_item(args)?;
    Ok(Team::new("map", map.items(items)))
}

/// Runs the map in this process.
async fn follow_here(
    task: Task,
    key: String,
    show: Show,
    session: &Session,
    signals: &mut Signals,
    printer: &Arc<Mutex<Printer>>,
) -> anyhow::Result<WatchResult> {
    let results = printer.clone();
    session.homing.runtime().on_complete(move |envelope| lock(&results).add_result(envelope));
    let mut on_record = |record: &Record| lock(printer).add_record(record);
    tokio::select! {
        result = super::run::follow(session, task, Some(key), show, signals, &mut on_record) => result,
        never = stop_when_down(session) => match never {},
    }
}

/// Runs the map on workers.
async fn follow_remote(
    remote: RemoteTask<'_>,
    session: &Session,
    signals: &mut Signals,
    printer: &Mutex<Printer>,
) -> anyhow::Result<WatchResult> {
    let mut is_down = false;
    let mut on_record = |tree: &RunTree, record: &Record| {
        lock(printer).add_record(record);
        let (Fact::Ended(_), Some(run)) = (&record.fact, tree.get(record.run)) else { return None };
        let envelope = Envelope::new(tree, run);
        lock(printer).add_result(&envelope);
        if is_down || !is_item_down(&envelope) {
            return None;
        }
        is_down = true;
        Some(provider_down())
    };
    on_restate::run(remote, session, signals, &mut on_record).await
}

/// Checks that the limits can be enforced for the items. If no price is known for their model, the default cost limit of
/// the whole map is replaced by one on tokens; a limit that the user set is an error.
fn replace_unenforceable_cost(session: &Session, args: &MapArgs, map: &mut Task) -> Result<(), Trouble> {
    let item = session.bounded(Task::new(args.agent.clone(), "an item"), args.limits.limits());
    let (planned, _) = session.homing.runtime().plan(item).map_err(Trouble::from)?;
    if map.limits.cost_micros == Cap::Default && planned.limits.cost_micros == Cap::Unlimited {
        map.limits.cost_micros = Cap::Unlimited;
        map.limits.tokens = map.limits.tokens.tighter(planned.limits.tokens);
        let model = planned.models.first().map(String::as_str).unwrap_or_default();
        let limit = Limit::Tokens.shown(map.limits.tokens);
        terminal::say(&format!(
            "warning: no price is known for {model}: the limit is {limit} tokens instead of a cost"
        ));
    }
    Ok(())
}

fn lock(printer: &Mutex<Printer>) -> MutexGuard<'_, Printer> {
    printer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cancels the map once a run fails because the provider is down, since all others would fail as well.
async fn stop_when_down(session: &Session) -> std::convert::Infallible {
    let down = Arc::new(Notify::new());
    let notify = down.clone();
    session.homing.runtime().on_complete(move |envelope| {
        if is_item_down(envelope) {
            notify.notify_one();
        }
    });
    down.notified().await;
    session.homing.runtime().cancel_all(&provider_down());
    std::future::pending().await
}

/// Returns whether an item failed because its provider is down.
fn is_item_down(envelope: &Envelope) -> bool {
    envelope.place.depth() == 1 && Exit::of(envelope) == Exit::Unavailable
}

/// Returns whether an item of a map failed because its provider is down.
fn is_provider_down(map: &Envelope) -> bool {
    map.children.iter().any(|child| Exit::of(child) == Exit::Unavailable)
}

/// Says that the provider is down, and returns the reason to cancel the map.
fn provider_down() -> CancelledBy {
    terminal::say("the provider cannot be reached: starting no more items");
    CancelledBy::Other("a provider that is down".to_owned())
}

fn items(args: &MapArgs) -> Result<Vec<String>, Trouble> {
    let items: Vec<String> = match args.each.as_str() {
        "-" => {
            let lines: Result<Vec<String>, _> = stdin().lock().lines().collect();
            let lines = lines.map_err(|error| Trouble::usage(format!("cannot read standard input: {error}")))?;
            lines.into_iter().filter(|line| !line.trim().is_empty()).collect()
        }
        pattern => files(&crate::session::working_folder(args.with.cwd.as_deref())?, pattern)?,
    };
    match items.len() {
        0 => Err(Trouble::usage(format!("no items: nothing matches `{}`", args.each))),
        1..=MAX_ITEMS => Ok(items),
        many => Err(Trouble::usage(format!("too many items for one map: {many}, the maximum is {MAX_ITEMS}"))),
    }
}

/// Returns the files that match and that git does not ignore, sorted by path.
fn files(folder: &Path, pattern: &str) -> Result<Vec<String>, Trouble> {
    let glob = globset::GlobBuilder::new(pattern.trim_start_matches("./")).literal_separator(true).build();
    let glob = glob.map_err(|error| Trouble::usage(format!("--each: {error}")))?.compile_matcher();
    let mut found: Vec<String> = ignore::WalkBuilder::new(folder)
        .hidden(true)
        .require_git(false)
        .build()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .filter_map(|entry| Some(entry.path().strip_prefix(folder).ok()?.to_str()?.to_owned()))
        .filter(|path| glob.is_match(path))
        .collect();
    found.sort();
    Ok(found)
}

/// Returns the template of the items' tasks, which contains the item.
fn each(args: &MapArgs) -> String {
    let task = args.task.join(" ");
    if task.contains("{{") { task } else { format!("{task}\n\n{{{{ item }}}}") }
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

/// Returns the name of the map, derived from agent, task, model, schema, project and items. Recorded answers are found by it, so two
/// maps must never share one.
fn name(args: &MapArgs, items: &[String]) -> String {
    let project = super::which_run::this_project(args.with.cwd.as_deref());
    let project = project.to_string_lossy();
    let model = args.with.model.as_deref().unwrap_or_default();
    let schema = args.schema.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    let task = args.task.join(" ");
    let parts = [args.agent.as_str(), &args.each, model, &schema, &task, &project].into_iter();
    let mut hash = Sha256::new();
    // Each part follows its length, so that no text can pass for a boundary.
    for part in parts.chain(items.iter().map(String::as_str)) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn key(name: &str, generation: usize, fresh: bool) -> String {
    if fresh { format!("map:{name}:{}", uuid::Uuid::now_v7()) } else { format!("map:{name}:{generation}") }
}

/// Returns the results of earlier generations of this map, and the number of the next one. A tree that has not ended yet is
/// itself the next generation, because its key leads back to it.
fn earlier(journal: &Arc<SqliteJournal>, name: &str, items: &[String]) -> Result<(Results, usize), Trouble> {
    let mut done: Results = vec![None; items.len()];
    for generation in 0.. {
        let Ok(found) = journal.find(&key(name, generation, false), None) else { return Ok((done, generation)) };
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

/// Returns the results that an interrupted map has already: they are printed at once, not when the rest is done.
fn interrupted_lines(journal: &Arc<SqliteJournal>, key: &str) -> Result<BTreeMap<usize, Value>, Trouble> {
    let Ok(found) = journal.find(key, None) else { return Ok(BTreeMap::new()) };
    let mut known = lines(journal, &journal.envelope(found.tree)?)?;
    known.retain(|_, line| is_done(Some(line)));
    Ok(known)
}

fn is_done(line: Option<&Value>) -> bool {
    line.is_some_and(|line| line["status"] == "done")
}

/// Returns the result of each item by its position in the map. The last attempt counts.
fn lines(journal: &Arc<SqliteJournal>, envelope: &Envelope) -> Result<BTreeMap<usize, Value>, Trouble> {
    let positions = positions(journal, envelope.run)?;
    Ok(envelope.children.iter().filter_map(|child| Some((positions.of(child.run)?, line(child)))).collect())
}

/// Reads which run of a map worked on which item, a page of records at a time: all of them would take more memory than the map.
fn positions(journal: &Arc<SqliteJournal>, tree: Uuid) -> Result<Positions, Trouble> {
    let feed = JournalFeed::new(journal.clone());
    let (mut positions, mut from) = (Positions::default(), 0);
    loop {
        let page = feed.page(tree, from, PAGE)?;
        page.iter().for_each(|record| positions.add(record));
        if (page.len() as u64) < PAGE {
            return Ok(positions);
        }
        from += PAGE;
    }
}

fn summary(printer: &Printer, envelope: &Envelope) -> String {
    let (done, count) = (printer.done(), printer.count());
    let why = if done < count && is_provider_down(envelope) { "; the provider cannot be reached" } else { "" };
    let more = if done < count { "; run the same command again for the rest" } else { "" };
    format!("{done} of {count} items done{why}{more} · {}", crate::print_result::cost_line(envelope))
}

fn exit(printer: &Printer, envelope: &Envelope) -> Exit {
    if printer.done() == printer.count() {
        return Exit::Done;
    }
    match envelope.status {
        _ if is_provider_down(envelope) => Exit::Unavailable,
        Status::Exhausted | Status::TimedOut => Exit::Limit,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn named(task: &[&str], items: &[&str]) -> String {
        let args = ["homing", "map", "--each", "-", "--model", "offline"];
        let cli = Cli::try_parse_from(args.iter().chain(task)).unwrap();
        let Some(Command::Map(args)) = cli.command else { panic!("not a map") };
        name(&args, &items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn maps_with_other_items_have_other_names() {
        let map = named(&["describe", "ants"], &["bees"]);
        assert_eq!(map, named(&["describe ants"], &["bees"]));
        for (task, items) in [
            (&["describe"][..], &["ants", "bees"][..]),
            (&["describe ants"], &["bees", ""]),
            (&["describe ants"], &["bee", "s"]),
            (&["describe ants"], &["bees\0"]),
        ] {
            assert_ne!(map, named(task, items), "{task:?} {items:?}");
        }
    }
}
