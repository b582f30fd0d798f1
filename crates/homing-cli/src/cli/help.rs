//! The help of `homing` itself: its commands by purpose.

use std::ffi::OsString;

/// The commands by purpose, in the order in which a new user needs them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Work", &["chat", "continue", "run", "map", "team"]),
    (
        "Runs",
        &[
            "watch",
            "runs",
            "show",
            "tell",
            "cancel",
            "questions",
            "answer",
            "resume",
            "fork",
            "replay",
            "export",
            "prune",
        ],
    ),
    ("Changes", &["diff", "undo", "worktrees"]),
    ("Agents", &["agents", "init", "check", "convert"]),
    ("Servers", &["serve", "mcp", "worker"]),
    ("Set-up", &["doctor", "models", "config", "trust", "completions", "man"]),
];

/// The styles of clap's own help. They are removed if there is no terminal, or no colours are wanted.
const HEADING: &str = "\x1b[1m\x1b[4m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The end of the help.
pub(super) const AFTER: &str = "Start with `homing doctor`, or with a question:
  homing run --model offline \"where are errors handled?\"   needs no API key

`homing COMMAND --help` explains a command, `homing man` the exit codes,
variables and files.";

/// Returns whether these arguments may print a help. Writing it takes a good part of the start of a process.
pub(super) fn is_asked(args: &[OsString]) -> bool {
    args.len() < 2 || args.iter().any(|arg| arg == "-h" || arg == "--help" || arg == "help")
}

/// Returns the help of `homing` with the commands in groups.
pub(super) fn template(homing: &clap::Command) -> String {
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{HEADING}{title}:{PLAIN}\n"));
        for name in *names {
            let blanks = 13 - name.len();
            let about = homing.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
            text.push_str(&format!("  {BOLD}{name}{PLAIN}{:blanks$}{}\n", "", about.unwrap_or_default()));
        }
    }
    text + &format!("\n{HEADING}Options:{PLAIN}\n{{options}}{{after-help}}")
}
