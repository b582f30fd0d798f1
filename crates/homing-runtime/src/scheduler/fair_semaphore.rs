//! A semaphore that shares its slots out fairly across subtrees: a parent with five hundred children does not starve
//! its sibling with one.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// A number of slots, and a queue of waiters.
pub(crate) struct FairSemaphore(Mutex<QueueState>);

struct QueueState {
    free: usize,
    waiting: Branch,
}

/// The waiters of one subtree. At every level the subtree that was served least goes first.
#[derive(Default)]
struct Branch {
    here: VecDeque<oneshot::Sender<Slot>>,
    below: HashMap<u32, Branch>,
    /// The next subtree to serve: its turn, and its step. Step 0 is the branch's own run; places count from 1.
    order: BTreeSet<(u64, u32)>,
    /// The turn that was served last. A subtree that joins starts here, so that idle time earns no credit.
    turn: u64,
}

/// A slot that is held. Dropping it gives it to the next waiter.
pub(crate) struct Slot(Option<Arc<FairSemaphore>>);

impl FairSemaphore {
    pub(crate) fn new(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(QueueState { free, waiting: Branch::default() })))
    }

    /// Waits for a slot. `lane` is the path of the run that needs it. Dropping the future leaves the queue.
    pub(crate) async fn acquire(self: &Arc<Self>, lane: &[u32]) -> Slot {
        let granted = {
            let mut state = self.state();
            if let Some(slot) = self.take_free(&mut state) {
                return slot;
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.join(lane, grant);
            granted
        };
        granted.await.expect("a waiter is dropped only with its slots")
    }

    /// Takes a slot if one is free, in which case nothing waits for it.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Slot> {
        self.take_free(&mut self.state())
    }

    fn take_free(self: &Arc<Self>, state: &mut QueueState) -> Option<Slot> {
        state.free = state.free.checked_sub(1)?;
        Some(Slot(Some(self.clone())))
    }

    fn release(self: &Arc<Self>) {
        let mut state = self.state();
        while let Some(grant) = state.waiting.next() {
            match grant.send(Slot(Some(self.clone()))) {
                Ok(()) => return,
                // This waiter has left the queue: the slot goes to the next one, not back through `drop`.
                Err(mut slot) => drop(slot.0.take()),
            }
        }
        state.free += 1;
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.release();
        }
    }
}

impl Branch {
    fn join(&mut self, lane: &[u32], grant: oneshot::Sender<Slot>) {
        let (step, rest) = match lane.split_first() {
            None => {
                self.here.push_back(grant);
                (0, None)
            }
            Some((step, rest)) => (*step, Some((rest, grant))),
        };
        let newcomer = match rest {
            None => self.here.len() == 1,
            Some((rest, grant)) => {
                let branch = self.below.entry(step).or_default();
                let newcomer = branch.order.is_empty();
                branch.join(rest, grant);
                newcomer
            }
        };
        if newcomer {
            self.order.insert((self.turn, step));
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<Slot>> {
        let (turn, step) = self.order.pop_first()?;
        self.turn = turn;
        let (grant, more) = match step {
            0 => (self.here.pop_front(), !self.here.is_empty()),
            step => {
                let branch = self.below.get_mut(&step)?;
                let grant = branch.next();
                let more = !branch.order.is_empty();
                if !more {
                    self.below.remove(&step);
                }
                (grant, more)
            }
        };
        if more {
            self.order.insert((turn + 1, step));
        }
        grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues all lanes behind one holder, then returns the order in which they are served.
    async fn served(lanes: &[&[u32]]) -> Vec<Vec<u32>> {
        let slots = FairSemaphore::new(1);
        let holder = slots.acquire(&[]).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for lane in lanes.iter().map(|lane| lane.to_vec()) {
            let (slots, order) = (slots.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _slot = slots.acquire(&lane).await;
                order.lock().unwrap().push(lane);
            }));
            tokio::task::yield_now().await;
        }
        drop(holder);
        for task in tasks {
            task.await.unwrap();
        }
        Arc::try_unwrap(order).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn r26_parent_with_500_children_does_not_starve_its_sibling() {
        let crowd: Vec<[u32; 3]> = (1..=500).map(|n| [1, 1, n]).collect();
        let mut lanes: Vec<&[u32]> = crowd.iter().map(|lane| &lane[..]).collect();
        lanes.push(&[1, 2, 1]);
        let order = served(&lanes).await;
        let position = order.iter().position(|lane| lane == &[1, 2, 1]).unwrap();
        assert!(position <= 2, "the sibling was served at position {position}");
        assert_eq!(order.len(), 501);
    }

    #[tokio::test]
    async fn waiter_that_leaves_the_queue_keeps_no_slot() {
        let slots = FairSemaphore::new(1);
        let holder = slots.acquire(&[1]).await;
        let mut leaver = Box::pin(slots.acquire(&[2]));
        assert!(futures::poll!(&mut leaver).is_pending());
        let mut stayer = Box::pin(slots.acquire(&[3]));
        assert!(futures::poll!(&mut stayer).is_pending());
        drop(leaver);
        drop(holder);
        drop(stayer.await);
        assert_eq!(slots.state().free, 1);
    }

    #[tokio::test]
    async fn slot_granted_to_a_waiter_that_left_is_returned() {
        let slots = FairSemaphore::new(1);
        let holder = slots.acquire(&[1]).await;
        let mut leaver = Box::pin(slots.acquire(&[2]));
        assert!(futures::poll!(&mut leaver).is_pending());
        drop(holder);
        drop(leaver);
        assert_eq!(slots.state().free, 1);
    }
}
