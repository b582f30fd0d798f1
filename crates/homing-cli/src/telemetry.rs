//! Starts telemetry if the environment configures it, and flushes it before the process ends.

use std::time::Duration;

use homing::{Task, environment};
use homing_core::trace_context::TraceContext;
use homing_otel::{ExportReport, Telemetry, TelemetryOptions};

use crate::{exit::Exit, terminal};

/// Maximum delay of the end of a command by telemetry.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The same after a signal.
const FLUSH_TIMEOUT_AFTER_SIGNAL: Duration = Duration::from_millis(250);

/// Starts the export to the collector that the environment names, if any. A configuration error is only a warning.
pub(crate) fn start() -> Option<Telemetry> {
    let options = TelemetryOptions::from_variables(environment::variable).and_then(|options| match options {
        Some(options) => Telemetry::start(options).map(Some),
        None => Ok(None),
    });
    options.unwrap_or_else(|error| {
        terminal::say(&format!("warning: no telemetry is sent: {error}"));
        None
    })
}

/// Adds the position in a distributed trace that the caller of this process set in its environment to the tags of a task.
pub(crate) fn add_trace(task: &mut Task) {
    let variable = environment::variable("TRACEPARENT");
    let state = environment::variable("TRACESTATE");
    let sent = variable.and_then(|parent| TraceContext::parse(&parent, state.as_deref()));
    sent.iter().for_each(|trace| trace.add_to(&mut task.tags));
}

/// Sends what is left, within a time limit, and reports lost spans.
pub(crate) async fn finish(telemetry: Option<Telemetry>, outcome: &anyhow::Result<Exit>) {
    let Some(telemetry) = telemetry else { return };
    let within = if matches!(outcome, Ok(Exit::Signal(_))) { FLUSH_TIMEOUT_AFTER_SIGNAL } else { FLUSH_TIMEOUT };
    let ExportReport { dropped, why, .. } = telemetry.finish(within).await;
    if dropped > 0 {
        let why = why.unwrap_or_else(|| "the queue was full".to_owned());
        terminal::say(&format!("warning: {dropped} spans did not reach the telemetry collector: {why}"));
    }
}
