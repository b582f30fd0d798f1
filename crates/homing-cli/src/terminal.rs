//! What is known of the terminal: whether there is one, how wide it is. It writes nothing.

use std::io::{IsTerminal, stderr, stdout};

/// Columns to fill; `None` where the reader is no person.
pub(crate) fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|it| *it >= 40)
}

/// Whether somebody watches stderr.
pub(crate) fn is_watched() -> bool {
    stderr().is_terminal()
}

/// `text` in at most `width` characters.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}
