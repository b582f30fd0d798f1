//! Finds the front matter of a markdown file, even if it is misplaced or not closed. It does not parse YAML.

use homing_core::diagnostic::TextEdit;
use memchr::{memchr, memchr_iter};

use crate::{
    diagnostics::Diagnostics,
    fix::{FixDraft, edit},
    node::Position,
};

/// The maximum number of lines above the first fence.
const MAX_PRELUDE: usize = 20;

/// A markdown file, split into front matter and body.
#[derive(Debug, PartialEq)]
pub(crate) struct Split<'a> {
    /// The text between the fences and the number of its first line; `None` without fences.
    pub(crate) front: Option<(&'a str, u32)>,
    /// The text below.
    pub(crate) body: &'a str,
    /// The number of the first line of the body.
    pub(crate) body_line: u32,
}

/// Splits a markdown text with `\n` line ends.
pub(crate) fn split<'a>(text: &'a str, diagnostics: &mut Diagnostics) -> Split<'a> {
    let bare = Split { front: None, body: text, body_line: 1 };
    let Some(opening) = opening(text) else { return bare };
    let Some(found) = closing(text, opening) else { return bare };
    if opening.line > 1 {
        let position = Position { line: opening.line, column: 1 };
        diagnostics.warn(
            position,
            "",
            "the front matter does not begin on the first line",
            "delete everything above the first `---`",
        );
        // Prose above the front matter is not deleted without asking its author.
        if !opening.has_words_above {
            diagnostics.fix(FixDraft::exact("delete the lines above the first `---`", above(text, opening)));
        }
    }
    let position = Position { line: opening.line, column: 1 };
    match found.kind {
        FenceKind::Exact => (),
        FenceKind::Unusual => {
            diagnostics.warn(
                position,
                "",
                "the fences of the front matter are longer than `---` or indented; other programs do not read it",
                "write the lines `---` without indentation and with three dashes",
            );
            let closing_line = opening.line + 1 + lines_in(&text[opening.end..found.end]);
            let edits = [opening.line, closing_line].map(|line| {
                let content = text.lines().nth(line as usize - 1).unwrap_or_default().trim_end();
                let end = Position { line, column: u32::try_from(content.len()).unwrap_or(0) + 1 };
                edit(Position { line, column: 1 }, end, "---")
            });
            diagnostics.fix(FixDraft::exact("write the fences as `---`", edits.to_vec()));
        }
        FenceKind::Missing => {
            diagnostics.warn(
                position,
                "",
                "the front matter is not closed: it ends after its last key",
                "write a line `---` below the last key",
            );
            let front = &text[..found.end];
            let fence = if front.ends_with('\n') { "---\n" } else { "\n---\n" };
            let last = front.rsplit('\n').next().map_or(0, |line| line.chars().count());
            let end = Position { line: 1 + lines_in(front), column: u32::try_from(last).unwrap_or(0) + 1 };
            diagnostics.fix(FixDraft::exact("close the front matter", vec![edit(end, end, fence)]));
        }
    }
    let mut body = &text[found.body..];
    if opening.in_code_fence {
        body = body.trim_end().strip_suffix("```").unwrap_or(body);
    }
    let body_line = opening.line + 1 + lines_in(&text[opening.end..found.body]);
    Split { front: Some((&text[opening.end..found.end], opening.line + 1)), body, body_line }
}

/// The deletion of everything above the opening fence, with the end of the code block that it opens.
fn above(text: &str, opening: OpeningFence) -> Vec<TextEdit> {
    let start = Position { line: 1, column: 1 };
    let mut edits = vec![edit(start, Position { line: opening.line, column: 1 }, "")];
    let content = text.trim_end();
    if opening.in_code_fence && content.ends_with("```") {
        let line = 1 + lines_in(content);
        let last = content.lines().last().unwrap_or_default();
        let end = u32::try_from(last.chars().count()).unwrap_or(0) + 1;
        edits.push(edit(Position { line, column: end - 3 }, Position { line, column: end }, ""));
    }
    edits
}

fn lines_in(text: &str) -> u32 {
    u32::try_from(memchr_iter(b'\n', text.as_bytes()).count()).unwrap_or(u32::MAX)
}

/// The lines of a text with their ends.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |at| at + 1);
        let line;
        (line, rest) = rest.split_at(end);
        Some(line).filter(|line| !line.is_empty())
    })
}

/// The opening fence: its line number and the offset of the next line.
#[derive(Clone, Copy)]
struct OpeningFence {
    line: u32,
    end: usize,
    /// The number of bytes before the dashes.
    indent: usize,
    in_code_fence: bool,
    has_words_above: bool,
}

fn opening(text: &str) -> Option<OpeningFence> {
    let (mut at, mut in_code_fence, mut words) = (0, false, false);
    for (index, line) in lines(text).take(MAX_PRELUDE).enumerate() {
        at += line.len();
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if is_fence(line) {
            // Below other text a `---` is usually a horizontal rule, unless a key follows it. So is an indented or a longer
            // line of dashes.
            let usual = !words && indent == 0 && line == "---";
            let mut below = text[at..].lines().map(str::trim).skip_while(|line| line.is_empty());
            let real = usual || (below.next().is_some_and(|next| key_of(next).is_some()) && below.any(is_fence));
            let line = u32::try_from(index + 1).unwrap_or(1);
            return real.then_some(OpeningFence { line, end: at, indent, in_code_fence, has_words_above: words });
        }
        in_code_fence |= line.starts_with("```");
        words |= !line.is_empty() && !line.starts_with("```");
    }
    None
}

/// Returns true for a line of at least three dashes.
fn is_fence(line: &str) -> bool {
    line.len() >= 3 && line.bytes().all(|byte| byte == b'-')
}

struct ClosingFence {
    end: usize,
    body: usize,
    kind: FenceKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FenceKind {
    Exact,
    /// More than three dashes, or indented.
    Unusual,
    Missing,
}

fn closing(text: &str, opening: OpeningFence) -> Option<ClosingFence> {
    let mut at = opening.end;
    for line in lines(&text[opening.end..]) {
        let dashes = line.trim();
        // An indented line of dashes may be part of a value, unless the opening fence is indented alike.
        if is_fence(dashes) && line.len() - line.trim_start().len() == opening.indent {
            let kind = if dashes == "---" && opening.indent == 0 { FenceKind::Exact } else { FenceKind::Unusual };
            return Some(ClosingFence { end: at, body: at + line.len(), kind });
        }
        at += line.len();
    }
    unclosed(text, opening)
}

/// Ends front matter that is not closed at the first line that cannot belong to it.
fn unclosed(text: &str, opening: OpeningFence) -> Option<ClosingFence> {
    let (mut at, mut has_keys) = (opening.end, false);
    for line in lines(&text[opening.end..]) {
        let content = line.trim_end();
        if has_keys && is_fence(content.trim_start()) {
            return Some(ClosingFence { end: at, body: at + line.len(), kind: FenceKind::Unusual });
        }
        let belongs = key_of(content).is_some() || line.starts_with([' ', '\t']) || content.starts_with("- ");
        let is_blank_above = content.is_empty() && !has_keys;
        if (!belongs || content.is_empty()) && !is_blank_above {
            break;
        }
        has_keys |= belongs;
        at += line.len();
    }
    has_keys.then_some(ClosingFence { end: at, body: at, kind: FenceKind::Missing })
}

/// The key at the beginning of a line, and the text after its colon.
pub(crate) fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.');
    let first = key.chars().next()?;
    let spaced = value.is_empty() || value.starts_with([' ', '\t']);
    (spaced && (first.is_alphabetic() || first == '_') && key.chars().all(is_word)).then_some((key, value))
}
