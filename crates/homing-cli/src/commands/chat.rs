//! `homing chat` and `homing continue`: an interactive conversation. Each message is a run that continues the one before.

mod conversation;
mod slash_commands;

use std::path::{Path, PathBuf};

use homing::{Claim, RunHandle, environment};
use homing_core::{
    envelope::{Envelope, EnvelopeUsage},
    limits::Limits,
};
use homing_otel::Telemetry;
use homing_runtime::{
    event::Event,
    journal::sqlite::{Filter, SqliteJournal},
};
use homing_teams::{Pattern, Team};
use uuid::Uuid;

use self::conversation::Conversation;
use crate::{
    chat::{Chat, history::History},
    cli::{
        chat::{ChatArgs, ContinueArgs},
        run::{DEFAULT_AGENT, LimitArgs, OnQuestionArg, WithArgs},
    },
    commands::which_run,
    exit::{Exit, Trouble},
    screen::Screen,
    session::{Session, SessionRequest, no_journal, working_folder},
    terminal,
};

/// Number of past runs among which the last conversation is searched.
const SEARCHED: u64 = 200;

/// Number of earlier turns whose usage is added up.
const MAX_TURNS: usize = 500;

pub(crate) async fn run(args: &ChatArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    Screen::must_be_possible("homing chat", "give an agent one task with `homing run`")?;
    let team = args.agent.as_deref().and_then(team_file);
    let agent = team.as_ref().map(|team| team.name.clone()).or_else(|| args.agent.clone());
    let agent = agent.unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    terminal::hold_lines();
    let request = SessionRequest {
        agent: Some(&agent),
        plugins: args.plugin.clone(),
        teams: team.into_iter().collect(),
        telemetry,
        ..SessionRequest::default()
    };
    let conversation = open(&args.with, &args.limits, request).await;
    let mut conversation = conversation.inspect_err(|_| terminal::release_lines())?;
    let chosen = async {
        let definition = conversation.session.agent(&agent)?.definition.clone();
        conversation.session.choose_model(&definition, true).await?;
        Ok::<_, Trouble>(definition.name.clone())
    };
    let name = chosen.await.inspect_err(|_| terminal::release_lines())?;
    conversation.chat.about.agent = name;
    conversation.chat.welcome();
    conversation.talk().await
}

pub(crate) async fn continue_last(args: &ContinueArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    Screen::must_be_possible("homing continue", "send a run one message with `homing tell`")?;
    let journal = super::runs::open(&args.with.journal)?;
    let project = which_run::this_project(args.with.cwd.as_deref());
    let tree = match &args.id {
        Some(id) => which_run::find(&journal, id, Some(project))?.tree,
        None => last_conversation(&journal, project)?,
    };
    if let Some((pid, host)) = journal.owner(tree)? {
        return Err(Trouble::usage(format!("this conversation is being held by process {pid} on {host}"))
            .hint("follow it with `homing watch`, or begin another one with `homing chat`")
            .into());
    }
    let records = journal.follow(tree, 0)?;
    let teams = homing_teams::recorded_in(records.iter().map(|record| &**record));
    let (agent, folder, model) = journal
        .tree(tree)?
        .root()
        .map(|root| {
            let spawned = &root.spawned;
            (spawned.agent.name.clone(), spawned.workdir.clone(), spawned.models.first().cloned())
        })
        .ok_or_else(|| Trouble::usage("there is no such run"))?;
    drop(journal);
    terminal::hold_lines();
    let with = WithArgs { cwd: Some(folder), ..args.with.clone() };
    let request = SessionRequest { teams, telemetry, ..SessionRequest::default() };
    let opened = async {
        let mut conversation = open(&with, &args.limits, request).await?;
        conversation.chat.about.agent = agent;
        conversation.model = conversation.session.model.clone().or(model);
        let run = conversation.session.resume(tree, Claim::IfGone, Limits::default()).await.map_err(Trouble::from)?;
        take_up(&mut conversation, run)?;
        Ok::<_, anyhow::Error>(conversation)
    };
    let conversation = opened.await.inspect_err(|_| terminal::release_lines())?;
    conversation.talk().await
}

/// Opens a session whose questions wait for an answer in the conversation, or in another process if this one is gone.
async fn open(with: &WithArgs, limits: &LimitArgs, request: SessionRequest<'_>) -> anyhow::Result<Conversation> {
    let mut with = with.clone();
    if with.approval.on_question != Some(OnQuestionArg::Deny) {
        with.approval.on_question = Some(OnQuestionArg::Park);
    }
    let session = Session::open(&with, SessionRequest { needs_journal: true, ..request }).await?;
    let folder = working_folder(with.cwd.as_deref())?;
    let mut chat = Chat::default();
    chat.about.folder = shown_folder(&folder);
    chat.about.agents = session.homing.registry().names().map(str::to_owned).collect();
    let journal = session.homing.journal().ok_or_else(no_journal)?;
    chat.history = History::read(&journal.path().with_file_name("chat-history.jsonl"));
    Ok(Conversation::new(session, chat, with, limits.limits()))
}

/// Shows the conversation so far, and goes on with a turn that was interrupted.
fn take_up(conversation: &mut Conversation, run: RunHandle) -> Result<(), Trouble> {
    let journal = conversation.session.homing.journal().cloned().ok_or_else(no_journal)?;
    let tree = run.tree();
    let Some(root) = tree.root() else { return Ok(()) };
    let chat = &mut conversation.chat;
    chat.cells.push_messages(&root.spawned.inherited);
    let earlier = root.spawned.tags.get("continues").and_then(|id| id.parse().ok());
    chat.spent = usage_of(&journal, earlier);
    if run.status().is_over() {
        for record in journal.follow(run.tree_id(), 0)? {
            chat.take(&Event::Fact(record));
        }
        chat.end(&run.envelope());
        conversation.previous = Some(run);
    } else {
        chat.note("this turn was interrupted; it continues now");
        conversation.follow(run, None);
    }
    Ok(())
}

/// Adds up the usage of a run and the ones that it continues.
fn usage_of(journal: &SqliteJournal, mut earlier: Option<Uuid>) -> EnvelopeUsage {
    let mut total = EnvelopeUsage::default();
    for _ in 0..MAX_TURNS {
        let Some(tree) = earlier.and_then(|run| journal.tree(run).ok()) else { break };
        let Some(root) = tree.root() else { break };
        total.add(&Envelope::new(&tree, root).subtree);
        earlier = root.spawned.tags.get("continues").and_then(|id| id.parse().ok());
    }
    total
}

/// Finds the newest run of a project that can be continued. A map answers no messages.
fn last_conversation(journal: &SqliteJournal, project: PathBuf) -> Result<Uuid, Trouble> {
    let filter = Filter { project: Some(project.clone()), limit: Some(SEARCHED), ..Filter::default() };
    for row in journal.runs(&filter)? {
        let Ok(tree) = journal.tree(row.tree) else { continue };
        let Some(root) = tree.root() else { continue };
        if !homing_teams::recorded(&root.spawned).is_some_and(|team| matches!(team.pattern, Pattern::Map(_))) {
            return Ok(row.tree);
        }
    }
    Err(Trouble::usage(format!("there is no conversation in {}", project.display()))
        .hint("begin one with `homing chat`; `homing continue ID` takes up any run"))
}

/// Reads the team of a file, if the name is the path of one.
fn team_file(name: &str) -> Option<Team> {
    let path = Path::new(name);
    let text = path.is_file().then(|| std::fs::read_to_string(path).ok())??;
    homing_teams::load(&text, Some(path)).ready().ok()
}

/// Returns the folder as users write it, with `~` for their home.
fn shown_folder(folder: &Path) -> String {
    let home = environment::folder("HOME");
    match home.and_then(|home| folder.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => folder.display().to_string(),
    }
}
