//! The order of a recording. Runs that work at the same time end in any order, and what a parent reads depends on it: a reply
//! or a tool's result is given back only after everything that was recorded before it has happened again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use homing_core::{
    fact::{Fact, Record},
    place::Place,
};
use tokio::sync::Notify;
use uuid::Uuid;

/// The longest wait for an earlier fact. It ends only if the replay took another course without a divergence so far.
const PATIENCE: Duration = Duration::from_secs(10);

/// A fact of a run whose order matters to other runs: the start of a model call, by its turn, or the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mark {
    Asked(Place, usize),
    Ended(Place),
}

/// The recorded facts that have not happened again yet.
#[derive(Default)]
pub(super) struct Order {
    progress: Mutex<Progress>,
    changed: Notify,
}

#[derive(Default)]
struct Progress {
    /// Marks that are to come, with their place, by their position in the recording.
    pending: BTreeMap<u64, Place>,
    positions: HashMap<Mark, u64>,
    recorded: Turns,
    played: Turns,
    /// Places of the runs of the replay. Empty if the replay does not listen to its facts.
    places: HashMap<Uuid, Place>,
    /// True if the order no longer matters, because the replay differs.
    is_free: bool,
}

/// The number of replies of each run.
#[derive(Default)]
struct Turns(HashMap<Place, usize>);

impl Turns {
    /// The mark of a fact, if its order matters.
    fn mark(&mut self, record: &Record) -> Option<Mark> {
        let replies = self.0.entry(record.place.clone()).or_default();
        match &record.fact {
            Fact::Asked(_) => Some(Mark::Asked(record.place.clone(), *replies)),
            Fact::Ended(_) => Some(Mark::Ended(record.place.clone())),
            Fact::Replied { .. } => {
                *replies += 1;
                None
            }
            Fact::Spawned(_)
            | Fact::AskFailed { .. }
            | Fact::Called(_)
            | Fact::Returned { .. }
            | Fact::Questioned { .. }
            | Fact::Answered { .. }
            | Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Compacted { .. }
            | Fact::Extended { .. } => None,
        }
    }
}

impl Order {
    /// Adds a record of the recording.
    pub(super) fn expect(&mut self, record: &Record) {
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Of several attempts at a call the first counts: failed attempts are not replayed.
        if let Some(mark) = progress.recorded.mark(record)
            && !progress.positions.contains_key(&mark)
        {
            progress.positions.insert(mark, record.seq);
            progress.pending.insert(record.seq, record.place.clone());
        }
    }

    /// Takes in a record of the replay.
    pub(super) fn happened(&self, record: &Record) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.places.insert(record.run, record.place.clone());
        if let Some(mark) = progress.played.mark(record)
            && let Some(position) = progress.positions.get(&mark).copied()
        {
            progress.pending.remove(&position);
            self.changed.notify_waiters();
        }
    }

    /// The place of a run of the replay, if it is known.
    pub(super) fn place(&self, run: Uuid) -> Option<Place> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).places.get(&run).cloned()
    }

    /// Lets everything happen in any order.
    pub(super) fn let_go(&self) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).is_free = true;
        self.changed.notify_waiters();
    }

    /// Waits until all facts of other runs that were recorded before `position` have happened again.
    pub(super) async fn reach(&self, run: Uuid, position: u64) {
        loop {
            // Enabled before the check, so that no fact between the check and the wait is missed.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_reached(run, position) {
                return;
            }
            if tokio::time::timeout(PATIENCE, changed).await.is_err() {
                self.let_go();
            }
        }
    }

    fn is_reached(&self, run: Uuid, position: u64) -> bool {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = progress.places.get(&run) else { return true };
        progress.is_free || progress.pending.range(..position).all(|(_, place)| place == own)
    }
}
