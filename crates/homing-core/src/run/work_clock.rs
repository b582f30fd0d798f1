//! Working and elapsed time of a run, by the clock of its tree.

/// Measures how long a run exists and how long it works. All times are milliseconds of the tree's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkClock {
    /// Time of the first step.
    pub(super) began: Option<u64>,
    /// Time of the end.
    ended: Option<u64>,
    /// Time spent on model and tool calls, up to `busy_since`.
    worked_ms: u64,
    /// Time since which at least one call has been open without interruption.
    busy_since: Option<u64>,
    /// Number of open calls.
    open: u32,
}

impl WorkClock {
    /// Notes that a model or tool call begins.
    pub(super) fn call_begins(&mut self, clock: u64) {
        self.began.get_or_insert(clock);
        self.open += 1;
        self.busy_since.get_or_insert(clock);
    }

    /// Notes that a call ends. Calls overlap, so working time ends with the last one.
    pub(super) fn call_ends(&mut self, clock: u64) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0
            && let Some(since) = self.busy_since.take()
        {
            self.worked_ms += clock.saturating_sub(since);
        }
    }

    /// Notes that the run ends.
    pub(crate) fn stop(&mut self, clock: u64) {
        self.ended = Some(clock);
    }

    /// Notes that the run continues after its end.
    pub(super) fn reopen(&mut self) {
        self.ended = None;
    }

    /// Returns the time spent on model and tool calls.
    pub(crate) fn worked_ms(&self, clock: u64) -> u64 {
        self.worked_ms + self.busy_since.map_or(0, |since| clock.saturating_sub(since))
    }

    /// Returns the time from the first step to the end, or to now.
    pub(crate) fn wall_ms(&self, clock: u64) -> u64 {
        self.began.map_or(0, |began| self.ended.unwrap_or(clock).saturating_sub(began))
    }
}
