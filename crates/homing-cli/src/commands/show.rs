//! `homing show`: shows a recorded run's transcript, its tree, or its current activity.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    sync::Arc,
    time::Duration,
};

use homing::environment;
use homing_core::{
    envelope::Envelope,
    fact::{Fact, Record},
    limits::usd,
    message::{Message, Part},
    place::Place,
    receipts::Receipts,
    run::Run,
    sanitize,
    taint::TaintMode,
    tree::RunTree,
};
use homing_runtime::{
    event::{Event, Transient, TransientKind},
    journal::{
        Journal, JournalError, LiveMark,
        sqlite::{RunRef, SqliteJournal},
    },
};
use uuid::Uuid;

use super::restate::RemoteTree;
use crate::{
    cli::journal::ShowArgs,
    commands::which_run,
    exit::{Exit, Trouble, print},
    print_result::{self, Form},
    progress::{
        Board, call_line, first_line,
        frame::{Look, frame},
        plain,
    },
    terminal,
};

/// Maximum number of lines of a tool's result in a transcript.
const MAX_LINES: usize = 12;

pub(crate) async fn run(args: &ShowArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open_to_read(&args.journal)?;
    let found = which_run::find_anywhere(&journal, &args.id, args.scope.project(None)).await?;
    let remote = up_to_date(&journal, &found).await?;
    if args.follow {
        follow(&journal, &found, remote.as_ref()).await?;
    }
    if args.positions {
        print(&positions(&journal, &found)?)?;
        return Ok(Exit::Done);
    }
    match (args.json, args.tree) {
        (true, _) => print_result::json(&envelope(&journal, &found)?),
        (false, true) => print(&tree_lines(&journal, &found)?)?,
        (false, false) => {
            let tree = match found.branch(&journal) {
                Err(JournalError::Pruned(_)) => {
                    print_result::print_result(&envelope(&journal, &found)?, Form::Text, false);
                    terminal::say("this is all that is left: the transcript was pruned");
                    return Ok(Exit::Done);
                }
                tree => tree.map_err(Trouble::from)?,
            };
            let run = tree.get(found.run).ok_or_else(|| Trouble::usage("there is no such run"))?;
            // The results of other runs of a large tree are not needed.
            let envelope = journal.envelope_in(&tree, run).map_err(Trouble::from)?;
            print(&transcript(run, &envelope, &tree))?;
            if waiting_for_budget(&journal, found.tree)?.contains(&found.run) {
                print("waiting for budget")?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Updates the copy of a tree on workers. If that fails, an ended one is shown as it is known, because there is hardly anything new.
async fn up_to_date(journal: &SqliteJournal, found: &RunRef) -> Result<Option<RemoteTree>, Trouble> {
    let updated = async {
        let remote = RemoteTree::find(journal, found.tree).await?;
        if let Some(remote) = &remote {
            remote.refresh(journal).await?;
        }
        Ok(remote)
    };
    match updated.await {
        Err(Trouble { message, .. }) if journal.envelope(found.tree)?.status.is_over() => {
            terminal::say(&format!("warning: this is what was last seen: {message}"));
            Ok(None)
        }
        result => result,
    }
}

pub(crate) fn envelope(journal: &SqliteJournal, found: &RunRef) -> Result<Envelope, Trouble> {
    let whole = journal.envelope(found.tree)?;
    let one = whole.all().into_iter().find(|one| one.run == found.run).cloned();
    one.ok_or_else(|| Trouble::usage("there is no such run"))
}

/// The runs of a tree that wait for budget, if its process is alive.
pub(crate) fn waiting_for_budget(journal: &SqliteJournal, tree: Uuid) -> Result<HashSet<Uuid>, Trouble> {
    if journal.owner(tree)?.is_none() {
        return Ok(HashSet::new());
    }
    let marks = journal.marks(tree).runs.into_iter();
    Ok(marks.filter(|(_, mark)| *mark == LiveMark::WaitingForBudget).map(|(run, _)| run).collect())
}

/// The notice that the process itself would send of a run that waits for budget.
pub(crate) fn notice_of_wait(tree: Uuid, run: Uuid) -> Event {
    let (place, at, kind) = (Place::root(), super::runs::millis_now(), TransientKind::WaitingForBudget);
    Event::Transient(Arc::new(Transient { tree, run, place, at, kind }))
}

fn tree_lines(journal: &SqliteJournal, found: &RunRef) -> Result<String, Trouble> {
    let mut board = Board::default();
    for record in journal.follow(found.tree, 0)? {
        if record.place.is_within(&found.place) {
            board.take(&Event::Fact(record));
        }
    }
    for run in waiting_for_budget(journal, found.tree)? {
        board.take(&notice_of_wait(found.tree, run));
    }
    if journal.owner(found.tree)?.is_some() {
        board.now = board.now.max(super::runs::millis_now());
    }
    let is_unicode = environment::is_unicode_locale();
    let look = Look { width: terminal::width().unwrap_or(100), height: usize::MAX, is_unicode };
    Ok(frame(&board, look).join("\n"))
}

/// Lists the facts of a run and the runs below it, one per line, with their positions.
fn positions(journal: &SqliteJournal, found: &RunRef) -> Result<String, Trouble> {
    let records = journal.follow(found.tree, 0)?;
    let within = records.iter().filter(|record| record.place.is_within(&found.place));
    let mut agents: HashMap<uuid::Uuid, String> = HashMap::new();
    let lines = within.map(|record| {
        if let Fact::Spawned(spawned) = &record.fact {
            agents.insert(record.run, spawned.agent.name.clone());
        }
        let agent = agents.get(&record.run).map_or("", String::as_str);
        let kind = record.fact.kind().replace('_', " ");
        format!("{:>5}  {:<6} {agent}: {kind}{}", record.seq, record.place.to_string(), detail(&record.fact))
    });
    let lines: Vec<String> = lines.collect();
    Ok(sanitize::inert(&lines.join("\n")))
}

/// The beginning of what a fact is about.
fn detail(fact: &Fact) -> String {
    let brief = |text: &str| format!(" · {}", first_line(text));
    match fact {
        Fact::Spawned(spawned) => brief(&spawned.task),
        Fact::Asked(asked) => brief(&asked.model),
        Fact::Replied { reply, .. } => {
            let calls: Vec<String> = reply.calls().map(call_line).collect();
            if calls.is_empty() { brief(&reply.text()) } else { brief(&calls.join(", ")) }
        }
        Fact::AskFailed { failure, .. } => brief(&failure.error.to_string()),
        Fact::Called(called) => brief(&call_line(&called.call)),
        Fact::Returned { result, .. } => brief(&result.text),
        Fact::Told { message, .. } => brief(message),
        Fact::Compacted { summary, .. } => brief(summary),
        Fact::Questioned { question, .. } => brief(&question.text),
        Fact::Answered { .. } | Fact::Halted { .. } | Fact::Extended { .. } => String::new(),
        Fact::Ended(ended) => brief(&ended.outcome.status().replace('_', " ")),
    }
}

/// Prints progress until the run tree ends or its process is gone.
async fn follow(journal: &SqliteJournal, found: &RunRef, remote: Option<&RemoteTree>) -> anyhow::Result<()> {
    let (mut board, mut next, mut waiting) = (Board::default(), 0, HashSet::new());
    loop {
        let is_alive = match remote {
            Some(remote) => !remote.refresh(journal).await? && !journal.tree(found.tree)?.is_parked(),
            None => journal.owner(found.tree).map_err(Trouble::from)?.is_some(),
        };
        let records = journal.follow(found.tree, next).map_err(Trouble::from)?;
        next = records.last().map_or(next, |record: &std::sync::Arc<Record>| record.seq + 1);
        for record in records {
            let is_within = record.place.is_within(&found.place);
            let event = Event::Fact(record);
            board.take(&event);
            if let Some(line) = plain::line(&event, &board).filter(|_| is_within) {
                print(&sanitize::inert(&line))?;
            }
        }
        let before = std::mem::replace(&mut waiting, waiting_for_budget(journal, found.tree)?);
        for run in waiting.difference(&before) {
            let is_within = board.row(*run).is_some_and(|row| row.place.is_within(&found.place));
            if let Some(line) = plain::line(&notice_of_wait(found.tree, *run), &board).filter(|_| is_within) {
                print(&sanitize::inert(&line))?;
            }
        }
        if !is_alive {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Formats the messages and calls of a run.
pub(crate) fn transcript(run: &Run, envelope: &Envelope, tree: &RunTree) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} {} · {} · {}", run.place, envelope.agent, envelope.model, run.id);
    for entry in run.transcript() {
        let _ = match &entry.message {
            Message::User { text, .. } => writeln!(out, "\n> {}", text.trim().replace('\n', "\n> ")),
            Message::Assistant(reply) => {
                for part in &reply.parts {
                    add_part(part, &mut out);
                }
                Ok(())
            }
            Message::Tool(result) => writeln!(out, "{}", indented(&result.text, result.is_error)),
        };
    }
    let below: Vec<String> =
        tree.children(run).map(|child| format!("{} {}", child.place, child.spawned.agent.name)).collect();
    if !below.is_empty() {
        let _ = writeln!(out, "\nchild runs: {}", below.join(", "));
    }
    if let Some(why) = print_result::why(envelope) {
        let _ = writeln!(out, "\n{why}");
    }
    let read: Vec<&str> = run.effects().origins.iter().map(|origin| origin.description()).collect();
    if !read.is_empty() {
        let effect = match run.spawned.agent.execution.taint.unwrap_or_default() {
            TaintMode::Off => "`taint: off`: network use is not restricted by it",
            TaintMode::Ask => "`taint: ask`: if secrets are in reach, network use needs approval",
            TaintMode::Deny => "`taint: deny`: if secrets are in reach, network use is denied",
        };
        let _ = writeln!(out, "\nread untrusted content: {} ({effect})", read.join(", "));
    }
    for denial in print_result::denials(envelope) {
        let _ = writeln!(out, "{denial}");
    }
    add_receipts(&envelope.receipts, &mut out);
    let _ = write!(out, "\n{} (own: {})", print_result::cost_line(envelope), usd(envelope.usage.cost_micros));
    sanitize::inert(&out)
}

/// Lists what the run really did, whatever its answer says.
fn add_receipts(receipts: &Receipts, out: &mut String) {
    if receipts.is_empty() {
        return;
    }
    out.push_str("\nreceipts (recorded by the tools; hosts that commands use, and files outside the working folder or ignored by git, are not seen)\n");
    for file in &receipts.files {
        let path = sanitize::inert_line(&file.path);
        let _ = match (file.created, file.deleted) {
            (_, true) => writeln!(out, "  deleted {path}"),
            (true, false) => writeln!(out, "  created {path} (sha256 {})", file.sha256),
            (false, false) => writeln!(out, "  changed {path} (sha256 {})", file.sha256),
        };
    }
    for command in &receipts.commands {
        let end = match (command.exit_code, command.signal, command.timed_out) {
            (_, _, true) => "timed out".to_owned(),
            (Some(code), _, false) => format!("exit {code}"),
            (None, Some(signal), false) => format!("signal {signal}"),
            (None, None, false) => "no exit code".to_owned(),
        };
        let _ = writeln!(out, "  ran {} ({end})", sanitize::inert_line(&command.command));
    }
    for host in &receipts.hosts {
        let _ = writeln!(out, "  reached {}", sanitize::inert_line(host));
    }
}

fn add_part(part: &Part, out: &mut String) {
    let _ = match part {
        Part::Text(text) => writeln!(out, "\n{}", text.trim()),
        Part::Call(call) => writeln!(out, "\n→ {}", call_line(call)),
        Part::Thinking { .. } | Part::Opaque { .. } => Ok(()),
    };
}

fn indented(text: &str, is_error: bool) -> String {
    let all: Vec<&str> = text.lines().collect();
    let mut lines: Vec<String> = all.iter().take(MAX_LINES).map(|line| format!("    {line}")).collect();
    if all.len() > MAX_LINES {
        lines.push(format!("    … {} more lines", all.len() - MAX_LINES));
    }
    if is_error { format!("  (error)\n{}", lines.join("\n")) } else { lines.join("\n") }
}
