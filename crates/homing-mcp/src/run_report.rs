//! Formats runs for the client's model: agent, status and usage, then the answer.

use homing::{
    Envelope, OpenQuestion, QuestionKind, Status,
    crates::{core::sanitize, runtime::journal::sqlite::RunRow},
    usd,
};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::client::ClientRun;

/// Maximum size of all answers in one result in bytes; the rest is in the runs' resources. It applies to the text and to the
/// structured content, because some clients show their models only one of them.
const MAX_INLINE: usize = 24_000;

/// Size of each answer that is included at least, however many share a result.
const MIN_EACH: usize = 1_000;

/// Maximum size of the answer of a child run.
const MAX_CHILD: usize = 300;

/// Formats the result of one run. Only a failed run is an error; a reached limit is an outcome.
pub(crate) fn one(envelope: &Envelope) -> CallToolResult {
    let shortened = shortened(envelope, MAX_INLINE);
    result(described(&shortened), json!(shortened), shortened.status == Status::Failed)
}

/// Formats the results of several runs.
pub(crate) fn many(envelopes: &[Envelope]) -> CallToolResult {
    let each = (MAX_INLINE / envelopes.len().max(1)).max(MIN_EACH);
    let envelopes: Vec<_> = envelopes.iter().map(|envelope| shortened(envelope, each)).collect();
    let text = match &*envelopes {
        [] => "There is nothing to wait for.".to_owned(),
        some => some.iter().map(described).collect::<Vec<_>>().join("\n\n"),
    };
    result(text, json!({"runs": envelopes}), false)
}

/// Formats a run in the background that `has_started`, or continues.
pub(crate) fn started(run: &ClientRun, has_started: &str) -> CallToolResult {
    let envelope = run.handle.envelope();
    let text = format!("{} {has_started}: run {}. `wait` for it.", envelope.agent, envelope.run);
    result(text, json!(envelope), false)
}

/// Formats a list of runs, and of runs that earlier processes of the server started.
pub(crate) fn list(runs: &[ClientRun], earlier: &[RunRow]) -> CallToolResult {
    let rows: Vec<Value> = runs.iter().map(row).chain(earlier.iter().map(earlier_row)).collect();
    let line = |row: &Value| {
        let field = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}: {}", field("run"), field("agent"), field("status"), first_line(&field("task")))
    };
    let text = if rows.is_empty() {
        "You have delegated no such run.".to_owned()
    } else {
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    result(text, json!({"runs": rows}), false)
}

fn row(run: &ClientRun) -> Value {
    let envelope = run.handle.envelope();
    json!({
        "run": envelope.run, "place": envelope.place, "agent": envelope.agent, "task": run.task,
        "status": envelope.status, "started": started_ms(&envelope), "usage": envelope.subtree,
    })
}

fn earlier_row(row: &RunRow) -> Value {
    json!({
        "run": row.run, "place": row.place, "agent": row.agent, "task": row.task,
        "status": row.status, "started": row.started, "usage": row.usage,
    })
}

/// Returns the start time of a run, which its ID contains.
fn started_ms(envelope: &Envelope) -> u64 {
    let (seconds, nanos) = envelope.run.get_timestamp().map(|time| time.to_unix()).unwrap_or_default();
    seconds * 1_000 + u64::from(nanos) / 1_000_000
}

/// Builds a result from text and structured content.
pub(crate) fn result(text: String, data: Value, is_error: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(data);
    result
}

/// Builds the error result for a mistake of the client's model.
pub(crate) fn mistake(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}

fn described(envelope: &Envelope) -> String {
    let used = &envelope.subtree;
    let head = format!(
        "[{} · run {} · {} · {} turns, {} tool calls, {} tokens, {}]",
        envelope.agent,
        envelope.run,
        status_text(envelope),
        used.turns,
        used.tool_calls,
        used.input + used.output,
        usd(used.cost_micros)
    );
    let answer = &envelope.output;
    let text = match (envelope.status, answer.trim().is_empty()) {
        (Status::Done, _) => format!("{head}\n{answer}"),
        (_, true) => format!("{head}\nNo output so far."),
        (_, false) => format!("{head}\nPartial output:\n{answer}"),
    };
    envelope.questions.iter().fold(text, |text, open| format!("{text}\n{}", asked(open)))
}

/// Describes a question that waits for an answer.
fn asked(open: &OpenQuestion) -> String {
    let question = sanitize::inert(&open.question.text);
    match open.kind {
        QuestionKind::Permission => format!("The user must approve a call (question {}): {question}", open.id),
        QuestionKind::Choice => {
            format!("Question {}: {question} (options: {})", open.id, open.question.options.join(", "))
        }
        QuestionKind::Text => format!("Question {}: {question}", open.id),
    }
}

fn status_text(envelope: &Envelope) -> String {
    let status = envelope.status.name().replace('_', " ");
    match (&envelope.limit, &envelope.error) {
        (Some(hit), _) => format!("{status}: {} limit {}, spent {}", hit.name, hit.limit, hit.spent),
        (None, Some(error)) => {
            let hint = error.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("{status} ({}): {}{hint}", error.kind, error.message)
        }
        (None, None) => status,
    }
}

/// Returns the envelope with at most `most` bytes of its answer.
fn shortened(envelope: &Envelope, most: usize) -> Envelope {
    {
        let mut changed = envelope.clone();
        changed.output = inline(envelope, most);
        changed.children = envelope.children.iter().map(|child| shortened(child, MAX_CHILD)).collect();
        changed
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
    if line.len() > 120 { format!("{}…", &line[..line.floor_char_boundary(120)]) } else { line.to_owned() }
}
