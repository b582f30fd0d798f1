//! The timeouts of a model call: their values, and the timers that enforce them.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use homing_core::model::{Effort, ModelError};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    http::Peer,
    wire::{Delivery, StreamProgress},
};

/// Timeouts for the phases of a model call. The total is limited by the run's remaining time, which is part of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// From the connection to the response headers.
    pub headers: Duration,
    /// From the headers to the first content.
    pub first_content: Duration,
    /// Between events that carry content; pings, comments and whitespace do not count.
    pub idle: Duration,
    /// For the usage that may follow a complete reply.
    pub tail: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_secs(60),
            first_content: Duration::from_secs(120),
            idle: Duration::from_secs(90),
            tail: Duration::from_secs(5),
        }
    }
}

impl Timeouts {
    /// Extends the timeouts for a provider whose replies may take `patience` to begin.
    pub(crate) fn with_patience(self, patience: Option<Duration>) -> Self {
        let longer = |timeout: Duration| patience.map_or(timeout, |patience| patience.max(timeout));
        Self { headers: longer(self.headers), first_content: longer(self.first_content), ..self }
    }

    /// Extends the timeouts for `delivery`: a response that is not streamed begins when the reply is complete.
    pub(crate) fn for_delivery(self, delivery: Delivery) -> Self {
        match delivery {
            Delivery::Streamed => self,
            Delivery::Whole => Self { headers: self.headers * 10, ..self },
        }
    }

    /// Extends the timeouts for `effort`: some providers send nothing while the model reasons.
    pub(crate) fn for_effort(self, effort: Option<Effort>) -> Self {
        let factor = match effort {
            None | Some(Effort::None | Effort::Minimal | Effort::Low | Effort::Medium) => return self,
            Some(Effort::High) => 3,
            Some(Effort::Xhigh | Effort::Max) => 6,
        };
        Self {
            headers: self.headers * factor,
            first_content: self.first_content * factor,
            idle: self.idle * factor,
            ..self
        }
    }
}

/// The time by which the provider must send more content.
pub(crate) struct StreamTimers<'a> {
    timeouts: &'a Timeouts,
    pub(crate) until: Instant,
    has_content: bool,
    pub(crate) is_whole: bool,
}

impl<'a> StreamTimers<'a> {
    pub(crate) fn new(timeouts: &'a Timeouts) -> Self {
        Self { timeouts, until: Instant::now() + timeouts.first_content, has_content: false, is_whole: false }
    }

    pub(crate) fn note(&mut self, progress: StreamProgress) {
        match progress {
            StreamProgress::None | StreamProgress::Over => (),
            StreamProgress::Content => {
                self.has_content = true;
                self.until = Instant::now() + self.timeouts.idle;
            }
            StreamProgress::Whole if self.is_whole => (),
            StreamProgress::Whole => {
                self.is_whole = true;
                self.until = Instant::now() + self.timeouts.tail;
            }
        }
    }

    /// The message for a stream from `peer` that has exceeded the timeout.
    pub(crate) fn message(&self, peer: &Peer) -> String {
        if self.has_content {
            return format!("the stream from {peer} stopped sending content");
        }
        let wait = self.timeouts.first_content.as_secs_f32().ceil();
        format!("no content from {peer} within {wait} s; {PATIENCE_HINT}")
    }
}

/// The time at which the run's limit ends the call, and the timer of all its waits, made for the first of them. Moving a timer takes
/// far less time than making one.
pub(crate) struct Deadline {
    end: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(crate) fn new(time_left: Option<Duration>) -> Self {
        Self { end: time_left.and_then(|left| Instant::now().checked_add(left)), timer: None }
    }

    /// Runs `work` until it is done, until `until`, which fails with `message`, or until the run's time is up. Large futures should be
    /// pinned by the caller, because this one keeps its argument twice.
    pub(crate) async fn until<T>(
        &mut self,
        until: Instant,
        message: impl FnOnce() -> String,
        work: impl Future<Output = T>,
    ) -> Result<T, ModelError> {
        let limit = self.end.map_or(until, |end| end.min(until));
        // With a socket that is always readable, the timer is never polled, so the time is checked here as well.
        let is_late = Instant::now() >= limit;
        let done = if is_late { None } else { self.before(limit, pin!(work)).await };
        done.ok_or_else(|| match self.end {
            Some(end) if end <= until => ModelError::OutOfTime,
            Some(_) | None => ModelError::Broken { reason: message() },
        })
    }

    fn before<T>(
        &mut self,
        limit: Instant,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        poll_fn(move |context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(limit)));
            if timer.deadline() != limit {
                timer.as_mut().reset(limit);
            }
            timer.as_mut().poll(context).map(|()| None)
        })
    }
}

/// The message for a response that has not begun in time.
pub(crate) fn no_response(peer: &Peer, wait: Duration) -> String {
    format!("no response from {peer} within {} s; {PATIENCE_HINT}", wait.as_secs_f32().ceil())
}

/// The setting that makes a slow start succeed.
const PATIENCE_HINT: &str = "if it is only slow, set `patience` of this provider to more seconds";
