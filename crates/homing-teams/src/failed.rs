//! The parts of a team that did not deliver, in the words of the team's own failure.

use crate::{crew::OnFailure, history::Done};

/// Parts that one message names; a map of a thousand items must not end in a page of the same error.
const MOST_NAMED: usize = 5;

/// A part that did not deliver: which one, the place of its run, and why.
pub(crate) fn part(name: &str, done: &Done) -> String {
    let place = done.place.as_ref().map(|place| format!(" (run {place})")).unwrap_or_default();
    format!("{name}{place}: {}", done.why())
}

/// Several parts in one message.
pub(crate) fn listed(parts: &[String]) -> String {
    let named = parts.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match parts.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The policy for a part that did not deliver. The task, node, chat or map decides; where it leaves the default, a member
/// whose own definition says `on_failure: skip` does not count.
pub(crate) fn policy(of_part: OnFailure, done: &Done) -> OnFailure {
    match (of_part, done.may_fail) {
        (OnFailure::Report, true) => OnFailure::Skip,
        (policy @ (OnFailure::Report | OnFailure::Skip | OnFailure::Fail), _) => policy,
    }
}
