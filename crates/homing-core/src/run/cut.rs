//! Replies that the provider cut at the output limit. A cut reply never ends a run: the model is told to continue, and the
//! parts of its text are joined.

use std::sync::Arc;

use serde_json::Value;

use super::{conversation::Conversation, nudges};
use crate::{
    fact::{Asked, LimitHit, Purpose},
    limits::Limit,
    message::{Args, Part, Reply, StopReason},
    place::Place,
    tool_names,
};

/// Cut replies in a row that end a run. A model that was told twice and is cut again is unlikely to succeed.
const MAX_IN_A_ROW: u32 = 3;

/// Cut replies at the end of a transcript. Most runs have none, so nothing is stored for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(Option<Box<CutReplies>>);

#[derive(Clone, Debug, Default)]
struct CutReplies {
    in_a_row: u32,
    /// The last reply, if it was cut.
    last: Option<Cut>,
    /// Text of the cut replies that the last reply continues.
    before: String,
}

#[derive(Clone, Debug)]
struct Cut {
    /// Maximum output tokens of the call.
    permitted: u64,
    /// Output tokens of the reply.
    had: u64,
    within: Within,
    /// True if the model has been told.
    told: bool,
}

/// The part of a reply in which it was cut.
#[derive(Clone, Debug)]
enum Within {
    /// A call of this tool.
    Call(String),
    /// Something after complete calls.
    AfterCalls,
    /// Text.
    Text,
    /// Reasoning, before any text.
    Reasoning,
}

impl Cuts {
    /// Takes in a reply from which a cut call has been removed.
    fn take(&mut self, reply: &Reply, asked: &Asked, before: String) {
        // The last turn ends the run whether or not it was cut.
        let was_cut = reply.stop == StopReason::Length && !matches!(asked.purpose, Purpose::Landing(_));
        if !was_cut {
            let replies = CutReplies { before, ..CutReplies::default() };
            self.0 = (!replies.before.is_empty()).then(|| Box::new(replies));
            return;
        }
        let replies = self.0.get_or_insert_default();
        replies.before = before;
        replies.in_a_row += 1;
        let within = match &reply.cut_call {
            Some(tool) => Within::Call(tool.clone()),
            None if reply.calls().next().is_some() => Within::AfterCalls,
            None if reply.text().trim().is_empty() => Within::Reasoning,
            None => Within::Text,
        };
        let (permitted, reported) = (asked.max_output, reply.usage.output);
        let had = if reported == 0 { permitted } else { reported };
        replies.last = Some(Cut { permitted, had, within, told: false });
    }

    /// Returns the last reply, if it was cut.
    fn last(&self) -> Option<&Cut> {
        self.0.as_ref()?.last.as_ref()
    }

    /// Returns the text of the cut replies that the last reply continues.
    fn before(&self) -> &str {
        self.0.as_ref().map_or("", |replies| &replies.before)
    }

    fn in_a_row(&self) -> u32 {
        self.0.as_ref().map_or(0, |replies| replies.in_a_row)
    }

    /// Returns whether the last reply was cut.
    pub(super) fn is_cut(&self) -> bool {
        self.last().is_some()
    }

    /// Returns whether the next reply continues the text of the last one.
    fn is_continued(&self) -> bool {
        self.last().is_some_and(|cut| match cut.within {
            Within::Text | Within::Reasoning => true,
            Within::Call(_) | Within::AfterCalls => false,
        })
    }

    /// Notes that an instruction was added to the transcript; it mentions the cut.
    pub(super) fn told(&mut self) {
        if let Some(cut) = self.0.as_mut().and_then(|replies| replies.last.as_mut()) {
            cut.told = true;
        }
    }

    /// Resets the count, and lets the model be told of the last cut again.
    pub(super) fn reopen(&mut self) {
        let Some(replies) = &mut self.0 else { return };
        replies.in_a_row = 0;
        if let Some(cut) = &mut replies.last {
            cut.told = false;
        }
    }

    /// Returns the output that the next reply needs so that it is not cut again: four times as much, then all there is.
    pub(crate) fn next_room(&self) -> Option<u64> {
        let cut = self.last()?;
        Some(if self.in_a_row() < 2 { cut.permitted.saturating_mul(4) } else { u64::MAX })
    }

    /// Returns the limit that ends the run because too many replies in a row were cut.
    pub(super) fn limit_hit(&self, place: &Place) -> Option<LimitHit> {
        let cut = self.last().filter(|_| self.in_a_row() >= MAX_IN_A_ROW)?;
        Some(LimitHit { name: Limit::Output, limit: cut.permitted, spent: cut.had, place: place.clone() })
    }
}

impl Cut {
    fn what_happened(&self) -> String {
        let cut = format!("Your last reply was cut off at {} output tokens", self.had);
        match &self.within {
            Within::Call(tool) => {
                format!("{cut}. Its call of `{tool}` was incomplete and was not executed.")
            }
            Within::AfterCalls => format!("{cut}. The calls in it were complete."),
            Within::Text => format!("{cut}."),
            Within::Reasoning => format!("{cut} before it contained any text."),
        }
    }

    fn what_to_do(&self, continues_text: bool) -> &'static str {
        match &self.within {
            Within::Call(tool) if tool == tool_names::ANSWER => "Make the call again, with less text.",
            Within::Call(_) => "Make the call again in a shorter reply; split long content over several calls.",
            Within::AfterCalls => "Continue.",
            Within::Text => "Continue exactly where it stopped, without repeating any of it.",
            Within::Reasoning if continues_text => "Think less, and continue exactly where your text stopped.",
            Within::Reasoning => "Think less and answer briefly.",
        }
    }
}

impl Conversation {
    /// Takes in a reply, before it is added to the transcript.
    pub(super) fn note_cut(&mut self, reply: &Reply, asked: &Asked) {
        let before = self.text_to_continue();
        self.cuts.take(reply, asked, before);
    }

    /// Returns the text of the last reply, together with that of the cut replies that it continues.
    pub(super) fn joined_text(&self) -> String {
        format!("{}{}", self.cuts.before(), self.reply_texts().next().unwrap_or_default())
    }

    /// Returns `partial`, the text of a failed call, together with the cut text that it continues.
    pub(super) fn with_cut_text(&self, partial: &str) -> String {
        format!("{}{partial}", self.text_to_continue())
    }

    /// Returns the instruction about a cut reply that the model must get before the next turn.
    pub(super) fn cut_nudge(&self) -> Option<String> {
        let cut = self.cuts.last().filter(|cut| !cut.told)?;
        let continues_text = !self.text_to_continue().trim().is_empty();
        Some(format!("{} {}", cut.what_happened(), cut.what_to_do(continues_text)))
    }

    /// Returns the instruction before the last turn. If the text was cut, the last turn must finish it, so that both
    /// together are one answer.
    pub(super) fn landing_nudge(&self, limit: Limit) -> String {
        let landing = if self.text_to_continue().trim().is_empty() {
            nudges::landing(limit)
        } else {
            nudges::landing_continues(limit)
        };
        match self.cuts.last().filter(|cut| !cut.told) {
            Some(cut) => format!("{} {landing}", cut.what_happened()),
            None => landing,
        }
    }

    /// Returns the text that the next reply continues; empty if it starts anew.
    fn text_to_continue(&self) -> String {
        if self.cuts.is_continued() { self.joined_text() } else { String::new() }
    }
}

/// Returns a reply without the call that the output limit cut. The wires of Homing remove it already, other implementations of
/// `Model` may not.
pub(super) fn without_cut_call(reply: &Arc<Reply>) -> Arc<Reply> {
    let mut whole = reply.clone();
    if let Some(last) = cut_call(reply) {
        let reply = Arc::make_mut(&mut whole);
        if let Part::Call(call) = reply.parts.remove(last) {
            reply.cut_call = Some(call.name.clone());
        }
    }
    whole
}

/// Returns the position of the call that the output limit cut, if it is still among the parts.
fn cut_call(reply: &Reply) -> Option<usize> {
    if reply.stop != StopReason::Length || reply.cut_call.is_some() {
        return None;
    }
    let last = reply.parts.iter().rposition(|part| matches!(part, Part::Call(_)))?;
    let is_cut = matches!(&reply.parts[last], Part::Call(call) if !matches!(call.args, Args::Json(Value::Object(_))));
    is_cut.then_some(last)
}
