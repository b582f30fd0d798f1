//! Formats a run's transcript for people, one line per entry.

use homing_core::{
    message::{Args, Message, Part},
    run::Run,
};

/// The transcript of a run, one line per message, call and result.
pub(crate) fn lines(run: &Run) -> Vec<String> {
    let mut lines: Vec<String> = run.transcript().iter().flat_map(|entry| message_lines(&entry.message)).collect();
    if let Some(ended) = &run.ended {
        lines.push(crate::delegation::child_report::describe(&ended.outcome));
    }
    lines
}

fn message_lines(message: &Message) -> Vec<String> {
    match message {
        Message::User { text, .. } => vec![format!("user: {}", first_line(text))],
        Message::Tool(result) => vec![format!("result {}: {}", result.name, first_line(&result.text))],
        Message::Assistant(reply) => reply.parts.iter().filter_map(part_line).collect(),
    }
}

fn part_line(part: &Part) -> Option<String> {
    match part {
        Part::Text(text) if text.trim().is_empty() => None,
        Part::Text(text) => Some(format!("assistant: {}", first_line(text))),
        Part::Thinking { .. } | Part::Opaque { .. } => None,
        Part::Call(call) => {
            let args = match &call.args {
                Args::Json(value) => value.to_string(),
                Args::Malformed(text) => text.clone(),
            };
            Some(format!("call {}: {}", call.name, first_line(&args)))
        }
    }
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    if line.len() > 160 { format!("{}…", &line[..line.floor_char_boundary(160)]) } else { line.to_owned() }
}
