//! The texts of a run that reaches a limit: the digest that its landing sends instead of the whole conversation, and the
//! report that stands in for an answer if no model call is possible any more.

use std::{fmt::Write, sync::Arc};

use homing_core::{
    fact::{LimitHit, Reservation},
    limits::{Limit, usd},
    message::{Message, TranscriptEntry},
    run::Run,
    tree::RunTree,
};

use crate::delegation::child_report;

/// Bytes of one child's answer, or of one tool result, in a report without a model.
const EXCERPT: usize = 500;

/// Number of tool results in a report without a model.
const LAST_RESULTS: usize = 5;

/// Returns a message with the task, a digest of the conversation and the nudge, that is not longer than `most` bytes when
/// it is serialized, because its tokens are estimated from that length.
pub(crate) fn digest(run: &Run, nudge: Option<&str>, most: usize) -> Arc<TranscriptEntry> {
    let mut bytes = most;
    loop {
        let entry = TranscriptEntry::new(Message::user(digest_text(run, nudge, bytes)));
        let size = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        if size <= most || bytes == 0 {
            return entry;
        }
        bytes = bytes.saturating_sub((size - most).max(bytes / 20)).min(bytes.saturating_sub(1));
    }
}

fn digest_text(run: &Run, nudge: Option<&str>, most: usize) -> String {
    let nudge = nudge.unwrap_or_default();
    let task = shorten(&run.spawned.task, most / 4);
    let left = most.saturating_sub(nudge.len() + task.len() + 40);
    let entries = &run.messages()[run.messages().len().min(1)..];
    let each = (left / entries.len().max(1)).saturating_sub(12);
    // If there are too many to quote each, the latest are quoted, because they contain what was found out last.
    let (each, skipped) = if each < 40 { (40, entries.len().saturating_sub(left / 52)) } else { (each, 0) };
    let mut text = format!("The task:\n{task}\n\nWhat happened:\n");
    for entry in &entries[skipped.min(entries.len())..] {
        let (role, content) = match &entry.message {
            Message::User { text, .. } => ("user", text.clone()),
            Message::Assistant(reply) => {
                let calls: Vec<&str> = reply.calls().map(|call| call.name.as_str()).collect();
                let calls = if calls.is_empty() { String::new() } else { format!(" [calls {}]", calls.join(", ")) };
                ("agent", format!("{}{calls}", reply.text()))
            }
            Message::Tool(result) => ("tool", result.text.clone()),
        };
        let _ = writeln!(text, "{role}: {}", shorten(content.trim(), each));
    }
    text.truncate(text.floor_char_boundary(most.saturating_sub(nudge.len())));
    text.push_str(nudge);
    text
}

/// Returns the answer of a run that reached a limit and has no text of its own: what its children returned, or else its last
/// tool results.
pub(crate) fn report(tree: &RunTree, run: &Run, hit: &LimitHit) -> String {
    let mut text =
        format!("This run reached the {} limit of run {} and could not write an answer.", hit.name, hit.place);
    let mut ended = tree.children(run).filter_map(|child| Some((child, child.ended.as_ref()?))).peekable();
    if ended.peek().is_some() {
        text.push_str(" Results of its child runs:\n");
        for (child, ended) in ended {
            let (agent, status) = (&child.spawned.agent.name, child_report::describe(&ended.outcome));
            let answer = shorten(ended.text.trim(), EXCERPT);
            let _ = write!(text, "\n[{agent} · run {} · {status}]\n{answer}\n", child.place);
        }
        return text;
    }
    let results: Vec<String> = run.transcript().iter().rev().filter_map(|entry| result_line(&entry.message)).collect();
    if !results.is_empty() {
        text.push_str(" Its last results:\n");
        for line in results.iter().take(LAST_RESULTS).rev() {
            let _ = write!(text, "\n{line}\n");
        }
    }
    text
}

fn result_line(message: &Message) -> Option<String> {
    match message {
        Message::Tool(result) => Some(format!("[{}]\n{}", result.name, shorten(result.text.trim(), EXCERPT))),
        Message::User { .. } | Message::Assistant(_) => None,
    }
}

/// Returns the answer of a run that could not start, because `needed` does not fit the limit.
pub(crate) fn not_started(hit: &LimitHit, needed: Reservation) -> String {
    format!("Not started: {}", too_small(hit, needed))
}

/// Explains that `needed` for the first call does not fit the limit.
pub(crate) fn too_small(hit: &LimitHit, needed: Reservation) -> String {
    let (amount, limit, spent) = match hit.name {
        Limit::Cost => (format!("cost up to {}", usd(needed.cost_micros)), usd(hit.limit), usd(hit.spent)),
        Limit::Tokens => (format!("use up to {} tokens", needed.tokens), hit.limit.to_string(), hit.spent.to_string()),
        _ => return format!("the {} limit of run {} was reached.", hit.name, hit.place),
    };
    format!(
        "its first model call, with the last one that is kept in reserve, may {amount}. The {} limit of \
         run {} is {limit}, of which {spent} are spent.",
        hit.name, hit.place
    )
}

/// Returns the beginning of a text that is too long.
fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(most.saturating_sub(3))])
}
