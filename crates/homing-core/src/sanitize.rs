//! Text from strangers, made fit to be shown. It changes how text looks, never what a model is told.

/// `text` without anything that a terminal would obey or a reader could not see: escape sequences and other control
/// characters, marks that change the direction of writing, invisible tags. Each becomes `�`; line ends and tabs stay.
pub fn inert(text: &str) -> String {
    text.chars().map(|it| if is_active(it) { '\u{fffd}' } else { it }).collect()
}

/// Like [`inert`], on one line.
pub fn inert_line(text: &str) -> String {
    inert(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a terminal would obey this character, or nobody could see it.
pub fn is_active(it: char) -> bool {
    match it {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => true,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

/// Zero-width, direction-changing and tag characters.
pub fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
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
}
