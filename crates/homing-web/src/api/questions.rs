//! Questions that wait for an answer.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use homing::{
    Answer, AnswerError, Limits, OpenQuestion, QuestionKind,
    crates::{
        core::{fact::Fact, message::Args, tree::RunTree},
        runtime::{
            answer_in_journal,
            clock::SystemClock,
            journal::{
                InboxRequest,
                sqlite::{FindQuestionError, JournalQuestion, Posted, SqliteJournal},
            },
        },
    },
};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{quoted, runs::BY};
use crate::{
    call::{Call, Outcome, blocking, json},
    problem::Problem,
    server::Server,
    tree_row::cut,
};

/// Selection of questions.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QuestionsQuery {
    /// Only questions of this project folder.
    project: Option<String>,
}

/// The open questions.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Questions {
    /// Oldest tree first.
    questions: Vec<Question>,
}

/// A question that waits for an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Question {
    /// ID of the question.
    id: String,
    /// The tree.
    #[schemars(with = "String")]
    tree: Uuid,
    /// The run that asks.
    #[schemars(with = "String")]
    run: Uuid,
    /// Its place.
    place: String,
    /// Its agent.
    agent: String,
    /// The beginning of the run's task.
    task: String,
    /// Project folder.
    project: String,
    /// Milliseconds since 1970.
    asked_at: u64,
    /// The expected answer: `permission`, `choice` or `text`.
    #[schemars(with = "String")]
    kind: QuestionKind,
    #[serde(flatten)]
    call: WaitingCall,
    /// The question.
    text: String,
    /// The rule that requires approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Answers to choose from.
    choices: Vec<String>,
    /// Rules that `always` adds; without any, it counts only once.
    always: Vec<String>,
}

/// The call that waits for the answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitingCall {
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// Arguments of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The command that the call would run.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

pub(crate) async fn list(server: Arc<Server>, call: Call) -> Outcome {
    let query: QuestionsQuery = call.query()?;
    let journal = server.watch.journal.clone();
    let questions = blocking(move || listed(&journal, &query)).await?;
    json(StatusCode::OK, &Questions { questions })
}

fn listed(journal: &SqliteJournal, query: &QuestionsQuery) -> Result<Vec<Question>, Problem> {
    let mut folds: HashMap<Uuid, (RunTree, HashMap<String, u64>)> = HashMap::new();
    let mut questions = Vec::new();
    for asked in journal.questions(None)? {
        let project = asked.folder.display().to_string();
        if query.project.as_ref().is_some_and(|wanted| !wanted.is_empty() && *wanted != project) {
            continue;
        }
        let (tree, times) = match folds.entry(asked.tree) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(empty) => empty.insert(folded(journal, asked.tree)?),
        };
        questions.push(question(asked.tree, project, &asked.open, tree, times));
    }
    Ok(questions)
}

/// Folds a tree, and returns the time at which each question was asked.
fn folded(journal: &SqliteJournal, tree: Uuid) -> Result<(RunTree, HashMap<String, u64>), Problem> {
    let (mut fold, mut times) = (RunTree::default(), HashMap::new());
    for record in journal.follow(tree, 0)? {
        if let Fact::Questioned { id, .. } = &record.fact {
            times.insert(id.to_string(), record.at);
        }
        fold.apply(&record)
            .map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("tree {tree}: {error}")))?;
    }
    Ok((fold, times))
}

fn question(
    tree: Uuid,
    project: String,
    open: &OpenQuestion,
    fold: &RunTree,
    times: &HashMap<String, u64>,
) -> Question {
    let run = fold.get(open.run);
    let calls = run.map(|run| run.open_calls()).unwrap_or_default();
    let call = calls.into_iter().find(|call| call.key == open.question.key).map(|state| state.call);
    let arguments = call.as_ref().map(|call| match &call.args {
        Args::Json(args) => args.clone(),
        Args::Malformed(text) => Value::from(text.as_str()),
    });
    let command = arguments.as_ref().and_then(|args| args.get("command")).and_then(Value::as_str).map(str::to_owned);
    let id = open.id.to_string();
    Question {
        asked_at: times.get(&id).copied().unwrap_or_default(),
        id,
        tree,
        run: open.run,
        place: open.place.to_string(),
        agent: open.agent.clone(),
        task: run.map(|run| cut(&run.spawned.task)).unwrap_or_default(),
        project,
        kind: open.kind,
        call: WaitingCall { tool: call.map(|call| call.name.clone()), arguments, command },
        text: open.question.text.clone(),
        rule: open.question.rule.clone(),
        choices: open.question.options.clone(),
        always: open.question.exact.iter().map(ToString::to_string).collect(),
    }
}

/// An answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerBody {
    /// `yes`, `no`, `no, REASON` or `always` for a permission; one of the choices; or a text.
    answer: String,
}

/// The result of an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Answered {
    /// The result in a few words.
    message: String,
    /// The command that does the same.
    command: String,
}

pub(crate) async fn answer(server: Arc<Server>, call: Call) -> Outcome {
    let (id, body) = (call.param(0).to_owned(), call.body::<AnswerBody>()?);
    let (journal, wanted) = (server.watch.journal.clone(), id.clone());
    let question = blocking(move || {
        journal.find_question(&wanted).map_err(|error| match error {
            FindQuestionError::NotFound(_) => Problem::not_found(format!("there is no open question `{wanted}`")),
            FindQuestionError::TooShort(_) | FindQuestionError::Ambiguous(_) => Problem::bad_request(error.to_string()),
            FindQuestionError::Journal(error) => error.into(),
        })
    })
    .await?;
    let is_always = question.open.kind == QuestionKind::Permission && body.answer.trim().eq_ignore_ascii_case("always");
    let mut message = String::new();
    let answer = if is_always {
        let project = server.projects.of_folder(&question.folder).await?;
        message = project.allow_always(&question.open.question.exact)?;
        Answer::Yes
    } else {
        question.open.question.read_answer(&body.answer).map_err(|error| Problem::bad_request(error.to_string()))?
    };
    let sent = send(&server, &question, answer).await?;
    let message = if message.is_empty() { sent } else { format!("{sent}; {message}") };
    let command = format!("homing answer {id} {}", quoted(&body.answer));
    json(StatusCode::OK, &Answered { message, command })
}

/// Passes the answer to the process that drives the tree. If there is none, it is recorded here, and the tree is resumed.
async fn send(server: &Server, question: &JournalQuestion, answer: Answer) -> Result<String, Problem> {
    let (tree, run, id) = (question.tree, question.open.run, question.open.id);
    let by = BY.to_owned();
    let request = InboxRequest::Answer { tree, run, question: id, answer: answer.clone(), by };
    if let Posted::ToOwner { pid, .. } = server.watch.journal.post(request).await? {
        return Ok(format!("answered; process {pid} continues the run"));
    }
    let answered = answer_in_journal(&*server.watch.journal, &SystemClock::new(), tree, id, answer, BY).await;
    answered.map_err(|error| match error {
        AnswerError::Journal(error) => error.into(),
        other => Problem::conflict(other.to_string()),
    })?;
    server.resume(tree, Limits::default()).await?;
    Ok("answered; the run continues here".to_owned())
}
