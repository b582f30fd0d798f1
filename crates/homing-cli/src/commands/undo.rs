//! `homing undo`: takes back what a run and the runs below it changed. The undo is a run of its own, with the rules of the user and
//! the project, so it is recorded, and can be undone like any other run.

use std::path::{Path, PathBuf};

use homing::{CodingSetup, Folders, Homing, JournalChoice, Limit, Limits, Task, Usage, model_fn};
use homing_core::{
    authority::{Allow, Layer},
    changes::{FileContents, NetChange},
    definition::AgentDefinition,
    envelope::Envelope,
    message::{Message, Reply},
    model::{AskFailure, ModelRequest},
    rule::Rule,
    sanitize,
    scripted_model::{call, say},
    tool_names,
};
use homing_runtime::journal::sqlite::RunRef;
use homing_tools::files::restore::{RestoreArgs, restore_tool};
use serde_json::json;

use super::diff::{RunChanges, is_as_left, store};
use crate::{
    cli::{changes::UndoArgs, run::WithArgs},
    config::Layered,
    exit::{Exit, Trouble, print},
    progress::figures,
    session, terminal,
};

/// Number of files that are restored in one turn.
const PER_TURN: usize = 50;

pub(crate) async fn run(args: &UndoArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let found = super::which_run::find(&journal, &args.id, Some(super::which_run::this_project(None)))?;
    if let Some((pid, _)) = journal.owner(found.tree).map_err(Trouble::from)? {
        return Err(Trouble::usage(format!("the run is still going on in process {pid}"))
            .hint(format!("stop it first: homing cancel {}", args.id))
            .into());
    }
    let tree = journal.tree(found.tree).map_err(Trouble::from)?;
    let run = tree.get(found.run).ok_or_else(|| Trouble::usage("there is no such run"))?;
    let workdir = run.spawned.workdir.clone();
    let changes = RunChanges::read(&journal, &found)?;
    let mut plan = Plan::new(&changes, &workdir);
    drop((tree, journal));
    let is_blocked = !plan.conflicts.is_empty() && !args.skip_conflicts;
    if args.dry_run || is_blocked || plan.steps.is_empty() {
        if args.json {
            print(&terminal::json(&plan.json(None)))?;
        } else {
            plan.print("would be ")?;
            changes.say_unrecorded();
        }
        return Ok(plan.end_without_undo(args, is_blocked));
    }
    let undone = carry_out(args, &found, &workdir, &plan).await?;
    plan.steps.retain(|step| undone.envelope.receipts.files.iter().any(|file| file.path == step.path));
    let failed = undone.failed.len() + plan.conflicts.len();
    if args.json {
        print(&terminal::json(&plan.json(Some(&undone))))?;
    } else {
        plan.print("")?;
        undone.failed.iter().for_each(|why| terminal::say(&format!("not undone: {}", sanitize::inert_line(why))));
        changes.say_unrecorded();
        terminal::say(&format!("recorded as run {0}; `homing undo {0}` takes it back", undone.short()));
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
}

/// The steps of an undo, one per file.
struct Plan {
    steps: Vec<RestoreArgs>,
    /// Files that are left as they are, with the reason.
    conflicts: Vec<(String, String)>,
}

impl Plan {
    fn new(changes: &RunChanges, workdir: &Path) -> Self {
        let mut plan = Self { steps: Vec::new(), conflicts: Vec::new() };
        for file in &changes.files {
            match conflict(file, workdir) {
                Some(why) => plan.conflicts.push((file.first.path.clone(), why)),
                None => plan.steps.push(step(file)),
            }
        }
        plan
    }

    fn print(&self, tense: &str) -> anyhow::Result<()> {
        for step in &self.steps {
            let verb = if step.content.is_some() { "restored" } else { "deleted" };
            print(&format!("{tense}{verb}: {}", sanitize::inert_line(&step.path)))?;
        }
        for (path, why) in &self.conflicts {
            print(&format!("conflict: {}: {why}", sanitize::inert_line(path)))?;
        }
        Ok(())
    }

    fn end_without_undo(&self, args: &UndoArgs, is_blocked: bool) -> Exit {
        if self.steps.is_empty() && self.conflicts.is_empty() {
            terminal::say("nothing to undo: no recorded changes of files");
        } else if is_blocked && !args.dry_run {
            let files = figures::count(self.conflicts.len() as u64, "file");
            terminal::say(&format!("nothing was undone, because of conflicts in {files}"));
            terminal::say("hint: --skip-conflicts undoes the other changes; `homing diff` shows them");
        }
        if is_blocked { Exit::Failed } else { Exit::Done }
    }

    fn json(&self, undone: Option<&Undone>) -> serde_json::Value {
        let conflicts: Vec<_> = self.conflicts.iter().map(|(path, why)| json!({"path": path, "why": why})).collect();
        let changed = |delete: bool| -> Vec<&str> {
            let steps = self.steps.iter().filter(|step| step.content.is_none() == delete);
            steps.map(|step| step.path.as_str()).collect()
        };
        json!({
            "run": undone.map(|undone| undone.envelope.run),
            "restored": changed(false),
            "deleted": changed(true),
            "conflicts": conflicts,
            "failed": undone.map(|undone| &undone.failed),
        })
    }
}

/// Returns why a change cannot be undone.
fn conflict(file: &NetChange, workdir: &Path) -> Option<String> {
    if file.first.workdir != workdir {
        let folder = file.first.workdir.display();
        return Some(format!("run {} worked in {folder}; see `homing worktrees`", file.first.place));
    }
    if let Some(place) = &file.mixed_with {
        return Some(format!("run {place} changed it, too; undo both together"));
    }
    if file.first.before == FileContents::Unknown {
        return Some("its earlier contents were not recorded".to_owned());
    }
    if !is_as_left(&file.last) {
        return Some("it has changed since".to_owned());
    }
    if let FileContents::Hash(hash) = &file.first.before
        && store().ok()?.get(hash).is_none()
    {
        return Some("its earlier contents are no longer kept".to_owned());
    }
    None
}

fn step(file: &NetChange) -> RestoreArgs {
    let hash = |contents: &FileContents| match contents {
        FileContents::Hash(hash) => Some(hash.clone()),
        FileContents::Missing | FileContents::Unknown => None,
    };
    let (expect, content) = (hash(&file.last.after), hash(&file.first.before));
    RestoreArgs { path: file.first.path.clone(), expect, content, mode: file.last.mode }
}

/// The result of an undo.
struct Undone {
    envelope: Envelope,
    failed: Vec<String>,
}

impl Undone {
    fn short(&self) -> String {
        crate::print_result::short(&self.envelope)
    }
}

/// Runs the plan as a run whose model is a program.
async fn carry_out(args: &UndoArgs, found: &RunRef, workdir: &Path, plan: &Plan) -> anyhow::Result<Undone> {
    let folders = Folders::from_env();
    let mut setup = CodingSetup::from_env(workdir);
    (setup.without_commands, setup.built_in) = (true, false);
    let project = setup.places.project_folders().into_iter().next().unwrap_or_else(|| workdir.to_owned());
    let config = Layered::read(folders.config.as_deref(), &project)?;
    let journal = session::journal_path(&args.journal, &config, &folders).ok_or_else(session::no_journal)?;
    // The user asked for it, so nothing is asked again; rules that deny still hold.
    let asked = Layer::everything("undo").settled(vec![Rule::tool(tool_names::RESTORE)]);
    let permissions = session::permissions(&WithArgs::default(), &config)?.layer(asked);
    let homing = Homing::builder()
        .workdir(workdir)
        .coding_setup(setup)
        .permissions(permissions)
        .agent(agent())
        .own_model(model_fn("homing/undo", program(plan.steps.clone())))
        .tool(restore_tool(store()?))
        .journal(JournalChoice::File(journal_file(journal), Box::default()))
        .build()
        .map_err(|error| Trouble::config(error.to_string()))?;
    let limits = Limits::default().unlimited(Limit::Turns).unlimited(Limit::ToolCalls).unlimited(Limit::Tokens);
    let task = Task::new("undo", format!("Undo run {}.", found.run)).model("homing/undo").limits(limits);
    let envelope = homing.spawn(task.tag("undoes", found.run.to_string())).map_err(Trouble::from)?.await;
    let mut failed: Vec<String> = envelope.error.iter().map(|error| error.message.clone()).collect();
    let journal = homing.journal().ok_or_else(session::no_journal)?;
    let tree = journal.tree(envelope.run).map_err(Trouble::from)?;
    let entries = tree.get(envelope.run).into_iter().flat_map(|run| run.transcript().iter());
    failed.extend(entries.filter_map(|entry| match &entry.message {
        Message::Tool(result) if result.is_error => Some(result.text.clone()),
        Message::Tool(_) | Message::User { .. } | Message::Assistant(_) => None,
    }));
    Ok(Undone { envelope, failed })
}

fn journal_file(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn agent() -> AgentDefinition {
    let mut agent = AgentDefinition::new("undo", "Takes back the changes of a run", "Restore the files.");
    // `restore` obeys the rules on the tools that write files.
    let tools = [tool_names::RESTORE, tool_names::WRITE, tool_names::EDIT];
    agent.tools.allowed = Allow::Only(tools.into_iter().map(Rule::tool).collect());
    agent
}

/// Returns a model that restores every file, some per turn, and then ends.
fn program(steps: Vec<RestoreArgs>) -> impl Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync + 'static {
    move |request| {
        let done = request.messages.iter().filter(|entry| matches!(entry.message, Message::Tool(_))).count();
        let next = steps.iter().skip(done).take(PER_TURN);
        let calls: Vec<_> = next.map(|step| (tool_names::RESTORE, json!(step))).collect();
        let reply = if calls.is_empty() { say(format!("{done} files handled.")) } else { call(calls) };
        Ok(reply.usage(Usage::default()))
    }
}
