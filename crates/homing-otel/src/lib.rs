//! What runs of agents do, told to an OpenTelemetry collector: a pure fold from facts to spans and figures, and a sender in
//! the background. It knows neither the runtime nor the environment, and nobody ever waits for it.
//!
//! ```no_run
//! # async fn example() -> Result<(), homing_otel::BadOptions> {
//! use std::time::Duration;
//! use homing_otel::{Options, Telemetry};
//!
//! let telemetry = Telemetry::start(Options::new("http://127.0.0.1:4318"))?;
//! let listener = telemetry.listener(); // `Homing::builder().on_fact(listener)`
//! # drop(listener);
//! let report = telemetry.finish(Duration::from_secs(2)).await;
//! # drop(report);
//! # Ok(())
//! # }
//! ```

mod activity;
mod export;
mod fold;
mod metrics;
mod names;
mod options;
mod otlp;
mod span;
mod telemetry;
mod worker;

pub use activity::{Activity, Ask, Call, Run};
pub use fold::{Finished, Fold};
pub use metrics::{Labels, Measurement, MetricShape, Metrics};
pub use options::{TelemetryOptions, TelemetryOptionsError};
pub use span::{Attribute, Attributes, Bodies, Kind, Span, SpanId};
pub use telemetry::{ExportReport, Listener, Telemetry};
