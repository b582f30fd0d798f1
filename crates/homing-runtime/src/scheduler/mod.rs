//! Decides when a run may continue: slots, pauses of a provider, back-off after a failure, and the run's own time
//! limits.
//!
//! All waiting is in one place, because a run that waits must hold nothing another run may need, or runs wait for each
//! other. A parent that waits for its child holds no slot, so that the child can always start even if there is only
//! one. A slot is taken last, after back-off, the provider's pause and the wait for budget, and only then is the budget
//! reserved; if anything has changed in the meantime (the provider paused again, another run reserved the budget), the
//! slots are dropped and the run waits again.
//!
//! Every wait also ends when the run is stopped or its time is up, and there are two clocks. `working` counts against
//! both the wall clock and the working time of a run; `waiting` (for a slot, a provider, other runs, the user) only
//! against the wall clock, because a run must not run out of working time in a queue.

pub(crate) mod call_slot;
pub(crate) mod fair_semaphore;
pub(crate) mod rate_limit;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use homing_core::{
    fact::{FailureKind, LimitHit, Outcome},
    model::ModelError,
};

use crate::{
    agent_loop::Interrupt,
    clock::{IdSource, millis},
    event::TransientKind,
    live_run::LiveRun,
    live_tree::{Audience, LiveTree},
    scheduler::{
        fair_semaphore::{FairSemaphore, Slot},
        rate_limit::RateLimiter,
    },
};

/// Lets one run wait for what it needs.
pub(crate) struct Scheduler {
    tree: Arc<LiveTree>,
    live_run: Arc<LiveRun>,
    run_slots: Arc<FairSemaphore>,
    ids: Arc<dyn IdSource>,
    max_backoff: Duration,
    /// The run's path through all trees, by which slots are shared out fairly.
    lane: Box<[u32]>,
}

/// The slots of a model call. They are held only while the model answers.
pub(crate) struct CallSlots {
    _run: Slot,
    _call: Slot,
}

/// Something that is done again and again while a run works. It shares the timer of the run's time.
pub(crate) struct Tick<'a> {
    /// The time that is left to work, as it was when the work began.
    pub(crate) limit: Option<(u64, LimitHit)>,
    pub(crate) every: Duration,
    pub(crate) call: &'a (dyn Fn() + Send + Sync),
}

impl Scheduler {
    pub(crate) fn new(
        tree: Arc<LiveTree>,
        live_run: Arc<LiveRun>,
        run_slots: Arc<FairSemaphore>,
        ids: Arc<dyn IdSource>,
        max_backoff: Duration,
    ) -> Self {
        let root = u32::from_be_bytes(tree.id.as_bytes()[12..].try_into().expect("four bytes")) | 1;
        let lane = [root].into_iter().chain(live_run.place.steps().iter().copied()).collect();
        Self { tree, live_run, run_slots, ids, max_backoff, lane }
    }

    /// Awaits something that counts as the run's own work. Its future keeps `work` twice, so that large futures should be pinned by
    /// the caller; so do those of `waiting` and `before_landing`.
    pub(crate) fn working<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = Result<T, Interrupt>> {
        self.until(move || self.working_time_left(), None, work)
    }

    /// The same, with `tick` called again and again while it lasts.
    pub(crate) fn working_with<T>(
        &self,
        tick: Tick<'_>,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Interrupt>> {
        self.until(move || self.working_time_left(), Some(tick), work)
    }

    /// Awaits something that does not: a slot, a provider, other runs, the user.
    pub(crate) fn waiting<T>(&self, wait: impl Future<Output = T>) -> impl Future<Output = Result<T, Interrupt>> {
        self.until(move || self.time_left(), None, wait)
    }

    /// Awaits `work` unless the run is stopped or its time is up. Most of what is awaited is done at once, so that the others are
    /// prepared only after it was polled.
    async fn until<T>(
        &self,
        end: impl Fn() -> Option<(u64, LimitHit)>,
        tick: Option<Tick<'_>>,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let stop = &self.live_run.stop;
        let (mut work, mut stopped) = (pin!(work), pin!(stop.cancelled()));
        let mut time_up = pin!(self.sleep_until(end, tick));
        poll_fn(|context| {
            if stop.is_cancelled() {
                return Poll::Ready(Err(Interrupt::Stopped));
            }
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Interrupt::Stopped));
            }
            time_up.as_mut().poll(context).map(|hit| Err(Interrupt::OutOfTime(hit)))
        })
        .await
    }

    /// Sleeps for the time that is left until `end`. The clock of a run stands still while its tree waits for answers of the
    /// user, so after a question there may be more time left than a timer has counted.
    async fn sleep_until(&self, end: impl Fn() -> Option<(u64, LimitHit)>, mut tick: Option<Tick<'_>>) -> LimitHit {
        let mut limit = tick.as_mut().map_or_else(&end, |tick| tick.limit.take());
        loop {
            let left = limit.as_ref().map(|(left, _)| Duration::from_millis(*left));
            let Some(wait) = left.into_iter().chain(tick.as_ref().map(|tick| tick.every)).min() else {
                return std::future::pending().await;
            };
            tokio::time::sleep(wait).await;
            let now = end();
            // Timers and clocks round.
            if let Some((left, mut hit)) = limit
                && now.as_ref().is_some_and(|(left, _)| *left <= 1)
            {
                hit.spent = hit.spent.saturating_add(left);
                return hit;
            }
            limit = now;
            if let Some(tick) = &tick {
                (tick.call)();
            }
        }
    }

    /// Fails if the run must stop or its working time is up.
    pub(crate) fn check_stopped(&self) -> Result<(), Interrupt> {
        if self.live_run.stop.is_cancelled() {
            return Err(Interrupt::Stopped);
        }
        match self.working_time_left() {
            // Timers and clocks round: one millisecond is too little for another step.
            Some((0 | 1, hit)) => Err(Interrupt::OutOfTime(hit)),
            Some(_) | None => Ok(()),
        }
    }

    /// The interrupt for a run whose model call ran into the run's deadline.
    pub(crate) fn time_is_up(&self) -> Interrupt {
        self.working_time_left().map_or(Interrupt::Stopped, |(_, hit)| Interrupt::OutOfTime(hit))
    }

    /// Awaits something until the run must land; `None` if that time has come first.
    pub(crate) async fn before_landing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            _ = self.sleep_until(|| self.time_to_landing(), None) => None,
        }
    }

    fn time_to_landing(&self) -> Option<(u64, LimitHit)> {
        self.tree.read(|tree| tree.ledger().time_to_landing(self.live_run.run, self.tree.tree_clock(tree)))
    }

    /// The working time that is left in milliseconds, if it is limited.
    pub(crate) fn working_time_left(&self) -> Option<(u64, LimitHit)> {
        self.tree.read(|tree| tree.ledger().working_time_left(self.live_run.run, self.tree.tree_clock(tree)))
    }

    fn time_left(&self) -> Option<(u64, LimitHit)> {
        self.tree.read(|tree| tree.ledger().time_left(self.live_run.run, self.tree.tree_clock(tree)))
    }

    /// Waits for one of the slots that limit how many runs work at once.
    pub(crate) async fn run_slot(&self) -> Result<Slot, Interrupt> {
        if let Some(slot) = self.run_slots.try_acquire() {
            return Ok(slot);
        }
        self.tree.notify(&self.live_run, Audience::All, || TransientKind::Queued);
        self.queue(&self.run_slots).await
    }

    /// The slots of a model call, if they are free.
    pub(crate) fn free_call_slots(&self, rate_limiter: &RateLimiter) -> Option<CallSlots> {
        let (run, call) = (self.run_slots.try_acquire()?, rate_limiter.calls.try_acquire()?);
        Some(CallSlots { _run: run, _call: call })
    }

    /// Waits for the slots of a model call: the run's and the provider's.
    pub(crate) async fn call_slots(&self, rate_limiter: &RateLimiter) -> Result<CallSlots, Interrupt> {
        let run = self.run_slot().await?;
        let call = match rate_limiter.calls.try_acquire() {
            Some(call) => call,
            None => self.queue(&rate_limiter.calls).await?,
        };
        Ok(CallSlots { _run: run, _call: call })
    }

    /// Waits in the queue for a slot. Boxed, because there is a free one most of the time.
    async fn queue(&self, slots: &Arc<FairSemaphore>) -> Result<Slot, Interrupt> {
        Box::pin(self.waiting(slots.acquire(&self.lane))).await
    }

    /// Waits until the provider accepts requests again; fails at once if that is beyond the run's time.
    pub(crate) async fn wait_for_provider(&self, rate_limiter: &RateLimiter) -> Result<(), Interrupt> {
        if let Some(refresh) = rate_limiter.refresh(&*self.tree.journal) {
            Box::pin(self.waiting(refresh)).await?;
        }
        while let Some(wait) = self.provider_pause(rate_limiter) {
            if self.time_left().is_some_and(|(left, _)| Duration::from_millis(left) < wait) {
                let message =
                    format!("the provider asks for a pause of {} s, more than this run has left", wait.as_secs());
                let outcome = Outcome::Failed { kind: FailureKind::Model, message, retryable: true };
                return Err(Interrupt::Failed(outcome));
            }
            self.sleep_before_retry(wait, "the provider is busy".to_owned()).await?;
        }
        Ok(())
    }

    /// The time until the provider accepts requests again, with jitter; `None` if it does now.
    pub(crate) fn provider_pause(&self, rate_limiter: &RateLimiter) -> Option<Duration> {
        rate_limiter.pause(&*self.tree.clock, &*self.ids, &*self.tree.journal)
    }

    /// Stops all calls through this rate limiter for `wait_ms` milliseconds, because the provider asked for it.
    pub(crate) fn pause_provider(&self, rate_limiter: &RateLimiter, wait_ms: u64) {
        let until = self.tree.clock.now_ms().saturating_add(wait_ms);
        rate_limiter.pause_until(until, &*self.tree.journal);
    }

    /// Waits after a failed attempt, with nothing reserved.
    pub(crate) async fn back_off(&self) -> Result<(), Interrupt> {
        let (failed, error) =
            self.tree.read_run(self.live_run.run, |run| (run.failed_asks(), run.last_error().cloned()));
        let Some(error) = error.filter(ModelError::is_retryable) else { return Ok(()) };
        if self.live_run.repeats_ask.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // If the provider named a time, the rate limiter waits for it.
        if let ModelError::Busy { retry_after_ms: Some(_), .. } = &error {
            return Ok(());
        }
        self.sleep_before_retry(self.backoff_time(failed), error.to_string()).await
    }

    async fn sleep_before_retry(&self, wait: Duration, reason: String) -> Result<(), Interrupt> {
        self.tree.notify(&self.live_run, Audience::All, || TransientKind::Retrying { in_ms: millis(wait), reason });
        Box::pin(self.waiting(tokio::time::sleep(wait))).await
    }

    /// Exponential back-off with full jitter.
    fn backoff_time(&self, failed: u32) -> Duration {
        let bound = 500_u64.saturating_mul(1 << failed.min(16)).min(millis(self.max_backoff));
        Duration::from_millis(self.ids.roll(bound) + 1)
    }
}
