//! The tools of a builder, and what surrounds them: skills, hooks, worktrees, a wrapper.

use std::sync::Arc;

use homing_core::{
    definition::AgentDefinition,
    hooks::Hooks,
    skill::SkillLibrary,
    tool::{AgentToolSource, Tool},
    workspace::Workspaces,
};
use homing_runtime::RuntimeParts;

/// Replaces a tool by another one around it.
pub type ToolWrapper = Arc<dyn Fn(Arc<dyn Tool>) -> Arc<dyn Tool> + Send + Sync>;

/// Optional parts around the tools. A [`CodingSetup`](crate::CodingSetup) sets `skills`, `hooks` and `workspaces` itself.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use homing::{Extensions, Homing};
///
/// let mut logged = Extensions::default();
/// logged.wrap_tool = Some(Arc::new(|tool| tool));
/// let builder = Homing::builder().extensions(logged);
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Extensions {
    /// The skills that agents can load.
    pub skills: Option<Arc<dyn SkillLibrary>>,
    /// The user's commands that run before and after calls and runs.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Creates folders for runs that ask for one of their own.
    pub workspaces: Option<Arc<dyn Workspaces>>,
    /// Wraps every tool, such as a recording that answers in its place.
    pub wrap_tool: Option<ToolWrapper>,
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extensions").field("wraps_tools", &self.wrap_tool.is_some()).finish_non_exhaustive()
    }
}

/// Tools for all runs, tools of single agents, and the extensions.
#[derive(Default)]
pub(crate) struct ToolSources {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) agent_tools: Option<Arc<dyn AgentToolSource>>,
    pub(crate) extensions: Extensions,
    /// The commands of this machine, if runs may use any.
    #[cfg(feature = "shell")]
    pub(crate) commands: Option<Arc<homing_tools::shell::commands::Commands>>,
}

impl ToolSources {
    pub(super) fn add_to(self, parts: &mut RuntimeParts) {
        let Extensions { skills, hooks, workspaces, wrap_tool } = self.extensions;
        (parts.skills, parts.hooks, parts.workspaces) = (skills, hooks, workspaces);
        (parts.tools, parts.agent_tools) = match wrap_tool {
            None => (self.tools, self.agent_tools),
            Some(wrap) => {
                let tools = self.tools.into_iter().map(|tool| wrap(tool)).collect();
                let wrapped = |source| Arc::new(WrappedSource { source, wrap }) as Arc<dyn AgentToolSource>;
                (tools, self.agent_tools.map(wrapped))
            }
        };
    }
}

/// Wraps each tool of another source.
struct WrappedSource {
    source: Arc<dyn AgentToolSource>,
    wrap: ToolWrapper,
}

impl AgentToolSource for WrappedSource {
    fn tools_of(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>> {
        self.source.tools_of(agent).into_iter().map(|tool| (self.wrap)(tool)).collect()
    }
}
