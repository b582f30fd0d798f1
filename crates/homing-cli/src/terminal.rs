//! What is known of the terminal: whether there is one, how wide it is, what may be shown on it. It writes nothing.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write as _, stderr, stdout},
};

use homing_core::sanitize;
use serde_json::Value;

/// JSON for programs that people look at, too: what a terminal would obey stands there as an escape.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    for it in format!("{value:#}").chars() {
        match sanitize::is_active(it) {
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

/// A line to whoever watches. Whether anybody does is none of our business: a closed stderr is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", sanitize::inert(line));
}

/// The size of the terminal behind stderr: columns and lines.
pub(crate) fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(stderr()).ok().filter(|it| it.ws_col > 0 && it.ws_row > 0);
    size.map_or((80, 24), |it| (usize::from(it.ws_col), usize::from(it.ws_row)))
}

/// Whether the locale can show more than ASCII.
pub(crate) fn is_unicode() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|it| std::env::var(it).ok().filter(|it| !it.is_empty()));
    said.is_none_or(|it| {
        let it = it.to_ascii_lowercase();
        it.contains("utf-8") || it.contains("utf8")
    })
}

/// Asks for a line: no line end, so that the answer stands behind it.
pub(crate) fn prompt(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Lines of the live tree that stand on the screen.
static LIVE: std::sync::Mutex<usize> = std::sync::Mutex::new(0);

/// Paints the live tree over the last one. Lines never wrap, so that their number is what we think it is.
pub(crate) fn paint(lines: &[String]) {
    let mut shown = LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut text = format!("\x1b[?25l\x1b[?7l{}", back(*shown));
    for line in lines {
        text.push_str(line);
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J\x1b[?7h");
    *shown = lines.len();
    raw(&text);
}

/// Takes the live tree off the screen.
pub(crate) fn clear_live() {
    let mut shown = LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *shown > 0 {
        raw(&format!("{}\x1b[J\x1b[?25h", back(*shown)));
        *shown = 0;
    }
}

/// Leaves the live tree where it is, and the terminal as it was.
pub(crate) fn leave_live() {
    let mut shown = LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *shown > 0 {
        raw("\x1b[?7h\x1b[?25h");
        *shown = 0;
    }
}

fn back(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\r\x1b[{lines}A") }
}

/// Straight to the terminal: these are its own commands, which anstream would keep as they are, too.
fn raw(text: &str) {
    let mut err = stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Whether colours are wanted on stderr.
pub(crate) fn has_colours() -> bool {
    is_watched()
        && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
        && std::env::var_os("TERM").is_none_or(|it| it != "dumb")
}
