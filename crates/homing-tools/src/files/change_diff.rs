//! Reads a file's previous contents and shows a change as a unified diff.

use std::{io::Read, time::Duration};

use similar::{Algorithm, TextDiff};

use homing_core::{tool::ToolContext, tool_names};

use crate::files::{
    path_arg::RequestedPath,
    workspace_files::{OpenFile, open_file},
};

/// Maximum size of a file that can be changed.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Maximum size of a diff.
const MAX_DIFF: usize = 16 * 1024;

/// Maximum size of a file that is compared for a preview.
const MAX_PREVIEW: u64 = 1024 * 1024;

/// Returns the text of a file that a call would change; `None` if it is missing, large, not text, or unreadable for the run.
pub(crate) fn text_before(context: &ToolContext, requested: &RequestedPath) -> Option<String> {
    let mut opened = open_file(context, tool_names::READ, requested).ok()?;
    if opened.metadata.len() > MAX_PREVIEW {
        return None;
    }
    String::from_utf8(read_all(&mut opened, requested).ok()?).ok()
}

/// Reads all of a file's contents.
pub(crate) fn read_all(opened: &mut OpenFile, requested: &RequestedPath) -> Result<Vec<u8>, String> {
    let length = opened.metadata.len();
    if length > MAX_FILE {
        return Err(format!("{} has {length} bytes; at most {MAX_FILE} can be changed", requested.shown));
    }
    let mut content = Vec::with_capacity(length as usize + 1);
    (&mut opened.file)
        .take(MAX_FILE)
        .read_to_end(&mut content)
        .map_err(|error| format!("cannot read {}: {error}", requested.shown))?;
    Ok(content)
}

/// Returns a unified diff, cut at the maximum size.
pub(crate) fn diff(before: &str, after: &str, requested: &RequestedPath) -> String {
    let path = &requested.shown;
    unified(before, after, (path, path), MAX_DIFF)
}

/// Returns a unified diff with these names for the old and the new file, cut at `max_bytes`. Only the part between the first
/// and the last change is compared, so that a small change to a large file is cheap.
pub fn unified(before: &str, after: &str, (old_name, new_name): (&str, &str), max_bytes: usize) -> String {
    let (head, tail) = same_ends(before, after);
    let middle = |text: &str| text[head..text.len() - tail].to_owned();
    let (old, new) = (middle(before), middle(after));
    let lines_before = before[..head].bytes().filter(|&byte| byte == b'\n').count();
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(Duration::from_millis(500))
        .diff_lines(&old, &new)
        .unified_diff()
        .context_radius(3)
        .missing_newline_hint(false)
        .to_string();
    let mut text = format!("--- {old_name}\n+++ {new_name}\n");
    for line in diff.lines() {
        if text.len() + line.len() > max_bytes {
            text.push_str("… [diff truncated]\n");
            break;
        }
        text.push_str(&shifted(line, lines_before));
        text.push('\n');
    }
    text
}

/// Returns the lengths of the common start and end of both texts, at line ends and less three lines of context.
fn same_ends(before: &str, after: &str) -> (usize, usize) {
    let head = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    let head = back_lines(&before.as_bytes()[..head], 4);
    let (rest_before, rest_after) = (&before.as_bytes()[head..], &after.as_bytes()[head..]);
    let tail = rest_before.iter().rev().zip(rest_after.iter().rev()).take_while(|(a, b)| a == b).count();
    let shared = &rest_before[rest_before.len() - tail..];
    let skipped =
        shared.iter().enumerate().filter(|&(_, &byte)| byte == b'\n').nth(3).map_or(shared.len(), |(at, _)| at + 1);
    (head, shared.len() - skipped)
}

/// Returns the start of the line that is `count` line ends before the end of `text`.
fn back_lines(text: &[u8], count: usize) -> usize {
    text.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'\n').nth(count - 1).map_or(0, |(at, _)| at + 1)
}

/// Shifts the line numbers of a hunk header, which count from the start of the compared part, to the whole file.
fn shifted(line: &str, by: usize) -> String {
    let ranges = line.strip_prefix("@@ -").and_then(|rest| rest.strip_suffix(" @@"));
    let Some((old, new)) = ranges.and_then(|ranges| ranges.split_once(" +")) else { return line.to_owned() };
    let shift = |range: &str| {
        let (start, length) = range.split_once(',').map_or((range, ""), |(start, length)| (start, length));
        let start = start.parse::<usize>().map_or_else(|_| start.to_owned(), |line| (line + by).to_string());
        if length.is_empty() { start } else { format!("{start},{length}") }
    };
    format!("@@ -{} +{} @@", shift(old), shift(new))
}
