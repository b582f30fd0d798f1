//! The output that a model call is given under a limit.

use uuid::Uuid;

use super::{AskSize, Ledger, budgets, landings_below, largest};
use crate::{model::Rates, run::Run};

/// The least room of a call if it is known what similar replies needed.
pub(super) const LEAST: u64 = 256;

/// Bounds within which the room of a call is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Most output tokens that the model can give.
    pub most: u64,
    /// Output tokens that a call gets at least, unless the budget is short.
    pub least: u64,
    /// Minimum output tokens of a call if nothing is known about similar replies.
    pub floor: u64,
}

impl Ledger<'_> {
    /// Chooses the output of a call of run `id`, and the floor to which it may shrink before the call waits.
    ///
    /// Without a limit on tokens or cost it is all that the model can give. Under a limit it is half of the run's share of
    /// what is left, so that all runs that may call at the same time can do so without waiting for each other. It is never
    /// less than twice what similar replies needed, and after a cut reply it grows.
    pub fn choose_room(&self, id: Uuid, size: AskSize, room: Room, price: &Rates) -> AskSize {
        let Some(run) = self.0.get(id) else { return size };
        let floor = room.floor.min(room.most);
        let Some(share) = self.room_in_share(run, size, room, price) else {
            return AskSize { output: room.most, floor, ..size };
        };
        let seen = self.0.learned.need(run.links.agent).reply_size.max(run.asks.reply_size).0;
        let (needed, least) = match seen {
            0 => (floor.max(room.least), floor),
            seen => {
                let needed = seen.saturating_mul(2).max(LEAST);
                (needed.max(room.least), needed.min(floor))
            }
        };
        let grown = run.conversation.cuts.next_room().unwrap_or(0);
        AskSize { output: share.max(needed).max(grown).min(room.most), floor: least.min(room.most), ..size }
    }

    /// Returns the output that half of the run's share pays for, or `None` if neither tokens nor cost are limited.
    fn room_in_share(&self, run: &Run, size: AskSize, room: Room, price: &Rates) -> Option<u64> {
        let all = self.0.lineage(run.id).flat_map(|holder| {
            let sharing = (holder.links.open_below + 1).clamp(1, size.parallel.max(1));
            budgets(holder).map(move |budget| {
                let kept = budget.amount(landings_below(holder));
                let left = budget.limit.saturating_sub(budget.spent).saturating_sub(kept);
                let share = left / sharing / 2;
                largest(0, room.most, |output| budget.amount(size.hold(price, output)) <= share).unwrap_or(0)
            })
        });
        all.min()
    }
}
