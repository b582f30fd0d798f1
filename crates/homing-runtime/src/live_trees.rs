//! `LiveTrees`: the run trees in memory, by the run under which this process knows them.

use std::collections::VecDeque;

use homing_core::id_map::IdMap;
use uuid::Uuid;

/// Maximum number of ended trees that stay in memory, for requests and notices that are still under way. Handles hold their own tree.
const MAX_ENDED: usize = 64;

/// A process may lose a tree to another one and get it back before the runs of the first time have stopped. So what is
/// removed is named by its epoch as well.
pub(crate) struct LiveTrees<T> {
    by_id: IdMap<Uuid, (u32, T)>,
    /// Ended trees, oldest first.
    ended: VecDeque<(Uuid, u32)>,
}

impl<T> Default for LiveTrees<T> {
    fn default() -> Self {
        Self { by_id: IdMap::default(), ended: VecDeque::new() }
    }
}

impl<T: Clone> LiveTrees<T> {
    pub(crate) fn add(&mut self, id: Uuid, epoch: u32, tree: T) {
        self.by_id.insert(id, (epoch, tree));
    }

    pub(crate) fn get(&self, id: Uuid) -> Option<T> {
        self.by_id.get(&id).map(|(_, tree)| tree.clone())
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.by_id.values().map(|(_, tree)| tree.clone()).collect()
    }

    /// Forgets a tree, unless it was claimed again since.
    pub(crate) fn remove(&mut self, id: Uuid, epoch: u32) {
        if self.by_id.get(&id).is_some_and(|(claimed, _)| *claimed == epoch) {
            self.by_id.remove(&id);
        }
    }

    /// Notes that a tree has ended, and forgets the oldest ended ones.
    pub(crate) fn end(&mut self, id: Uuid, epoch: u32) {
        self.ended.push_back((id, epoch));
        while self.ended.len() > MAX_ENDED {
            if let Some((oldest, epoch)) = self.ended.pop_front() {
                self.remove(oldest, epoch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_claimed_again_outlive_the_end_of_the_first_claim() {
        let (mut trees, id) = (LiveTrees::default(), Uuid::from_u128(7));
        trees.add(id, 1, "first");
        trees.add(id, 2, "second");
        trees.remove(id, 1);
        assert_eq!(trees.get(id), Some("second"));
        trees.end(id, 1);
        for other in 0..MAX_ENDED as u128 {
            trees.end(Uuid::from_u128(100 + other), 1);
        }
        assert_eq!(trees.get(id), Some("second"));
        trees.remove(id, 2);
        assert_eq!(trees.get(id), None);
    }
}
