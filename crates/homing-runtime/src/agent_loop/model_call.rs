//! Calls models: chooses the model, prepares the request, makes one attempt. A failed attempt is recorded as a fact,
//! and the loop asks again; the pause before the retry is the scheduler's ([`Scheduler::back_off`]).

use std::{
    borrow::Cow,
    fmt::Write as _,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homing_core::{
    fact::{Asked, Ended, FailureKind, LimitHit, Outcome, Purpose, Reservation},
    ledger::Fit,
    message::Reply,
    model::{AskFailure, Charge, Delta, Model, ModelError, ModelRequest, ToolChoice, Toolbox},
    redaction::RedactedStream,
    run::{Run, Step, lacks_answer},
    tool_names,
};
use tokio::{sync::OwnedMutexGuard, time::Instant};
use uuid::Uuid;

use crate::{
    agent_loop::{
        Interrupt, Reserved, active_run::ActiveRun, budget_wait::BudgetWait, cache_wait, compaction, landing,
        request::PreparedRequest, streamed::Streamed,
    },
    event::TransientKind,
    journal::LiveMark,
    ledger::{Reservations, ReserveResult, ReservedCall},
    live_tree::Audience,
    scheduler::{CallSlots, Scheduler, Tick, rate_limit::RateLimiter},
};

/// Time after which a call that waits for budget is checked again.
const BUDGET_POLL: Duration = Duration::from_millis(500);

/// Time after which the progress of a reply is stored again.
const MARK_EVERY: Duration = Duration::from_secs(1);

/// Makes the model calls of one run.
pub(crate) struct ModelCalls {
    run: Arc<ActiveRun>,
    scheduler: Arc<Scheduler>,
    reservations: Reservations,
}

/// A model call that may be made: its reservation is recorded, and it has its slots.
pub(crate) struct CallPermit {
    request: PreparedRequest,
    rate_limiter: Arc<RateLimiter>,
    reserved: Box<ReservedCall>,
    streamed: Streamed,
    key: String,
    _slots: CallSlots,
}

impl ModelCalls {
    pub(crate) fn new(run: Arc<ActiveRun>, scheduler: Arc<Scheduler>) -> Self {
        let reservations = Reservations::new(run.tree.clone(), run.live_run.clone());
        Self { run, scheduler, reservations }
    }

    /// Waits until a call may be made, and reserves its worst case. Waits are boxed, because most calls need none of them.
    pub(crate) async fn reserve(
        &self,
        purpose: &Purpose,
        nudge: Option<&str>,
    ) -> Result<Reserved<CallPermit>, Interrupt> {
        if let Some(step) = self.land_if_time_is_short(purpose) {
            return Ok(Reserved::Instead(step));
        }
        let mut checked = Instant::now();
        let model = self.choose_model(purpose)?;
        self.scheduler.back_off().await?;
        let rate_limiter = self.run.runtime.rate_limiters.get(&model.card().rate_limit_key);
        let mut request = PreparedRequest::new(&self.run, model, purpose, nudge);
        if let Some(step) = self.compact_if_too_long(&request, purpose) {
            return Ok(Reserved::Instead(step));
        }
        cache_wait::wait_for_sibling(&self.run, &self.scheduler, &*request.model, request.tools.as_deref()).await?;
        let (mut wait, mut admission) = (BudgetWait::new(&self.run), None);
        loop {
            self.scheduler.wait_for_provider(&rate_limiter).await?;
            if let Some(step) = self.land_after_wait(purpose, &mut checked) {
                return Ok(Reserved::Instead(step));
            }
            // Enabled before the check: a call that is settled between the check and the wait is not missed.
            let settlement = self.reservations.next_settlement();
            tokio::pin!(settlement);
            settlement.as_mut().enable();
            request = self.fit_to_budget(request, purpose, nudge);
            // With free slots nothing is waited for, so the check that the record of the call makes is enough.
            let mut slots =
                if self.reservations.is_alone() { self.scheduler.free_call_slots(&rate_limiter) } else { None };
            if slots.is_none() && !matches!(self.reservations.fit(request.size, &request.rates), Fit::Later) {
                drop(admission.take());
                slots = Some(self.scheduler.call_slots(&rate_limiter).await?);
            }
            if self.scheduler.provider_pause(&rate_limiter).is_some() {
                continue;
            }
            if let Some(slots) = slots {
                request.model.get_ready();
                match self.record_ask(&request, purpose, nudge).await? {
                    ReserveResult::Reserved(reserved) => {
                        let (key, streamed) = (self.run.read(call_key), Streamed::new());
                        let permit = CallPermit { request, rate_limiter, reserved, streamed, key, _slots: slots };
                        return Ok(Reserved::Permitted(permit));
                    }
                    ReserveResult::Full(hit) => {
                        return Ok(Reserved::Instead(self.land_or_stop(purpose, &request, hit)));
                    }
                    ReserveResult::Later => (),
                }
            }
            match self.queue_to_start().filter(|_| admission.is_none()) {
                Some(turn) => admission = Box::pin(self.wait_to_start(turn, &mut wait)).await?,
                None => Box::pin(self.wait_for_budget(settlement, purpose, &mut wait)).await?,
            }
        }
    }

    /// Reserves the worst case of a request, and records that the model is asked.
    fn record_ask(
        &self,
        request: &PreparedRequest,
        purpose: &Purpose,
        nudge: Option<&str>,
    ) -> impl Future<Output = Result<ReserveResult, Interrupt>> {
        let ask = move |max_output, hold, landing| Asked {
            max_output,
            hold,
            landing,
            ..request.asked(purpose.clone(), nudge.map(str::to_owned))
        };
        self.reservations.reserve(request.size, &request.rates, ask)
    }

    /// Chooses the output of the call, and for a landing its input as well, by the budget that is left now. It changes while
    /// the run waits.
    fn fit_to_budget(&self, mut request: PreparedRequest, purpose: &Purpose, nudge: Option<&str>) -> PreparedRequest {
        match purpose {
            Purpose::Landing(_) => {
                let model = request.model.clone();
                PreparedRequest::new(&self.run, model, purpose, nudge).fit_landing(&self.run, nudge)
            }
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => {
                request.choose_output(&self.run);
                request
            }
        }
    }

    /// The run's turn in the queue of its siblings that wait for budget to start; `None` if it has started.
    fn queue_to_start(&self) -> Option<impl Future<Output = OwnedMutexGuard<()>> + use<>> {
        let parent = self.run.read(|run| run.spawned.parent.filter(|_| run.began().is_none()))?;
        let queue = self.run.tree.live_run(parent)?.admission.clone();
        Some(queue.lock_owned())
    }

    /// Waits for the run's turn to start; `None` if it must land before.
    async fn wait_to_start<T>(
        &self,
        turn: impl Future<Output = T>,
        wait: &mut BudgetWait<'_>,
    ) -> Result<Option<T>, Interrupt> {
        self.scheduler.waiting(self.scheduler.before_landing(wait.during(turn))).await
    }

    /// Waits until a call is settled, which may release what this one needs. Settlements of other processes at a shared
    /// account are not announced, so the wait also ends after a moment.
    async fn wait_for_budget(
        &self,
        settlement: impl Future<Output = ()>,
        purpose: &Purpose,
        wait: &mut BudgetWait<'_>,
    ) -> Result<(), Interrupt> {
        let settlement = async {
            let _ = wait.during(tokio::time::timeout(BUDGET_POLL, settlement)).await;
            self.reservations.read_others().await;
        };
        match purpose {
            Purpose::Landing(_) => self.scheduler.waiting(settlement).await.map(drop),
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => {
                self.scheduler.waiting(self.scheduler.before_landing(settlement)).await.map(drop)
            }
        }
    }

    /// Makes one attempt, abandoned when the run must stop or its time is up.
    pub(crate) async fn attempt(&self, permit: &CallPermit) -> Result<Reply, AskFailure> {
        let no_tools = Toolbox::default();
        let CallPermit { request, reserved, key, .. } = permit;
        let landing = matches!(reserved.asked.purpose, Purpose::Landing(_));
        let (agent, single_turn, forced) = self.run.read(|run| {
            let forced = forces_answer(run, &reserved.asked.purpose);
            (run.spawned.agent.clone(), run.limits.turns.value() == Some(1), forced)
        });
        let limit = self.scheduler.working_time_left();
        let model_request = ModelRequest::new(
            &request.system,
            &request.messages,
            request.tools.as_ref().map_or(&no_tools, |tools| &tools.toolbox),
            key,
        )
        .choice(match (landing || single_turn, forced) {
            (true, _) => ToolChoice::Off,
            (false, true) => ToolChoice::Tool(tool_names::ANSWER),
            (false, false) => ToolChoice::Auto,
        })
        .max_output(reserved.asked.max_output)
        .effort(agent.model.effort)
        .temperature_milli(agent.model.temperature_milli)
        .sampling(&agent.model.sampling)
        .time_left(limit.as_ref().map(|(left, _)| Duration::from_millis(*left)));
        let (arriving, has_begun) = (Mutex::new(ArrivingReply::new(&self.run)), AtomicBool::new(false));
        let on_delta = |delta: Delta<'_>| {
            if !has_begun.swap(true, Ordering::Relaxed) {
                self.run.live_run.first_reply.cancel();
            }
            permit.streamed.take(delta);
            arriving.lock().unwrap_or_else(PoisonError::into_inner).add(delta);
        };
        let reply = request.model.reply(model_request, &on_delta);
        // How much of the reply has arrived is stored once a second, so that a crash is charged by it. Deltas only count.
        let mark = || {
            permit.streamed.set_marked();
            self.run.mark(Some(LiveMark::Arriving(permit.streamed.progress())));
        };
        let reply = if request.model.card().is_program() {
            self.scheduler.working(reply).await
        } else {
            self.scheduler.working_with(Tick { limit, every: MARK_EVERY, call: &mark }, reply).await
        };
        let partial = arriving.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
        let reply =
            reply.unwrap_or_else(|_| Err(AskFailure::new(ModelError::OutOfTime, Charge::Hold).partial(partial)));
        reply.map_err(charge_timeout)
    }

    /// Settles the reservation, and pauses the provider's calls if it asked for a pause.
    pub(crate) fn settle(&self, permit: CallPermit, reply: Result<Reply, AskFailure>) -> Result<(), Interrupt> {
        self.run.live_run.first_reply.cancel();
        let is_marked = permit.streamed.is_marked();
        // The transcript would be copied if the request still had it when the reply is added.
        drop(permit.request);
        let failure = match reply {
            Ok(reply) => {
                self.reservations.settle_reply(*permit.reserved, reply, permit.streamed.first_token_ms());
                self.unmark(is_marked);
                return Ok(());
            }
            Err(failure) => failure,
        };
        if let ModelError::Busy { retry_after_ms: Some(wait_ms), .. } = &failure.error {
            self.scheduler.pause_provider(&permit.rate_limiter, *wait_ms);
        }
        let out_of_time = failure.error == ModelError::OutOfTime;
        self.reservations.settle_failure(*permit.reserved, failure, permit.streamed.progress());
        self.unmark(is_marked);
        self.scheduler.check_stopped()?;
        if out_of_time { Err(self.scheduler.time_is_up()) } else { Ok(()) }
    }

    fn unmark(&self, is_marked: bool) {
        if is_marked {
            self.run.mark(None);
        }
    }

    /// Like [`Self::land_if_time_is_short`], if time has passed since the last check. Usually nothing was waited for.
    fn land_after_wait(&self, purpose: &Purpose, checked: &mut Instant) -> Option<Step> {
        if checked.elapsed() < Duration::from_millis(1) {
            return None;
        }
        *checked = Instant::now();
        self.land_if_time_is_short(purpose)
    }

    /// Lands the run instead of another turn if its time is nearly up.
    fn land_if_time_is_short(&self, purpose: &Purpose) -> Option<Step> {
        match purpose {
            Purpose::Landing(_) => None,
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => {
                let hit = self.run.time_nearly_up()?;
                Some(self.run.read(|run| land(run, hit, Reservation::default())))
            }
        }
    }

    /// The first model of the run's list that is not given up; fails if none is left.
    fn choose_model(&self, purpose: &Purpose) -> Result<Arc<dyn Model>, Interrupt> {
        let (spawned, current, failed, mut error, unforced) = self.run.read(|run| {
            let (models, asked) = (&run.spawned.models, run.asked_model());
            let current = asked.and_then(|asked| models.iter().position(|name| name == asked)).unwrap_or(0);
            let unforced = retries_unforced(run, purpose);
            (run.spawned.clone(), current, run.failed_asks(), run.last_error().cloned(), unforced)
        });
        let models = &spawned.models;
        let max_attempts = self.run.config().retries.max_attempts;
        let has_another = current + 1 < models.len();
        let give_up = error.as_ref().is_some_and(|error| gives_up(error, failed, max_attempts, has_another));
        let next = if give_up && !unforced { current + 1 } else { current };
        for name in models.iter().skip(next) {
            match self.run.runtime.parts.models.get(name) {
                Ok(model) => return Ok(model),
                Err(unavailable) => error = Some(unavailable),
            }
        }
        let error = error.unwrap_or_else(|| ModelError::Unusable { reason: "no model is configured".to_owned() });
        Err(Interrupt::Failed(failed_outcome(&error)))
    }

    /// Summarises a history that would not fit the model's context, instead of sending it in vain, or the part of it that the
    /// agent's definition allows.
    fn compact_if_too_long(&self, request: &PreparedRequest, purpose: &Purpose) -> Option<Step> {
        // The agent's window is a wish: the last messages are kept even if they alone are larger.
        let own = self.run.read(|run| run.spawned.agent.context.compact_window.filter(|_| !run.is_freshly_compacted()));
        let window = [request.model.card().context_window, own].into_iter().flatten().min()?;
        let nearly_full = request.size.input > window - window / 10;
        let is_turn = matches!(purpose, Purpose::Turn);
        (is_turn && nearly_full && request.messages.len() > compaction::KEPT + 1).then(|| self.run.read(Run::compact))
    }

    /// The step to take if a call does not fit the budget: the landing, or the end if that does not fit either.
    fn land_or_stop(&self, purpose: &Purpose, request: &PreparedRequest, hit: LimitHit) -> Step {
        self.run.read(|run| match purpose {
            Purpose::Landing(_) => Step::Stop(run.ending(homing_core::run::out_of(hit))),
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => land(run, hit, request.least_hold()),
        })
    }
}

/// Charges a call that the run's time ended. The model's own timer may be the first to notice it; the provider has the request in
/// either case, and may bill it.
fn charge_timeout(mut failure: AskFailure) -> AskFailure {
    if failure.error == ModelError::OutOfTime && failure.charge == Charge::Nothing {
        failure.charge = Charge::Hold;
    }
    failure
}

/// The pieces of a reply while they arrive. Subscribers see them without secrets; a piece that may be the beginning of one is
/// held back.
struct ArrivingReply<'a> {
    run: &'a ActiveRun,
    /// The text so far. It is recorded only if the call fails, and facts are redacted when they are recorded.
    text: String,
    shown_text: RedactedStream,
    shown_thinking: RedactedStream,
}

impl<'a> ArrivingReply<'a> {
    fn new(run: &'a ActiveRun) -> Self {
        let (shown_text, shown_thinking) = (run.tree.secrets.stream(), run.tree.secrets.stream());
        Self { run, text: String::new(), shown_text, shown_thinking }
    }

    fn add(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) => {
                self.text.push_str(text);
                let text = self.shown_text.push(text);
                notify(self.run, text, TransientKind::Text);
            }
            Delta::Thinking(text) => {
                let text = self.shown_thinking.push(text);
                notify(self.run, text, TransientKind::Thinking);
            }
            Delta::Call(_) | Delta::Arguments(_) => (),
        }
    }

    /// Shows what was held back, and returns the whole text.
    fn finish(mut self) -> String {
        let (thinking, text) = (self.shown_thinking.finish(), self.shown_text.finish());
        notify(self.run, thinking.into(), TransientKind::Thinking);
        notify(self.run, text.into(), TransientKind::Text);
        self.text
    }
}

/// Shows subscribers a piece of a reply.
fn notify(run: &ActiveRun, text: Cow<'_, str>, kind: impl FnOnce(String) -> TransientKind) {
    if !text.is_empty() {
        run.tree.notify(&run.live_run, Audience::TextReaders, || kind(text.into_owned()));
    }
}

/// Identifies the next reply of a run to the provider.
fn call_key(run: &Run) -> String {
    let mut key = String::with_capacity(48);
    key.push_str(run.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    key.push(':');
    let _ = write!(key, "{}", run.own.turns + 1);
    key
}

/// The step that ends a run because of a limit. A run that has not started has nothing to report, so it is not asked.
fn land(run: &Run, hit: LimitHit, needed: Reservation) -> Step {
    if run.began().is_some() {
        return run.land(hit);
    }
    let text = landing::not_started(&hit, needed);
    Step::Stop(Ended { text, ..run.ending(homing_core::run::out_of(hit)) })
}

/// Returns true if a reply must call the tool `answer`: the model has not used it, and the provider has not rejected such a
/// request before.
fn forces_answer(run: &Run, purpose: &Purpose) -> bool {
    *purpose == Purpose::Repair && lacks_answer(run) && !matches!(run.last_error(), Some(ModelError::Unusable { .. }))
}

/// Returns true if the last attempt may have failed because it prescribed the tool, which some servers reject. It is made
/// once more without.
fn retries_unforced(run: &Run, purpose: &Purpose) -> bool {
    let rejected = matches!(run.last_error(), Some(ModelError::Unusable { .. }));
    *purpose == Purpose::Repair && lacks_answer(run) && rejected && run.failed_asks() == 1
}

/// Returns true if the run stops asking a model after this error.
fn gives_up(error: &ModelError, failed: u32, max_attempts: u32, has_another: bool) -> bool {
    match error {
        ModelError::Busy { .. } => has_another && failed >= max_attempts,
        ModelError::Broken { .. } => failed >= max_attempts,
        ModelError::ContextFull { .. } | ModelError::OutOfTime => false,
        _ => true,
    }
}

/// The outcome of a run that has no model left to ask.
fn failed_outcome(error: &ModelError) -> Outcome {
    let kind = match error {
        ModelError::Unauthorized { .. } => FailureKind::Auth,
        ModelError::Refused { .. } => FailureKind::Refused,
        ModelError::Team { .. } => FailureKind::Team,
        _ => FailureKind::Model,
    };
    Outcome::Failed { kind, message: error.to_string(), retryable: error.is_retryable() }
}
