//! Finds the front matter of a markdown file, also where it is not quite where it should be.
//! It knows fences and lines, not YAML.

use crate::{diagnostics::Diagnostics, node::Position};

/// How far down a fence may stand below a heading or some words.
const MAX_PRELUDE: usize = 20;

/// A markdown file, taken apart.
#[derive(Debug, PartialEq)]
pub(crate) struct Split<'a> {
    /// What stands between the fences, and the number of its first line; `None` where there are no fences.
    pub(crate) front: Option<(&'a str, u32)>,
    /// What stands below.
    pub(crate) body: &'a str,
    /// The number of the body's first line.
    pub(crate) body_line: u32,
}

/// Takes a markdown text with plain line ends apart.
pub(crate) fn split<'a>(text: &'a str, remarks: &mut Diagnostics) -> Split<'a> {
    let bare = Split { front: None, body: text, body_line: 1 };
    let Some(opening) = opening(text) else { return bare };
    let Some(found) = closing(text, opening) else { return bare };
    if opening.line > 1 {
        let spot = Position { line: opening.line, column: 1 };
        remarks.warn(
            spot,
            "",
            "the front matter does not begin on the first line",
            "delete what stands above the first `---`",
        );
    }
    if !found.closed {
        let spot = Position { line: opening.line, column: 1 };
        remarks.warn(
            spot,
            "",
            "the front matter is never closed; it was taken to end where its keys end",
            "write a line `---` below the last key",
        );
    }
    let mut body = &text[found.body..];
    if opening.in_code_fence {
        body = body.trim_end().strip_suffix("```").unwrap_or(body);
    }
    let body_line = opening.line + 1 + lines_in(&text[opening.end..found.body]);
    Split { front: Some((&text[opening.end..found.end], opening.line + 1)), body, body_line }
}

fn lines_in(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

/// The opening fence: its line number and the offset behind it.
#[derive(Clone, Copy)]
struct OpeningFence {
    line: u32,
    end: usize,
    in_code_fence: bool,
}

fn opening(text: &str) -> Option<OpeningFence> {
    let (mut at, mut in_code_fence, mut words) = (0, false, false);
    for (index, line) in text.split_inclusive('\n').take(MAX_PRELUDE).enumerate() {
        at += line.len();
        let line = line.trim_end();
        if line == "---" {
            // Below words a `---` is usually a ruler, unless a key follows it.
            let next = text[at..].lines().next().unwrap_or_default();
            let real = !words || (key_of(next).is_some() && text[at..].lines().any(is_fence));
            return real.then_some(OpeningFence {
                line: u32::try_from(index + 1).unwrap_or(1),
                end: at,
                in_code_fence,
            });
        }
        in_code_fence |= line.starts_with("```");
        words |= !line.is_empty() && !line.starts_with("```");
    }
    None
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

struct ClosingFence {
    end: usize,
    body: usize,
    closed: bool,
}

fn closing(text: &str, opening: OpeningFence) -> Option<ClosingFence> {
    let mut at = opening.end;
    for line in text[opening.end..].split_inclusive('\n') {
        if is_fence(line) {
            return Some(ClosingFence { end: at, body: at + line.len(), closed: true });
        }
        at += line.len();
    }
    unclosed(text, opening)
}

/// Front matter without an end goes as far as its lines look like front matter.
fn unclosed(text: &str, opening: OpeningFence) -> Option<ClosingFence> {
    let mut at = opening.end;
    for line in text[opening.end..].split_inclusive('\n') {
        let content = line.trim_end();
        let belongs = key_of(content).is_some() || line.starts_with([' ', '\t']) || content.starts_with("- ");
        if !belongs || content.is_empty() {
            break;
        }
        at += line.len();
    }
    (at > opening.end).then_some(ClosingFence { end: at, body: at, closed: false })
}

/// The key at the very beginning of a line, with what stands behind its colon.
pub(crate) fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let word = |it: char| it.is_alphanumeric() || matches!(it, '_' | '-' | '.');
    let first = key.chars().next()?;
    let spaced = value.is_empty() || value.starts_with([' ', '\t']);
    (spaced && (first.is_alphabetic() || first == '_') && key.chars().all(word)).then_some((key, value))
}
