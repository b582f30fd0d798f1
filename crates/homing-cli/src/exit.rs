//! Exit codes of commands, and how errors are printed for people and programs. Hints that name flags and commands are added
//! here, by the kind of the error.

use std::{io, io::Write, process::ExitCode};

use homing_core::{
    envelope::{Envelope, EnvelopeError, Status},
    fact::FailureKind,
    model::ModelError,
    sanitize,
};
use homing_runtime::{SpawnError, journal::JournalError};

use crate::terminal;

const CRASH_LOOP_HINT: &str = "look at the last step with `homing show`, then `homing resume --force`";

/// The hint if no provider has an API key.
pub(crate) const NO_KEY_HINT: &str = "set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key, or pass --model offline, which needs \
                                      none; `homing doctor` lists the providers";

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done,
    /// The command ran and failed: errors were found, or a file could not be written.
    Failed,
    /// Wrong usage or configuration, or a missing API key.
    Usage,
    /// A limit was reached.
    Limit,
    /// Denied by a policy.
    Refused,
    /// The provider is not available.
    Unavailable,
    /// The run waits for an answer to a question.
    Waiting,
    /// Stopped by a signal.
    Signal(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Limit => 3,
            Self::Refused => 4,
            Self::Unavailable => 5,
            Self::Waiting => 6,
            Self::Signal(number) => 128 + number,
        }
    }

    /// Returns the result of a command that exited with this code.
    pub(crate) fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Done,
            2 => Self::Usage,
            3 => Self::Limit,
            4 => Self::Refused,
            5 => Self::Unavailable,
            6 => Self::Waiting,
            129.. => Self::Signal(code - 128),
            _ => Self::Failed,
        }
    }

    /// Returns the exit code for the end of a run.
    pub(crate) fn of(envelope: &Envelope) -> Self {
        match envelope.status {
            Status::Done => Self::Done,
            Status::Exhausted | Status::TimedOut => Self::Limit,
            Status::Failed => envelope.error.as_ref().map_or(Self::Failed, of_error),
            Status::Waiting if !envelope.questions.is_empty() => Self::Waiting,
            _ => Self::Failed,
        }
    }
}

fn of_error(error: &EnvelopeError) -> Exit {
    match (error.kind.as_str(), error.retryable) {
        ("auth" | "config" | "usage", _) => Exit::Usage,
        ("refused", _) => Exit::Refused,
        ("model", true) => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that kept a command from starting, with an optional hint.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// The cause of a [`Trouble`], which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    Usage,
    Config,
    Auth,
    Refused,
    Limit,
}

impl TroubleKind {
    fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Config => "config",
            Self::Auth => "auth",
            Self::Refused => "refused",
            Self::Limit => "limit",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Usage | Self::Config | Self::Auth => Exit::Usage,
            Self::Refused => Exit::Refused,
            Self::Limit => Exit::Limit,
        }
    }
}

impl Trouble {
    pub(crate) fn new(kind: TroubleKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(TroubleKind::Usage, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(TroubleKind::Config, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Trouble {}

impl From<SpawnError> for Trouble {
    fn from(error: SpawnError) -> Self {
        let message = error.to_string();
        match error {
            SpawnError::NoModel(ModelError::Unauthorized { .. }) => {
                Self::new(TroubleKind::Auth, message).hint(NO_KEY_HINT)
            }
            SpawnError::UnknownAgent(_) => Self::usage(message).hint("`homing agents` lists the available agents"),
            SpawnError::UnknownPrice { model } => {
                Self::config(format!("no price is known for {model}, so --max-cost cannot be enforced"))
                    .hint("configure its price, limit tokens with --max-tokens, or lift the limit with --max-cost none")
            }
            SpawnError::EmptyTask => Self::usage(message).hint("write it after the command, in quotes, or pipe it in"),
            SpawnError::MissingParameter { parameter, .. } => {
                Self::usage(message).hint(format!("set it with --set {parameter}=VALUE"))
            }
            SpawnError::UnreadableAttachment { .. } => {
                Self::usage(message).hint("choose another model with --model, or convert the file to text")
            }
            SpawnError::Fork(_) => Self::usage(message).hint("`homing show ID --positions` lists the positions"),
            SpawnError::Limit(_) => Self::new(TroubleKind::Limit, message),
            SpawnError::Journal(error) => error.into(),
            _ => Self::config(message),
        }
    }
}

impl From<JournalError> for Trouble {
    fn from(error: JournalError) -> Self {
        let trouble = Self::config(error.to_string());
        match error {
            JournalError::Unwritable(_) => {
                trouble.hint("choose another file with --journal PATH, or turn the journal off with --journal off")
            }
            JournalError::Gone(_) => trouble.hint("its records are lost; start again"),
            JournalError::Locked { stopped: Some(pid), .. } => {
                trouble.hint(format!("continue it with `kill -CONT {pid}` or `fg`, or end it"))
            }
            JournalError::Locked { stopped: None, .. } => trouble.hint("try again when it is done"),
            JournalError::Damaged(_) => trouble.hint("`homing doctor --journal` shows what is damaged"),
            JournalError::Owned { .. } => {
                trouble.hint("stop it with `homing cancel`, or take it over with `homing resume --force`")
            }
            JournalError::CrashLoop { .. } => trouble.hint(CRASH_LOOP_HINT),
            JournalError::KeyTaken { .. } => Self { kind: TroubleKind::Usage, ..trouble },
            JournalError::Pruned(_) => {
                Self { kind: TroubleKind::Usage, ..trouble }.hint("`homing show` prints its result")
            }
            _ => trouble,
        }
    }
}

/// Returns the hint for a failed run: one that names flags and commands, else the one in the envelope.
pub(crate) fn failure_hint(error: &EnvelopeError) -> Option<String> {
    let kind = serde_json::from_value::<FailureKind>(error.kind.clone().into()).ok();
    let hint = kind.and_then(|kind| match kind {
        FailureKind::Auth => Some("check the provider's API key; `homing doctor` shows which one is missing"),
        FailureKind::Model if error.retryable => Some("try again later, or another model with --model"),
        FailureKind::Model => Some("try another model with --model"),
        FailureKind::Journal if error.retryable => {
            Some("make room on the disk or choose another file with --journal, then resume")
        }
        FailureKind::Journal => Some("its records are lost, so it cannot be resumed: start it again"),
        FailureKind::CrashLoop => Some(CRASH_LOOP_HINT),
        FailureKind::Team => {
            Some("show each run of the team with `homing show`; a part that may fail takes `on_failure: skip`")
        }
        _ => None,
    });
    hint.map(str::to_owned).or_else(|| error.hint.clone())
}

/// Prints an error and its hint to stderr. A reader that closed the pipe is not an error.
pub(crate) fn report(outcome: anyhow::Result<Exit>) -> Exit {
    let error = match outcome {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        return Exit::Done;
    }
    terminal::say(&format!("error: {error:#}"));
    let trouble = error.downcast_ref::<Trouble>();
    if let Some(hint) = trouble.and_then(|trouble| trouble.hint.as_ref()) {
        terminal::say(&format!("hint: {hint}"));
    }
    trouble.map_or(Exit::Usage, |trouble| trouble.kind.exit())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(is_broken))
}

/// Like [`report`], and prints the error as an envelope on stdout.
pub(crate) fn report_json(outcome: anyhow::Result<Exit>, agent: &str) -> Exit {
    if let Err(error) = &outcome
        && !is_broken_pipe(error)
    {
        let trouble = error.downcast_ref::<Trouble>();
        let kind = trouble.map_or(TroubleKind::Config, |trouble| trouble.kind);
        let hint = trouble.and_then(|trouble| trouble.hint.clone());
        let envelope = envelope_of(kind, &format!("{error:#}"), hint, agent);
        let _ = print(&terminal::json(&serde_json::to_value(envelope).unwrap_or_default()));
    }
    report(outcome)
}

fn envelope_of(kind: TroubleKind, message: &str, hint: Option<String>, agent: &str) -> Envelope {
    let mut error = EnvelopeError::new(kind.name(), sanitize::inert(message));
    error.hint = hint;
    Envelope::not_started(agent, error)
}

/// Prints an error of the argument parser, as an envelope too if the arguments contain `--json`.
pub(crate) fn misused(error: &clap::Error) -> Exit {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if wants_json && error.use_stderr() {
        let message = error.to_string();
        let message = message.trim_start_matches("error: ").trim().to_owned();
        let envelope = envelope_of(TroubleKind::Usage, &message, None, "");
        let _ = print(&terminal::json(&serde_json::to_value(envelope).unwrap_or_default()));
    }
    let _ = error.print();
    if error.use_stderr() { Exit::Usage } else { Exit::Done }
}

/// Prints a line to stdout.
pub(crate) fn print(line: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
