//! Forks of recorded trees: a new tree that begins with a copy of another's facts and continues from there.
//!
//! The copies have the epoch 0, which no owner has. Their usage was paid by the other tree: the fold keeps it apart, and
//! lists and accounts do not count it again. After the copy, a fork is a tree whose owner is gone, and is resumed as such.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, Isolation, ModelChoice},
    fact::{Called, Fact, INHERITED, ON_RESTATE, Record, Spawned},
    limits::Limits,
    tool::{CallKey, Replay},
    tool_names,
    tree::RunTree,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    handle::RunHandle,
    journal::{Claim, JournalError},
    placement::SUBMITTED_FROM,
    runtime::{Runtime, SpawnError},
};

/// A fork of a recorded tree: the last fact that it takes over, and what differs from then on.
///
/// ```
/// let mut fork = homing_runtime::Fork::at(42);
/// fork.task = Some("find the second one, too".to_owned());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Fork {
    /// Position of the last fact that the fork takes over.
    pub at: u64,
    /// Context variables of the root that get another value. Prompts that are already rendered do not change.
    pub set: BTreeMap<String, Value>,
    /// Another task for the root.
    pub task: Option<String>,
    /// Another model for the root.
    pub model: Option<String>,
    /// Another definition of the root's agent, such as a team with other parameters.
    pub agent: Option<AgentDefinition>,
    /// Amount added to the limits of the root.
    pub more: Limits,
}

impl Fork {
    /// Creates a fork that takes over the facts up to position `at`.
    pub fn at(at: u64) -> Self {
        Self { at, ..Self::default() }
    }
}

impl Runtime {
    /// Starts a new tree that begins with the facts of `tree` up to a position, and continues from there.
    ///
    /// Nothing that was answered by then is asked again, and nothing that was paid is paid again. Child runs that had ended
    /// stay as they are recorded; others continue. A call that had begun and is not safe to repeat has an unknown outcome.
    ///
    /// # Errors
    /// Fails if there is no such position, if the tree had ended by then, if a run that is still open there has its own
    /// worktree, or if the journal fails.
    pub async fn fork(&self, tree: Uuid, fork: Fork) -> Result<RunHandle, SpawnError> {
        let parts = self.parts();
        let records = parts.journal.load(tree).await?;
        let mut kept = taken_over(&records, fork.at).map_err(SpawnError::Fork)?;
        let models = match &fork.model {
            None => None,
            Some(model) => {
                let resolved = parts.models.resolve(&ModelChoice::Exact(model.clone()), None);
                Some(resolved.map_err(SpawnError::NoModel)?.names)
            }
        };
        let now = parts.sources.clock.now_ms();
        let ids: HashMap<Uuid, Uuid> = kept
            .iter()
            .filter(|record| is_spawn(record))
            .map(|record| (record.run, parts.sources.ids.fresh_id()))
            .collect();
        for (seq, record) in (0..).zip(&mut kept) {
            *record = copy(record, seq, now, &ids);
        }
        let Some((first, rest)) = kept.split_first_mut() else { return Err(JournalError::NoSuchTree(tree).into()) };
        change_root(first, &fork, models, tree);
        let id = first.tree;
        parts.journal.begin(Arc::new(first.clone())).await?;
        let mut last = None;
        for record in rest {
            last = Some(parts.journal.append(Arc::new(record.clone())));
        }
        if let Some(commit) = last {
            commit.await?;
        }
        parts.journal.release(id);
        self.resume(id, Claim::IfGone, fork.more).await
    }
}

/// The records up to `at`, without the model calls that had no answer by then: the fork makes them itself.
fn taken_over(records: &[Arc<Record>], at: u64) -> Result<Vec<Record>, String> {
    let last = records.last().map_or(0, |record| record.seq);
    if at > last {
        return Err(format!("there is no position {at}: the last one is {last}"));
    }
    let mut kept: Vec<Record> =
        records.iter().take_while(|record| record.seq <= at).map(|record| Record::clone(record)).collect();
    let mut tree = RunTree::default();
    for record in &kept {
        tree.apply(record).map_err(|error| error.to_string())?;
    }
    if tree.root().is_some_and(|root| root.ended.is_some()) {
        return Err(format!("the run had ended at position {at}: choose an earlier one"));
    }
    let in_worktree = |run: &&homing_core::run::Run| {
        run.ended.is_none() && run.spawned.agent.execution.isolation == Isolation::Worktree
    };
    if let Some(run) = tree.runs().iter().find(in_worktree) {
        return Err(format!("run {} has a worktree of its own at position {at}, which a fork cannot share", run.place));
    }
    for run in tree.runs().iter().filter(|run| run.open_ask().is_some()) {
        let asked = kept.iter().rposition(|record| record.run == run.id && matches!(record.fact, Fact::Asked(_)));
        asked.map(|asked| kept.remove(asked));
    }
    // An approval counts only for the run that it was given to, so the fork asks again.
    kept.retain(|record| !matches!(record.fact, Fact::Questioned { .. } | Fact::Answered { .. }));
    forbid_repeats(&mut kept);
    Ok(kept)
}

/// Forbids to repeat calls that had begun: the fork's idempotency keys are its own, so a tool would not recognise them. Delegations
/// are found by their child runs.
fn forbid_repeats(kept: &mut [Record]) {
    let returned: HashSet<CallKey> = kept.iter().filter_map(returned_call).collect();
    for record in kept {
        if let Fact::Called(called) = &mut record.fact
            && called.replay == Replay::Keyed
            && !returned.contains(&called.key)
            && !tool_names::is_delegation(&called.call.name)
        {
            called.replay = Replay::Unsafe;
        }
    }
}

fn returned_call(record: &Record) -> Option<CallKey> {
    match &record.fact {
        Fact::Returned { key, .. } => Some(*key),
        _ => None,
    }
}

fn is_spawn(record: &Record) -> bool {
    matches!(record.fact, Fact::Spawned(_))
}

/// The record as one of the new tree, in which every run has a new ID.
fn copy(record: &Record, seq: u64, at: u64, ids: &HashMap<Uuid, Uuid>) -> Record {
    let id = |id: Uuid| ids.get(&id).copied().unwrap_or(id);
    let key = |key: CallKey| CallKey { run: id(key.run), ..key };
    let fact = match &record.fact {
        Fact::Spawned(spawned) => Fact::Spawned(Arc::new(Spawned {
            parent: spawned.parent.map(id),
            parent_call: spawned.parent_call.map(key),
            continues: spawned.continues.map(id),
            // The key belongs to the other tree.
            key: None,
            placed: false,
            ..Spawned::clone(spawned)
        })),
        Fact::Called(called) => Fact::Called(Box::new(Called { key: key(called.key), ..Called::clone(called) })),
        Fact::Returned { key: call, result, refused, denied } => {
            let (refused, denied) = (refused.clone(), denied.clone());
            Fact::Returned { key: key(*call), result: result.clone(), refused, denied }
        }
        Fact::Told { from, message } => Fact::Told { from: from.map(id), message: message.clone() },
        Fact::Asked(_)
        | Fact::Replied { .. }
        | Fact::AskFailed { .. }
        | Fact::Halted { .. }
        | Fact::Compacted { .. }
        | Fact::Questioned { .. }
        | Fact::Answered { .. }
        | Fact::Extended { .. }
        | Fact::Ended(_) => record.fact.clone(),
    };
    let (tree, run) = (id(record.tree), id(record.run));
    Record { tree, seq, at, epoch: INHERITED, run, place: record.place.clone(), fact }
}

/// Applies the changes of the fork to its root, and notes its origin.
fn change_root(first: &mut Record, fork: &Fork, models: Option<Vec<String>>, tree: Uuid) {
    let Fact::Spawned(spawned) = &mut first.fact else { return };
    let spawned = Arc::make_mut(spawned);
    spawned.context.extend(fork.set.iter().map(|(key, value)| (key.clone(), value.clone())));
    if let Some(task) = &fork.task {
        spawned.task.clone_from(task);
    }
    if let Some(models) = models {
        spawned.models = models;
    }
    if let Some(agent) = &fork.agent {
        spawned.agent = Arc::new(agent.clone());
    }
    // The fork is driven here, wherever the other tree was.
    spawned.tags.remove(ON_RESTATE);
    spawned.tags.remove(SUBMITTED_FROM);
    spawned.tags.insert("forked".to_owned(), format!("{tree}@{}", fork.at));
}
