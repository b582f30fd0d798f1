//! The terminal: its size and abilities, lines on stderr, and the live tree.

use std::{
    fmt::Write as _,
    io::{BufRead as _, IsTerminal, Write as _, stderr, stdin, stdout},
};

use homing::environment;
use homing_core::sanitize;
use serde_json::Value;

/// Formats JSON, safe for a terminal.
pub(crate) fn json(value: &Value) -> String {
    escaped(&format!("{value:#}"))
}

/// Formats JSON on one line, safe for a terminal.
pub(crate) fn json_line(value: &Value) -> String {
    escaped(&value.to_string())
}

/// Escapes control characters, invisible ones and those that change the direction of writing in a JSON text. They only occur
/// in strings, so the text still means the same.
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if sanitize::is_active(c) || sanitize::is_invisible(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns the width of the terminal behind stdout, or `None` if stdout is not a terminal.
pub(crate) fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= 40)
}

/// Returns whether stderr is a terminal.
pub(crate) fn is_watched() -> bool {
    stderr().is_terminal()
}

/// Returns whether this process may read from the terminal: one in the background would be stopped.
pub(crate) fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Returns whether a line, or the end of the input, can be read from stdin within `time`.
pub(crate) fn has_input(time: std::time::Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let input = stdin();
    let timeout = Timespec::try_from(time).ok();
    poll(&mut [PollFd::new(&input, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Lines that wait until the screen is given back, while a full-screen view is open.
static HELD: std::sync::Mutex<Option<Vec<String>>> = std::sync::Mutex::new(None);

fn held() -> std::sync::MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Holds back the lines that are printed from now on.
pub(crate) fn hold_lines() {
    held().get_or_insert_default();
}

/// Returns the lines that were held back since the last call, to show them elsewhere.
pub(crate) fn take_held_lines() -> Vec<String> {
    held().as_mut().map(std::mem::take).unwrap_or_default()
}

/// Prints the lines that were held back, and holds none from now on.
pub(crate) fn release_lines() {
    let lines = held().take().unwrap_or_default();
    lines.iter().for_each(|line| say(line));
}

/// Prints a line to stderr. Errors are ignored: a closed stderr must not stop the command.
pub(crate) fn say(line: &str) {
    if let Some(lines) = held().as_mut() {
        lines.push(line.to_owned());
        return;
    }
    let _ = writeln!(anstream::stderr().lock(), "{}", sanitize::inert(line));
}

/// True if only answers and errors are printed.
static IS_QUIET: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Makes [`inform`] print nothing.
pub(crate) fn set_quiet(is_quiet: bool) {
    IS_QUIET.store(is_quiet, std::sync::atomic::Ordering::Relaxed);
}

/// Like [`say`], for lines that a user may not want: warnings, hints, costs.
pub(crate) fn inform(line: &str) {
    if !IS_QUIET.load(std::sync::atomic::Ordering::Relaxed) {
        say(line);
    }
}

/// Redirects the standard streams to nowhere, because the process goes on without its terminal.
pub(crate) fn silence() -> std::io::Result<()> {
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(rustix::stdio::dup2_stderr(&nowhere)?)
}

/// Returns the columns and lines of the terminal behind stderr.
pub(crate) fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(stderr()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Prints a prompt without a line end, so that the answer follows on the same line.
pub(crate) fn prompt(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Asks the user a question; only `y` or `yes` confirms.
pub(crate) fn confirmed(question: &str) -> bool {
    prompt(question);
    let mut line = String::new();
    stdin().lock().read_line(&mut line).is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Number of lines of the live tree on the screen.
static LIVE: std::sync::Mutex<usize> = std::sync::Mutex::new(0);

/// Draws the live tree over the previous one. Wrapping is disabled, so that the number of screen lines is known.
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

/// Removes the live tree from the screen.
pub(crate) fn clear_live() {
    let mut shown = LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *shown > 0 {
        raw(&format!("{}\x1b[J\x1b[?25h", back(*shown)));
        *shown = 0;
    }
}

/// Leaves the live tree on the screen and restores the terminal.
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

/// Writes control sequences directly to the terminal.
fn raw(text: &str) {
    let mut err = stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Returns whether to use colours on stderr.
pub(crate) fn has_colours() -> bool {
    is_watched() && environment::allows_colours()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_inert_and_means_the_same() {
        let value = serde_json::json!({"a\u{9b}1m": "\u{1b}[2J \u{202e}gnp \u{200d} \u{e0041} \u{7f} \t\n ümlaut 日本 👩\u{200d}🚀"});
        for text in [json(&value), json_line(&value)] {
            assert!(!text.chars().any(|c| sanitize::is_active(c) || sanitize::is_invisible(c)), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}
