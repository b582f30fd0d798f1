//! Exports facts of runs to an OpenTelemetry collector.
//!
//! [`SpanFold`] turns facts into finished activities; [`Span`] and [`Metrics`] are made of those. This part does no input or
//! output. [`Telemetry`] runs it on a background task and sends the results over OTLP. A run never waits for a collector:
//! if the queue is full, facts are dropped and counted. The crate depends on neither the runtime nor the environment.
//!
//! ```no_run
//! # async fn example() -> Result<(), homing_otel::TelemetryOptionsError> {
//! use std::time::Duration;
//! use homing_otel::{Telemetry, TelemetryOptions};
//!
//! let telemetry = Telemetry::start(TelemetryOptions::new("http://127.0.0.1:4318"))?;
//! let listener = telemetry.listener(); // `Homing::builder().on_fact(move |record| listener(record))`
//! # drop(listener);
//! let report = telemetry.finish(Duration::from_secs(2)).await;
//! # drop(report);
//! # Ok(())
//! # }
//! ```

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod activity;
mod export;
mod fold;
mod messages;
mod metrics;
mod names;
mod options;
mod otlp;
mod span;
mod telemetry;
mod worker;

pub use activity::{Activity, AskActivity, CallActivity, RunActivity};
pub use fold::{FinishedActivity, SpanFold};
pub use homing_core::trace_context::SpanId;
pub use metrics::{Measurement, MetricLabels, MetricValue, Metrics};
pub use options::{TelemetryOptions, TelemetryOptionsError};
pub use span::{Attribute, Attributes, Span, SpanBodies, SpanKind};
pub use telemetry::{ExportReport, Telemetry, TelemetryListener};
