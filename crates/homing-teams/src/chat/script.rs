//! The program of a chat: who speaks next, what they are shown, and when it is over.

use serde_json::{Value, json};

use crate::{
    chat::{Chat, NextSpeaker},
    crew::OnFailure,
    failed,
    history::{Done, History, JobState},
    limit_fields::LimitFields,
    program::{Errand, Move, TeamCall, TeamScript},
    team::{Team, TemplateScope},
    template,
};

pub(crate) struct ChatScript {
    chat: Chat,
    scope: TemplateScope,
}

/// The conversation so far.
#[derive(Default)]
struct Talk {
    said: Vec<(String, String)>,
    /// Contributions in a row, up to the last one, that came to nothing.
    silent: Vec<Silence>,
}

/// A contribution that came to nothing.
struct Silence {
    part: String,
    counts: bool,
}

/// Where a conversation stands.
enum Where {
    /// Somebody is to be sent out.
    Next(TeamCall),
    /// Everything is said.
    Over(Talk),
    /// It cannot go on.
    Stuck(String),
}

impl Talk {
    fn text(&self) -> String {
        self.said.iter().map(|(name, text)| format!("[{name}] {text}")).collect::<Vec<_>>().join("\n\n")
    }

    fn last(&self) -> Option<&(String, String)> {
        self.said.last()
    }

    /// The last contribution that was made.
    fn last_words(&self) -> String {
        let made = self.said.len().saturating_sub(self.silent.len());
        self.said[..made].last().map(|(_, text)| text.clone()).unwrap_or_default()
    }

    fn silences(&self) -> String {
        failed::listed(&self.silent.iter().map(|it| it.part.clone()).collect::<Vec<_>>())
    }
}

impl ChatScript {
    pub(crate) fn new(chat: &Chat, team: &Team) -> Self {
        Self { chat: chat.clone(), scope: team.scope() }
    }

    /// Lets the conversation happen again, as far as it has come.
    fn replay(&self, past: &History<'_>) -> (Talk, Option<Where>) {
        let mut talk = Talk::default();
        for round in 0..self.chat.max_rounds {
            let speaker = match self.speaker(round, &talk, past) {
                Ok(speaker) => speaker,
                Err(stands) => return (talk, Some(stands)),
            };
            let done = match past.stand(&format!("say/{round}/{speaker}"), 0) {
                JobState::Over(done) => done,
                JobState::Open { id } => {
                    let call = self.say(&speaker, &talk, past.task).call(id);
                    return (talk, Some(Where::Next(call)));
                }
                JobState::Running { place } => {
                    return (talk, Some(Where::Stuck(format!("run {place} is still under way"))));
                }
            };
            match self.hear(round, speaker, &done, &mut talk) {
                Ok(false) => (),
                Ok(true) => break,
                Err(why) => return (talk, Some(Where::Stuck(why))),
            }
        }
        (talk, None)
    }

    /// Takes a contribution into the conversation, and says whether it ends it. An error ends the chat as failed.
    fn hear(&self, round: u32, speaker: String, done: &Done, talk: &mut Talk) -> Result<bool, String> {
        if done.is_done() {
            let words = done.output.trim().to_owned();
            let stops = self.chat.stop_words.iter().any(|word| words.contains(word.as_str()));
            talk.silent.clear();
            talk.said.push((speaker, words));
            return Ok(stops);
        }
        let part = failed::part(&format!("`{speaker}` in round {round}"), done);
        let policy = failed::policy(self.chat.on_failure, done);
        talk.said.push((speaker, format!("(could not speak: {})", done.why())));
        talk.silent.push(Silence { part: part.clone(), counts: policy != OnFailure::Skip });
        if policy == OnFailure::Fail {
            return Err(part);
        }
        if talk.silent.len() >= self.chat.members.len() {
            return Err(format!("nobody could speak for a whole round: {}", talk.silences()));
        }
        Ok(false)
    }

    /// Who speaks in this round; always somebody who takes part.
    fn speaker(&self, round: u32, talk: &Talk, past: &History<'_>) -> Result<String, Where> {
        let chosen = match self.chat.next {
            NextSpeaker::RoundRobin => None,
            NextSpeaker::Rule => self.by_rule(round, talk, past.task).map_err(Where::Stuck)?,
            NextSpeaker::Handoff => talk.last().and_then(|(_, text)| self.handed_to(text)),
            NextSpeaker::Model => self.by_selector(round, talk, past)?,
        };
        let chosen = chosen.filter(|name| self.chat.members.contains(name));
        Ok(chosen.unwrap_or_else(|| self.next_in_round(talk)))
    }

    fn next_in_round(&self, talk: &Talk) -> String {
        let members = &self.chat.members;
        let last = talk.last().and_then(|(name, _)| members.iter().position(|it| it == name));
        members.get(last.map_or(0, |at| at + 1)).or_else(|| members.first()).cloned().unwrap_or_default()
    }

    fn by_rule(&self, round: u32, talk: &Talk, task: &str) -> Result<Option<String>, String> {
        let (speaker, text) = talk.last().cloned().unwrap_or_default();
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
            let end = rest.find(|it: char| !(it.is_ascii_alphanumeric() || it == '-')).unwrap_or(rest.len());
            &rest[..end]
        });
        names.filter(|name| self.chat.members.iter().any(|it| it == name)).last().map(str::to_owned)
    }

    fn by_selector(&self, round: u32, talk: &Talk, past: &History<'_>) -> Result<Option<String>, Where> {
        // One who is alone with themselves need not be chosen.
        if self.chat.members.len() < 2 {
            return Ok(None);
        }
        match past.stand(&format!("choose/{round}"), 0) {
            JobState::Over(done)
                if !done.is_done() && failed::policy(self.chat.on_failure, &done) != OnFailure::Skip =>
            {
                let selector = self.chat.selector.as_deref().unwrap_or_default();
                let name = format!("the selector `{selector}` in round {round}");
                Err(Where::Stuck(failed::part(&name, &done)))
            }
            JobState::Over(done) => {
                let name = done.data.as_ref().and_then(|data| data.get("speaker")).and_then(Value::as_str);
                Ok(name.map(str::to_owned))
            }
            JobState::Running { place } => Err(Where::Stuck(format!("run {place} is still under way"))),
            JobState::Open { id } => {
                let schema = json!({
                    "type": "object",
                    "properties": {"speaker": {"type": "string", "enum": self.chat.members}},
                    "required": ["speaker"],
                });
                let task = format!(
                    "Choose who speaks next in this conversation.\n\nWho takes part: {}\n\nThe topic:\n{}\n\nSo far:\n{}",
                    self.chat.members.join(", "),
                    past.task,
                    so_far(talk)
                );
                let agent = self.chat.selector.as_deref().unwrap_or_default();
                let bounds = LimitFields::default();
                let errand = Errand { agent, task, schema: Some(&schema), bounds: &bounds, background: false };
                Err(Where::Next(errand.call(id)))
            }
        }
    }

    fn say<'a>(&'a self, speaker: &'a str, talk: &Talk, topic: &str) -> Errand<'a> {
        let others: Vec<&str> = self.chat.members.iter().map(String::as_str).filter(|name| *name != speaker).collect();
        let mut task = format!(
            "You are `{speaker}` in a conversation with {}.\n\nThe topic:\n{topic}\n\nSo far:\n{}\n\nIt is your turn: \
             give your next contribution and nothing else.",
            others.join(", "),
            so_far(talk)
        );
        if self.chat.next == NextSpeaker::Handoff {
            task.push_str(" Name who is to speak next by writing @ and their name.");
        }
        Errand { agent: speaker, task, schema: None, bounds: &self.chat.limits, background: false }
    }

    fn sum_up(&self, talk: &Talk, past: &History<'_>) -> Move {
        let Some(agent) = &self.chat.summary else { return last_word(talk) };
        match past.stand("summary", 0) {
            JobState::Over(done) if done.is_done() => Move::Answer { text: done.output, data: None },
            JobState::Over(done) => Move::Fail { why: failed::part("summary", &done) },
            JobState::Running { place } => Move::Fail { why: format!("run {place} is still under way") },
            JobState::Open { id } => {
                let task = format!(
                    "Sum up this conversation: what was agreed, what was not, and the answer to the topic.\n\nThe topic:\n{}\
                     \n\nThe conversation:\n{}",
                    past.task,
                    talk.text()
                );
                let errand = Errand { agent, task, schema: None, bounds: &self.chat.limits, background: false };
                Move::Act { words: "Next: summary".to_owned(), calls: vec![errand.call(id)] }
            }
        }
    }
}

/// The end of a chat without a summary: its last contribution is the answer.
fn last_word(talk: &Talk) -> Move {
    let last = talk.silent.last().filter(|it| it.counts);
    match (last, talk.last_words()) {
        (Some(silence), _) => Move::Fail { why: silence.part.clone() },
        (None, text) if text.is_empty() && !talk.silent.is_empty() => {
            Move::Fail { why: format!("nobody spoke: {}", talk.silences()) }
        }
        (None, text) => Move::Answer { text, data: None },
    }
}

fn so_far(talk: &Talk) -> String {
    if talk.said.is_empty() { "Nobody has said anything yet.".to_owned() } else { talk.text() }
}

impl TeamScript for ChatScript {
    fn next(&self, past: &History<'_>) -> Move {
        let (talk, stands) = self.replay(past);
        match stands.unwrap_or(Where::Over(talk)) {
            Where::Next(call) => Move::Act { words: format!("Next: {}", call.id), calls: vec![call] },
            Where::Stuck(why) => Move::Fail { why },
            Where::Over(talk) => self.sum_up(&talk, past),
        }
    }

    fn so_far(&self, past: &History<'_>) -> String {
        so_far(&self.replay(past).0)
    }
}
