//! Creates the tools that run inside this process: files, search, web, `think`, `todo`, `ask`, `skill`.

use std::sync::Arc;

use homing_core::{skill::SkillLibrary, tool::Tool};

use crate::{
    ask::Ask,
    files::{
        diff::{Diff, GitRunner},
        edit::Edit,
        file_versions::LastWriters,
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

/// The host's choices for the in-process tools.
#[derive(Default)]
#[non_exhaustive]
pub struct ToolsConfig {
    /// Skills for the `skill` tool; without a library the tool is left out.
    pub skills: Option<Arc<dyn SkillLibrary>>,
    /// Runs git for the `diff` tool; without it the tool is left out.
    pub git: Option<Arc<dyn GitRunner>>,
    /// The addresses that `fetch` may reach.
    pub reach: Reach,
    /// The search engine for `websearch`; without it the tool is left out.
    pub search: Option<SearchProvider>,
}

/// Creates the in-process tools. One set serves all runs of a host: runs that share it do not overwrite each other's
/// changes to files unseen.
pub fn files_tools(config: ToolsConfig) -> Vec<Arc<dyn Tool>> {
    let writers = Arc::new(LastWriters::default());
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
