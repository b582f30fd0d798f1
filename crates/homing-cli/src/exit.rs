//! How a command ends, and what its exit code means to scripts.

use std::{io, process::ExitCode};

use homing_core::text;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    Done,
    /// It was done, and the answer is no: errors were found, something could not be written.
    Failed,
    /// Usage, configuration, keys.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::from(0),
            Exit::Failed => Self::from(1),
            Exit::Usage => Self::from(2),
        }
    }
}

/// Says what went wrong; a reader who has gone away is no error.
pub(crate) fn report(outcome: anyhow::Result<Exit>) -> Exit {
    let error = match outcome {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    let broken_pipe = |it: &io::Error| it.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().any(|it| it.downcast_ref().is_some_and(broken_pipe)) {
        return Exit::Done;
    }
    anstream::eprintln!("error: {}", text::inert(&format!("{error:#}")));
    Exit::Usage
}
