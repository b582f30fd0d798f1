//! Tells the user that a run has ended or asks a question: by a bell, by a message to the terminal (OSC 9), or by a command.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use homing_core::{
    envelope::{Envelope, Status},
    sanitize,
    short_id::short_id,
};
use serde::Deserialize;

use crate::{cli::values, terminal};

/// The section `[notify]` of the user's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NotifyConfig {
    /// Rings the terminal's bell.
    bell: bool,
    /// Sends the terminal a message that it may show on the desktop (OSC 9).
    osc9: bool,
    /// Command that is run by `sh`, with `HOMING_EVENT`, `HOMING_MESSAGE`, `HOMING_STATUS`, `HOMING_RUN` and `HOMING_PROJECT`.
    command: Option<String>,
    /// Time below which the end of a run is not worth telling: 30s.
    after: Option<String>,
}

/// Notifies the user as the configuration says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notifier {
    config: NotifyConfig,
    project: PathBuf,
}

impl Notifier {
    pub(crate) fn new(config: NotifyConfig, project: PathBuf) -> Self {
        Self { config, project }
    }

    /// Notifies that a run has ended, or that it waits for an answer.
    pub(crate) fn ended(&self, envelope: &Envelope) {
        let run = short_id(envelope.run);
        if envelope.status == Status::Waiting && !envelope.questions.is_empty() {
            let text = format!("{} asks: {}", envelope.agent, envelope.questions[0].question.text);
            return self.send("question", &text, "waiting", &run);
        }
        let after = self.config.after.as_deref().and_then(|text| values::duration(text).ok()).unwrap_or_default();
        if Duration::from_millis(envelope.subtree.wall_ms) >= after {
            let status = envelope.status.name();
            self.send("end", &format!("{} {}", envelope.agent, status.replace('_', " ")), status, &run);
        }
    }

    /// Notifies that a question is on the screen.
    pub(crate) fn question(&self, text: &str) {
        self.send("question", text, "waiting", "");
    }

    fn send(&self, event: &str, message: &str, status: &str, run: &str) {
        let message: String = sanitize::inert_line(message).chars().take(200).collect();
        if terminal::is_watched() {
            let mut err = std::io::stderr().lock();
            // The message is free of control characters, so it cannot end the sequence.
            let osc9 = if self.config.osc9 { format!("\x1b]9;homing: {message}\x07") } else { String::new() };
            let bell = if self.config.bell { "\x07" } else { "" };
            let _ = write!(err, "{osc9}{bell}").and_then(|()| err.flush());
        }
        if let Some(command) = &self.config.command {
            let values = [("EVENT", event), ("MESSAGE", &message), ("STATUS", status), ("RUN", run)];
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).env("HOMING_PROJECT", &self.project).current_dir("/");
            shell.envs(values.map(|(name, value)| (format!("HOMING_{name}"), value)));
            // It is not waited for: a slow or broken command must not delay the result.
            let _ = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        }
    }
}
