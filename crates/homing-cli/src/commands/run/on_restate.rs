//! `homing run --on restate`: submits a run to the workers of a Restate server and follows it.

use std::{sync::Arc, time::Duration};

use homing::{SpawnError, Task};
use homing_core::{
    definition::Isolation,
    envelope::Envelope,
    fact::{ON_RESTATE, Record, Spawned},
    tool::ToolSpec,
    tool_names,
    tree::RunTree,
};
use homing_restate::{Post, Server, Submission, Submitted, needs_workspace};
use homing_runtime::journal::sqlite::SqliteJournal;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    cli::run::RunArgs,
    commands::restate,
    exit::{Trouble, TroubleKind},
    session::Session,
    signals::Signals,
    terminal,
    watch::{RemoteWatch, Show, WatchResult},
};

/// Time between two looks at the server, while nothing and while something happens.
const IDLE: Duration = Duration::from_millis(400);
const BUSY: Duration = Duration::from_millis(50);

/// Time for which an unreachable server is asked again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Submits a task and follows it until it ends or waits for an answer.
pub(super) async fn run(
    args: &RunArgs,
    session: &Session,
    task: Task,
    signals: &mut Signals,
) -> anyhow::Result<WatchResult> {
    refuse_unsupported(args, &task)?;
    let (mut spawned, tools) = session.homing.runtime().plan(task).map_err(Trouble::from)?;
    refuse_agent(&spawned)?;
    let needs_workspace = workspace_tools(session, &spawned, &tools);
    if let (Some(tool), false) = (&needs_workspace, args.input.place.shared_workspace) {
        let folder = spawned.workdir.display();
        let message =
            format!("agent {} uses files ({tool}), and {folder} is not declared as shared", spawned.agent.name);
        return Err(Trouble::new(TroubleKind::Refused, message)
            .hint("if every worker has this folder at the same path, pass --shared-workspace; else use an agent without file tools")
            .into());
    }
    let server = restate::connect(&args.input.place.server).await?;
    spawned.key.clone_from(&args.key);
    spawned.tags.insert(ON_RESTATE.to_owned(), server.admin().to_owned());
    let sources = &session.homing.runtime().parts().sources;
    let (id, at) = (sources.ids.fresh_id(), sources.clock.now_ms());
    let registry = session.homing.registry();
    let submission = Submission { spawned, id, at, registry, needs_workspace: needs_workspace.is_some() };
    let tree = match server.submit(submission).await.map_err(Trouble::from)? {
        Submitted::New => id,
        Submitted::Earlier(tree) => tree,
        Submitted::KeyTaken => {
            let key = args.key.clone().unwrap_or_default();
            return Err(Trouble::from(SpawnError::Journal(homing::JournalError::KeyTaken { key })).into());
        }
    };
    let show = args.output.show();
    follow(&server, tree, session.homing.journal().map(|journal| &**journal), show, session, signals).await
}

/// Follows a tree until it ends or waits for an answer, and copies its records into the journal. The first signal cancels the
/// tree; after a second one it is left to its worker.
pub(crate) async fn follow(
    server: &Server,
    tree: Uuid,
    journal: Option<&SqliteJournal>,
    show: Show,
    session: &Session,
    signals: &mut Signals,
) -> anyhow::Result<WatchResult> {
    let mut watch = RemoteWatch::new(show, &session.prompt);
    let (fold, reached) = (RunTree::default(), Instant::now());
    let mut follower = Follower { server, tree, fold, reached, parked_at: None, pause: Duration::ZERO };
    let mut signal = None;
    loop {
        let news = tokio::select! {
            news = follower.next() => news?,
            number = signals.next() => {
                if signal.replace(number).is_some() {
                    terminal::say("the run may still be working; `homing cancel` stops it");
                    break;
                }
                let by = "a signal to `homing run`".to_owned();
                server.post(tree, &Post::Cancel { run: tree, by }).await.map_err(Trouble::from)?;
                continue;
            }
        };
        if let Some(journal) = journal {
            restate::copy(journal, news.records.clone()).await?;
        }
        news.records.iter().for_each(|record| watch.show(record));
        watch.draw();
        if news.is_last {
            break;
        }
    }
    let root = follower.fold.root().ok_or_else(|| Trouble::config(format!("the server has lost run {tree}")))?;
    Ok(WatchResult { envelope: Envelope::new(&follower.fold, root), signal, is_answer_shown: false })
}

struct Follower<'a> {
    server: &'a Server,
    tree: Uuid,
    fold: RunTree,
    /// Time at which the server last answered.
    reached: Instant,
    /// Position at which the tree only waited for answers.
    parked_at: Option<u64>,
    /// Time to wait before the next look.
    pause: Duration,
}

struct News {
    records: Vec<Arc<Record>>,
    is_last: bool,
}

impl Follower<'_> {
    async fn next(&mut self) -> Result<News, Trouble> {
        // The wait comes first, so that no records are lost if a signal ends it.
        tokio::time::sleep(self.pause).await;
        let next = self.fold.next_seq();
        let page = match self.server.records(self.tree, next).await {
            Ok(page) => page.ok_or_else(|| Trouble::usage(format!("the server has no run {}", self.tree)))?,
            Err(error) if error.is_transient() && self.reached.elapsed() < PATIENCE => {
                self.pause = IDLE;
                return Ok(News { records: Vec::new(), is_last: false });
            }
            Err(error) => return Err(error.into()),
        };
        self.reached = Instant::now();
        for record in &page.records {
            self.fold.apply(record).map_err(|error| Trouble::config(error.to_string()))?;
        }
        if let Some(reason) = page.stuck {
            return Err(Trouble::config(format!("run {} is stuck: {reason}", self.tree)));
        }
        let parked = self.fold.is_parked().then(|| self.fold.next_seq());
        let is_parked = parked.is_some() && parked == self.parked_at;
        self.parked_at = parked;
        let is_last = page.is_over || is_parked;
        self.pause = if page.records.is_empty() { IDLE } else { BUSY };
        Ok(News { records: page.records, is_last })
    }
}

/// Refuses options that workers cannot honour.
fn refuse_unsupported(args: &RunArgs, task: &Task) -> Result<(), Trouble> {
    let unsupported = [
        (task.account.is_some(), "--account: budget accounts are not shared between machines"),
        (args.cache, "--cache: results are looked up on this machine"),
        (args.recording.replay.is_some(), "--replay: a recording is replayed on this machine"),
        (args.with.approval.yes, "--yes: a worker decides on approvals; start the worker with it"),
        (
            args.with.approval.on_question.is_some(),
            "--on-question: a worker decides on questions; start the worker with it",
        ),
    ];
    match unsupported.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(Trouble::usage(format!("not available with --on restate: {what}"))),
        None => Ok(()),
    }
}

/// Refuses agents that need something of this machine.
fn refuse_agent(spawned: &Spawned) -> Result<(), Trouble> {
    let agent = &spawned.agent;
    let why = if homing_teams::is_team_agent(agent) {
        "is a team"
    } else if agent.execution.isolation == Isolation::Worktree {
        "works in a worktree of its own"
    } else if agent.execution.memory.is_some() {
        "has a memory on this machine"
    } else {
        return Ok(());
    };
    let message = format!("agent {} {why}, which is not available with --on restate", agent.name);
    Err(Trouble::new(TroubleKind::Refused, message))
}

/// Returns the name of a tool that needs the working folder, of the root or of runs that it may delegate to.
fn workspace_tools(session: &Session, spawned: &Spawned, tools: &[ToolSpec]) -> Option<String> {
    let may_delegate = tools.iter().any(|tool| tool.name == tool_names::DELEGATE);
    let of_children = session.homing.runtime().parts().tools.iter().map(|tool| tool.spec());
    let of_children = of_children.filter(|spec| may_delegate && spawned.authority.grant.shows(&spec.name, spec.effect));
    tools.iter().chain(of_children).find(|spec| needs_workspace(spec)).map(|spec| spec.name.clone())
}
