//! What a change to a file looks like: the contents before, and a unified diff for the model to check itself by.

use std::{io::Read, time::Duration};

use similar::{Algorithm, TextDiff};

use crate::files::{path_arg::RequestedPath, workspace_files::Opened};

/// The largest file that is changed.
const MOST: u64 = 64 * 1024 * 1024;
/// Bytes of diff in one answer.
const MOST_DIFF: usize = 16 * 1024;

/// All of a file's contents.
pub(crate) fn whole(opened: &mut Opened, wanted: &RequestedPath) -> Result<Vec<u8>, String> {
    let length = opened.metadata.len();
    if length > MOST {
        return Err(format!("{} has {length} bytes; at most {MOST} can be changed this way", wanted.shown));
    }
    let mut content = Vec::with_capacity(length as usize + 1);
    (&mut opened.file)
        .take(MOST)
        .read_to_end(&mut content)
        .map_err(|error| format!("{} cannot be read: {error}", wanted.shown))?;
    Ok(content)
}

/// A unified diff, cut where it grows long. Only the part between the first and the last change is compared, so that a
/// small change to a large file costs little.
pub(crate) fn diff(before: &str, after: &str, wanted: &RequestedPath) -> String {
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
    let mut text = format!("--- {0}\n+++ {0}\n", wanted.shown);
    for line in diff.lines() {
        if text.len() + line.len() > MOST_DIFF {
            text.push_str("… [the diff goes on]\n");
            break;
        }
        text.push_str(&shifted(line, lines_before));
        text.push('\n');
    }
    text
}

/// Bytes at the start and at the end that both texts share, less three lines of context, at line ends.
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

/// Where the line begins that stands `count` line ends before the end of `text`.
fn back_lines(text: &[u8], count: usize) -> usize {
    text.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'\n').nth(count - 1).map_or(0, |(at, _)| at + 1)
}

/// A hunk's header counts from the start of the compared part; the reader counts from the start of the file.
fn shifted(line: &str, by: usize) -> String {
    let Some((old, new)) =
        line.strip_prefix("@@ -").and_then(|it| it.strip_suffix(" @@")).and_then(|it| it.split_once(" +"))
    else {
        return line.to_owned();
    };
    let shift = |range: &str| {
        let (start, length) = range.split_once(',').map_or((range, ""), |(start, length)| (start, length));
        let start = start.parse::<usize>().map_or_else(|_| start.to_owned(), |it| (it + by).to_string());
        if length.is_empty() { start } else { format!("{start},{length}") }
    };
    format!("@@ -{} +{} @@", shift(old), shift(new))
}
