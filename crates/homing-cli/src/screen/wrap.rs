//! Breaks styled text into lines of a given width, by what a reader sees as one character.

use ratatui_core::{
    style::Style,
    text::{Line, Span},
};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The blanks that a tab is shown as.
const TAB: &str = "    ";

/// The text before the first line of a paragraph, and before the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indent {
    pub(crate) first: Vec<Span<'static>>,
    pub(crate) rest: Vec<Span<'static>>,
}

impl Indent {
    /// The same text before every line.
    pub(crate) fn all(text: impl Into<String>, style: Style) -> Self {
        let span = Span::styled(text.into(), style);
        Self { first: vec![span.clone()], rest: vec![span] }
    }

    /// A mark before the first line, and blanks of its width before the others.
    pub(crate) fn hanging(mark: impl Into<String>, style: Style) -> Self {
        let mark = mark.into();
        let blanks = " ".repeat(mark.width());
        Self { first: vec![Span::styled(mark, style)], rest: vec![Span::raw(blanks)] }
    }

    /// This indent within another one.
    pub(crate) fn within(&self, outer: &Self) -> Self {
        Self {
            first: [outer.first.clone(), self.first.clone()].concat(),
            rest: [outer.rest.clone(), self.rest.clone()].concat(),
        }
    }
}

/// One character with its style.
#[derive(Clone)]
struct Piece {
    text: String,
    style: Style,
    width: usize,
}

impl Piece {
    fn is_blank(&self) -> bool {
        self.text == " "
    }
}

/// Wraps one paragraph between words. East Asian characters may be separated, and words that are wider than a line are cut.
pub(crate) fn wrap(spans: &[Span<'_>], width: usize, indent: &Indent) -> Vec<Line<'static>> {
    let used = columns_of(&indent.first).max(columns_of(&indent.rest));
    // An indent that leaves no room is left out.
    let (indent, width) = if used + 8 > width { (&Indent::default(), width.max(1)) } else { (indent, width - used) };
    let (mut lines, mut filled): (Vec<Vec<Piece>>, usize) = (vec![Vec::new()], 0);
    for word in words(&pieces(spans)) {
        let wide: usize = word.iter().map(|piece| piece.width).sum();
        if filled > 0 && filled + wide > width {
            lines.push(Vec::new());
            filled = 0;
            // The blank at the end of a line is the line break.
            if word[0].is_blank() {
                continue;
            }
        }
        for piece in word {
            if filled > 0 && filled + piece.width > width {
                lines.push(Vec::new());
                filled = 0;
            }
            filled += piece.width;
            if let Some(line) = lines.last_mut() {
                line.push(piece);
            }
        }
    }
    let prefix = |at: usize| if at == 0 { indent.first.clone() } else { indent.rest.clone() };
    lines.into_iter().enumerate().map(|(at, line)| Line::from([prefix(at), joined(line)].concat())).collect()
}

/// Wraps a text of several lines, each as a paragraph.
pub(crate) fn wrap_text(text: &str, style: Style, width: usize, indent: &Indent) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let first = if at == 0 { indent.first.clone() } else { indent.rest.clone() };
        let indent = Indent { first, rest: indent.rest.clone() };
        lines.extend(wrap(&[Span::styled(line, style)], width, &indent));
    }
    lines
}

/// Returns the columns that these spans take.
pub(crate) fn columns_of(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| span.content.width()).sum()
}

fn pieces(spans: &[Span<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for span in spans {
        for character in span.content.graphemes(true) {
            let text = match character {
                "\t" => TAB,
                "\n" | "\r\n" => " ",
                other => other,
            };
            for text in if text == TAB { vec![" "; TAB.len()] } else { vec![text] } {
                pieces.push(Piece { text: text.to_owned(), style: span.style, width: text.width() });
            }
        }
    }
    pieces
}

/// Splits characters into blanks, words, and East Asian characters, which count as a word each.
fn words(pieces: &[Piece]) -> Vec<Vec<Piece>> {
    let mut words: Vec<Vec<Piece>> = Vec::new();
    let mut is_open = false;
    for piece in pieces {
        let stands_alone = piece.is_blank() || piece.width > 1;
        match words.last_mut() {
            Some(word) if is_open && !stands_alone => word.push(piece.clone()),
            Some(_) | None => words.push(vec![piece.clone()]),
        }
        is_open = !stands_alone;
    }
    words
}

fn joined(pieces: Vec<Piece>) -> Vec<Span<'static>> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for piece in pieces {
        match spans.last_mut() {
            Some(span) if span.style == piece.style => span.content.to_mut().push_str(&piece.text),
            Some(_) | None => spans.push(Span::styled(piece.text, piece.style)),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, width: usize, indent: &Indent) -> Vec<String> {
        wrap(&[Span::raw(text)], width, indent).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_break_between_words_and_never_exceed_the_width() {
        let none = Indent::default();
        assert_eq!(shown("one two three", 8, &none), ["one two ", "three"]);
        assert_eq!(shown("", 8, &none), [""]);
        assert_eq!(shown("abcdefghij kl", 4, &none), ["abcd", "efgh", "ij ", "kl"]);
        assert_eq!(shown("日本語テスト", 5, &none), ["日本", "語テ", "スト"]);
        assert_eq!(shown("e\u{301}a\u{308}o", 2, &none), ["e\u{301}a\u{308}", "o"]);
        assert_eq!(shown("👩‍🚀👩‍🚀", 3, &none), ["👩‍🚀", "👩‍🚀"]);
        assert_eq!(shown("- a long item", 14, &Indent::hanging("• ", Style::new())), ["• - a long ", "  item"]);
        for width in 1..30 {
            for line in shown("ein längerer Satz 日本語 mit\tTab und Donaudampfschifffahrt 👍🏽", width, &none)
            {
                assert!(line.width() <= width.max(2), "{width}: {line:?}");
            }
        }
    }
}
