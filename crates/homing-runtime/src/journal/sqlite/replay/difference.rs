//! Describes how a request differs from the recorded one: the prompt, a message or the tools.

use std::sync::Arc;

use homing_core::message::{Args, Message, TranscriptEntry};

/// The most lines of each side that are shown.
const MOST_LINES: usize = 4;
/// The most characters of a line that are shown.
const MOST_CHARS: usize = 160;

/// The difference between a recorded request and one of the replay.
pub(super) fn difference(recorded: (&str, &[Arc<TranscriptEntry>]), played: (&str, &[Arc<TranscriptEntry>])) -> String {
    if recorded.0 != played.0 {
        return format!("its prompt differs from the recording:\n{}", diff(recorded.0, played.0));
    }
    let (before, now) = (recorded.1, played.1);
    let same = before.iter().zip(now).take_while(|(before, now)| before.hash() == now.hash()).count();
    match (before.get(same), now.get(same)) {
        (None, None) => "its tools differ from the recording".to_owned(),
        (before, now) => {
            let text =
                |entry: Option<&Arc<TranscriptEntry>>| entry.map(|entry| shown(&entry.message)).unwrap_or_default();
            format!("message {} differs from the recording:\n{}", same + 1, diff(&text(before), &text(now)))
        }
    }
}

fn shown(message: &Message) -> String {
    match message {
        Message::User { text, .. } => text.clone(),
        Message::Assistant(reply) => {
            let args = |args: &Args| match args {
                Args::Json(value) => value.to_string(),
                Args::Malformed(text) => text.clone(),
            };
            let calls = reply.calls().map(|call| format!("calls {} {}", call.name, args(&call.args)));
            [reply.text()].into_iter().chain(calls).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
        }
        Message::Tool(result) => result.text.clone(),
    }
}

/// The lines that differ, without the common ones before and after them.
fn diff(before: &str, now: &str) -> String {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let start = before.iter().zip(&now).take_while(|(before, now)| before == now).count();
    let (before, now) = (&before[start..], &now[start..]);
    let end = before.iter().rev().zip(now.iter().rev()).take_while(|(before, now)| before == now).count();
    let side = |sign: &str, lines: &[&str]| {
        let mut shown: Vec<String> =
            lines.iter().take(MOST_LINES).map(|line| format!("{sign} {}", cut(line))).collect();
        if lines.len() > MOST_LINES {
            shown.push(format!("{sign} … {} more lines", lines.len() - MOST_LINES));
        }
        shown
    };
    let removed = side("-", &before[..before.len() - end]);
    [removed, side("+", &now[..now.len() - end])].concat().join("\n")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_differ_are_shown() {
        assert_eq!(diff("a\nb\nc", "a\nx\nc"), "- b\n+ x");
        assert_eq!(diff("a", "a\nb"), "+ b");
        assert_eq!(diff("1\n2\n3\n4\n5\n6", ""), "- 1\n- 2\n- 3\n- 4\n- … 2 more lines");
    }
}
