//! Progress as lines, for logs and pipes.

use homing_core::{fact::Fact, limits::usd, question::Answer};
use homing_runtime::event::{Event, TransientKind};

use super::{Board, call_line, failed_line, figures, first_line};

/// Returns the line for an event, if it has one. `board` must already contain the event.
pub(crate) fn line(event: &Event, board: &Board) -> Option<String> {
    let (run, text) = match event {
        Event::Transient(notice) => match &notice.kind {
            TransientKind::Retrying { in_ms, reason } => {
                (notice.run, format!("retrying in {}: {}", figures::time(*in_ms), first_line(reason)))
            }
            TransientKind::Warning(text) => (notice.run, format!("warning: {}", first_line(text))),
            TransientKind::WaitingForBudget => (notice.run, "waiting for budget".to_owned()),
            TransientKind::Queued
            | TransientKind::Progress(_)
            | TransientKind::Question(_)
            | TransientKind::Text(_)
            | TransientKind::Thinking(_) => return None,
        },
        Event::Fact(record) => (record.run, fact(&record.fact, record.run, board)?),
        Event::Missed(_) => return None,
    };
    let row = board.row(run)?;
    Some(format!("{:<5} {}: {text}", row.place.to_string(), row.agent))
}

/// Returns a line about a model call or the result of a tool call.
pub(crate) fn detail(event: &Event, board: &Board) -> Option<String> {
    let Event::Fact(record) = event else { return None };
    let text = match &record.fact {
        Fact::Asked(asked) => format!("asks {} (up to {} tokens)", asked.model, figures::tokens(asked.input_bound)),
        Fact::Replied { reply, .. } => {
            let usage = &reply.usage;
            let (input, output) = (figures::tokens(usage.input), figures::tokens(usage.output));
            let cost = usd(usage.cost_micros);
            format!("replied: {input} in, {output} out, {cost} · {}", first_line(&reply.text()))
        }
        Fact::AskFailed { failure, .. } => format!("the model call failed: {}", first_line(&failure.error.to_string())),
        Fact::Returned { result, .. } => format!("{} returned: {}", result.name, first_line(&result.text)),
        _ => return None,
    };
    let row = board.row(record.run)?;
    Some(format!("{:<5} {}: {text}", row.place.to_string(), row.agent))
}

fn fact(fact: &Fact, run: uuid::Uuid, board: &Board) -> Option<String> {
    match fact {
        Fact::Spawned(spawned) => Some(format!("started: {}", first_line(&spawned.task))),
        Fact::Called(called) => Some(call_line(&called.call)),
        Fact::Questioned { id, question } => Some(format!("question {}: {}", id.short(), first_line(&question.text))),
        Fact::Answered { answer, by, .. } => Some(answered(answer, by)),
        Fact::Told { message, .. } => Some(format!("message: {}", first_line(message))),
        Fact::Halted { .. } => Some("stopping".to_owned()),
        Fact::Compacted { .. } => Some("compacted its history".to_owned()),
        Fact::Ended(ended) => {
            let row = board.row(run)?;
            let how = ended.outcome.status().replace('_', " ");
            let (tokens, cost) = (figures::tokens(row.tokens), usd(row.cost_micros));
            Some(format!("{how} · {tokens} tokens · {cost} · {}", figures::time(row.took(board.now))))
        }
        Fact::Returned { result, .. } => failed_line(result),
        Fact::Asked(_) | Fact::Replied { .. } | Fact::AskFailed { .. } | Fact::Extended { .. } => None,
    }
}

fn answered(answer: &Answer, by: &str) -> String {
    let answer = match answer {
        Answer::Yes => "yes".to_owned(),
        Answer::No => "no".to_owned(),
        Answer::Text(text) => first_line(text),
        _ => return "no answer".to_owned(),
    };
    format!("answered by {}: {answer}", first_line(by))
}
