//! All tools that need no process of their own, made in one call. It holds what a host decides; it reads no settings.

use std::sync::Arc;

use homing_core::{skill::SkillLibrary, tool::Tool};

use crate::{
    ask::Ask, edit::Edit, glob::Glob, grep::Grep, ls::Ls, read::Read, skill::Skill, stamps::Writers, think::Think,
    todo::Todo, tree::Tree, typed::typed, write::Write,
};

/// What a host decides about the tools.
#[derive(Default)]
#[non_exhaustive]
pub struct ToolsConfig {
    /// Skills for the `skill` tool; without a library there is no such tool.
    pub skills: Option<Arc<dyn SkillLibrary>>,
}

/// The tools that read, search, change, fetch and think. One set serves all runs of a host: runs that share it are told
/// of each other's changes to files.
pub fn files_tools(config: ToolsConfig) -> Vec<Arc<dyn Tool>> {
    let writers = Arc::new(Writers::default());
    let mut tools = vec![
        typed(Read),
        typed(Write { writers: writers.clone() }),
        typed(Edit { writers }),
        typed(Glob),
        typed(Grep),
        typed(Ls),
        typed(Tree),
        typed(Think),
        typed(Todo),
        typed(Ask),
    ];
    tools.extend(config.skills.map(|library| typed(Skill { library })));
    tools
}
