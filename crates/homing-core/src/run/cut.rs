//! Replies that the provider cut at its output limit. Such a reply is never an ending: the model is told and goes on, and text
//! that was cut is joined with what continues it. Everything here follows from `Asked` and `Replied` alone.

use serde_json::Value;

use super::{Run, landing_reason, landing_words};
use crate::{
    fact::{Asked, LimitHit, Purpose},
    limits::Limit,
    message::{Args, Message, Part, Reply, StopReason},
};

/// Cut replies in a row that end a run. A model that was told twice and is cut again will not get through.
const MOST: u32 = 3;

/// The latest replies, as far as they were cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts {
    in_a_row: u32,
    /// Set if the last reply was cut.
    last: Option<Cut>,
    /// Text of the cut replies that the last reply continues.
    before: String,
}

#[derive(Clone, Debug)]
struct Cut {
    /// Output tokens that the reply was permitted.
    permitted: u64,
    /// Output tokens that it had.
    had: u64,
    within: Within,
    /// Whether the model has been told.
    told: bool,
}

/// The part of a reply in which it was cut.
#[derive(Clone, Debug)]
enum Within {
    /// A call of this tool.
    Call(String),
    /// Something after calls that arrived whole.
    AfterCalls,
    /// Text.
    Text,
    /// Thoughts, before any text.
    Thoughts,
}

impl Cuts {
    /// Takes in a reply from which a cut call has been removed.
    fn take(&mut self, reply: &Reply, asked: &Asked, before: String) {
        self.before = before;
        // A landing is an ending whether or not it was cut.
        let was_cut = reply.stop == StopReason::Length && !matches!(asked.purpose, Purpose::Landing(_));
        if !was_cut {
            (self.in_a_row, self.last) = (0, None);
            return;
        }
        self.in_a_row += 1;
        let within = match &reply.cut_call {
            Some(tool) => Within::Call(tool.clone()),
            None if reply.calls().next().is_some() => Within::AfterCalls,
            None if reply.text().trim().is_empty() => Within::Thoughts,
            None => Within::Text,
        };
        let (permitted, reported) = (asked.max_output, reply.usage.output);
        let had = if reported == 0 { permitted } else { reported };
        self.last = Some(Cut { permitted, had, within, told: false });
    }

    /// Whether the last reply was cut.
    pub(super) fn is_cut(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the next reply goes on with the text of the last one.
    fn is_to_be_continued(&self) -> bool {
        self.last.as_ref().is_some_and(|cut| match cut.within {
            Within::Text | Within::Thoughts => true,
            Within::Call(_) | Within::AfterCalls => false,
        })
    }

    /// Notes that words were added to the transcript, those about the cut among them.
    pub(super) fn told(&mut self) {
        if let Some(cut) = &mut self.last {
            cut.told = true;
        }
    }

    /// Forgets how often replies were cut; the last cut is told once more.
    pub(super) fn reopen(&mut self) {
        self.in_a_row = 0;
        if let Some(cut) = &mut self.last {
            cut.told = false;
        }
    }
}

impl Cut {
    fn what_happened(&self) -> String {
        let cut = format!("Your last reply was cut off at {} output tokens", self.had);
        match &self.within {
            Within::Call(tool) => {
                format!("{cut}. Its call of `{tool}` did not arrive whole and was not executed.")
            }
            Within::AfterCalls => format!("{cut}. The calls in it arrived whole."),
            Within::Text => format!("{cut}."),
            Within::Thoughts => format!("{cut} before it said anything."),
        }
    }

    fn what_to_do(&self, continues_text: bool) -> &'static str {
        match &self.within {
            Within::Call(tool) if tool == "answer" => "Make the call again, with less text.",
            Within::Call(_) => "Make the call again in a shorter reply; split what is long over several calls.",
            Within::AfterCalls => "Go on.",
            Within::Text => "Go on exactly where it stopped, without repeating any of it.",
            Within::Thoughts if continues_text => "Think less, and go on exactly where your text stopped.",
            Within::Thoughts => "Think less and answer briefly.",
        }
    }
}

impl Run {
    /// Takes in a reply, before it enters the transcript.
    pub(super) fn note_cut(&mut self, reply: &Reply, asked: &Asked) {
        let before = if self.cuts.is_to_be_continued() { self.joined_text() } else { String::new() };
        self.cuts.take(reply, asked, before);
    }

    /// The text of the last reply, together with that of the cut replies that it continues.
    pub(super) fn joined_text(&self) -> String {
        let last = self.transcript.iter().rev().find_map(|entry| match &entry.message {
            Message::Assistant(reply) => Some(reply.text()),
            Message::User { .. } | Message::Tool(_) => None,
        });
        format!("{}{}", self.cuts.before, last.unwrap_or_default())
    }

    /// Text that a failed ask had brought, together with the cut text that it was to continue.
    pub(super) fn partial_text(&self) -> String {
        let before = if self.cuts.is_to_be_continued() { self.joined_text() } else { String::new() };
        format!("{before}{}", self.partial)
    }

    /// The limit that ends the run because its replies were cut again and again.
    pub(super) fn output_hit(&self) -> Option<LimitHit> {
        let cut = self.cuts.last.as_ref().filter(|_| self.cuts.in_a_row >= MOST)?;
        Some(LimitHit { name: Limit::Output, limit: cut.permitted, spent: cut.had, place: self.place.clone() })
    }

    /// What the model must be told about its last reply before it is asked for the next turn.
    pub(super) fn cut_nudge(&self) -> Option<String> {
        let cut = self.cuts.last.as_ref().filter(|cut| !cut.told)?;
        Some(format!("{} {}", cut.what_happened(), cut.what_to_do(self.has_text_to_continue())))
    }

    /// What the model is told before a landing. If its text was cut, the landing brings that text to an end, so that the two
    /// joined are one answer.
    pub(super) fn landing_nudge(&self, limit: Limit) -> String {
        let landing = if self.has_text_to_continue() {
            let reason = landing_reason(limit);
            format!("{reason} Tools are off now. Go on exactly where your text stopped, and bring it to an end.")
        } else {
            landing_words(limit)
        };
        match self.cuts.last.as_ref().filter(|cut| !cut.told) {
            Some(cut) => format!("{} {landing}", cut.what_happened()),
            None => landing,
        }
    }

    fn has_text_to_continue(&self) -> bool {
        self.cuts.is_to_be_continued() && !self.joined_text().trim().is_empty()
    }
}

/// Removes the call that the output limit cut. Our wires have done so already; a model of another make may leave it to us.
pub(super) fn drop_cut_call(reply: &mut Reply) {
    if reply.stop != StopReason::Length || reply.cut_call.is_some() {
        return;
    }
    let Some(last) = reply.parts.iter().rposition(|part| matches!(part, Part::Call(_))) else { return };
    let is_cut = matches!(&reply.parts[last], Part::Call(call) if !matches!(call.args, Args::Json(Value::Object(_))));
    if is_cut && let Part::Call(call) = reply.parts.remove(last) {
        reply.cut_call = Some(call.name);
    }
}
