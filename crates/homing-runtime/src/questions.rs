//! Questions of runs, as hosts see them: which are open, how they are answered, and when nothing else is left to do.

use std::time::Duration;

use homing_core::{
    envelope::Envelope,
    fact::{Fact, Record},
    question::{Answer, OpenQuestion, QuestionId},
    tree::RunTree,
};
use uuid::Uuid;

use crate::{
    clock::Clock,
    config::OnQuestion,
    handle::RunHandle,
    journal::{Claim, Journal, JournalError},
    runtime::{Runtime, release},
};

/// Time for which a tree must stand still before it counts as parked: a run whose child has just ended looks as if it waited
/// until it takes its next step.
const SETTLED: Duration = Duration::from_millis(50);

/// The reason why an answer was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// There is no such question, or it was answered before, or its call has ended.
    #[error("the question {0} is not open: it was answered, or its run went on without an answer")]
    NotOpen(QuestionId),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl RunHandle {
    /// The questions of the run and the runs below it that wait for an answer.
    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.envelope().questions
    }

    /// Answers a question of the run or of a run below it. `by` names the user or program that answers.
    ///
    /// # Errors
    /// Fails if the question is not open.
    pub fn answer(&self, question: QuestionId, answer: Answer, by: &str) -> Result<(), AnswerError> {
        let asking = self.live_tree().read(|tree| asking_run(tree, question));
        let answered = asking.and_then(|run| self.live_tree().record_answer(run, question, answer, by));
        answered.map(drop).ok_or(AnswerError::NotOpen(question))
    }

    /// Waits until the run has ended, or, if questions wait in this runtime ([`OnQuestion::Park`]), until nothing can happen
    /// in its tree before one is answered. The result of a run that waits has the status `waiting` and lists the questions.
    pub async fn wait_or_park(&self) -> Envelope {
        if self.runtime().parts().config.on_question != OnQuestion::Park {
            return self.wait().await;
        }
        tokio::select! {
            envelope = self.wait() => envelope,
            () = self.parked() => self.envelope(),
        }
    }

    async fn parked(&self) {
        let standstill = || self.live_tree().read(|tree| tree.is_parked().then(|| tree.next_seq()));
        let mut before = None;
        loop {
            tokio::time::sleep(SETTLED).await;
            let now = standstill();
            if now.is_some() && now == before {
                return;
            }
            before = now;
        }
    }

    /// Gives up the ownership of a tree that waits for answers, so that another process can resume it at once. This runtime
    /// stops driving it.
    pub fn release(&self) {
        release(&self.runtime().0, self.live_tree());
    }
}

impl Runtime {
    /// The open questions of all runs in memory.
    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.0.trees().iter().flat_map(|tree| tree.read(RunTree::open_questions)).collect()
    }

    /// Answers a question of a run in memory, or of a tree of the journal that no process drives.
    ///
    /// # Errors
    /// Fails if the question is not open, if a process that is alive owns the tree, or if the journal cannot be written.
    pub async fn answer(&self, tree: Uuid, id: QuestionId, answer: Answer, by: &str) -> Result<(), AnswerError> {
        if let Some(live) = self.0.tree(tree) {
            let asking = live.read(|tree| asking_run(tree, id)).ok_or(AnswerError::NotOpen(id))?;
            let commit = live.record_answer(asking, id, answer, by).ok_or(AnswerError::NotOpen(id))?;
            return Ok(commit.await?);
        }
        let parts = self.parts();
        answer_in_journal(&*parts.journal, &*parts.sources.clock, tree, id, answer, by).await
    }
}

/// The run that asks a question.
fn asking_run(tree: &RunTree, question: QuestionId) -> Option<Uuid> {
    tree.runs().iter().find(|run| run.questions().is_open(question)).map(|run| run.id)
}

/// Records the answer to a question of a tree that no process drives. Nothing is resumed.
///
/// # Errors
/// Fails if the question is not open, if a process that is alive owns the tree, or if the journal cannot be written.
pub async fn answer_in_journal(
    journal: &dyn Journal,
    clock: &dyn Clock,
    tree: Uuid,
    id: QuestionId,
    answer: Answer,
    by: &str,
) -> Result<(), AnswerError> {
    if asking_run(&journal.fold(tree).await?, id).is_none() {
        return Err(AnswerError::NotOpen(id));
    }
    let epoch = journal.claim(tree, Claim::IfGone).await?;
    let answered = record_in_journal(journal, clock, tree, epoch, Fact::Answered { id, answer, by: by.to_owned() });
    let answered = answered.await;
    journal.release(tree);
    answered
}

/// Appends the answer, unless another process answered between the first look and the claim.
async fn record_in_journal(
    journal: &dyn Journal,
    clock: &dyn Clock,
    tree: Uuid,
    epoch: u32,
    fact: Fact,
) -> Result<(), AnswerError> {
    let fold = journal.fold(tree).await?;
    let Fact::Answered { id, .. } = &fact else { unreachable!("only answers are recorded here") };
    let asking = asking_run(&fold, *id).and_then(|run| fold.get(run)).ok_or(AnswerError::NotOpen(*id))?;
    let (run, place) = (asking.id, asking.place.clone());
    let record = Record { tree, seq: fold.next_seq(), at: clock.now_ms(), epoch, run, place, fact };
    Ok(journal.append(record.into()).await?)
}
