//! Submits a run to the workers of a Restate server, and follows it: `homing run`, `map` and `team` with `--on restate`.

use homing::{SpawnError, Task};
use homing_core::{
    definition::{Isolation, ModelChoice},
    fact::{ON_RESTATE, Spawned},
    registry::Registry,
    tool::ToolSpec,
    tool_names,
};
use homing_restate::{Submission, Submitted, needs_workspace};
use homing_runtime::{journal::sqlite::journal_name, placement::SUBMITTED_FROM};

use super::restate::{
    self,
    follow::{OnRecord, follow},
};
use crate::{
    cli::{
        restate::PlaceArgs,
        run::{RunArgs, WithArgs},
    },
    exit::{Trouble, TroubleKind},
    session::Session,
    signals::Signals,
    watch::{Show, WatchResult},
};

/// A task for workers.
pub(crate) struct RemoteTask<'a> {
    pub(crate) task: Task,
    pub(crate) place: &'a PlaceArgs,
    /// Idempotency key.
    pub(crate) key: Option<String>,
    pub(crate) show: Show,
}

/// Submits a task and follows it until it ends or waits for an answer.
pub(crate) async fn run(
    remote: RemoteTask<'_>,
    session: &Session,
    signals: &mut Signals,
    on_record: OnRecord<'_>,
) -> anyhow::Result<WatchResult> {
    let RemoteTask { task, place, key, show } = remote;
    let config = &session.config.user.restate;
    let mut spawned = session.homing.runtime().root(&task).map_err(Trouble::from)?;
    let (_, tools) = session.homing.runtime().plan(task).map_err(Trouble::from)?;
    refuse_agent(&spawned)?;
    let needs_workspace = workspace_tools(session, &spawned, &tools);
    let is_shared = place.shared_workspace || config.shares(&spawned.workdir);
    if let (Some(tool), false) = (&needs_workspace, is_shared) {
        return Err(not_shared(&spawned, tool).into());
    }
    let server = restate::connect(&place.server, config).await?;
    spawned.key.clone_from(&key);
    spawned.tags.insert(ON_RESTATE.to_owned(), server.admin().to_owned());
    if let Some(journal) = session.homing.journal() {
        spawned.tags.insert(SUBMITTED_FROM.to_owned(), journal_name(journal));
    }
    let sources = &session.homing.runtime().parts().sources;
    let (id, at) = (sources.ids.fresh_id(), sources.clock.now_ms());
    let Travelling { registry, models } = Travelling::new(session, &spawned);
    let needs_workspace = needs_workspace.is_some();
    let submission = Submission { spawned, id, at, registry: &registry, models, needs_workspace };
    let tree = match server.submit(submission).await.map_err(Trouble::from)? {
        Submitted::New => id,
        Submitted::Earlier(tree) => tree,
        Submitted::KeyTaken => {
            let key = key.unwrap_or_default();
            return Err(Trouble::from(SpawnError::Journal(homing::JournalError::KeyTaken { key })).into());
        }
    };
    follow(&server, tree, session, show, signals, on_record).await
}

/// The definitions that travel with a run, and the names of the models that a worker must have.
struct Travelling {
    registry: Registry,
    models: Vec<String>,
}

impl Travelling {
    /// For a team, the members' models count, and those without one of their own use the default of this machine.
    fn new(session: &Session, spawned: &Spawned) -> Self {
        let (parts, mut registry) = (session.homing.runtime().parts(), session.homing.registry().clone());
        let Some(team) = homing_teams::recorded(spawned) else {
            return Self { registry, models: spawned.models.first().cloned().into_iter().collect() };
        };
        if let Ok(default) = parts.models.resolve(&ModelChoice::Inherit, None)
            && let Some(model) = default.names.first()
        {
            homing_teams::set_member_model(&mut registry, model);
        }
        let runs = homing_teams::plan(&team, parts).runs;
        let models = runs.iter().filter_map(|planned| planned.models.first());
        let mut models: Vec<String> = models.filter(|name| !homing_teams::is_program(name)).cloned().collect();
        models.sort_unstable();
        models.dedup();
        Self { registry, models }
    }
}

fn not_shared(spawned: &Spawned, tool: &str) -> Trouble {
    let folder = spawned.workdir.display();
    let message = format!("agent {} uses files ({tool}), and {folder} is not declared as shared", spawned.agent.name);
    Trouble::new(TroubleKind::Refused, message)
        .hint("if every worker has this folder at the same path, pass --shared-workspace or name it in `shared_workspaces` under [restate]; else use an agent without file tools")
}

/// Refuses options of `homing run` that workers cannot honour.
pub(crate) fn refuse_run_options(args: &RunArgs) -> Result<(), Trouble> {
    refuse_options(&args.with)?;
    refuse(&[
        (args.cache, "--cache: results are looked up on this machine"),
        (args.recording.replay.is_some(), "--replay: a recording is replayed on this machine"),
    ])
}

/// Refuses options of all commands that workers cannot honour.
pub(crate) fn refuse_options(with: &WithArgs) -> Result<(), Trouble> {
    refuse(&[
        (with.approval.yes, "--yes: a worker decides on approvals; start the worker with it"),
        (with.approval.on_question.is_some(), "--on-question: a worker decides on questions; start the worker with it"),
    ])
}

fn refuse(unsupported: &[(bool, &str)]) -> Result<(), Trouble> {
    match unsupported.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(Trouble::usage(format!("not available on workers: {what}"))),
        None => Ok(()),
    }
}

/// Refuses agents that need something of this machine.
fn refuse_agent(spawned: &Spawned) -> Result<(), Trouble> {
    let agent = &spawned.agent;
    let why = if agent.execution.isolation == Isolation::Worktree {
        "works in a worktree of its own"
    } else if agent.execution.memory.is_some() {
        "has a memory on this machine"
    } else {
        return Ok(());
    };
    let message = format!("agent {} {why}, which is not available on workers", agent.name);
    Err(Trouble::new(TroubleKind::Refused, message))
}

/// Returns the name of a tool that needs the working folder, of the root or of runs that it may delegate to.
fn workspace_tools(session: &Session, spawned: &Spawned, tools: &[ToolSpec]) -> Option<String> {
    let may_delegate = tools.iter().any(|tool| tool.name == tool_names::DELEGATE);
    let of_children = session.homing.runtime().parts().tools.iter().map(|tool| tool.spec());
    let of_children = of_children.filter(|spec| may_delegate && spawned.authority.grant.shows(&spec.name, spec.effect));
    tools.iter().chain(of_children).find(|spec| needs_workspace(spec)).map(|spec| spec.name.clone())
}
