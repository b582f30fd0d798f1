//! Makes text from untrusted sources safe to display. It affects display only, never what a model reads.

/// Characters that can deceive a reader, in ascending order: first, last, and whether [`inert`] replaces them.
///
/// All of them are invisible or change the direction of writing. The ones that are replaced act on text in a terminal or
/// hide data in it. The others are kept in displayed text because writing systems and emoji need them, or because they do
/// no harm there: the soft hyphen, the Mongolian vowel separator, the joiners (U+200C and U+200D), deprecated format
/// characters, interlinear annotations and variation selectors. They are still invisible, so [`is_invisible`] covers them:
/// in names and paths two different texts must not look the same.
const DECEPTIVE: &[(char, char, bool)] = &[
    ('\u{ad}', '\u{ad}', false),
    ('\u{61c}', '\u{61c}', true),
    ('\u{180e}', '\u{180e}', false),
    ('\u{200b}', '\u{200b}', true),
    ('\u{200c}', '\u{200d}', false),
    ('\u{200e}', '\u{200f}', true),
    ('\u{2028}', '\u{202e}', true),
    ('\u{2060}', '\u{2069}', true),
    ('\u{206a}', '\u{206f}', false),
    ('\u{feff}', '\u{feff}', true),
    ('\u{fff9}', '\u{fffb}', false),
    ('\u{e0000}', '\u{e007f}', true),
    ('\u{e0080}', '\u{e0fff}', false),
];

/// Replaces everything in `text` that a terminal would interpret or a reader could not see with `�`: escape sequences and
/// other control characters, direction marks, invisible tags. Line ends and tabs stay.
pub fn inert(text: &str) -> String {
    text.chars().map(|character| if is_active(character) { '\u{fffd}' } else { character }).collect()
}

/// Like [`inert`], but joins the text into one line.
pub fn inert_line(text: &str) -> String {
    inert(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether [`inert`] replaces this character: a control character other than line end and tab, or a deceptive
/// character that displayed text never needs.
pub fn is_active(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        other => other.is_control() || deceptive(other) == Some(true),
    }
}

/// Returns whether this character is zero-width, changes the direction of writing, or is a tag.
pub fn is_invisible(character: char) -> bool {
    deceptive(character).is_some()
}

/// Looks up a character in the table.
fn deceptive(character: char) -> Option<bool> {
    if character < DECEPTIVE[0].0 {
        return None;
    }
    let row = DECEPTIVE.iter().find(|(first, last, _)| (*first..=*last).contains(&character));
    row.map(|(_, _, replaced)| *replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv44_shown_text_is_inert() {
        assert_eq!(inert("a\u{1b}[31mred\u{1b}]0;x\u{7}"), "a�[31mred�]0;x�");
        assert_eq!(inert("x\u{202e}gnp.exe\u{2066}\u{e0041}\u{9b}1m"), "x�gnp.exe���1m");
        assert_eq!(inert("line\n\ttab, ümläut, 日本語, 👍🏽"), "line\n\ttab, ümläut, 日本語, 👍🏽");
        assert_eq!(inert_line("two\n  lines"), "two lines");
    }

    /// The two predicates as they were written out before the table existed.
    #[test]
    fn table_gives_both_predicates() {
        let active = |character: char| match character {
            '\n' | '\t' => false,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => true,
            '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => true,
            other => other.is_control(),
        };
        let invisible = |character: char| {
            matches!(character,
                '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        };
        for character in '\0'..=char::MAX {
            assert_eq!(is_active(character), active(character), "{}", character.escape_unicode());
            assert_eq!(is_invisible(character), invisible(character), "{}", character.escape_unicode());
        }
        assert!(DECEPTIVE.windows(2).all(|rows| rows[0].1 < rows[1].0), "the rows are in order");
    }
}
