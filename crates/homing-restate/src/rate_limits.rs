//! Rate limits that workers share: an object per provider and key keeps the time until which the provider asked for a pause. A
//! provider that asks one worker to wait asks all that use the key.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use restate_sdk::prelude::*;
use tokio::time::{Instant, timeout};

use crate::{bodies::sha256, protocol::RATE_LIMIT, server::Server};

/// Pauses are looked up before each model call; the runs of a worker share one look-up in this time.
const MAX_AGE: Duration = Duration::from_millis(100);

/// Longest time to wait for the object. Without it, calls go on and the provider asks for the next pause.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Attempts to tell the object of a pause.
const MAX_ATTEMPTS: u32 = 10;

/// The object of a provider and key. Its key is the hash of both.
pub(crate) struct RateLimitObject;

#[restate_sdk::object(
    name = "HomingRateLimit",
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl RateLimitObject {
    /// Notes a pause, in milliseconds since 1970. An earlier one that ends later stays.
    #[handler]
    async fn pause(&self, ctx: ObjectContext<'_>, until: Json<u64>) -> HandlerResult<()> {
        let before = ctx.get::<Json<u64>>("until").await?.map_or(0, Json::into_inner);
        if until.0 > before {
            ctx.set("until", until);
        }
        Ok(())
    }

    /// Returns the end of the latest pause.
    #[handler]
    async fn until(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<u64>> {
        Ok(Json(ctx.get::<Json<u64>>("until").await?.map_or(0, Json::into_inner)))
    }
}

/// The pauses that this worker knows of.
pub(crate) struct RateLimits {
    server: Server,
    pauses: Mutex<HashMap<String, Arc<Pause>>>,
}

#[derive(Default)]
struct Pause {
    until: Mutex<u64>,
    /// The time of the last look-up. Held during one, so that others wait for it instead of making their own.
    read_at: tokio::sync::Mutex<Option<Instant>>,
}

impl Pause {
    fn until(&self) -> MutexGuard<'_, u64> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, until: u64) {
        let mut known = self.until();
        *known = until.max(*known);
    }
}

impl RateLimits {
    pub(crate) fn new(server: Server) -> Arc<Self> {
        Arc::new(Self { server, pauses: Mutex::default() })
    }

    fn pause(&self, key: &str) -> Arc<Pause> {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pause) = pauses.get(key) {
            return pause.clone();
        }
        pauses.entry(key.to_owned()).or_default().clone()
    }

    /// Notes a pause here, and tells the other workers.
    pub(crate) fn set(self: &Arc<Self>, key: &str, until: u64) {
        self.pause(key).extend(until);
        let (server, object) = (self.server.clone(), sha256(key));
        tokio::spawn(async move {
            for _ in 0..MAX_ATTEMPTS {
                match server.call::<()>(&[RATE_LIMIT, &object, "pause"], &until).await {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(%error, "cannot tell other workers of a pause"),
                }
                tokio::time::sleep(MAX_AGE).await;
            }
        });
    }

    /// The end of the pause, as far as it is known here.
    pub(crate) fn until(&self, key: &str) -> Option<u64> {
        Some(*self.pause(key).until()).filter(|until| *until > 0)
    }

    /// Learns of pauses that other workers were asked for.
    pub(crate) async fn refresh(&self, key: &str) {
        // Without the fingerprint of an API key, it is a program, which asks for no pause.
        if !key.contains(' ') {
            return;
        }
        let pause = self.pause(key);
        let mut read_at = pause.read_at.lock().await;
        if read_at.is_some_and(|read_at| read_at.elapsed() < MAX_AGE) {
            return;
        }
        let (object, handler) = (sha256(key), "until");
        let until = timeout(MAX_WAIT, self.server.call::<u64>(&[RATE_LIMIT, &object, handler], &())).await;
        match until {
            Ok(Ok(until)) => pause.extend(until),
            Ok(Err(error)) => tracing::debug!(%error, "cannot read the pause of a provider"),
            Err(_) => tracing::debug!("reading the pause of a provider takes too long"),
        }
        *read_at = Some(Instant::now());
    }
}
