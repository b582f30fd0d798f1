//! Prints the result of a run: the answer to stdout, everything else to stderr.

use std::{
    collections::BTreeSet,
    io::{IsTerminal, Write, stdout},
};

use homing::{CodingSetup, environment};
use homing_core::{
    envelope::{Envelope, Status},
    limits::{Limit, usd},
    question::{OpenQuestion, QuestionKind},
    sanitize,
    short_id::short_id,
};

use homing_tools::worktree::{KeptWorktree, kept_worktrees};

use crate::{
    exit::{failure_hint, print},
    progress::figures,
    terminal,
    watch::WatchResult,
};

/// The form of a result on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The answer as text.
    Text,
    /// The envelope as JSON.
    Json,
    /// Nothing, because the events contain everything.
    Events,
}

impl Form {
    /// Returns the form that the flags ask for.
    pub(crate) fn of(json: bool, events: bool) -> Self {
        match (json, events) {
            (true, _) => Self::Json,
            (false, true) => Self::Events,
            (false, false) => Self::Text,
        }
    }
}

/// Prints the result of a run.
pub(crate) fn print_result(envelope: &Envelope, form: Form, is_recorded: bool) {
    match form {
        Form::Text => text(envelope, is_recorded),
        Form::Json => json(envelope),
        Form::Events => (),
    }
}

/// Prints the result of a run that was watched, without the answer if it was printed while it was streamed.
pub(crate) fn print_watched(result: &WatchResult, form: Form, is_recorded: bool) {
    match form {
        Form::Text if result.is_answer_shown => after_answer(&result.envelope, is_recorded),
        Form::Text | Form::Json | Form::Events => print_result(&result.envelope, form, is_recorded),
    }
}

/// Prints the envelope as JSON, with hints that name flags and commands.
pub(crate) fn json(envelope: &Envelope) {
    let mut envelope = envelope.clone();
    add_hints(&mut envelope);
    // A closed pipe does not change the exit code.
    let _ = print(&terminal::json(&serde_json::to_value(envelope).unwrap_or_default()));
}

fn add_hints(envelope: &mut Envelope) {
    if let Some(error) = &mut envelope.error {
        error.hint = failure_hint(error);
    }
    envelope.children.iter_mut().for_each(add_hints);
}

/// Prints the answer, then everything else.
fn text(envelope: &Envelope, is_recorded: bool) {
    // The data of a team is everything that it did; its answer is the text.
    let answer = match &envelope.data {
        Some(data) if !homing_teams::is_team(envelope) => format!("{data:#}"),
        Some(_) | None => envelope.output.clone(),
    };
    let answer = if stdout().is_terminal() { sanitize::inert(&answer) } else { answer };
    if !answer.trim().is_empty() {
        if stdout().is_terminal() && terminal::is_watched() {
            terminal::inform("");
        }
        let mut out = anstream::AutoStream::never(stdout().lock());
        let _ = writeln!(out, "{}", answer.trim_end()).and_then(|()| out.flush());
        if stdout().is_terminal() && terminal::is_watched() {
            terminal::inform("");
        }
    }
    after_answer(envelope, is_recorded);
}

/// Prints warnings, the reason for stopping and the costs.
fn after_answer(envelope: &Envelope, is_recorded: bool) {
    for warning in &envelope.warnings {
        terminal::inform(&format!("warning: {warning}"));
    }
    for line in denials(envelope) {
        terminal::inform(&line);
    }
    if let Some(hint) = approval_hint(envelope) {
        terminal::inform(&hint);
    }
    if let Some(why) = why(envelope) {
        terminal::say(&why);
    }
    kept_work(envelope).iter().for_each(|line| terminal::inform(line));
    terminal::inform(&cost_line(envelope));
    if !envelope.questions.is_empty() {
        print_questions(envelope);
    } else if is_recorded && envelope.resumable {
        terminal::inform(&resume_line(envelope));
    }
}

/// Names the branches on which isolated runs of this tree have left their work.
pub(crate) fn kept_work(envelope: &Envelope) -> Vec<String> {
    let folder = CodingSetup::from_env(&environment::current_folder().unwrap_or_default()).worktrees;
    let all = envelope.all();
    let line = |worktree: &KeptWorktree| {
        let run = all.iter().find(|run| run.run == worktree.run)?;
        let (agent, id) = (sanitize::inert_line(&run.agent), short_id(run.run));
        Some(format!("run {} ({agent}) left its work on a branch: homing worktrees diff|merge|remove {id}", run.place))
    };
    kept_worktrees(&folder).iter().filter_map(line).collect()
}

/// Lists the calls that were denied in the whole tree, with the agent and its place.
pub(crate) fn denials(envelope: &Envelope) -> Vec<String> {
    let line = |run: &Envelope, text: &String| {
        let place = if run.place == envelope.place { String::new() } else { format!(" (run {})", run.place) };
        let text = sanitize::inert_line(text.strip_prefix("denied: ").unwrap_or(text));
        format!("denied: {}{place}: {text}", sanitize::inert_line(&run.agent))
    };
    envelope.all().iter().flat_map(|run| run.denied.iter().map(move |text| line(run, text))).collect()
}

/// Names the flags that would have allowed the calls that no one could approve, in the whole tree.
fn approval_hint(envelope: &Envelope) -> Option<String> {
    let all = envelope.all();
    let rules: BTreeSet<&str> = all.iter().flat_map(|run| run.needs_approval.iter().map(String::as_str)).collect();
    if rules.is_empty() {
        return None;
    }
    let flag = |rule: &str| format!(" --allow '{}'", sanitize::inert_line(rule).replace('\'', r"'\''"));
    Some(format!(
        "hint: no one was there to approve a call; allow it with{}",
        rules.into_iter().map(flag).collect::<String>()
    ))
}

/// Says why the run did not finish.
pub(crate) fn why(envelope: &Envelope) -> Option<String> {
    if let Some(error) = &envelope.error {
        let hint = failure_hint(error).map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        return Some(format!("error: {}{hint}", error.message));
    }
    let hit = envelope.limit.as_ref()?;
    let (limit, spent) = (amount(hit.name, hit.limit), amount(hit.name, hit.spent));
    let whose = if hit.place == envelope.place { String::new() } else { format!(" of run {}", hit.place) };
    if hit.name == Limit::Output {
        let cut = "stopped because its replies were cut off repeatedly";
        return Some(format!("{cut}, the last at {spent} of {limit} output tokens"));
    }
    Some(format!("stopped at its {} limit{whose}: {spent} of {limit}", hit.name.name().replace('_', " ")))
}

fn amount(limit: Limit, value: u64) -> String {
    match limit {
        Limit::Cost => usd(value),
        Limit::Wall | Limit::Work => figures::time(value),
        Limit::Tokens | Limit::Output => figures::tokens(value),
        _ => value.to_string(),
    }
}

/// Returns a line such as `done · 4 turns · 12.3k tokens · $0.0123 · 3.2s · run 0199…`.
pub(crate) fn cost_line(envelope: &Envelope) -> String {
    let all = &envelope.subtree;
    let runs = envelope.all().len() as u64;
    let mut parts = vec![envelope.status.name().replace('_', " ")];
    if runs > 1 {
        parts.push(figures::count(runs, "run"));
    }
    parts.push(figures::count(all.turns, "turn"));
    parts.push(format!("{} tokens", figures::tokens(all.input + all.output)));
    parts.push(figures::cost(all));
    parts.push(figures::time(all.wall_ms));
    if let Some(inherited) = &envelope.inherited {
        parts.push(format!("inherited {}", usd(inherited.cost_micros)));
    }
    match envelope.verified {
        Some(true) => parts.push("verified".to_owned()),
        Some(false) => parts.push("not verified".to_owned()),
        None => (),
    }
    parts.push(format!("run {}", short(envelope)));
    parts.join(" · ")
}

/// Returns the short ID of a run.
pub(crate) fn short(envelope: &Envelope) -> String {
    short_id(envelope.run)
}

/// Prints the questions that the run waits for, and how to answer them.
fn print_questions(envelope: &Envelope) {
    terminal::say("waiting for an answer:");
    for open in &envelope.questions {
        terminal::say(&question_lines(open));
    }
    let id = envelope.questions.first().map(|open| open.id.short()).unwrap_or_default();
    let choices = match envelope.questions.first().map(|open| open.kind) {
        Some(QuestionKind::Permission) => "yes|no|always",
        Some(QuestionKind::Choice | QuestionKind::Text) | None => "TEXT",
    };
    terminal::say(&format!("answer with: homing answer --resume {id} {choices}"));
}

/// Returns a question with its ID, the run that asks, and the options.
pub(crate) fn question_lines(open: &OpenQuestion) -> String {
    let text = sanitize::inert(open.question.text.trim()).replace('\n', "\n    ");
    let mut lines = format!("  {}  {} {}: {text}", open.id.short(), open.place, sanitize::inert_line(&open.agent));
    for (at, option) in open.question.options.iter().enumerate() {
        lines.push_str(&format!("\n    {}. {}", at + 1, sanitize::inert_line(option)));
    }
    if let Some(rule) = &open.question.rule {
        lines.push_str(&format!("\n    asked by: {}", sanitize::inert_line(rule)));
    }
    lines
}

fn resume_line(envelope: &Envelope) -> String {
    let id = short(envelope);
    let more = match envelope.limit.as_ref().map(|hit| hit.name) {
        Some(Limit::Cost) => " --max-cost +1.00",
        Some(Limit::Tokens) => " --max-tokens +100k",
        Some(Limit::Output) => " --max-output +8192",
        Some(Limit::Turns) => " --max-turns +20",
        Some(Limit::ToolCalls) => " --max-tool-calls +100",
        Some(Limit::Children) => " --max-children +10",
        Some(Limit::Wall) => " --timeout +10m",
        _ => "",
    };
    let verb = if envelope.status == Status::Interrupted { "resume it" } else { "give it more" };
    format!("{verb} with: homing resume {id}{more}")
}
