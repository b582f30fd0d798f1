//! The tools of members that name none: what their role in the team needs, not everything that the host has.

use homing_core::{
    authority::Allow,
    rule::Rule,
    tool::{Effect, ToolSpec},
    tool_names,
};

use crate::{
    crew::Process,
    memory,
    team::{Pattern, Team},
};

/// The role of a member, from the one that needs the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// Chooses, reviews or sums up what others did: a manager, a selector, a summary, a reduction.
    Decides,
    /// Takes part in a conversation.
    Speaks,
    /// Does the work of a task, a node or an item.
    Works,
}

impl Team {
    /// The tools of a member of this team that names none. A coordinator keeps its tools, since it works with all of them.
    pub(crate) fn default_tools(&self, member: &str, tools: &[ToolSpec]) -> Allow {
        let Some(role) = role_of(self, member) else { return Allow::All };
        let fits = |spec: &&ToolSpec| {
            let is_memory = memory::NAMES.contains(&spec.name.as_str());
            !tool_names::is_delegation(&spec.name) && (self.memory || !is_memory) && role.may_use(spec.effect)
        };
        Allow::Only(tools.iter().filter(fits).map(|spec| Rule::tool(&spec.name)).collect())
    }
}

/// The role of a member; `None` for a coordinator.
fn role_of(team: &Team, member: &str) -> Option<Role> {
    let is = |name: &String| name == member;
    let role = |matches: bool, role: Role| matches.then_some(role);
    let roles = match &team.pattern {
        Pattern::Orchestrator(pattern) if is(&pattern.coordinator) => return None,
        Pattern::Orchestrator(_) => [role(true, Role::Works), None],
        Pattern::Crew(crew) => {
            let works = crew.tasks.iter().filter_map(|task| task.agent.as_ref()).any(is);
            let is_candidate = crew.candidates(team).contains(&member);
            let judges = crew.tasks.iter().filter_map(|task| task.check.as_ref()?.agent.as_ref()).any(is);
            let decides = judges || crew.manager.as_ref().is_some_and(is);
            let is_candidate = is_candidate && crew.process == Process::Hierarchical;
            [role(works || is_candidate, Role::Works), role(decides, Role::Decides)]
        }
        Pattern::Chat(chat) => {
            let decides = chat.selector.iter().chain(&chat.summary).any(is);
            [role(chat.members.iter().any(is), Role::Speaks), role(decides, Role::Decides)]
        }
        Pattern::Graph(_) | Pattern::Script(_) => [role(true, Role::Works), None],
        Pattern::Map(map) => {
            let reduces = map.reduce.as_ref().is_some_and(|reduce| is(&reduce.agent));
            [role(is(&map.agent), Role::Works), role(reduces, Role::Decides)]
        }
    };
    Some(roles.into_iter().flatten().max().unwrap_or(Role::Works))
}

impl Role {
    fn may_use(self, effect: Effect) -> bool {
        match (self, effect) {
            (Self::Works, _) => true,
            (Self::Speaks, Effect::Reads | Effect::Network) => true,
            (Self::Speaks, Effect::Changes | Effect::Commands | Effect::Delegates) | (Self::Decides, _) => false,
        }
    }
}
