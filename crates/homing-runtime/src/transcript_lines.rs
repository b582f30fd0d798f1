//! A run's log for people: its transcript, a line for each thing said or done.

use homing_core::{
    message::{Args, Message, Part},
    run::Run,
};

/// What a run did so far, a line each.
pub(crate) fn lines(run: &Run) -> Vec<String> {
    let mut lines: Vec<String> = run.transcript().iter().flat_map(|entry| said(&entry.message)).collect();
    if let Some(ended) = &run.ended {
        lines.push(crate::delegation::child_report::how(&ended.outcome));
    }
    lines
}

fn said(message: &Message) -> Vec<String> {
    match message {
        Message::User { text, .. } => vec![format!("told: {}", first_line(text))],
        Message::Tool(result) => vec![format!("{} returned: {}", result.name, first_line(&result.text))],
        Message::Assistant(reply) => reply.parts.iter().filter_map(part).collect(),
    }
}

fn part(part: &Part) -> Option<String> {
    match part {
        Part::Text(text) if text.trim().is_empty() => None,
        Part::Text(text) => Some(format!("said: {}", first_line(text))),
        Part::Thinking { .. } | Part::Opaque { .. } => None,
        Part::Call(call) => {
            let args = match &call.args {
                Args::Json(value) => value.to_string(),
                Args::Malformed(text) => text.clone(),
            };
            Some(format!("calls {}: {}", call.name, first_line(&args)))
        }
    }
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.len() > 160 {
        true => format!("{}…", &line[..line.floor_char_boundary(160)]),
        false => line.to_owned(),
    }
}
