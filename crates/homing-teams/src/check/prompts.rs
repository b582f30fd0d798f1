//! Checks of the prompts of members: only parameters of the team are filled in.

use super::{Checker, Problem};
use crate::team::{Team, blanks};

impl Checker<'_> {
    pub(super) fn prompts(&mut self) {
        let team: &Team = self.team;
        for (at, agent) in team.agents.iter().enumerate() {
            let unknown = blanks(&agent.prompt).into_iter().find(|name| !team.parameters.contains_key(*name));
            let Some(name) = unknown else { continue };
            let known: Vec<&str> = team.parameters.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            let message = format!(
                "unknown parameter `{name}`: it stays in the prompt as it is written; parameters of the team: {known}"
            );
            self.problems.push(Problem::warning(format!("agents[{at}].prompt"), message));
        }
    }
}
