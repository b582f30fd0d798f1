//! All tools that need no process of their own, made in one call. It holds what a host decides; it reads no settings.

use std::sync::Arc;

use homing_core::{skill::SkillLibrary, tool::Tool};

use crate::{
    ask::Ask,
    files::{
        diff::{Diff, GitRunner},
        edit::Edit,
        file_versions::Writers,
        glob::Glob,
        grep::Grep,
        ls::Ls,
        read::Read,
        tree::Tree,
        write::Write,
    },
    skill::Skill,
    think::Think,
    todo::Todo,
    typed_tool::typed,
    web::{
        fetch::Fetch,
        websearch::{SearchProvider, WebSearch},
    },
};
use homing_sandbox::egress::Reach;

/// What a host decides about the tools.
#[derive(Default)]
#[non_exhaustive]
pub struct ToolsConfig {
    /// Skills for the `skill` tool; without a library there is no such tool.
    pub skills: Option<Arc<dyn SkillLibrary>>,
    /// Runs git for the `diff` tool; without it there is no such tool.
    pub git: Option<Arc<dyn GitRunner>>,
    /// Which addresses `fetch` may reach.
    pub reach: Reach,
    /// The engine for `websearch`; without it there is no such tool.
    pub search: Option<SearchProvider>,
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
        typed(Fetch::new(config.reach)),
    ];
    tools.extend(config.search.map(|provider| typed(WebSearch::new(provider))));
    tools.extend(config.git.map(|git| typed(Diff { git })));
    tools.extend(config.skills.map(|library| typed(Skill { library })));
    tools
}
