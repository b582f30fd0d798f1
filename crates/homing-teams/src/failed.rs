//! Messages and policy for the parts of a team that did not deliver.

use crate::{crew::OnTaskFailure, history::JobResult};

/// The most parts that one message names: a map of a thousand items must not end in a page of the same error.
const MOST_NAMED: usize = 5;

/// Describes a part that did not deliver: its name, the place of its run, and the reason.
pub(crate) fn part(name: &str, done: &JobResult) -> String {
    let place = done.place.as_ref().map(|place| format!(" (run {place})")).unwrap_or_default();
    format!("{name}{place}: {}", done.why())
}

/// Combines several parts in one message.
pub(crate) fn listed(parts: &[String]) -> String {
    let named = parts.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match parts.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The policy for a part that did not deliver. The task, node, chat or map decides; if it has the default, a member whose own
/// definition says `on_failure: skip` does not count.
pub(crate) fn policy(of_part: OnTaskFailure, done: &JobResult) -> OnTaskFailure {
    match (of_part, done.may_fail) {
        (OnTaskFailure::Report, true) => OnTaskFailure::Skip,
        (policy @ (OnTaskFailure::Report | OnTaskFailure::Skip | OnTaskFailure::Fail), _) => policy,
    }
}
