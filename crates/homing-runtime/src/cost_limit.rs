//! The cost limit of a new run: which limit was asked for, and whether it can be enforced.

use homing_core::{
    limits::{Cap, Limit, Limits},
    model::ResolvedModel,
    run::Run,
};
use uuid::Uuid;

use crate::{
    live_tree::LiveTree,
    runtime::{RuntimeParts, SpawnError},
};

/// Checks that a cost limit can be enforced. If a model's price is not known, an explicit limit is an error, and
/// the default limit is replaced by one on tokens.
pub(crate) fn enforceable_limits(
    parts: &RuntimeParts,
    limits: Limits,
    explicit: Cap,
    models: &ResolvedModel,
) -> Result<(Limits, Vec<String>), SpawnError> {
    let unpriced =
        models.names.iter().find(|name| parts.models.get(name).is_ok_and(|model| model.card().rates.is_none()));
    let Some(model) = unpriced else { return Ok((limits, Vec::new())) };
    match explicit {
        Cap::At(_) => Err(SpawnError::UnknownPrice { model: model.clone() }),
        Cap::Unlimited => Ok((limits, Vec::new())),
        Cap::Default => {
            let tokens = limits.tokens.tighter(Cap::At(5_000_000));
            let warning = format!(
                "no price is known for {model}: the limit is {} tokens instead of a cost",
                tokens.value().unwrap_or(0)
            );
            Ok((limits.with(Limit::Tokens, tokens).with(Limit::Cost, Cap::Unlimited), vec![warning]))
        }
    }
}

/// The tightest limit of a child's cost that was asked for, by itself or above it.
pub(crate) fn explicit_cost(tree: &LiveTree, parent: Uuid, requested: Cap) -> Cap {
    // A default that was raised afterwards is a limit that the user asked for.
    let is_default = |run: &Run| run.spawned.default_cost && run.limits == run.spawned.limits;
    tree.read(|tree| {
        let asked = tree.lineage(parent).filter(|run| !is_default(run));
        asked.fold(requested, |cap, run| cap.tighter(run.limits.cost_micros))
    })
}
