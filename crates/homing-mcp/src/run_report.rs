//! What a client's model reads about a run: short and factual. Who, how it went, what it used, then the answer.

use homing::{Envelope, Status, usd};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::client::Sent;

/// The most of the answers in one result, in bytes; the rest is in the runs' resources. Clients show their models the words or
/// the structured content, and some only the latter, so it holds for both.
const INLINE: usize = 24_000;

/// However many answers share a result, this much of each is in it.
const LEAST: usize = 1_000;

/// The most of the answer of a run below.
const BELOW: usize = 300;

/// The result of one run. Only one that could not go on is an error: a limit that was reached is an outcome.
pub(crate) fn one(envelope: &Envelope) -> CallToolResult {
    let brief = brief(envelope, INLINE);
    result(told(&brief), json!(brief), brief.status == Status::Failed)
}

/// The results of several runs.
pub(crate) fn many(envelopes: &[Envelope]) -> CallToolResult {
    let each = (INLINE / envelopes.len().max(1)).max(LEAST);
    let envelopes: Vec<_> = envelopes.iter().map(|it| brief(it, each)).collect();
    let text = match &*envelopes {
        [] => "There is nothing to wait for.".to_owned(),
        some => some.iter().map(told).collect::<Vec<_>>().join("\n\n"),
    };
    result(text, json!({"runs": envelopes}), false)
}

/// A run that was sent out and not waited for.
pub(crate) fn started(sent: &Sent) -> CallToolResult {
    let envelope = sent.handle.envelope();
    let text = format!("{} has started: run {}. `wait` for it.", envelope.agent, envelope.run);
    result(text, json!(envelope), false)
}

/// A list of runs.
pub(crate) fn list(runs: &[Sent]) -> CallToolResult {
    let rows: Vec<Value> = runs.iter().map(row).collect();
    let line = |it: &Value| {
        let field = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}: {}", field("run"), field("agent"), field("status"), first_line(&field("task")))
    };
    let text = match rows.is_empty() {
        true => "You have delegated nothing that fits.".to_owned(),
        false => rows.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    result(text, json!({"runs": rows}), false)
}

fn row(sent: &Sent) -> Value {
    let it = sent.handle.envelope();
    json!({
        "run": it.run, "place": it.place, "agent": it.agent, "task": sent.task, "status": it.status,
        "started": started_ms(&it), "usage": it.subtree,
    })
}

/// Ids of runs carry the time at which they were made.
fn started_ms(envelope: &Envelope) -> u64 {
    let (seconds, nanos) = envelope.run.get_timestamp().map(|it| it.to_unix()).unwrap_or_default();
    seconds * 1_000 + u64::from(nanos) / 1_000_000
}

/// Text and the same for programs.
pub(crate) fn result(text: String, data: Value, is_error: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(data);
    result
}

/// A mistake, in words that a model can act on.
pub(crate) fn mistake(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}

fn told(envelope: &Envelope) -> String {
    let used = &envelope.subtree;
    let head = format!(
        "[{} · run {} · {} · {} turns, {} tool calls, {} tokens, {}]",
        envelope.agent,
        envelope.run,
        how(envelope),
        used.turns,
        used.tool_calls,
        used.input + used.output,
        usd(used.cost_micros)
    );
    let answer = &envelope.output;
    match (envelope.status, answer.trim().is_empty()) {
        (Status::Done, _) => format!("{head}\n{answer}"),
        (_, true) => format!("{head}\nIt has nothing to report so far."),
        (_, false) => format!("{head}\nWhat it has so far (partial):\n{answer}"),
    }
}

fn how(envelope: &Envelope) -> String {
    let status = envelope.status.name().replace('_', " ");
    match (&envelope.limit, &envelope.error) {
        (Some(hit), _) => format!("{status}: {} limit {}, spent {}", hit.name, hit.limit, hit.spent),
        (None, Some(error)) => {
            let hint = error.hint.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
            format!("{status} ({}): {}{hint}", error.kind, error.message)
        }
        (None, None) => status,
    }
}

/// The envelope with at most so much of its answer.
fn brief(envelope: &Envelope, most: usize) -> Envelope {
    Envelope {
        output: inline(envelope, most),
        children: envelope.children.iter().map(|it| brief(it, BELOW)).collect(),
        ..envelope.clone()
    }
}

fn inline(envelope: &Envelope, most: usize) -> String {
    let text = &envelope.output;
    if text.len() <= most {
        return text.clone();
    }
    let head = &text[..text.floor_char_boundary(most)];
    format!("{head}\n[… {} more bytes: read the resource homing://runs/{}]", text.len() - head.len(), envelope.run)
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.len() > 120 {
        true => format!("{}…", &line[..line.floor_char_boundary(120)]),
        false => line.to_owned(),
    }
}
