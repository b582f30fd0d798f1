//! Calls models: chooses the model, prepares the request, makes one attempt. A failed attempt is recorded as a fact,
//! and the loop asks again; the pause before the retry is the scheduler's ([`Scheduler::back_off`]).

use std::sync::{Arc, Mutex, PoisonError};

use homing_core::{
    fact::{Asked, FailureKind, LimitHit, Outcome, Purpose},
    ledger::{AskSize, Fit},
    message::{FNV_START, Message, Reply, TranscriptEntry, fnv},
    model::{AskFailure, Charge, Delta, Model, ModelCard, ModelError, ModelRequest, Rates, ToolChoice, Toolbox},
    run::{Run, Step, lacks_answer},
    token_estimate::input_bound,
    tool_names,
};

use crate::{
    agent_loop::{Interrupt, Reserved, active_run::ActiveRun, cache_wait, compaction},
    config::RuntimeConfig,
    event::TransientKind,
    ledger::{Reservations, ReserveResult, ReservedCall},
    run_tools::RunTools,
    scheduler::{CallSlots, Scheduler, rate_limit::RateLimiter},
};

/// The context window assumed for the digest if the model's is not known, in tokens.
const ASSUMED_WINDOW: u64 = 100_000;

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
    reserved: ReservedCall,
    key: String,
    _slots: CallSlots,
}

/// A request that is ready to be sent.
struct PreparedRequest {
    model: Arc<dyn Model>,
    messages: Vec<Arc<TranscriptEntry>>,
    system: Arc<str>,
    tools: Option<Arc<RunTools>>,
    size: AskSize,
    rates: Rates,
    hash: u64,
}

impl ModelCalls {
    pub(crate) fn new(run: Arc<ActiveRun>, scheduler: Arc<Scheduler>) -> Self {
        let reservations = Reservations::new(run.tree.clone(), run.live_run.clone());
        Self { run, scheduler, reservations }
    }

    /// Waits until a call may be made, and reserves its worst case.
    pub(crate) async fn reserve(
        &self,
        purpose: Purpose,
        nudge: Option<String>,
    ) -> Result<Reserved<CallPermit>, Interrupt> {
        if let Some(step) = self.land_if_time_is_short(&purpose) {
            return Ok(Reserved::Instead(step));
        }
        let model = self.choose_model(&purpose)?;
        self.scheduler.back_off().await?;
        let rate_limiter = self.run.runtime.rate_limiters.get(&model.card().rate_limit_key);
        let request = self.prepare(model, &purpose, nudge.as_deref());
        if let Some(step) = self.compact_if_too_long(&request, &purpose) {
            return Ok(Reserved::Instead(step));
        }
        cache_wait::wait_for_sibling(&self.run, &self.scheduler, &*request.model, request.tools.as_deref()).await?;
        loop {
            self.scheduler.wait_for_provider(&rate_limiter).await?;
            // Enabled before the check: a call that is settled between the check and the wait is not missed.
            let settlement = self.reservations.next_settlement();
            tokio::pin!(settlement);
            settlement.as_mut().enable();
            if let Fit::Later = self.reservations.fit(request.size, &request.rates) {
                self.scheduler.working(settlement).await?;
                continue;
            }
            let slots = self.scheduler.call_slots(&rate_limiter).await?;
            if self.scheduler.provider_pause(&rate_limiter).is_some() {
                continue;
            }
            let key = self.run.read(|run| format!("{}:{}", run.id, run.own.turns + 1));
            let ask = |max_output, hold| Asked {
                purpose: purpose.clone(),
                model: request.model.card().name.clone(),
                max_output,
                request_hash: request.hash,
                input_bound: request.size.input,
                hold,
                nudge: nudge.clone(),
            };
            match self.reservations.reserve(request.size, request.rates.clone(), ask).await? {
                ReserveResult::Reserved(reserved) => {
                    let permit = CallPermit { request, rate_limiter, reserved, key, _slots: slots };
                    return Ok(Reserved::Permitted(permit));
                }
                ReserveResult::Full(hit) => return Ok(Reserved::Instead(self.land_or_stop(&purpose, hit))),
                ReserveResult::Later => {
                    drop(slots);
                    self.scheduler.working(settlement).await?;
                }
            }
        }
    }

    /// Makes one attempt, abandoned when the run must stop or its time is up.
    pub(crate) async fn attempt(&self, permit: &CallPermit) -> Result<Reply, AskFailure> {
        let no_tools = Toolbox::default();
        let CallPermit { request, reserved, key, .. } = permit;
        let landing = matches!(reserved.asked.purpose, Purpose::Landing(_));
        let (effort, temperature_milli, single_turn, forced) = self.run.read(|run| {
            let agent = &run.spawned.agent;
            let forced = forces_answer(run, &reserved.asked.purpose);
            (agent.model.effort, agent.model.temperature_milli, run.limits.turns.value() == Some(1), forced)
        });
        let model_request = ModelRequest {
            system: &request.system,
            messages: &request.messages,
            tools: request.tools.as_ref().map_or(&no_tools, |tools| &tools.toolbox),
            choice: match (landing || single_turn, forced) {
                (true, _) => ToolChoice::Off,
                (false, true) => ToolChoice::Tool(tool_names::ANSWER),
                (false, false) => ToolChoice::Auto,
            },
            max_output: reserved.asked.max_output,
            effort,
            temperature_milli,
            time_left: self.scheduler.time_to_work(),
            key,
        };
        let partial = Mutex::new(String::new());
        let on_delta = |delta: Delta<'_>| {
            self.run.live_run.first_reply.cancel();
            match delta {
                Delta::Text(text) => {
                    partial.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
                    self.run.notify(|| TransientKind::Text(text.to_owned()));
                }
                Delta::Thinking(text) => self.run.notify(|| TransientKind::Thinking(text.to_owned())),
                Delta::Call(_) => (),
            }
        };
        match self.scheduler.working(request.model.reply(model_request, &on_delta)).await {
            Ok(reply) => reply,
            Err(_) => {
                let partial = partial.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(AskFailure { error: ModelError::OutOfTime, charge: Charge::Hold, partial })
            }
        }
    }

    /// Settles the reservation, and pauses the provider's calls if it asked for a pause.
    pub(crate) fn settle(&self, permit: CallPermit, reply: Result<Reply, AskFailure>) -> Result<(), Interrupt> {
        self.run.live_run.first_reply.cancel();
        let failure = match reply {
            Ok(reply) => {
                self.reservations.settle_reply(permit.reserved, reply);
                return Ok(());
            }
            Err(failure) => failure,
        };
        if let ModelError::Busy { retry_after_ms: Some(wait_ms), .. } = &failure.error {
            self.scheduler.pause_provider(&permit.rate_limiter, *wait_ms);
        }
        let out_of_time = failure.error == ModelError::OutOfTime;
        self.reservations.settle_failure(permit.reserved, failure);
        self.scheduler.check_stopped()?;
        if out_of_time { Err(self.scheduler.time_is_up()) } else { Ok(()) }
    }

    /// Lands the run instead of another turn if its time is nearly up.
    fn land_if_time_is_short(&self, purpose: &Purpose) -> Option<Step> {
        match purpose {
            Purpose::Landing(_) => None,
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => self.run.tree.read(|tree| {
                let hit = tree.ledger().time_nearly_up(self.run.id(), self.run.tree.tree_clock(tree))?;
                Some(tree.get(self.run.id())?.land(hit))
            }),
        }
    }

    /// The first model of the run's list that is not given up; fails if none is left.
    fn choose_model(&self, purpose: &Purpose) -> Result<Arc<dyn Model>, Interrupt> {
        let (models, current, failed, mut error, unforced) = self.run.read(|run| {
            let models = run.spawned.models.clone();
            let asked = run.asked_model();
            let current = asked.and_then(|asked| models.iter().position(|name| name == asked)).unwrap_or(0);
            (models, current, run.failed_asks(), run.last_error().cloned(), retries_unforced(run, purpose))
        });
        let max_attempts = self.run.config().max_attempts;
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

    fn prepare(&self, model: Arc<dyn Model>, purpose: &Purpose, nudge: Option<&str>) -> PreparedRequest {
        let (mut system, mut messages, last_ask) =
            self.run.read(|run| (run.spawned.system.clone(), run.messages().to_vec(), run.last_ask()));
        if let Some(nudge) = nudge {
            messages.push(TranscriptEntry::new(Message::user(nudge)));
        }
        let (tools, input) = if *purpose == Purpose::Compaction {
            let window = model.card().context_window.unwrap_or(ASSUMED_WINDOW);
            let digest = compaction::digest(&messages, window);
            system = Arc::from(compaction::PROMPT);
            messages = vec![TranscriptEntry::new(Message::user(digest))];
            (None, input_bound(&system, 0, &messages, None))
        } else {
            let tools = self.run.tools();
            let is_program = is_program(model.card());
            let input = if is_program { 0 } else { input_bound(&system, tools.bytes, &messages, last_ask) };
            (Some(tools), input)
        };
        let size = ask_size(model.card(), input, purpose, self.run.config());
        let rates = model.card().rates.clone().unwrap_or_default();
        let hash = request_hash(&system, tools.as_deref(), &messages);
        PreparedRequest { model, messages, system, tools, size, rates, hash }
    }

    /// Summarises a history that would not fit the model's context, instead of sending it in vain.
    fn compact_if_too_long(&self, request: &PreparedRequest, purpose: &Purpose) -> Option<Step> {
        let window = request.model.card().context_window?;
        let nearly_full = request.size.input > window - window / 10;
        let is_turn = matches!(purpose, Purpose::Turn);
        (is_turn && nearly_full && request.messages.len() > compaction::KEPT + 1).then(|| self.run.read(Run::compact))
    }

    /// The step to take if a call does not fit the budget: the landing, or the end if that does not fit either.
    fn land_or_stop(&self, purpose: &Purpose, hit: LimitHit) -> Step {
        match purpose {
            Purpose::Landing(_) => Step::Stop(self.run.read(|run| run.ending(homing_core::run::out_of(hit)))),
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => self.run.read(|run| run.land(hit)),
        }
    }
}

/// The tokens to reserve for a call with `input` tokens.
fn ask_size(card: &ModelCard, input: u64, purpose: &Purpose, config: &RuntimeConfig) -> AskSize {
    if is_program(card) {
        return AskSize { input, output: 0, floor: 0, reserve: 0 };
    }
    // Providers reject requests whose input and output might exceed the context. The input is an upper bound, so a
    // quarter of the context is always left for the output.
    let left = card.context_window.map(|window| window.saturating_sub(input).max(window / 4));
    let most = [card.max_output, left].into_iter().flatten().fold(config.max_output, u64::min);
    match purpose {
        Purpose::Landing(_) => {
            let output = config.landing_output.max(most.min(4_096));
            AskSize { input, output, floor: config.landing_output.min(256), reserve: 0 }
        }
        Purpose::Turn | Purpose::Repair | Purpose::Compaction => {
            AskSize { input, output: most, floor: config.output_floor.min(most), reserve: config.landing_output }
        }
    }
}

/// Returns true if the model is a program, which uses no tokens. Nothing is reserved for it, so that a team can always
/// report.
fn is_program(card: &ModelCard) -> bool {
    card.max_output == Some(0)
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
        ModelError::Refused { .. }
        | ModelError::Unauthorized { .. }
        | ModelError::Unusable { .. }
        | ModelError::Team { .. } => true,
    }
}

/// The outcome of a run that has no model left to ask.
fn failed_outcome(error: &ModelError) -> Outcome {
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

/// A fingerprint of a request: the prompt, the specifications of the tools, the messages.
pub(crate) fn request_hash(system: &str, tools: Option<&RunTools>, messages: &[Arc<TranscriptEntry>]) -> u64 {
    let start = fnv(FNV_START, system.as_bytes()) ^ tools.map_or(0, |tools| tools.hash);
    messages.iter().fold(start, |hash, entry| fnv(hash, &entry.hash().to_le_bytes()))
}
