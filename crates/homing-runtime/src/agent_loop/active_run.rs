//! One run in progress, as the types that drive it share it.

use std::sync::Arc;

use homing_core::{
    fact::{Fact, LimitHit},
    hooks::{HookNotes, HookRun},
    run::Run,
    tool::{CallHost, CallKey, ToolContext},
    trace_context::{SpanId, TraceContext},
    tree::RunTree,
};
use uuid::Uuid;

use crate::{
    config::RuntimeConfig,
    event::TransientKind,
    fork,
    journal::{Commit, LiveMark},
    live_run::LiveRun,
    live_tree::{Audience, LiveTree},
    on_demand,
    run_tools::{AgentTools, RunTools},
    runtime::Inner,
};

/// A run in progress: its live state, its tree, and the runtime that drives it.
#[derive(Clone)]
pub(crate) struct ActiveRun {
    pub(crate) runtime: Arc<Inner>,
    pub(crate) tree: Arc<LiveTree>,
    pub(crate) live_run: Arc<LiveRun>,
}

impl ActiveRun {
    pub(crate) fn id(&self) -> Uuid {
        self.live_run.run
    }

    pub(crate) fn config(&self) -> &RuntimeConfig {
        &self.runtime.parts.config
    }

    /// Reads the run.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Run) -> T) -> T {
        self.tree.read_run(self.live_run.run, read)
    }

    /// The time limit for which the run must land now.
    pub(crate) fn time_nearly_up(&self) -> Option<LimitHit> {
        let clock = |tree: &RunTree| self.tree.tree_clock(tree);
        let landing = self.tree.read(|tree| tree.ledger().time_to_landing(self.id(), clock(tree)));
        landing.filter(|(left, _)| *left == 0).map(|(_, hit)| hit)
    }

    /// Records a fact of the run.
    pub(crate) fn record(&self, fact: Fact) -> Commit {
        self.tree.record(self.live_run.run, fact)
    }

    /// Stores what the run is doing for other processes, or removes it.
    pub(crate) fn mark(&self, mark: Option<LiveMark>) {
        self.tree.journal.mark(self.tree.id, self.live_run.run, mark);
    }

    /// Sends subscribers a transient notice about the run.
    pub(crate) fn notify(&self, kind: impl FnOnce() -> TransientKind) {
        self.tree.notify(&self.live_run, Audience::All, kind);
    }

    /// The tools of the run, with those that it has loaded.
    pub(crate) fn tools(&self) -> Arc<RunTools> {
        let tools = self.base_tools();
        if tools.on_demand.is_empty() {
            return tools;
        }
        let loaded = self.read(on_demand::loaded);
        if loaded.is_empty() { tools } else { self.live_run.tools_with(&tools, loaded) }
    }

    /// The tools of the run before it loads any, made from the authority that also decides each call.
    fn base_tools(&self) -> Arc<RunTools> {
        let make = || {
            if let Some(parent) = self.forked_from() {
                return parent.base_tools();
            }
            let (spawned, may_delegate) = self.tree.read(|tree| {
                let run = tree.get(self.id()).expect("a run is recorded before it is driven");
                (run.spawned.clone(), tree.ledger().may_go_deeper(run.id))
            });
            self.runtime.run_tools(&self.tree.spawn_cache, &spawned, may_delegate, &self.agent_tools())
        };
        self.live_run.tools.get_or_init(make).clone()
    }

    /// The parent, if the run's requests begin as its parent's do. Its authority still decides each call.
    fn forked_from(&self) -> Option<Self> {
        let parent = self.tree.read(|tree| {
            let run = tree.get(self.id())?;
            let parent = tree.get(run.spawned.parent?)?;
            fork::shares_prefix(&parent.spawned, &run.spawned).then_some(parent.id)
        });
        let live_run = self.tree.live_run(parent?)?;
        Some(Self { runtime: self.runtime.clone(), tree: self.tree.clone(), live_run })
    }

    /// The tools that the run's agent and its ancestors' agents supply.
    pub(crate) fn agent_tools(&self) -> AgentTools {
        self.runtime.agent_tools_of(&self.tree, &self.live_run)
    }

    /// The context of a tool call.
    pub(crate) fn tool_context(&self, key: CallKey, host: Arc<dyn CallHost>) -> ToolContext {
        let mut context = self.read(|run| {
            ToolContext::new(
                key,
                run.place.clone(),
                run.spawned.agent.name.clone(),
                run.spawned.workdir.clone(),
                Arc::new(run.spawned.authority.clone()),
                self.live_run.state.clone(),
                host,
            )
        });
        context.trace = self.trace_context(key);
        context
    }

    /// The position of a call in a distributed trace; `None` if nothing is traced.
    fn trace_context(&self, key: CallKey) -> Option<TraceContext> {
        let sent = self.tree.read(|tree| TraceContext::of_tags(&tree.root()?.spawned.tags));
        match (self.config().exports_spans, sent) {
            (true, Some(context)) => Some(context.at(SpanId::of_call(key))),
            (true, None) => Some(TraceContext::of_tree(self.tree.id, SpanId::of_call(key))),
            (false, sent) => sent,
        }
    }

    /// The run, as hooks see it.
    pub(crate) fn hook_run(&self) -> HookRun {
        self.read(|run| HookRun {
            run: run.id,
            agent: run.spawned.agent.name.clone(),
            workdir: run.spawned.workdir.clone(),
            delegated: run.spawned.parent.is_some(),
            own_hooks: run.spawned.agent.integrations.hooks.clone(),
        })
    }

    /// Shows the user the warnings of a hook, and returns its notes for the model.
    pub(crate) fn show_warnings(&self, notes: HookNotes) -> Vec<String> {
        for warning in notes.warnings {
            self.notify(|| TransientKind::Warning(warning));
        }
        notes.for_model
    }
}
