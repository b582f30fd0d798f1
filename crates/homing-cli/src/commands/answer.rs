//! `homing answer`: answers a question of a run, of whichever process. The answer is recorded; a process that works on the run
//! picks it up, and a run without one continues when it is resumed.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use homing::{AnswerError, CodingSetup, Folders, Rule};
use homing_core::{
    question::{Answer, QuestionId, QuestionKind},
    short_id::short_id,
    tree::RunTree,
};
use homing_otel::Telemetry;
use homing_runtime::{
    answer_in_journal,
    clock::SystemClock,
    journal::{
        InboxRequest,
        sqlite::{JournalQuestion, Posted, SqliteJournal},
    },
    placement::SegmentRequest,
};
use uuid::Uuid;

use super::restate::RemoteTree;
use crate::{
    cli::journal::{AnswerArgs, ResumeArgs},
    commands::which_run,
    config::{self, Layered, RuleTable},
    exit::{Exit, Trouble},
    terminal,
};

/// Maximum time to wait until the owner of the run has taken the answer. It looks for requests four times a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The origin of the answer in the journal.
const BY: &str = "`homing answer`";

pub(crate) async fn run(args: &AnswerArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.with.journal)?;
    let question = journal
        .find_question(&args.id)
        .map_err(|error| Trouble::usage(error.to_string()).hint("`homing questions` lists the open questions"))?;
    let answer = read(&question, &args.answer.join(" "))?;
    let tree = question.tree;
    let described = which_run::described_by_id(&journal, tree);
    if let Some(remote) = RemoteTree::find(&journal, tree).await? {
        let (run, question) = (question.open.run, question.open.id);
        if !remote.post(SegmentRequest::Answer { run, question, answer, by: BY.to_owned() }).await? {
            return Err(Trouble::usage("the run has ended").into());
        }
        remote.refresh_until(&journal, TIMEOUT, |tree| is_answered(tree, run, question)).await?;
        terminal::say(&format!("answered; a worker continues {described}"));
        return Ok(Exit::Done);
    }
    let run = described;
    if let Posted::ToOwner { pid, .. } = submit(&journal, &question, answer, BY).await? {
        wait_until_taken(&journal, &question).await?;
        terminal::say(&format!("answered; process {pid} continues {run}"));
        return Ok(Exit::Done);
    }
    let open = journal.questions(None).map_err(Trouble::from)?.into_iter().filter(|other| other.tree == tree).count();
    drop(journal);
    if args.resume {
        let (with, output) = (args.with.clone(), args.output);
        let resume = ResumeArgs {
            id: Some(tree.to_string()),
            all: false,
            force: false,
            limits: Default::default(),
            with,
            output,
        };
        return super::resume::run(&resume, telemetry).await;
    }
    let others = if open == 0 { String::new() } else { format!("; {open} more to answer") };
    terminal::say(&format!("answered {run}{others}; continue with: homing resume {}", short_id(tree)));
    Ok(Exit::Done)
}

/// Gives an answer to the process that works on the run, or records it if there is none.
pub(crate) async fn submit(
    journal: &SqliteJournal,
    question: &JournalQuestion,
    answer: Answer,
    by: &str,
) -> Result<Posted, Trouble> {
    let (tree, id) = (question.tree, question.open.id);
    let request =
        InboxRequest::Answer { tree, run: question.open.run, question: id, answer: answer.clone(), by: by.to_owned() };
    let posted = journal.post(request).await?;
    if posted == Posted::NoOwner {
        answer_in_journal(journal, &SystemClock::new(), tree, id, answer, by).await.map_err(|error| match error {
            AnswerError::Journal(error) => Trouble::from(error),
            other => Trouble::usage(other.to_string()),
        })?;
    }
    Ok(posted)
}

/// Reads the answer. `always` is yes, and a rule in the user's configuration.
fn read(question: &JournalQuestion, text: &str) -> Result<Answer, Trouble> {
    let is_permission = question.open.kind == QuestionKind::Permission;
    if is_permission && matches!(text.trim().to_lowercase().as_str(), "a" | "always") {
        terminal::say(&allow_always(&question.folder, &question.open.question.exact)?);
        return Ok(Answer::Yes);
    }
    question.open.question.read_answer(text).map_err(|error| Trouble::usage(error.to_string()))
}

/// Adds rules to the user's configuration for the project of a folder, and returns a message for the user.
pub(crate) fn allow_always(folder: &Path, rules: &[Rule]) -> Result<String, Trouble> {
    let folders = Folders::from_env();
    let places = CodingSetup::from_env(folder).places;
    let project = places.project_folders().into_iter().next().unwrap_or_else(|| folder.to_owned());
    let config =
        Layered::read(folders.config.as_deref(), &project).map_err(|error| Trouble::config(error.to_string()))?;
    let Some(path) = config.user_path.as_ref().filter(|_| !rules.is_empty()) else {
        return Ok("this call cannot be remembered, because no rule describes it; it is allowed once".to_owned());
    };
    let table = RuleTable::Project(config.project_folder());
    config::add_allow_rules(path, &table, rules)
        .map_err(|error| Trouble::config(format!("cannot write {}: {error}", path.display())))?;
    let list: Vec<String> = rules.iter().map(|rule| format!("\"{rule}\"")).collect();
    Ok(format!("added to {}: {table} allow = [{}]", path.display(), list.join(", ")))
}

fn is_answered(tree: &RunTree, run: Uuid, question: QuestionId) -> bool {
    tree.get(run).is_none_or(|run| !run.questions().is_open(question))
}

async fn wait_until_taken(journal: &SqliteJournal, question: &JournalQuestion) -> Result<(), Trouble> {
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        let tree = journal.tree(question.tree).map_err(Trouble::from)?;
        if is_answered(&tree, question.open.run, question.open.id) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
