//! Asking models: which one, when, and with how much room. Model calls that fail are retried from here: a failed attempt is a
//! fact, and the next step asks again after a pause ([`RunDriver::pause_before_retry`]), as long as that makes sense.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homing_core::{
    fact::{Asked, Fact, FailureKind, LimitHit, Outcome, Purpose, Reservation},
    ledger::{AskSize, Fit},
    message::{FNV_START, Message, Reply, TranscriptEntry, Usage, fnv},
    model::{AskFailure, Charge, Delta, Model, ModelError, ModelRequest, Rates, ToolChoice, Toolbox},
    run::{Run, Step},
    token_estimate::input_bound,
};

use crate::{
    agent_loop::{Interrupt, Ledger, Reserved, compaction, run_driver::RunDriver},
    event::TransientKind,
    live_tree::RunTools,
    scheduler::{fair_semaphore::Slot, rate_limit::RateLimiter},
};

/// A model call that may be made: its hold is recorded, and it has its slots.
pub(crate) struct CallPermit {
    model: Arc<dyn Model>,
    gate: Arc<RateLimiter>,
    asked: Asked,
    paid_by: Option<AccountHold>,
    messages: Vec<Arc<TranscriptEntry>>,
    system: Arc<str>,
    kit: Option<Arc<RunTools>>,
    key: String,
    // A slot is held only while asking, so that a waiting parent never starves its child.
    _slots: (Slot, Slot),
}

/// What is held at the account that pays, which is one more ancestor.
struct AccountHold {
    account: String,
    max_output: u64,
    hold: Reservation,
}

/// What is to be sent, before it is known whether it may be.
struct PreparedRequest {
    model: Arc<dyn Model>,
    messages: Vec<Arc<TranscriptEntry>>,
    system: Arc<str>,
    kit: Option<Arc<RunTools>>,
    input_bound: u64,
    hash: u64,
}

impl Ledger for RunDriver {
    type Permit = CallPermit;

    async fn reserve(&self, purpose: Purpose, nudge: Option<String>) -> Result<Reserved<CallPermit>, Interrupt> {
        if let Some(step) = self.instead_of(&purpose) {
            return Ok(Reserved::Instead(step));
        }
        let model = self.choose_model()?;
        self.pause_before_retry().await?;
        let gate = self.inner.gates.get(&model.card().gate);
        let draft = self.draft(model, &purpose, nudge.as_deref());
        if let Some(step) = self.too_long_for(&draft, &purpose) {
            return Ok(Reserved::Instead(step));
        }
        loop {
            self.pass(&gate).await?;
            let settled = self.book.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if let Fit::Later = self.room(&draft, &purpose) {
                self.working(settled).await?;
                continue;
            }
            let slots = self.take_slots(&gate).await?;
            if gate.wait(&*self.book.environment, &*self.book.journal).is_some() {
                continue;
            }
            let paid_by = match self.hold_at_account(&draft, &purpose).await? {
                Ok(paid_by) => paid_by,
                Err(hit) => return Ok(Reserved::Instead(self.no_room(&purpose, hit))),
            };
            let key = self.run(|run| format!("{}:{}", run.id, run.own.turns + 1));
            match self.hold(&draft, &purpose, nudge.as_deref(), paid_by.as_ref()) {
                Ok((asked, commit)) => {
                    let PreparedRequest { model, messages, system, kit, .. } = draft;
                    let held = CallPermit { model, gate, asked, paid_by, messages, system, kit, key, _slots: slots };
                    commit.await.map_err(Interrupt::Journal)?;
                    return Ok(Reserved::Held(held));
                }
                Err(room) => {
                    self.settle_at_account(paid_by, Usage::default());
                    drop(slots);
                    match room {
                        Fit::Full(hit) => return Ok(Reserved::Instead(self.no_room(&purpose, hit))),
                        Fit::Later | Fit::Fits { .. } => self.working(settled).await?,
                    }
                }
            }
        }
    }

    fn settle(&self, held: CallPermit, said: Result<Reply, AskFailure>) -> Result<(), Interrupt> {
        let rates = held.model.card().rates.clone().unwrap_or_default();
        match said {
            Ok(mut reply) => {
                reply.usage = settled_usage(reply.usage, &held.asked, &rates);
                self.settle_at_account(held.paid_by, reply.usage);
                self.record(Fact::Replied { reply: Arc::new(reply) });
                Ok(())
            }
            Err(failure) => {
                let charge = match failure.charge {
                    Charge::Nothing => Usage::default(),
                    Charge::Hold => worst(&held.asked),
                    Charge::Used(usage) => settled_usage(usage, &held.asked, &rates),
                };
                if let ModelError::Busy { retry_after_ms: Some(wait), .. } = &failure.error {
                    let until = self.book.environment.now_ms().saturating_add(*wait);
                    held.gate.close(until, &*self.book.journal);
                }
                self.settle_at_account(held.paid_by, charge);
                let out_of_time = failure.error == ModelError::OutOfTime;
                self.record(Fact::AskFailed { failure, charge });
                self.check_stopped()?;
                if out_of_time { Err(self.time_is_up()) } else { Ok(()) }
            }
        }
    }
}

impl RunDriver {
    /// One attempt, given up when the run is to stop or its time is up.
    pub(crate) async fn attempt(&self, held: &CallPermit) -> Result<Reply, AskFailure> {
        let empty = Toolbox::default();
        let landing = matches!(held.asked.purpose, Purpose::Landing(_));
        let (effort, temperature_milli) =
            self.run(|run| (run.spawned.agent.effort, run.spawned.agent.temperature_milli));
        let single_turn = self.run(|run| run.limits.turns.value() == Some(1));
        let request = ModelRequest {
            system: &held.system,
            messages: &held.messages,
            tools: held.kit.as_ref().map_or(&empty, |kit| &kit.toolbox),
            choice: if landing || single_turn { ToolChoice::Off } else { ToolChoice::Auto },
            max_output: held.asked.max_output,
            effort,
            temperature_milli,
            time_left: self.time_to_work(),
            key: &held.key,
        };
        let partial = Mutex::new(String::new());
        let on_delta = |delta: Delta<'_>| match delta {
            Delta::Text(text) => {
                partial.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
                self.book.pass(&self.cell, || TransientKind::Text(text.to_owned()));
            }
            Delta::Thinking(text) => self.book.pass(&self.cell, || TransientKind::Thinking(text.to_owned())),
            Delta::Call(_) => (),
        };
        match self.working(held.model.reply(request, &on_delta)).await {
            Ok(said) => said,
            Err(_) => {
                let partial = partial.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(AskFailure { error: ModelError::OutOfTime, charge: Charge::Hold, partial })
            }
        }
    }

    /// Time that is nearly up turns a turn into the landing.
    fn instead_of(&self, purpose: &Purpose) -> Option<Step> {
        match purpose {
            Purpose::Landing(_) => None,
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => self.book.look(|tree| {
                let hit = tree.ledger().time_nearly_up(self.cell.run, self.book.clock(tree))?;
                Some(tree.get(self.cell.run)?.land(hit))
            }),
        }
    }

    /// The model to ask, or the end where no model of the list can be asked any more.
    fn choose_model(&self) -> Result<Arc<dyn Model>, Interrupt> {
        let (models, at, failed, error) = self.run(|run| {
            let at = run.asked_model().and_then(|it| run.spawned.models.iter().position(|name| name == it));
            (run.spawned.models.clone(), at.unwrap_or(0), run.failed_asks(), run.last_error().cloned())
        });
        let patience = self.inner.parts.settings.max_attempts;
        let mut next = match &error {
            Some(error) if gives_up(error, failed, patience, at + 1 < models.len()) => at + 1,
            Some(_) | None => at,
        };
        let mut why = error;
        while let Some(name) = models.get(next) {
            match self.inner.parts.models.get(name) {
                Ok(model) => return Ok(model),
                Err(error) => why = Some(error),
            }
            next += 1;
        }
        let why = why.unwrap_or_else(|| ModelError::Unusable { reason: "no model is configured".to_owned() });
        Err(Interrupt::Failed(failure_of(&why)))
    }

    /// Waits after a failed attempt, with nothing held.
    async fn pause_before_retry(&self) -> Result<(), Interrupt> {
        let (failed, error) = self.run(|run| (run.failed_asks(), run.last_error().cloned()));
        let Some(error) = error.filter(ModelError::is_retryable) else { return Ok(()) };
        let wait = match &error {
            // The gate knows how long.
            ModelError::Busy { retry_after_ms: Some(_), .. } => return Ok(()),
            _ => self.backoff(failed),
        };
        self.book.pass(&self.cell, || TransientKind::Retrying {
            in_ms: crate::clock::millis(wait),
            reason: error.to_string(),
        });
        self.waiting(tokio::time::sleep(wait)).await
    }

    /// Full jitter: anything up to twice as much each time.
    fn backoff(&self, failed: u32) -> Duration {
        let most = crate::clock::millis(self.inner.parts.settings.max_backoff);
        let bound = 500_u64.saturating_mul(1 << failed.min(16)).min(most);
        Duration::from_millis(self.book.environment.roll(bound) + 1)
    }

    /// Waits until the provider takes requests again; fails at once where that is beyond the run's time.
    async fn pass(&self, gate: &RateLimiter) -> Result<(), Interrupt> {
        while let Some(wait) = gate.wait(&*self.book.environment, &*self.book.journal) {
            if self.time_to_wait().is_some_and(|left| left < wait) {
                let message =
                    format!("the provider wants {} s of silence, more than this run has left", wait.as_secs());
                let outcome = Outcome::Failed { kind: FailureKind::Model, message, retryable: true };
                return Err(Interrupt::Failed(outcome));
            }
            self.book.pass(&self.cell, || TransientKind::Retrying {
                in_ms: crate::clock::millis(wait),
                reason: "the provider is busy".to_owned(),
            });
            self.waiting(tokio::time::sleep(wait)).await?;
        }
        Ok(())
    }

    async fn take_slots(&self, gate: &RateLimiter) -> Result<(Slot, Slot), Interrupt> {
        let run = self.slot().await?;
        let ask = self.waiting(gate.asks.acquire(&self.lane())).await?;
        Ok((run, ask))
    }

    fn draft(&self, model: Arc<dyn Model>, purpose: &Purpose, nudge: Option<&str>) -> PreparedRequest {
        let kit = self.kit();
        let (system, mut messages, last) =
            self.run(|run| (run.spawned.system.clone(), run.messages().to_vec(), run.last_ask()));
        if let Some(nudge) = nudge {
            messages.push(TranscriptEntry::new(Message::user(nudge)));
        }
        if *purpose == Purpose::Compaction {
            let window = model.card().context_window.unwrap_or(100_000);
            let digest = compaction::digest(&messages, window);
            let (system, messages) = (Arc::from(compaction::PROMPT), vec![TranscriptEntry::new(Message::user(digest))]);
            let input_bound = input_bound(&system, 0, &messages, None);
            return PreparedRequest {
                model,
                hash: hash(&system, None, &messages),
                messages,
                system,
                kit: None,
                input_bound,
            };
        }
        let input_bound = match is_program(&*model) {
            true => 0,
            false => input_bound(&system, kit.bytes, &messages, last),
        };
        let hash = hash(&system, Some(&kit), &messages);
        PreparedRequest { model, messages, system, kit: Some(kit), input_bound, hash }
    }

    /// A history that will not fit the model's context is summarised before it is sent in vain.
    fn too_long_for(&self, draft: &PreparedRequest, purpose: &Purpose) -> Option<Step> {
        let window = draft.model.card().context_window?;
        let nearly_full = draft.input_bound > window - window / 10;
        let is_turn = matches!(purpose, Purpose::Turn);
        (is_turn && nearly_full && draft.messages.len() > compaction::KEPT + 1).then(|| self.run(Run::compact))
    }

    fn wish(&self, draft: &PreparedRequest, purpose: &Purpose) -> AskSize {
        let settings = &self.inner.parts.settings;
        let (card, input) = (draft.model.card(), draft.input_bound);
        // Providers refuse what might outgrow the context. The input is counted high, so some of it stays for the output.
        let left = card.context_window.map(|window| window.saturating_sub(input).max(window / 4));
        let most = [card.max_output, left].into_iter().flatten().fold(settings.max_output, u64::min);
        if is_program(&*draft.model) {
            return AskSize { input, output: 0, floor: 0, reserve: 0 };
        }
        match purpose {
            Purpose::Landing(_) => {
                let output = settings.landing_output.max(most.min(4_096));
                AskSize { input, output, floor: settings.landing_output.min(256), reserve: 0 }
            }
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => AskSize {
                input,
                output: most,
                floor: settings.output_floor.min(most),
                reserve: settings.landing_output,
            },
        }
    }

    fn room(&self, draft: &PreparedRequest, purpose: &Purpose) -> Fit {
        let rates = draft.model.card().rates.clone().unwrap_or_default();
        let wish = self.wish(draft, purpose);
        self.book.look(|tree| tree.ledger().fit(self.cell.run, wish, &rates))
    }

    /// What to do where an ask does not fit.
    fn no_room(&self, purpose: &Purpose, hit: LimitHit) -> Step {
        match purpose {
            Purpose::Landing(_) => Step::Stop(self.run(|run| run.ending(homing_core::run::out_of(hit)))),
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => self.run(|run| run.land(hit)),
        }
    }

    /// Holds at the account that pays, if there is one. The tree decides after it, with no larger an ask.
    async fn hold_at_account(
        &self,
        draft: &PreparedRequest,
        purpose: &Purpose,
    ) -> Result<Result<Option<AccountHold>, LimitHit>, Interrupt> {
        let Some(account) = self.run(|run| run.spawned.account.clone()) else { return Ok(Ok(None)) };
        let Fit::Fits { max_output, hold } = self.room(draft, purpose) else { return Ok(Ok(None)) };
        match self.book.journal.hold_at_account(&account, hold).await.map_err(Interrupt::Journal)? {
            None => Ok(Ok(Some(AccountHold { account, max_output, hold }))),
            Some(hit) => Ok(Err(hit)),
        }
    }

    fn settle_at_account(&self, paid_by: Option<AccountHold>, used: Usage) {
        if let Some(AccountHold { account, hold, .. }) = paid_by {
            self.book.journal.settle_at_account(&account, hold, used);
        }
    }

    /// Holds what the ask may cost, if it fits at this very moment.
    fn hold(
        &self,
        draft: &PreparedRequest,
        purpose: &Purpose,
        nudge: Option<&str>,
        paid_by: Option<&AccountHold>,
    ) -> Result<(Asked, crate::journal::Commit), Fit> {
        let rates = draft.model.card().rates.clone().unwrap_or_default();
        let mut wish = self.wish(draft, purpose);
        if let Some(paid_by) = paid_by {
            wish.output = paid_by.max_output;
        }
        let mut written = None;
        let commit =
            self.book.record_if(self.cell.run, |tree| match tree.ledger().fit(self.cell.run, wish, &rates) {
                Fit::Fits { max_output, hold } => {
                    let asked = Asked {
                        purpose: purpose.clone(),
                        model: draft.model.card().name.clone(),
                        max_output,
                        request_hash: draft.hash,
                        input_bound: draft.input_bound,
                        hold,
                        nudge: nudge.map(str::to_owned),
                    };
                    written = Some(asked.clone());
                    Ok(Fact::Asked(asked))
                }
                other => Err(other),
            })?;
        Ok((written.expect("what was recorded was made here"), commit))
    }
}

/// Whether the model is a program that writes no tokens: nothing need be held for it, so a team can always report.
fn is_program(model: &dyn Model) -> bool {
    model.card().max_output == Some(0)
}

/// Whether a model is given up after this error.
fn gives_up(error: &ModelError, failed: u32, patience: u32, another: bool) -> bool {
    match error {
        ModelError::Busy { .. } => another && failed >= patience,
        ModelError::Broken { .. } => failed >= patience,
        ModelError::ContextFull { .. } | ModelError::OutOfTime => false,
        ModelError::Refused { .. }
        | ModelError::Unauthorized { .. }
        | ModelError::Unusable { .. }
        | ModelError::Team { .. } => true,
    }
}

/// How a run ends whose models cannot be asked.
pub(crate) fn failure_of(error: &ModelError) -> Outcome {
    let kind = match error {
        ModelError::Unauthorized { .. } => FailureKind::Auth,
        ModelError::Refused { .. } => FailureKind::Refused,
        ModelError::Team { .. } => FailureKind::Team,
        ModelError::Busy { .. }
        | ModelError::Broken { .. }
        | ModelError::ContextFull { .. }
        | ModelError::Unusable { .. }
        | ModelError::OutOfTime => FailureKind::Model,
    };
    Outcome::Failed { kind, message: error.to_string(), retryable: error.is_retryable() }
}

/// A provider that does not say what was used is charged for the worst case.
fn settled_usage(usage: Usage, asked: &Asked, rates: &Rates) -> Usage {
    match usage.estimated {
        true => worst(asked),
        false => Usage { cost_micros: rates.cost(&usage), ..usage },
    }
}

/// What an ask is charged where nobody can say what it used.
pub(crate) fn worst(asked: &Asked) -> Usage {
    let Reservation { cost_micros, .. } = asked.hold;
    Usage { input: asked.input_bound, output: asked.max_output, cost_micros, estimated: true, ..Usage::default() }
}

/// A fingerprint of a request: the prompt, the faces of the tools, the messages.
pub(crate) fn hash(system: &str, kit: Option<&RunTools>, messages: &[Arc<TranscriptEntry>]) -> u64 {
    let start = fnv(FNV_START, system.as_bytes()) ^ kit.map_or(0, |kit| kit.hash);
    messages.iter().fold(start, |hash, entry| fnv(hash, &entry.hash().to_le_bytes()))
}
