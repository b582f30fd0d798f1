//! Telemetry, as the environment asks for it. It is started once for a process, and the process's end waits for it a little.

use std::time::Duration;

use homing_otel::{ExportReport, Telemetry, TelemetryOptions};

use crate::{exit::Exit, terminal};

/// The most that telemetry may delay the end of a command.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same after a signal, when somebody wants the command gone.
const AFTER_SIGNAL: Duration = Duration::from_millis(250);

/// Starts telling the collector that the environment names, if it does. A mistake in it is a warning: the work goes on.
pub(crate) fn start() -> Option<Telemetry> {
    let options = TelemetryOptions::from_variables(|name| std::env::var(name).ok()).and_then(|options| match options {
        Some(options) => Telemetry::start(options).map(Some),
        None => Ok(None),
    });
    options.unwrap_or_else(|error| {
        terminal::say(&format!("warning: no telemetry is sent: {error}"));
        None
    })
}

/// Sends what is left, within a bound, and says what did not arrive.
pub(crate) async fn finish(telemetry: Option<Telemetry>, outcome: &anyhow::Result<Exit>) {
    let Some(telemetry) = telemetry else { return };
    let within = if matches!(outcome, Ok(Exit::Signal(_))) { AFTER_SIGNAL } else { PATIENCE };
    let ExportReport { dropped, why, .. } = telemetry.finish(within).await;
    if dropped > 0 {
        let why = why.unwrap_or_else(|| "there was more than it took".to_owned());
        terminal::say(&format!("warning: {dropped} spans did not reach the telemetry collector: {why}"));
    }
}
