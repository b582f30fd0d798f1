//! Decides who may work now: a fair semaphore over runs and model calls, and a rate limiter per provider and key.

pub(crate) mod fair_semaphore;
pub(crate) mod rate_limit;
