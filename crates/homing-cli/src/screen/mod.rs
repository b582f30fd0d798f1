//! The whole terminal as a screen: raw mode, keys and drawing. However the program leaves, the terminal is as it was before.

pub(crate) mod area;
pub(crate) mod editor;
pub(crate) mod markdown;
pub(crate) mod question;
pub(crate) mod tree_lines;
pub(crate) mod wrap;

use std::{
    io::{self, IsTerminal, Stdout, Write, stdin, stdout},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use homing::environment;
use ratatui_core::{
    buffer::Buffer,
    style::Color,
    terminal::{Frame, Terminal},
};
use ratatui_crossterm::{
    CrosstermBackend,
    crossterm::{
        event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyEventKind},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use crate::{exit::Trouble, signals::Signals, terminal};

/// True while the terminal is a screen.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The whole terminal. Lines that other parts of the program print meanwhile are held back.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    keys: mpsc::UnboundedReceiver<io::Result<Event>>,
    signals: Signals,
    suspend: Signal,
    has_colours: bool,
    is_unicode: bool,
}

/// Something that happens at the terminal.
#[derive(Debug)]
pub(crate) enum Input {
    /// A key, a pasted text or a new size.
    Event(Event),
    /// The user wants to suspend the program.
    Suspend,
    /// A signal that asks the program to stop.
    Signal(u8),
    /// The terminal is gone.
    Gone,
}

impl Screen {
    /// Fails if standard input or output is not a terminal that can be drawn on.
    pub(crate) fn must_be_possible(command: &str, hint: &str) -> Result<(), Trouble> {
        if Self::is_possible() {
            return Ok(());
        }
        let why = if stdin().is_terminal() && stdout().is_terminal() {
            "TERM is `dumb`"
        } else {
            "standard input or output is not one"
        };
        Err(Trouble::usage(format!("`{command}` needs a terminal, and {why}")).hint(hint))
    }

    /// Returns whether there is a terminal that can be drawn on.
    pub(crate) fn is_possible() -> bool {
        stdin().is_terminal() && stdout().is_terminal() && !environment::is_dumb_terminal()
    }

    /// Takes the terminal over.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let (signals, suspend) = (Signals::new()?, signal(SignalKind::from_raw(SIGTSTP))?);
        restore_on_panic();
        enter()?;
        let (sender, keys) = mpsc::unbounded_channel();
        // The thread ends with the process: a read from the terminal cannot be interrupted.
        std::thread::Builder::new()
            .name("homing-keys".to_owned())
            .spawn(move || while sender.send(event::read()).is_ok() {})?;
        Ok(Self {
            terminal: Terminal::new(CrosstermBackend::new(stdout()))?,
            keys,
            signals,
            suspend,
            has_colours: environment::allows_colours(),
            is_unicode: environment::is_unicode_locale(),
        })
    }

    /// Waits for the next input.
    pub(crate) async fn next(&mut self) -> Input {
        loop {
            tokio::select! {
                key = self.keys.recv() => match key {
                    Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Release => (),
                    Some(Ok(event)) => return Input::Event(event),
                    Some(Err(_)) | None => return Input::Gone,
                },
                number = self.signals.next() => return Input::Signal(number),
                _ = self.suspend.recv() => return Input::Suspend,
            }
        }
    }

    /// Draws a frame.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let (has_colours, is_unicode) = (self.has_colours, self.is_unicode);
        self.terminal.draw(|frame| {
            draw(frame);
            adapt(frame.buffer_mut(), has_colours, is_unicode);
        })?;
        Ok(())
    }

    /// Gives the terminal back, stops this process, and takes the terminal over when it continues.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        leave();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        enter()?;
        // A new one draws everything. Clearing would ask the terminal for its cursor, and the answer would arrive as keys.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// The signal of Ctrl-Z, which is the same on Linux and macOS except for its number.
const SIGTSTP: i32 = if cfg!(target_os = "linux") { 20 } else { 18 };

fn enter() -> io::Result<()> {
    terminal::hold_lines();
    enable_raw_mode()?;
    IS_OPEN.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)
}

/// Gives the terminal back. Errors are ignored: the terminal may be gone.
fn leave() {
    if !IS_OPEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = stdout();
    let _ = execute!(out, DisableBracketedPaste, LeaveAlternateScreen);
    let _ = out.write_all(b"\x1b[?25h").and_then(|()| out.flush());
    let _ = disable_raw_mode();
    terminal::release_lines();
}

/// Shows a panic of the thread that draws on a restored terminal. Other threads work on runs: their panics end a run as failed,
/// and the message is shown afterwards.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let drawing = std::thread::current().id();
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == drawing {
                leave();
                print(panic);
            } else if IS_OPEN.load(Ordering::SeqCst) {
                terminal::say(&format!("internal error: {panic}"));
            } else {
                print(panic);
            }
        }));
    });
}

/// Removes what this terminal cannot show.
fn adapt(buffer: &mut Buffer, has_colours: bool, is_unicode: bool) {
    if has_colours && is_unicode {
        return;
    }
    for cell in &mut buffer.content {
        if !has_colours {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
        let plain = match cell.symbol() {
            "─" | "–" => "-",
            "│" => "|",
            "┼" => "+",
            "•" | "·" => "*",
            "›" => ">",
            "…" => "~",
            _ => continue,
        };
        if !is_unicode {
            cell.set_symbol(plain);
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use ratatui_core::{
        backend::TestBackend,
        terminal::{Frame, Terminal},
    };

    /// Draws on a screen of this size, and returns its lines without blanks at their ends.
    pub(crate) fn drawn(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let mut lines = Vec::new();
        for y in 0..height {
            let (mut line, mut skip) = (String::new(), 0);
            for x in 0..width {
                let symbol = buffer[(x, y)].symbol();
                assert!(!symbol.chars().any(char::is_control), "{symbol:?}");
                if skip == 0 {
                    line.push_str(symbol);
                    skip = unicode_width::UnicodeWidthStr::width(symbol).max(1);
                }
                skip -= 1;
            }
            lines.push(line.trim_end().to_owned());
        }
        lines.join("\n")
    }
}
