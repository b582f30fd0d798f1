//! Columns of text on a terminal: cuts, pads and wraps by what a reader sees as one character, which may take no column or two.

use unicode_segmentation::UnicodeSegmentation;
pub(crate) use unicode_width::UnicodeWidthStr;

/// Cuts a line to `width` columns; what is left out is shown as `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    cut_with(text, width, "…")
}

/// Cuts a line to `width` columns; what is left out is shown as `mark`, if there is room for it.
pub(crate) fn cut_with(text: &str, width: usize, mark: &str) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mark = if mark.width() <= width { mark } else { "" };
    let (mut out, mut used) = (String::new(), mark.width());
    for character in text.graphemes(true) {
        used += character.width();
        if used > width {
            break;
        }
        out.push_str(character);
    }
    out + mark
}

/// Cuts a text to `width` columns, and fills it up with blanks: one cell of a table.
pub(crate) fn cell(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let blanks = width - text.width();
    text + &" ".repeat(blanks)
}

/// Returns the width of a column that holds these texts.
pub(crate) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// Breaks `text` into lines of at most `width` columns, anywhere.
pub(crate) fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for character in text.graphemes(true) {
        if used + character.width() > width.max(2) {
            lines.push(String::new());
            used = 0;
        }
        used += character.width();
        lines.last_mut().expect("there is always a line").push_str(character);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_shows_that_something_is_missing() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut_with("abcdef", 5, "..."), "ab...");
        assert_eq!(cut_with("abcdef", 2, "..."), "ab");
    }

    #[test]
    fn cells_have_one_width_whatever_they_contain() {
        for text in ["", "explore", "日本語の代理人", "e\u{301}tude", "👩‍🚀👩‍🚀👩‍🚀", "👍🏽 fine", "ไทย"]
        {
            assert_eq!(cell(text, 7).width(), 7, "{text}");
        }
        assert_eq!(widest(["ab", "日本"]), 4);
    }

    #[test]
    fn text_is_broken_between_characters() {
        assert_eq!(broken("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(broken("a日本", 3), ["a日", "本"]);
        assert_eq!(broken("👩‍🚀👩‍🚀", 3), ["👩‍🚀", "👩‍🚀"]);
        assert_eq!(broken("", 3), [""]);
    }
}
