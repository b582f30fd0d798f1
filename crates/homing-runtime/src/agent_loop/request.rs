//! Prepares the request of a model call, and fits it to the budget.

use std::sync::{Arc, Mutex, PoisonError};

use homing_core::{
    fact::{Asked, LimitHit, Purpose, Reservation, Spawned},
    ledger::{AskSize, Fit, LandingSize, Margin, Room, landing::PROMPT},
    limits::Limit,
    message::{FNV_START, Message, TranscriptEntry, fnv},
    model::{Effort, Model, ModelCard, Rates},
    place::Place,
    run::SharedMessages,
    token_estimate::input_bound,
};

use crate::{
    agent_loop::{active_run::ActiveRun, compaction, landing},
    config::RuntimeConfig,
    run_tools::RunTools,
};

/// The context window assumed for the digest if the model's is not known, in tokens.
const ASSUMED_WINDOW: u64 = 100_000;

/// Most output of a landing that sends the whole conversation, in tokens.
const LONGEST_LANDING: u64 = 4_096;

/// Output of a call that reasons, in tokens. Replies so far may not have reasoned, so they do not show what one needs.
const REASONING_ROOM: u64 = 4_096;

/// Least output of a landing, in tokens.
const SHORTEST_LANDING: u64 = 64;

/// A request that is ready to be sent.
pub(crate) struct PreparedRequest {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) messages: SharedMessages,
    pub(crate) system: Arc<str>,
    pub(crate) tools: Option<Arc<RunTools>>,
    pub(crate) size: AskSize,
    pub(crate) rates: Rates,
    pub(crate) hash: u64,
}

impl PreparedRequest {
    /// Prepares the request for a call with this purpose.
    pub(crate) fn new(run: &ActiveRun, model: Arc<dyn Model>, purpose: &Purpose, nudge: Option<&str>) -> Self {
        let (system, mut messages, last_ask) =
            run.read(|run| (run.spawned.system.clone(), SharedMessages::of(run), run.last_ask()));
        let tools = run.tools();
        let mut hash = run.live_run.request_hash.extend(hash_start(&system, Some(&tools)), &messages);
        if let Some(nudge) = nudge {
            let entry = TranscriptEntry::new(Message::user(nudge));
            hash = hash_message(hash, &entry);
            messages.push(entry);
        }
        if *purpose == Purpose::Compaction {
            let window = model.card().context_window.unwrap_or(ASSUMED_WINDOW);
            let digest = compaction::digest(&messages, window);
            return Self::of_text(model, compaction::PROMPT, TranscriptEntry::new(Message::user(digest)));
        }
        let input = if model.card().is_program() { 0 } else { input_bound(&system, tools.bytes, &messages, last_ask) };
        let rates = model.card().rates.clone().unwrap_or_default();
        Self { model, messages, system, tools: Some(tools), size: bare_size(input), rates, hash }
    }

    /// A request with one message and no tools.
    fn of_text(model: Arc<dyn Model>, system: &str, message: Arc<TranscriptEntry>) -> Self {
        let messages = SharedMessages::from(message);
        let input = input_bound(system, 0, &messages, None);
        let rates = model.card().rates.clone().unwrap_or_default();
        let hash = request_hash(system, None, &messages);
        Self { model, messages, system: Arc::from(system), tools: None, size: bare_size(input), rates, hash }
    }

    /// Returns true if the model is a program, which uses no tokens. Nothing is reserved for it, so that a team can always
    /// report.
    fn is_program(&self) -> bool {
        self.model.card().is_program()
    }

    /// Chooses the output of the call from the budget that is left now.
    pub(crate) fn choose_output(&mut self, run: &ActiveRun) {
        if self.is_program() {
            return;
        }
        let config = run.config();
        let parallel = config.max_runs.min(config.max_asks) as u64;
        let size = self.size;
        self.size = run.tree.read(|tree| {
            let most = most_output(self.model.card(), size.input, run_cap(tree.get(run.id())), config);
            let ledger = tree.ledger();
            let margin = ledger.margin(&self.model.card().name);
            let size = AskSize { landing_output: config.landing_output, margin, parallel, ..size };
            let effort = tree.get(run.id()).and_then(|run| run.spawned.agent.model.effort);
            let least = if effort > Some(Effort::Minimal) { REASONING_ROOM } else { 0 };
            let room = Room { most, least, floor: config.output_floor };
            ledger.choose_room(run.id(), size, room, &self.rates)
        });
    }

    /// The request of a landing: the whole conversation if the budget has room for it now, otherwise a digest that fits
    /// what was held for it.
    pub(crate) fn fit_landing(self, run: &ActiveRun, nudge: Option<&str>) -> Self {
        if self.is_program() {
            return self;
        }
        let config = run.config();
        let most = run.read(|found| most_output(self.model.card(), self.size.input, run_cap(Some(found)), config));
        let output = config.landing_output.max(most.min(LONGEST_LANDING));
        let floor = config.landing_output.min(256);
        let margin = run.tree.read(|tree| tree.ledger().margin(&self.model.card().name));
        let full = Self { size: AskSize { output, floor, margin, ..self.size }, ..self };
        if full.fits(run) {
            return full;
        }
        let mut smallest = None;
        for landing in LandingSize::all(config.landing_output) {
            let message = run.read(|run| landing::digest(run, nudge, landing.digest));
            let mut request = Self::of_text(full.model.clone(), PROMPT, message);
            let floor = landing.output.min(SHORTEST_LANDING);
            request.size = AskSize { output: landing.output, floor, margin, ..request.size };
            if request.fits(run) {
                return request;
            }
            smallest = Some(request);
        }
        smallest.unwrap_or(full)
    }

    fn fits(&self, run: &ActiveRun) -> bool {
        let fit = run.tree.read(|tree| tree.ledger().fit(run.id(), self.size, &self.rates));
        matches!(fit, Fit::Fits { .. })
    }

    /// The record of this call, before anything is reserved for it.
    pub(crate) fn asked(&self, purpose: Purpose, nudge: Option<String>) -> Asked {
        Asked {
            purpose,
            model: self.model.card().name.clone(),
            max_output: self.size.output,
            request_hash: self.hash,
            input_bound: self.size.input,
            hold: Reservation::default(),
            landing: Reservation::default(),
            nudge,
        }
    }

    /// The least that must be reserved for this call and the landing beside it.
    pub(crate) fn least_hold(&self) -> Reservation {
        self.size.least_hold(&self.rates)
    }
}

/// Returns why a new root cannot make its first call, if its limits are too small for it: what the call may cost.
pub(crate) fn too_small_for_first_call(
    spawned: &Spawned,
    tools: &RunTools,
    card: &ModelCard,
    config: &RuntimeConfig,
) -> Option<String> {
    if card.is_program() {
        return None;
    }
    let task = spawned.task_message();
    let messages: Vec<_> = spawned.inherited.iter().cloned().chain([task]).map(TranscriptEntry::new).collect();
    let input = input_bound(&spawned.system, tools.bytes, &messages, None);
    let most = most_output(card, input, spawned.limits.output.value(), config);
    let size =
        AskSize { floor: config.output_floor.min(most), landing_output: config.landing_output, ..bare_size(input) };
    let needed = size.least_hold(&card.rates.clone().unwrap_or_default());
    let amounts = [(Limit::Tokens, needed.tokens), (Limit::Cost, needed.cost_micros)];
    let hit = amounts.into_iter().find_map(|(name, needed)| {
        let limit = spawned.limits.cap(name).value().filter(|limit| needed > *limit)?;
        Some(LimitHit { name, limit, spent: 0, place: Place::root() })
    });
    hit.map(|hit| format!("this run cannot start: {}", landing::too_small(&hit, needed)))
}

fn run_cap(run: Option<&homing_core::run::Run>) -> Option<u64> {
    run.and_then(|run| run.limits.cap(Limit::Output).value())
}

/// A call of which only the input is known.
fn bare_size(input: u64) -> AskSize {
    AskSize { input, output: 0, floor: 0, landing_output: 0, margin: Margin::default(), parallel: 1 }
}

/// The most output that a call may ask for: the model's own limit, what is left of its context, and the run's limit.
fn most_output(card: &ModelCard, input: u64, cap: Option<u64>, config: &RuntimeConfig) -> u64 {
    // Providers reject requests whose input and output might exceed the context. The input is an upper bound, so a
    // quarter of the context is always left for the output.
    let left = card.context_window.map(|window| window.saturating_sub(input).max(window / 4));
    let own = card.max_output.unwrap_or(config.max_output);
    [left, cap].into_iter().flatten().fold(own, u64::min).max(1)
}

/// A fingerprint of a request: the prompt, the specifications of the tools, the messages.
pub(crate) fn request_hash(system: &str, tools: Option<&RunTools>, messages: &[Arc<TranscriptEntry>]) -> u64 {
    messages.iter().fold(hash_start(system, tools), hash_message)
}

fn hash_start(system: &str, tools: Option<&RunTools>) -> u64 {
    fnv(FNV_START, system.as_bytes()) ^ tools.map_or(0, |tools| tools.hash)
}

fn hash_message(hash: u64, entry: &Arc<TranscriptEntry>) -> u64 {
    fnv(hash, &entry.hash().to_le_bytes())
}

/// The fingerprint of a run's last request, which that of the next one continues: a turn of a long conversation would otherwise
/// read all of it again.
#[derive(Default)]
pub(crate) struct LastHash(Mutex<Option<HashedMessages>>);

/// The messages that a fingerprint covers. The first and the last one identify them, because a transcript only grows between them:
/// a summary replaces the first.
struct HashedMessages {
    start: u64,
    count: usize,
    first: Arc<TranscriptEntry>,
    last: Arc<TranscriptEntry>,
    hash: u64,
}

impl HashedMessages {
    fn is_beginning_of(&self, start: u64, messages: &[Arc<TranscriptEntry>]) -> bool {
        let is_at = |at: usize, entry| messages.get(at).is_some_and(|message| Arc::ptr_eq(message, entry));
        self.start == start && is_at(0, &self.first) && is_at(self.count - 1, &self.last)
    }
}

impl LastHash {
    /// Returns the fingerprint of a request that begins with `start`.
    fn extend(&self, start: u64, messages: &[Arc<TranscriptEntry>]) -> u64 {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.as_ref().filter(|kept| kept.is_beginning_of(start, messages));
        let (hash, count) = known.map_or((start, 0), |known| (known.hash, known.count));
        let hash = messages[count..].iter().fold(hash, hash_message);
        if let [first, .., last] = messages {
            let (first, last) = (first.clone(), last.clone());
            *kept = Some(HashedMessages { start, count: messages.len(), first, last, hash });
        }
        hash
    }
}
