//! How a command ends, what its exit code means to scripts, and how trouble is told to people and programs.

use std::{io, io::Write, process::ExitCode};

use homing_core::{
    envelope::{Envelope, EnvelopeError, EnvelopeUsage, Status},
    place::Place,
    sanitize,
};
use homing_runtime::{SpawnError, journal::JournalError};

use crate::terminal;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    Done,
    /// It was done, and the answer is no: errors were found, something could not be written.
    Failed,
    /// Usage, configuration, keys.
    Usage,
    /// A limit or time was reached.
    Limit,
    /// Policy refused it.
    Refused,
    /// The provider cannot be had at the moment.
    Unavailable,
    /// A signal stopped it.
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
            Self::Signal(number) => 128 + number,
        }
    }

    /// What an ending means to scripts.
    pub(crate) fn of(envelope: &Envelope) -> Self {
        match envelope.status {
            Status::Done => Self::Done,
            Status::Exhausted | Status::TimedOut => Self::Limit,
            Status::Failed => envelope.error.as_ref().map_or(Self::Failed, of_error),
            Status::Cancelled | Status::Queued | Status::Running | Status::Waiting | Status::Interrupted => {
                Self::Failed
            }
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

/// What kept a command from beginning: whose fault it is, what happened, what to try.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Whose fault it is.
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
            SpawnError::NoModel(homing_core::model::ModelError::Unauthorized { .. }) => {
                Self::new(TroubleKind::Auth, message)
            }
            SpawnError::UnknownAgent(_) => Self::usage(message).hint("`homing agents` lists the agents that are known"),
            SpawnError::EmptyTask => Self::usage(message),
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
                trouble.hint("choose another file with --journal PATH, or go without one with --journal off")
            }
            JournalError::Damaged(_) => trouble.hint("`homing doctor --journal` says what is damaged"),
            JournalError::KeyTaken { .. } => Self { kind: TroubleKind::Usage, ..trouble },
            JournalError::Unknown(_)
            | JournalError::Owned { .. }
            | JournalError::Fenced { .. }
            | JournalError::NoSuchTree(_)
            | JournalError::CrashLoop { .. } => trouble,
        }
    }
}

/// Says what went wrong; a reader who has gone away is no error.
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
    if let Some(hint) = trouble.and_then(|it| it.hint.as_ref()) {
        terminal::say(&format!("hint: {hint}"));
    }
    trouble.map_or(Exit::Usage, |it| it.kind.exit())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |it: &io::Error| it.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|it| it.downcast_ref().is_some_and(broken))
}

/// The same for programs: trouble as an envelope on stdout.
pub(crate) fn report_json(outcome: anyhow::Result<Exit>, agent: &str) -> Exit {
    if let Err(error) = &outcome
        && !is_broken_pipe(error)
    {
        let trouble = error.downcast_ref::<Trouble>();
        let kind = trouble.map_or(TroubleKind::Config, |it| it.kind);
        let hint = trouble.and_then(|it| it.hint.clone());
        let envelope = envelope_of(kind, &format!("{error:#}"), hint, agent);
        let _ = print(&terminal::json(&serde_json::to_value(envelope).unwrap_or_default()));
    }
    report(outcome)
}

fn envelope_of(kind: TroubleKind, message: &str, hint: Option<String>, agent: &str) -> Envelope {
    Envelope {
        v: 1,
        run: uuid::Uuid::nil(),
        place: Place::root(),
        agent: agent.to_owned(),
        model: String::new(),
        status: Status::Failed,
        output: String::new(),
        data: None,
        partial: true,
        error: Some(EnvelopeError {
            kind: kind.name().to_owned(),
            message: sanitize::inert(message),
            retryable: false,
            hint,
        }),
        limit: None,
        usage: EnvelopeUsage::default(),
        subtree: EnvelopeUsage::default(),
        verified: None,
        warnings: Vec::new(),
        denied: Vec::new(),
        resumable: false,
        children: Vec::new(),
    }
}

/// What clap has to say. Programs that asked for JSON get an envelope even then.
pub(crate) fn misused(error: &clap::Error) -> Exit {
    let asked_for_json = std::env::args_os().any(|it| it == "--json");
    if asked_for_json && error.use_stderr() {
        let message = error.to_string();
        let message = message.trim_start_matches("error: ").trim().to_owned();
        let envelope = envelope_of(TroubleKind::Usage, &message, None, "");
        let _ = print(&terminal::json(&serde_json::to_value(envelope).unwrap_or_default()));
    }
    let _ = error.print();
    if error.use_stderr() { Exit::Usage } else { Exit::Done }
}

/// A line on stdout.
pub(crate) fn print(line: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
