//! The runtime's side of a tool call: cancellation, progress, and questions to the user.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use homing_core::{
    BoxFuture,
    fact::Fact,
    json_text::JsonText,
    message::{Args, ToolCall, json_hash},
    question::{Answer, Question, QuestionId},
    tool::CallHost,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agent_loop::active_run::ActiveRun,
    config::OnQuestion,
    event::TransientKind,
    live_run::LiveRun,
    live_tree::{Audience, LiveTree},
    runtime::{Inner, PermissionHandler},
    scheduler::call_slot::CallSlot,
};

/// The services that a tool may use during a call.
pub(crate) struct ToolHost {
    runtime: Arc<Inner>,
    tree: Arc<LiveTree>,
    live_run: Arc<LiveRun>,
    /// The slot of the call, which is given back while it waits for the user.
    slot: Option<Arc<CallSlot>>,
    /// The call, by whose arguments questions of the tool itself are told apart.
    call: Option<Arc<ToolCall>>,
    /// Cancelled when the call must end; made when it is first needed, because most calls end before.
    stop: OnceLock<CancellationToken>,
}

impl ToolHost {
    pub(crate) fn new(run: &ActiveRun, slot: Option<Arc<CallSlot>>, call: Option<Arc<ToolCall>>) -> Self {
        Self {
            runtime: run.runtime.clone(),
            tree: run.tree.clone(),
            live_run: run.live_run.clone(),
            slot,
            call,
            stop: OnceLock::new(),
        }
    }

    /// Cancelled when the call must end: the run stops or lands.
    pub(crate) fn stop(&self) -> &CancellationToken {
        self.stop.get_or_init(|| self.live_run.stop.child_token())
    }

    /// Asks the user, and waits for the answer in the way that the host has chosen.
    async fn ask_user(&self, mut question: Question) -> Answer {
        if question.args_hash == 0 {
            question.args_hash = match self.call.as_ref().map(|call| &call.args) {
                Some(Args::Json(args @ Value::Object(_))) => args_hash(args),
                Some(Args::Json(_) | Args::Malformed(_)) | None => args_hash(&json!({})),
            };
        }
        if question.call.is_unknown() {
            let call = self.tree.read_run(self.live_run.run, |run| run.questions().call(question.key));
            question.call = call.unwrap_or_default();
        }
        let id = question.id();
        if let Some(answer) = self.recorded(id) {
            return answer;
        }
        self.tree.notify(&self.live_run, Audience::All, || TransientKind::Question(Box::new(question.clone())));
        let handler = match (self.runtime.parts.config.on_question, &self.runtime.parts.permission_handler) {
            (OnQuestion::Park, _) => None,
            (OnQuestion::Ask { within }, Some(handler)) => Some((handler.clone(), within)),
            (OnQuestion::Ask { .. }, None) | (OnQuestion::Deny, _) => return Answer::Unavailable,
        };
        let boxed = Box::new(question.clone());
        drop(self.tree.record_if(self.live_run.run, |tree| match tree.get(self.live_run.run) {
            // A resumed run asks the question again that it had asked before.
            Some(run) if !run.questions().is_open(id) => Ok(Fact::Questioned { id, question: boxed }),
            Some(_) | None => Err(()),
        }));
        if let Some(slot) = &self.slot {
            slot.leave().await;
        }
        let answer = tokio::select! {
            biased;
            () = self.stop().cancelled() => Answer::Unavailable,
            answer = self.answered(id) => answer,
            answer = self.ask_handler(handler, question) => self.record(id, answer),
        };
        if let Some(slot) = &self.slot
            && slot.enter().await.is_err()
        {
            return Answer::Unavailable;
        }
        answer
    }

    /// The answer of the host's handler; never, if there is none.
    async fn ask_handler(&self, handler: Option<(Arc<dyn PermissionHandler>, Duration)>, question: Question) -> Answer {
        let Some((handler, within)) = handler else { return std::future::pending().await };
        tokio::time::timeout(within, handler.ask(question)).await.unwrap_or(Answer::Unavailable)
    }

    /// Waits until an answer is recorded, by whichever process.
    async fn answered(&self, id: QuestionId) -> Answer {
        loop {
            // Enabled before the check, so that no answer between the check and the wait is missed.
            let answered = self.tree.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if let Some(answer) = self.recorded(id) {
                return answer;
            }
            answered.await;
        }
    }

    fn recorded(&self, id: QuestionId) -> Option<Answer> {
        self.tree.read_run(self.live_run.run, |run| run.questions().answer_to(id).cloned())
    }

    /// Records the answer of the handler, unless another process was faster.
    fn record(&self, id: QuestionId, answer: Answer) -> Answer {
        let by = if answer == Answer::Unavailable { "no answer" } else { "the user" };
        self.tree.record_answer(self.live_run.run, id, answer.clone(), by);
        self.recorded(id).unwrap_or(answer)
    }
}

/// The fingerprint of the arguments of a call.
pub(crate) fn args_hash(args: &Value) -> u64 {
    json_hash(args)
}

impl CallHost for ToolHost {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop().cancelled())
    }

    fn progress(&self, text: &str) {
        self.tree.notify(&self.live_run, Audience::All, || TransientKind::Progress(text.to_owned()));
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(self.ask_user(question))
    }

    fn returned(&self, tool: &str) -> Vec<Value> {
        self.tree.read(|tree| {
            let results = tree.runs().iter().flat_map(|run| run.results(tool)).filter(|result| !result.is_error);
            results.filter_map(|result| result.data.as_ref().map(JsonText::value)).collect()
        })
    }
}
