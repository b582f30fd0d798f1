//! Runs of a fan-out wait until the first reply to one of them begins, if the provider's prices reward it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use homing_core::{
    BoxFuture,
    message::Reply,
    model::{AskFailure, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta, Rates},
    scripted_model::{call, last_words, say},
};
use homing_runtime::Task;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{TestSetup, agent};

/// The reply to the first scout.
#[derive(Clone, Copy)]
enum First {
    /// It begins after this time and ends a minute later.
    BeginsAfter(Duration),
    /// It fails at once.
    Fails,
}

/// A model that logs when each scout is asked.
struct Provider {
    card: ModelCard,
    scouts: u32,
    first: First,
    started: Instant,
    asked: Mutex<Vec<Duration>>,
}

impl Model for Provider {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            if request.system == "lead" {
                let scout = |n: u32| ("delegate", json!({"agent": "scout", "task": format!("look {n}")}));
                return Ok(if request.messages.len() == 1 { call((0..self.scouts).map(scout)) } else { say("done") });
            }
            let at = self.started.elapsed();
            let is_first = {
                let mut asked = self.asked.lock().unwrap();
                asked.push(at);
                asked.len() == 1
            };
            if is_first {
                match self.first {
                    First::BeginsAfter(time) => {
                        tokio::time::sleep(time).await;
                        on_delta(Delta::Text("a"));
                        tokio::time::sleep(Duration::from_secs(60)).await;
                    }
                    First::Fails => {
                        return Err(AskFailure::free(ModelError::Unusable { reason: "broken".to_owned() }));
                    }
                }
            }
            Ok(say(last_words(&request)))
        })
    }
}

/// Returns the seconds after which each of the scouts is asked.
async fn asked_after(scouts: u32, cached: u64, first: First, prompt_bytes: usize) -> Vec<u64> {
    let rates = Rates::default().input(10).cached(cached);
    let card = ModelCard::free("script/caching").rates(rates);
    let model = Arc::new(Provider { card, scouts, first, started: Instant::now(), asked: Mutex::default() });
    let mut scout = agent("scout");
    scout.prompt = "x".repeat(prompt_bytes);
    TestSetup::new([agent("lead"), scout], model.clone()).run(Task::new("lead", "go")).await;
    let asked = model.asked.lock().unwrap();
    asked.iter().map(Duration::as_secs).collect()
}

const SOON: First = First::BeginsAfter(Duration::from_secs(3));

#[tokio::test(start_paused = true)]
async fn others_are_asked_when_the_first_reply_begins() {
    assert_eq!(asked_after(4, 1, SOON, 8_000).await, [0, 3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn wait_is_bounded_and_ends_with_a_failure() {
    assert_eq!(asked_after(4, 1, First::BeginsAfter(Duration::from_secs(40)), 8_000).await, [0, 10, 10, 10]);
    assert_eq!(asked_after(4, 1, First::Fails, 8_000).await, [0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn no_run_waits_if_it_would_not_pay() {
    assert_eq!(asked_after(2, 1, SOON, 8_000).await, [0, 0], "too few runs");
    assert_eq!(asked_after(4, 10, SOON, 8_000).await, [0, 0, 0, 0], "the cache is not cheaper");
    assert_eq!(asked_after(4, 1, SOON, 100).await, [0, 0, 0, 0], "too little in common");
}
