//! The program of a chat: chooses the next speaker, writes its task, and decides when the chat ends.

use serde_json::{Value, json};

use crate::{
    chat::{Chat, NextSpeaker},
    crew::OnTaskFailure,
    failed,
    history::{History, JobResult, JobState},
    limit_fields::LimitFields,
    program::{DelegateCall, Move, TeamCall, TeamScript},
    team::{Team, TemplateScope},
    template,
};

pub(crate) struct ChatScript {
    chat: Chat,
    scope: TemplateScope,
}

/// The conversation so far.
#[derive(Default)]
struct Conversation {
    said: Vec<(String, String)>,
    /// The failed contributions since the last one that succeeded.
    failed: Vec<FailedContribution>,
}

/// A contribution that failed.
struct FailedContribution {
    part: String,
    counts: bool,
}

/// The state of a conversation.
enum ChatState {
    /// A member has to be started.
    Next(TeamCall),
    /// The conversation has ended.
    Over(Conversation),
    /// The chat cannot continue.
    Stuck(String),
}

impl Conversation {
    fn text(&self) -> String {
        self.said.iter().map(|(name, text)| format!("[{name}] {text}")).collect::<Vec<_>>().join("\n\n")
    }

    fn last(&self) -> Option<&(String, String)> {
        self.said.last()
    }

    /// The last contribution that succeeded.
    fn last_success(&self) -> String {
        let made = self.said.len().saturating_sub(self.failed.len());
        self.said[..made].last().map(|(_, text)| text.clone()).unwrap_or_default()
    }

    fn failures(&self) -> String {
        failed::listed(&self.failed.iter().map(|failure| failure.part.clone()).collect::<Vec<_>>())
    }
}

impl ChatScript {
    pub(crate) fn new(chat: &Chat, team: &Team) -> Self {
        Self { chat: chat.clone(), scope: team.scope() }
    }

    /// Replays the conversation as far as the history goes.
    fn replay(&self, history: &History<'_>) -> (Conversation, Option<ChatState>) {
        let mut conversation = Conversation::default();
        for round in 0..self.chat.max_rounds {
            let speaker = match self.speaker(round, &conversation, history) {
                Ok(speaker) => speaker,
                Err(state) => return (conversation, Some(state)),
            };
            let done = match history.job(&format!("say/{round}/{speaker}"), 0) {
                JobState::Ended(done) => done,
                JobState::Open { id } => {
                    let call = self.say(&speaker, &conversation, history.task).call(id);
                    return (conversation, Some(ChatState::Next(call)));
                }
                JobState::Running { place } => {
                    return (conversation, Some(ChatState::Stuck(format!("run {place} is still running"))));
                }
            };
            match self.add(round, speaker, &done, &mut conversation) {
                Ok(false) => (),
                Ok(true) => break,
                Err(why) => return (conversation, Some(ChatState::Stuck(why))),
            }
        }
        (conversation, None)
    }

    /// Adds a contribution to the conversation; returns whether it ends the conversation. An error ends the chat as failed.
    fn add(
        &self,
        round: u32,
        speaker: String,
        done: &JobResult,
        conversation: &mut Conversation,
    ) -> Result<bool, String> {
        if done.is_done() {
            let words = done.output.trim().to_owned();
            let stops = self.chat.stop_words.iter().any(|word| words.contains(word.as_str()));
            conversation.failed.clear();
            conversation.said.push((speaker, words));
            return Ok(stops);
        }
        let part = failed::part(&format!("`{speaker}` in round {round}"), done);
        let policy = failed::policy(self.chat.on_failure, done);
        conversation.said.push((speaker, format!("(could not contribute: {})", done.why())));
        conversation.failed.push(FailedContribution { part: part.clone(), counts: policy != OnTaskFailure::Skip });
        if policy == OnTaskFailure::Fail {
            return Err(part);
        }
        if conversation.failed.len() >= self.chat.members.len() {
            return Err(format!("all contributions of a whole round failed: {}", conversation.failures()));
        }
        Ok(false)
    }

    /// The member that speaks in this round.
    fn speaker(&self, round: u32, conversation: &Conversation, history: &History<'_>) -> Result<String, ChatState> {
        let chosen = match self.chat.next {
            NextSpeaker::RoundRobin => None,
            NextSpeaker::Rule => self.by_rule(round, conversation, history.task).map_err(ChatState::Stuck)?,
            NextSpeaker::Handoff => conversation.last().and_then(|(_, text)| self.handed_to(text)),
            NextSpeaker::Model => self.by_selector(round, conversation, history)?,
        };
        let chosen = chosen.filter(|name| self.chat.members.contains(name));
        Ok(chosen.unwrap_or_else(|| self.next_in_round(conversation)))
    }

    fn next_in_round(&self, conversation: &Conversation) -> String {
        let members = &self.chat.members;
        let last = conversation.last().and_then(|(name, _)| members.iter().position(|member| member == name));
        members.get(last.map_or(0, |at| at + 1)).or_else(|| members.first()).cloned().unwrap_or_default()
    }

    fn by_rule(&self, round: u32, conversation: &Conversation, task: &str) -> Result<Option<String>, String> {
        let (speaker, text) = conversation.last().cloned().unwrap_or_default();
        let scope =
            self.scope.with(task, [("round", json!(round)), ("last", json!({"speaker": speaker, "text": text}))]);
        for rule in &self.chat.rules {
            if template::holds(&rule.when, &scope).map_err(|why| format!("rule `{}`: {why}", rule.when))? {
                return Ok(Some(rule.speaker.clone()));
            }
        }
        Ok(None)
    }

    /// The last member that the text names with an `@`.
    fn handed_to(&self, text: &str) -> Option<String> {
        let names = text.split('@').skip(1).map(|rest| {
            let end = rest.find(|char: char| !(char.is_ascii_alphanumeric() || char == '-')).unwrap_or(rest.len());
            &rest[..end]
        });
        names.filter(|name| self.chat.members.iter().any(|member| member == name)).last().map(str::to_owned)
    }

    fn by_selector(
        &self,
        round: u32,
        conversation: &Conversation,
        history: &History<'_>,
    ) -> Result<Option<String>, ChatState> {
        // A single member needs no choice.
        if self.chat.members.len() < 2 {
            return Ok(None);
        }
        match history.job(&format!("choose/{round}"), 0) {
            JobState::Ended(done)
                if !done.is_done() && failed::policy(self.chat.on_failure, &done) != OnTaskFailure::Skip =>
            {
                let selector = self.chat.selector.as_deref().unwrap_or_default();
                let name = format!("the selector `{selector}` in round {round}");
                Err(ChatState::Stuck(failed::part(&name, &done)))
            }
            JobState::Ended(done) => {
                let name = done.data.as_ref().and_then(|data| data.get("speaker")).and_then(Value::as_str);
                Ok(name.map(str::to_owned))
            }
            JobState::Running { place } => Err(ChatState::Stuck(format!("run {place} is still running"))),
            JobState::Open { id } => {
                let schema = json!({
                    "type": "object",
                    "properties": {"speaker": {"type": "string", "enum": self.chat.members}},
                    "required": ["speaker"],
                });
                let task = format!(
                    "Choose who speaks next in this conversation.\n\nParticipants: {}\n\nThe topic:\n{}\n\nSo far:\n{}",
                    self.chat.members.join(", "),
                    history.task,
                    so_far(conversation)
                );
                let agent = self.chat.selector.as_deref().unwrap_or_default();
                let limits = LimitFields::default();
                let call = DelegateCall { agent, task, schema: Some(&schema), limits: &limits, background: false };
                Err(ChatState::Next(call.call(id)))
            }
        }
    }

    fn say<'a>(&'a self, speaker: &'a str, conversation: &Conversation, topic: &str) -> DelegateCall<'a> {
        let others: Vec<&str> = self.chat.members.iter().map(String::as_str).filter(|name| *name != speaker).collect();
        let mut task = format!(
            "You are `{speaker}` in a conversation with {}.\n\nThe topic:\n{topic}\n\nSo far:\n{}\n\nIt is your turn: \
             give your next contribution and nothing else.",
            others.join(", "),
            so_far(conversation)
        );
        if self.chat.next == NextSpeaker::Handoff {
            task.push_str(" Name the next speaker by writing @ and the name.");
        }
        DelegateCall { agent: speaker, task, schema: None, limits: &self.chat.limits, background: false }
    }

    fn sum_up(&self, conversation: &Conversation, history: &History<'_>) -> Move {
        let Some(agent) = &self.chat.summary else { return last_word(conversation) };
        match history.job("summary", 0) {
            JobState::Ended(done) if done.is_done() => Move::Answer { text: done.output, data: None },
            JobState::Ended(done) => Move::Fail { why: failed::part("summary", &done) },
            JobState::Running { place } => Move::Fail { why: format!("run {place} is still running") },
            JobState::Open { id } => {
                let task = format!(
                    "Sum up this conversation: what was agreed, what was not, and the answer to the topic.\n\nThe topic:\n{}\
                     \n\nThe conversation:\n{}",
                    history.task,
                    conversation.text()
                );
                let call = DelegateCall { agent, task, schema: None, limits: &self.chat.limits, background: false };
                Move::Act { words: "Next: summary".to_owned(), calls: vec![call.call(id)] }
            }
        }
    }
}

/// Ends a chat without a summary: its last contribution is the answer.
fn last_word(conversation: &Conversation) -> Move {
    let last = conversation.failed.last().filter(|failure| failure.counts);
    match (last, conversation.last_success()) {
        (Some(failure), _) => Move::Fail { why: failure.part.clone() },
        (None, text) if text.is_empty() && !conversation.failed.is_empty() => {
            Move::Fail { why: format!("all contributions failed: {}", conversation.failures()) }
        }
        (None, text) => Move::Answer { text, data: None },
    }
}

fn so_far(conversation: &Conversation) -> String {
    if conversation.said.is_empty() { "(nothing yet)".to_owned() } else { conversation.text() }
}

impl TeamScript for ChatScript {
    fn next(&self, history: &History<'_>) -> Move {
        let (conversation, state) = self.replay(history);
        match state.unwrap_or(ChatState::Over(conversation)) {
            ChatState::Next(call) => Move::Act { words: format!("Next: {}", call.id), calls: vec![call] },
            ChatState::Stuck(why) => Move::Fail { why },
            ChatState::Over(conversation) => self.sum_up(&conversation, history),
        }
    }

    fn so_far(&self, history: &History<'_>) -> String {
        so_far(&self.replay(history).0)
    }
}
