//! Runs: start, cancel, tell, resume, raise limits, fork.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use homing::{
    AttachedContent, Attachment, CancelledBy, Fork, Image, Limits, RunHandle, SpawnError, Status, Submission, Task,
    crates::{
        core::{fact::ON_RESTATE, trace_context::TraceContext},
        runtime::journal::{
            InboxRequest,
            sqlite::{Posted, RunRef, tree_tag},
        },
    },
};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{limits::LimitsBody, quoted};
use crate::{
    call::{Call, Outcome, blocking, json, trace_of},
    host::OpenProject,
    problem::Problem,
    server::Server,
};

/// The name of this server in records.
pub(crate) const BY: &str = "the web interface";

/// The agent of a run that names none.
const DEFAULT_AGENT: &str = "general";

/// Maximum time for the first record of a run to be written.
const FIRST_RECORD: Duration = Duration::from_secs(10);

/// A run to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRun {
    /// Agent or team (default: `general`).
    agent: Option<String>,
    /// The task.
    task: String,
    /// Limits of the run tree.
    #[serde(default)]
    limits: LimitsBody,
    /// Model to use instead of the agent's own.
    model: Option<String>,
    /// Labels to find the run by.
    #[serde(default)]
    tags: BTreeMap<String, String>,
    /// Values for `{{KEY}}` in prompts.
    #[serde(default)]
    context: BTreeMap<String, Value>,
    /// Returns what the run would do and could cost, without starting it.
    #[serde(default)]
    plan: bool,
    /// Files that belong to the task.
    #[serde(default)]
    attachments: Vec<AttachmentBody>,
    /// Project folder, one that the journal knows (default: the folder of the server).
    project: Option<PathBuf>,
}

/// A file that belongs to a task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachmentBody {
    /// Name of the file, as the model is told.
    name: String,
    /// `text/plain`, another text type, or an image type.
    media_type: String,
    /// The content in base64.
    data: String,
}

/// The result of an action.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Done {
    /// The tree.
    #[schemars(with = "String")]
    pub(crate) tree: Uuid,
    /// The run.
    #[schemars(with = "String")]
    pub(crate) run: Uuid,
    /// The project folder of a run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// The result in a few words.
    pub(crate) message: String,
    /// The command that does the same.
    pub(crate) command: String,
}

pub(crate) async fn start(server: Arc<Server>, call: Call) -> Outcome {
    let body: StartRun = call.body()?;
    if body.task.trim().is_empty() {
        return Err(Problem::bad_request("the task is empty"));
    }
    let folder = server.known_project(body.project.as_deref()).await?;
    let project = server.projects.of_folder(&folder).await?;
    let agent = body.agent.clone().unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    let mut task = Task::new(agent.clone(), body.task.clone());
    task.attachments = body.attachments.iter().map(attachment).collect::<Result<_, _>>()?;
    task.model.clone_from(&body.model);
    task.tags.clone_from(&body.tags);
    trace_of(&call.headers).iter().for_each(|trace| trace.add_to(&mut task.tags));
    task.context.clone_from(&body.context);
    let task = project.prepare(task, body.limits.limits()?);
    let model = body.model.as_ref().map(|model| format!(" --model {}", quoted(model))).unwrap_or_default();
    let flags = format!("{model}{}", body.limits.flags());
    let command = format!("homing run --agent {}{flags} {}", quoted(&agent), quoted(&body.task));
    if body.plan {
        let mut plan = project.plan(task)?;
        plan["command"] = Value::from(format!("{command} --plan"));
        return json(StatusCode::OK, &plan);
    }
    let (status, tree) = match call.header("idempotency-key").filter(|key| !key.is_empty()) {
        Some(key) => submit(&server, &*project, key, task).await?,
        None => (StatusCode::CREATED, begin(&server, &*project, task).await?.tree_id()),
    };
    let message = if status == StatusCode::CREATED { "started" } else { "this key was used before; this is its run" };
    let project = Some(folder.display().to_string());
    json(status, &Done { tree, run: tree, project, message: message.to_owned(), command })
}

async fn submit(
    server: &Server,
    project: &dyn OpenProject,
    key: &str,
    task: Task,
) -> Result<(StatusCode, Uuid), Problem> {
    match project.homing().runtime().submit(key, task).await.map_err(|error| spawn_problem(project, error))? {
        Submission::New(run) => {
            server.watch.channels.attach(&run);
            Ok((StatusCode::CREATED, run.tree_id()))
        }
        Submission::Earlier(tree) => Ok((StatusCode::OK, tree)),
    }
}

/// Starts a run, and returns once its first record is written.
pub(crate) async fn begin(server: &Server, project: &dyn OpenProject, task: Task) -> Result<RunHandle, Problem> {
    let run = project.homing().spawn(task).map_err(|error| spawn_problem(project, error))?;
    let mut events = run.events();
    let written = tokio::time::timeout(FIRST_RECORD, events.next()).await;
    if written.is_err() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the journal does not accept records at present"));
    }
    server.watch.channels.attach(&run);
    Ok(run)
}

fn spawn_problem(project: &dyn OpenProject, error: SpawnError) -> Problem {
    match error {
        SpawnError::Journal(error) => error.into(),
        other => project.spawn_error(other).into(),
    }
}

fn attachment(body: &AttachmentBody) -> Result<Attachment, Problem> {
    let wrong = |why: &str| Problem::bad_request(format!("attachment `{}`: {why}", body.name));
    let bytes = STANDARD.decode(body.data.trim()).map_err(|_| wrong("the data is not valid base64"))?;
    let content = match body.media_type.as_str() {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => {
            let base64 = STANDARD.encode(bytes);
            AttachedContent::Image(Image::new(&body.media_type, base64))
        }
        text if text.starts_with("text/") || text == "application/json" => {
            AttachedContent::Text(String::from_utf8(bytes).map_err(|_| wrong("the text is not valid UTF-8"))?)
        }
        _ => return Err(wrong("only text and images (PNG, JPEG, GIF, WebP) can be attached")),
    };
    Ok(Attachment::new(&body.name, content))
}

/// Finds the run of a request by its ID.
async fn find(server: &Server, call: &Call) -> Result<RunRef, Problem> {
    let id = call.id(0)?.to_string();
    let journal = server.watch.journal.clone();
    blocking(move || Ok(journal.find(&id, None)?)).await
}

async fn not_running(server: &Server, found: &RunRef) -> Result<Problem, Problem> {
    let status = status_of(server, found).await?;
    let id = found.tree;
    Ok(match status {
        status if status.is_over() => Problem::conflict(format!("not running: it already ended ({})", status.name())),
        _ => Problem::conflict("not running: its process is gone").hint(format!("resume it: homing resume {id}")),
    })
}

async fn status_of(server: &Server, found: &RunRef) -> Result<Status, Problem> {
    let (journal, tree, run) = (server.watch.journal.clone(), found.tree, found.run);
    let envelope = blocking(move || Ok(journal.envelope(tree)?)).await?;
    Ok(envelope.all().into_iter().find(|envelope| envelope.run == run).map_or(Status::Interrupted, |it| it.status))
}

fn done(found: &RunRef, message: String, command: String) -> Outcome {
    json(StatusCode::OK, &Done { tree: found.tree, run: found.run, project: None, message, command })
}

pub(crate) async fn cancel(server: Arc<Server>, call: Call) -> Outcome {
    let found = find(&server, &call).await?;
    let request = InboxRequest::Cancel { tree: found.tree, run: found.run, by: BY.to_owned() };
    let command = format!("homing cancel {}", found.run);
    let message = match server.watch.journal.post(request).await? {
        Posted::ToOwner { pid, .. } => {
            format!("process {pid} was asked to stop run {} and the runs below it", found.place)
        }
        Posted::NoOwner if status_of(&server, &found).await?.is_over() => {
            return Err(not_running(&server, &found).await?);
        }
        // It waits for an answer, or its process is gone: its end is recorded here.
        Posted::NoOwner => {
            let project = server.projects.of_tree(&server.watch.journal, found.tree).await?;
            let cancelled = project.homing().runtime().cancel(found.tree, found.run, CancelledBy::Other(BY.to_owned()));
            cancelled.await.map_err(|error| spawn_problem(&*project, error))?;
            format!("run {} and the runs below it are cancelled", found.place)
        }
    };
    done(&found, message, command)
}

/// The body of a request that needs none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Nothing {}

/// A message to a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tell {
    /// The message.
    message: String,
}

pub(crate) async fn tell(server: Arc<Server>, call: Call) -> Outcome {
    let body: Tell = call.body()?;
    if body.message.trim().is_empty() {
        return Err(Problem::bad_request("the message is empty"));
    }
    let found = find(&server, &call).await?;
    let command = format!("homing tell {} {}", found.run, quoted(&body.message));
    let request = InboxRequest::Tell { tree: found.tree, run: found.run, message: body.message.clone() };
    match server.watch.journal.post(request).await? {
        Posted::ToOwner { pid, .. } => {
            return done(&found, format!("message delivered to run {} (process {pid})", found.place), command);
        }
        Posted::NoOwner if !status_of(&server, &found).await?.is_over() => {
            return Err(not_running(&server, &found).await?);
        }
        Posted::NoOwner => (),
    }
    let run = continued(&server, &found, body.message, trace_of(&call.headers)).await?;
    let message = "the run had ended; a new one continues its conversation".to_owned();
    let (tree, run) = (run.tree_id(), run.id());
    json(StatusCode::CREATED, &Done { tree, run, project: None, message, command })
}

/// Continues the conversation of a run that has ended.
async fn continued(
    server: &Server,
    found: &RunRef,
    message: String,
    trace: Option<TraceContext>,
) -> Result<RunHandle, Problem> {
    let project = server.projects.of_tree(&server.watch.journal, found.tree).await?;
    let (journal, tree, run) = (server.watch.journal.clone(), found.tree, found.run);
    let fold = blocking(move || Ok(journal.tree(tree)?)).await?;
    let earlier = fold.get(run).ok_or_else(|| Problem::not_found("there is no such run"))?;
    let mut task = Task::new(earlier.spawned.agent.name.clone(), message).workdir(earlier.spawned.workdir.clone());
    task.history = earlier.messages().iter().map(|entry| entry.message.clone()).collect();
    task.context.clone_from(&earlier.spawned.context);
    task.tags = [("continues".to_owned(), run.to_string())].into();
    trace.iter().for_each(|trace| trace.add_to(&mut task.tags));
    let mut task = project.prepare(task, Limits::default());
    task.model = task.model.or_else(|| earlier.spawned.models.first().cloned());
    begin(server, &*project, task).await
}

/// Limits of a run that is resumed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resume {
    /// Amounts to add to the limits.
    limits: LimitsBody,
    /// A message that the run reads once it continues, such as what became of a call whose outcome is unknown.
    message: Option<String>,
}

pub(crate) async fn resume(server: Arc<Server>, call: Call) -> Outcome {
    let body: Resume = call.body()?;
    let found = find(&server, &call).await?;
    let more = body.limits.limits()?;
    let has_message = body.message.as_ref().is_some_and(|message| !message.trim().is_empty());
    if has_message && is_elsewhere(&server, &found).await? {
        return Err(Problem::conflict("a run on a worker cannot be given a message and new limits at once")
            .hint("send the message once the run continues"));
    }
    if let Some(message) = raised_elsewhere(&server, &found, found.tree, more).await? {
        return done(&found, message, format!("homing resume {}{}", found.tree, body.limits.flags()));
    }
    let run = server.resume(found.tree, more).await?;
    let mut command = format!("homing resume {}{}", found.tree, body.limits.flags());
    if let Some(message) = body.message.filter(|message| !message.trim().is_empty()) {
        command = format!("{command} && homing tell {} {}", found.run, quoted(&message));
        // Through the handle, not the inbox: the run must read it before its next reply ends it.
        run.of(found.run).map(|run| run.tell_if_open(&message));
    }
    let status = run.status();
    let message = if status.is_over() {
        let words = status.name().replace('_', " ");
        return Err(Problem::conflict(format!("this run has already ended ({words}); raise a limit to continue it")));
    } else {
        "resumed".to_owned()
    };
    done(&found, message, command)
}

pub(crate) async fn limits(server: Arc<Server>, call: Call) -> Outcome {
    let body: LimitsBody = call.body()?;
    let more = body.limits()?;
    if more == Limits::default() {
        return Err(Problem::bad_request("no limit is named"));
    }
    let found = find(&server, &call).await?;
    let command = format!("homing resume {}{}", found.tree, body.flags());
    if let Some(message) = raised_elsewhere(&server, &found, found.run, more).await? {
        return done(&found, message, command);
    }
    let request = InboxRequest::Extend { tree: found.tree, run: found.run, more };
    match server.watch.journal.post(request).await? {
        Posted::ToOwner { pid, .. } => done(&found, format!("process {pid} raises the limits"), command),
        Posted::NoOwner => {
            let run = server.resume(found.tree, more).await?;
            if run.status().is_over() {
                return Err(not_running(&server, &found).await?);
            }
            done(&found, "the limits were raised, and the run continues".to_owned(), command)
        }
    }
}

/// Raises the limits of a run that other machines drive; `None` if this one does.
async fn raised_elsewhere(server: &Server, found: &RunRef, run: Uuid, more: Limits) -> Result<Option<String>, Problem> {
    if !is_elsewhere(server, found).await? {
        return Ok(None);
    }
    let project = server.projects.of_tree(&server.watch.journal, found.tree).await?;
    Ok(project.raise_elsewhere(found.tree, run, more).await?)
}

/// Returns whether workers on other machines drive the tree of a run.
async fn is_elsewhere(server: &Server, found: &RunRef) -> Result<bool, Problem> {
    let (journal, tree) = (server.watch.journal.clone(), found.tree);
    blocking(move || Ok(tree_tag(&journal, tree, ON_RESTATE)?.is_some())).await
}

/// The position at which a run is forked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// Position of the last record that the fork takes over.
    seq: u64,
    /// A message to the fork.
    message: Option<String>,
}

pub(crate) async fn fork(server: Arc<Server>, call: Call) -> Outcome {
    let body: ForkBody = call.body()?;
    let found = find(&server, &call).await?;
    let project = server.projects.of_tree(&server.watch.journal, found.tree).await?;
    let forked = project.homing().fork(found.tree, Fork::at(body.seq)).await;
    let run = forked.map_err(|error| match error {
        SpawnError::Fork(why) => Problem::conflict(why),
        other => spawn_problem(&*project, other),
    })?;
    server.watch.channels.attach(&run);
    if let Some(message) = body.message.as_deref().filter(|message| !message.trim().is_empty()) {
        run.tell_if_open(message);
    }
    let command = format!("homing fork {} --at {}", found.tree, body.seq);
    let (tree, run) = (run.tree_id(), run.id());
    json(StatusCode::CREATED, &Done { tree, run, project: None, message: "forked".to_owned(), command })
}
