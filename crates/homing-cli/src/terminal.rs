//! What is known of the terminal: whether there is one, how wide it is, what may be shown on it. It writes nothing.

use std::{
    fmt::Write,
    io::{IsTerminal, stderr, stdout},
};

use homing_core::text;
use serde_json::Value;

/// JSON for programs that people look at, too: what a terminal would obey stands there as an escape.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    for it in format!("{value:#}").chars() {
        match text::is_active(it) {
            false => out.push(it),
            true => it.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}")),
        }
    }
    out
}

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
