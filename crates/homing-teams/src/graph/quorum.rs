//! Nodes at which several agents work on the same task: the first results count, and the others are cancelled.

use homing_core::{place::Place, tool_names::CANCEL};
use serde_json::{Value, json};

use crate::{
    graph::{Node, script::GraphScript},
    history::{History, JobResult, JobState},
    program::{DelegateCall, TeamCall, wait_for_any},
    template,
};

impl GraphScript {
    /// The calls of a node with a quorum that are open, and its results. A result is a quorum of runs that are done, or the
    /// failures that make one impossible.
    pub(super) fn race(
        &self,
        node: &Node,
        quorum: usize,
        id: &str,
        history: &History<'_>,
        scope: &Value,
    ) -> Result<(Vec<TeamCall>, Vec<JobResult>), String> {
        let (mut open, mut running, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for (index, agent) in node.agents.names().iter().enumerate() {
            match history.job(&format!("{id}/{index}"), node.retries) {
                JobState::Ended(done) => ended.push(done),
                JobState::Running { place } => running.push((index, place)),
                JobState::Open { id } => {
                    let task = template::render(&node.task, scope)?;
                    let (schema, limits) = (node.schema.as_ref(), &node.limits);
                    open.push(DelegateCall { agent, task, schema, limits, background: true }.call(id));
                }
            }
        }
        let done = ended.iter().filter(|job| job.is_done()).count();
        // Nothing is started any more once enough results are there.
        if done < quorum && !open.is_empty() {
            return Ok((open, Vec::new()));
        }
        if done >= quorum {
            let cancel = cancel_rest(id, &running, history);
            let first = ended.into_iter().filter(JobResult::is_done).take(quorum);
            return Ok(if cancel.is_empty() { (Vec::new(), first.collect()) } else { (cancel, Vec::new()) });
        }
        if running.is_empty() {
            return Ok((Vec::new(), ended.into_iter().filter(|job| !job.is_done()).collect()));
        }
        let places: Vec<Place> = running.into_iter().map(|(_, place)| place).collect();
        Ok((vec![wait_for_any(places)], Vec::new()))
    }
}

/// The calls that cancel the runs that are not needed any more.
fn cancel_rest(id: &str, running: &[(usize, Place)], history: &History<'_>) -> Vec<TeamCall> {
    let call = |(index, place): &(usize, Place)| match history.job(&format!("cancel/{id}/{index}"), 0) {
        JobState::Open { id } => Some(TeamCall { id, tool: CANCEL.to_owned(), args: json!({"run": place}) }),
        JobState::Ended(_) | JobState::Running { .. } => None,
    };
    running.iter().filter_map(call).collect()
}
