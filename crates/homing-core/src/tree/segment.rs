//! Segments: the parts of a tree that different processes drive.
//!
//! A segment is a run that was placed (or the root) and everything below it, except for what was placed in turn. A process
//! folds the facts of its own segment and of the ancestors above it; of the segments below it, it folds what it has read so
//! far. How much the others spend and hold within a limit that several segments share comes from the tree's ledger, and is
//! added to the fold's own sums as `unseen`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::RunTree;
use crate::{
    fact::Reservation,
    limits::{Cap, Limit},
    run::{Run, Totals},
    taint::Origin,
};

/// The part of a run's limits that one segment uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Usage, including the most that calls that broke off may have cost.
    pub spent: Reservation,
    /// Reservations of open calls and of landings.
    pub held: Reservation,
    /// The part of `held` that is for landings.
    pub landings: Reservation,
    /// Tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Runs.
    #[serde(default)]
    pub children: u64,
}

impl Share {
    pub(crate) const NONE: Self = Self {
        spent: Reservation { tokens: 0, cost_micros: 0 },
        held: Reservation { tokens: 0, cost_micros: 0 },
        landings: Reservation { tokens: 0, cost_micros: 0 },
        tool_calls: 0,
        children: 0,
    };

    /// Returns everything that counts against a limit.
    pub fn total(&self) -> Reservation {
        self.spent + self.held
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            spent: self.spent + other.spent,
            held: self.held + other.held,
            landings: self.landings + other.landings,
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            children: self.children.saturating_add(other.children),
        }
    }

    /// Returns the difference, or nothing where the other is larger.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            spent: self.spent - other.spent,
            held: self.held - other.held,
            landings: self.landings - other.landings,
            tool_calls: self.tool_calls.saturating_sub(other.tool_calls),
            children: self.children.saturating_sub(other.children),
        }
    }

    /// Returns the part of a limit that is used, if several segments can share the limit.
    pub fn used(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Tokens => Some(self.total().tokens),
            Limit::Cost => Some(self.total().cost_micros),
            Limit::ToolCalls => Some(self.tool_calls),
            Limit::Children => Some(self.children),
            _ => None,
        }
    }

    fn of(run: &Run) -> Self {
        let Totals { usage, tool_calls, children, .. } = run.subtree;
        let used = Reservation { tokens: usage.tokens(), cost_micros: usage.cost_micros };
        let (held, landings) = (run.held, run.links.landings);
        Self { spent: used + run.links.unknown, held, landings, tool_calls, children }
    }
}

/// Limits that several segments share.
pub const SHARED_LIMITS: [Limit; 4] = [Limit::Tokens, Limit::Cost, Limit::ToolCalls, Limit::Children];

/// Returns the first run of the segment that a run belongs to.
pub fn segment_of(tree: &RunTree, id: Uuid) -> Option<Uuid> {
    tree.lineage(id).find(|run| run.spawned.placed || run.links.parent.is_none()).map(|run| run.id)
}

/// Returns what is held for the landing of a run.
pub fn landing_hold(run: &Run) -> Reservation {
    run.stopping.landing_hold
}

/// Sets what all other segments than `segment` use of the limits of a run.
pub fn set_elsewhere(tree: &mut RunTree, holder: Uuid, segment: Uuid, elsewhere: &Share) {
    let Some(at) = tree.by_id.get(&holder).copied() else { return };
    let seen = Segment::new(tree, segment).seen_elsewhere(&tree.runs[at]);
    tree.runs[at].links.unseen = Some(Box::new(elsewhere.minus(&seen)));
}

/// Adds origins of untrusted content that runs of other segments have read.
pub fn add_origins(tree: &mut RunTree, origins: &BTreeSet<Origin>) {
    tree.origins.extend(origins);
}

/// Answers questions about one segment of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    tree: &'a RunTree,
    root: Uuid,
}

impl<'a> Segment<'a> {
    /// The segment that begins with the run `root`.
    pub fn new(tree: &'a RunTree, root: Uuid) -> Self {
        Self { tree, root }
    }

    /// Returns the runs in whose limits the segment takes part together with others, ancestors included.
    pub fn shared_holders(&self) -> Vec<Uuid> {
        let is_limited =
            |run: &&Run| SHARED_LIMITS.into_iter().any(|limit| matches!(run.limits.cap(limit), Cap::At(_)));
        let Some(top) = self.tree.get(self.root) else { return Vec::new() };
        let above = self.tree.lineage(self.root).skip(1);
        let mut holders: Vec<Uuid> = above.filter(is_limited).map(|run| run.id).collect();
        for placed in self.placed_below(top) {
            let within = self.tree.lineage(placed.id).skip(1).take_while(|run| run.place.is_within(&top.place));
            for holder in within.filter(is_limited) {
                if !holders.contains(&holder.id) {
                    holders.push(holder.id);
                }
            }
        }
        holders
    }

    /// Returns the open runs at which the segments below begin.
    pub fn open_below(&self) -> Vec<Uuid> {
        let Some(top) = self.tree.get(self.root) else { return Vec::new() };
        self.placed_below(top).filter(|run| run.ended.is_none()).map(|run| run.id).collect()
    }

    /// Returns what the runs of the segment use of the limits of a run.
    pub fn own_share(&self, holder: Uuid) -> Share {
        let Some(holder) = self.tree.get(holder) else { return Share::default() };
        Share::of(holder).minus(&self.seen_elsewhere(holder))
    }

    /// Returns the tree as the process that drives the segment needs it: its first run, the ancestors, and all runs below. The sums
    /// of the ancestors are those of the segment.
    pub fn fold(&self) -> Option<RunTree> {
        let all = self.tree;
        let top = all.get(self.root)?;
        let mut kept: Vec<usize> = all.lineage(self.root).map(|run| run.links.index).collect();
        let ancestors = kept.len() - 1;
        kept.extend(all.runs.iter().filter(|run| all.is_below(run.id, self.root)).map(|run| run.links.index));
        kept.sort_unstable();
        let new_index = |old: &usize| kept.binary_search(old).ok();
        let mut tree = RunTree {
            next_seq: all.next_seq,
            clock: all.clock.clone(),
            has_questions: all.has_questions,
            learned: all.learned.clone(),
            origins: all.origins.clone(),
            ..RunTree::default()
        };
        for (index, old) in kept.iter().enumerate() {
            let mut run = all.runs[*old].clone();
            run.links.index = index;
            run.links.parent = run.links.parent.as_ref().and_then(new_index);
            run.links.children = run.links.children.iter().filter_map(new_index).collect();
            if index < ancestors {
                run.subtree = Totals { turns: run.subtree.turns, ..top.subtree };
                (run.held, run.links.landings, run.links.unknown) = (top.held, top.links.landings, top.links.unknown);
            }
            tree.by_id.insert(run.id, index);
            if run.spawned.placed {
                tree.placed.push(index);
            }
            if let Some(key) = run.spawned.parent_call {
                tree.by_call.entry(key).or_default().push(index);
            }
            tree.runs.push(run);
        }
        Some(tree)
    }

    /// Returns what the fold knows of the share of other segments below a run.
    fn seen_elsewhere(&self, holder: &Run) -> Share {
        self.placed_below(holder).fold(Share::default(), |sum, run| sum.plus(&Share::of(run)))
    }

    /// Returns the runs at which the segments below this one begin, within the subtree of `holder`.
    fn placed_below<'b>(&'b self, holder: &'b Run) -> impl Iterator<Item = &'a Run> + 'b {
        let placed = self.tree.placed.iter().map(|at| &self.tree.runs[*at]);
        placed.filter(move |run| {
            let parent = run.links.parent.map(|at| self.tree.runs[at].id);
            run.id != self.root
                && run.place.is_within(&holder.place)
                && parent.and_then(|parent| segment_of(self.tree, parent)) == Some(self.root)
        })
    }
}
