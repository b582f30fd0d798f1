//! The program of a chat: chooses the next speaker, writes its task, and decides when the chat ends.

use homing_core::{envelope::Status, registry::Registry};
use serde_json::{Value, json};

use crate::{
    chat::{Chat, ChatMessage, NextSpeaker},
    crew::{OnTaskFailure, script::described},
    failed,
    history::{EarlierTurn, History, JobResult, JobState},
    limit_fields::LimitFields,
    person::PERSON,
    program::{DelegateCall, Move, TeamCall, TeamScript},
    source::TeamSource,
    team::{Team, TemplateScope},
    template,
};

pub(crate) struct ChatScript {
    chat: Chat,
    scope: TemplateScope,
    source: TeamSource,
    /// The members with their descriptions, one per line.
    described: String,
}

/// The speaker of the message with which the user continues a conversation.
const USER: &str = "user";

/// The conversation so far.
#[derive(Default)]
struct Conversation {
    said: Vec<Contribution>,
    /// Contributions of earlier turns, and the message that continues them.
    earlier: usize,
    /// The failed contributions since the last one that succeeded.
    failed: Vec<FailedContribution>,
}

/// A contribution, or a note that there is none.
struct Contribution {
    speaker: String,
    text: String,
    status: Status,
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
        let line = |said: &Contribution| format!("[{}] {}", said.speaker, said.text);
        self.said.iter().map(line).collect::<Vec<_>>().join("\n\n")
    }

    /// The conversation of the turn that a chat continues, followed by the user's new message.
    fn continuing(turn: &EarlierTurn<'_>, message: &str) -> Self {
        let messages = turn.results.get("messages").and_then(Value::as_array).into_iter().flatten();
        let contribution = |message: &Value| {
            let text = |key: &str| message.get(key).and_then(Value::as_str);
            let status = text("status")?.parse().ok()?;
            Some(Contribution { speaker: text("speaker")?.to_owned(), text: text("text")?.to_owned(), status })
        };
        let mut said: Vec<Contribution> = messages.filter_map(contribution).collect();
        said.push(Contribution { speaker: USER.to_owned(), text: message.to_owned(), status: Status::Done });
        Self { earlier: said.len(), said, failed: Vec::new() }
    }

    fn messages(&self) -> Vec<ChatMessage> {
        let message = |said: &Contribution| ChatMessage { speaker: said.speaker.clone(), text: said.text.clone() };
        self.said.iter().map(message).collect()
    }

    fn last(&self) -> Option<&Contribution> {
        self.said.last()
    }

    /// The last contribution of a member.
    fn last_of(&self, members: &[String]) -> Option<&Contribution> {
        self.said.iter().rev().find(|said| members.contains(&said.speaker))
    }

    /// The last contribution that says something besides a stop word, without the stop words.
    fn last_useful(&self, stop_words: &[String]) -> Option<String> {
        let made = self.said[self.earlier..].iter().rev().filter(|said| said.status == Status::Done);
        made.map(|said| without(&said.text, stop_words)).find(|text| text.chars().any(char::is_alphanumeric))
    }

    fn failures(&self) -> String {
        failed::listed(&self.failed.iter().map(|failure| failure.part.clone()).collect::<Vec<_>>())
    }
}

impl ChatScript {
    pub(crate) fn new(chat: &Chat, team: &Team, registry: &Registry) -> Self {
        let described = described(&chat.members, registry);
        Self { chat: chat.clone(), scope: team.scope(), source: team.source.clone(), described }
    }

    /// The conversation before the first contribution of this turn.
    fn begun(&self, history: &History<'_>) -> Conversation {
        let turn = history.earlier.as_ref();
        turn.map(|turn| Conversation::continuing(turn, history.own_task)).unwrap_or_default()
    }

    /// Replays the conversation as far as the history goes.
    fn replay(&self, history: &History<'_>) -> (Conversation, Option<ChatState>) {
        let mut conversation = self.begun(history);
        let topic = topic(history);
        for round in 0..self.chat.max_rounds {
            let speaker = match self.speaker(round, &conversation, history) {
                Ok(speaker) => speaker,
                Err(state) => return (conversation, Some(state)),
            };
            let done = match history.job(&format!("say/{round}/{speaker}"), 0) {
                JobState::Ended(done) => done,
                JobState::Open { id } => {
                    let call = self.say(&speaker, &conversation, topic).call(id);
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
            conversation.said.push(Contribution { speaker, text: words, status: done.status });
            return Ok(stops);
        }
        let part = failed::part(&format!("`{speaker}` in round {round}"), done);
        let policy = failed::policy(self.chat.on_failure, done);
        let text = format!("(could not contribute: {})", done.why());
        conversation.said.push(Contribution { speaker, text, status: done.status });
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
        let in_code = self.chat.select.0.as_ref().map(|select| select(&conversation.messages()));
        let chosen = match self.chat.next {
            _ if in_code.is_some() => in_code.flatten(),
            NextSpeaker::RoundRobin => None,
            NextSpeaker::Rule => self.by_rule(round, conversation, &history.task).map_err(ChatState::Stuck)?,
            NextSpeaker::Handoff => self.handed_over(conversation),
            NextSpeaker::Model => self.by_selector(round, conversation, history)?,
        };
        let chosen = chosen.filter(|name| self.chat.members.contains(name));
        Ok(chosen.unwrap_or_else(|| self.next_in_round(conversation)))
    }

    fn next_in_round(&self, conversation: &Conversation) -> String {
        let members = &self.chat.members;
        let last = conversation.last_of(members);
        let last = last.and_then(|last| members.iter().position(|member| *member == last.speaker));
        members.get(last.map_or(0, |at| at + 1)).or_else(|| members.first()).cloned().unwrap_or_default()
    }

    fn by_rule(&self, round: u32, conversation: &Conversation, task: &str) -> Result<Option<String>, String> {
        let (speaker, text) = conversation.last().map_or(("", ""), |last| (&last.speaker, &last.text));
        let scope =
            self.scope.with(task, [("round", json!(round)), ("last", json!({"speaker": speaker, "text": text}))]);
        for (at, rule) in self.chat.rules.iter().enumerate() {
            let in_rule = |why: String| {
                let source = self.source.at(&format!("chat.rules[{at}]"));
                format!("{source}rule `{}`: {why}", rule.when)
            };
            if template::holds(&rule.when, &scope).map_err(in_rule)? {
                return Ok(Some(rule.speaker.clone()));
            }
        }
        Ok(None)
    }

    /// The speaker that the user names, or the one that the last member handed over to, in an earlier turn too.
    fn handed_over(&self, conversation: &Conversation) -> Option<String> {
        let by_user =
            conversation.last().filter(|last| last.speaker == USER).and_then(|last| self.handed_to(&last.text));
        by_user.or_else(|| self.after(conversation.last_of(&self.chat.members)?))
    }

    /// The speaker after a contribution: the member that it hands over to, or the same one. After a failure the next in the
    /// round speaks, because the same speaker might fail again and again.
    fn after(&self, last: &Contribution) -> Option<String> {
        let same = (last.status == Status::Done).then(|| last.speaker.clone());
        self.handed_to(&last.text).or(same)
    }

    /// The last member that the text names as `@name`. In an e-mail address the `@` follows a letter or a digit.
    fn handed_to(&self, text: &str) -> Option<String> {
        let mut names = text.match_indices('@').filter_map(|(at, _)| {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|char| char.is_alphanumeric() || matches!(char, '.' | '_' | '-' | '+')) {
                return None;
            }
            let rest = &text[at + 1..];
            let end = rest.find(|char: char| !(char.is_ascii_alphanumeric() || char == '-')).unwrap_or(rest.len());
            Some(&rest[..end])
        });
        names.rfind(|name| self.chat.members.iter().any(|member| member == name)).map(str::to_owned)
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
                    "Choose who speaks next in this conversation.\n\nParticipants:\n{}\n\nThe topic:\n{}\n\nSo far:\n{}",
                    self.described,
                    topic(history),
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
        if speaker == PERSON {
            let so_far = so_far(conversation);
            let task = format!(
                "Your turn in a conversation with {}.\n\nThe topic:\n{topic}\n\nSo far:\n{so_far}",
                others.join(", ")
            );
            return DelegateCall { agent: speaker, task, schema: None, limits: &self.chat.limits, background: false };
        }
        let mut task = format!(
            "You are `{speaker}` in a conversation with {}.\n\nThe topic:\n{topic}\n\nSo far:\n{}\n\nIt is your turn: \
             give your next contribution and nothing else.",
            others.join(", "),
            so_far(conversation)
        );
        if self.chat.next == NextSpeaker::Handoff {
            task.push_str(&format!(
                " To hand over, name the next speaker by writing @ and the name; otherwise it is your turn again. The \
                 members:\n{}",
                self.described
            ));
        }
        DelegateCall { agent: speaker, task, schema: None, limits: &self.chat.limits, background: false }
    }

    fn sum_up(&self, conversation: &Conversation, history: &History<'_>) -> Move {
        let Some(agent) = &self.chat.summary else { return self.last_word(conversation) };
        match history.job("summary", 0) {
            JobState::Ended(done) if done.is_done() => Move::Answer { text: done.output, data: None },
            JobState::Ended(done) => Move::Fail { why: failed::part("summary", &done) },
            JobState::Running { place } => Move::Fail { why: format!("run {place} is still running") },
            JobState::Open { id } => {
                let task = format!(
                    "Sum up this conversation: what was agreed, what was not, and the answer to the topic.\n\nThe topic:\n{}\
                     \n\nThe conversation:\n{}",
                    topic(history),
                    conversation.text()
                );
                let call = DelegateCall { agent, task, schema: None, limits: &self.chat.limits, background: false };
                Move::Act { words: "Next: summary".to_owned(), calls: vec![call.call(id)] }
            }
        }
    }
}

impl ChatScript {
    /// Ends a chat without a summary: its last useful contribution is the answer.
    fn last_word(&self, conversation: &Conversation) -> Move {
        let last = conversation.failed.last().filter(|failure| failure.counts);
        match (last, conversation.last_useful(&self.chat.stop_words)) {
            (Some(failure), _) => Move::Fail { why: failure.part.clone() },
            (None, Some(text)) => Move::Answer { text, data: None },
            (None, None) if !conversation.failed.is_empty() => {
                Move::Fail { why: format!("all contributions failed: {}", conversation.failures()) }
            }
            (None, None) => Move::Answer { text: String::new(), data: None },
        }
    }
}

/// A text without the stop words, and without the signs and spaces that they leave at its edges.
fn without(text: &str, stop_words: &[String]) -> String {
    let is_in = |word: &&String| !word.is_empty() && text.contains(word.as_str());
    let mut left = text.to_owned();
    for word in stop_words.iter().filter(is_in) {
        left = left.replace(word.as_str(), "");
    }
    let is_edge = |char: char| char.is_whitespace() || matches!(char, '*' | '_' | ':' | '-' | '—');
    if left.len() == text.len() { left } else { left.trim_matches(is_edge).to_owned() }
}

/// The topic: the task with which the conversation began.
fn topic<'a>(history: &'a History<'_>) -> &'a str {
    history.earlier.as_ref().map_or(&history.task, |turn| turn.first_task)
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

    fn results(&self, history: &History<'_>) -> Value {
        let conversation = self.replay(history).0;
        let message =
            |said: &Contribution| json!({"speaker": said.speaker, "text": said.text, "status": said.status.name()});
        let summary = history.result("summary", 0).filter(JobResult::is_done).map(|done| done.output);
        json!({"messages": conversation.said.iter().map(message).collect::<Vec<_>>(), "summary": summary})
    }

    fn so_far(&self, history: &History<'_>) -> String {
        so_far(&self.replay(history).0)
    }
}
