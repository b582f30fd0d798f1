//! Creates the tools that run inside this process: files, search, web, `think`, `todo`, `ask`, `skill`.

use std::sync::Arc;

use homing_core::{skill::SkillLibrary, tool::Tool};

#[cfg(feature = "shell")]
use crate::files::diff::{DiffTool, GitRunner};
#[cfg(feature = "web")]
use crate::web::{
    fetch::FetchTool,
    websearch::{SearchProvider, WebSearchTool},
};
use crate::{
    ask::AskTool,
    files::{
        atomic_write::FileWrites, contents::ContentStore, edit::EditTool, glob::GlobTool, grep::GrepTool, ls::LsTool,
        read::ReadTool, tree::TreeTool, write::WriteTool,
    },
    skill::SkillTool,
    think::ThinkTool,
    todo::TodoTool,
    typed_tool::typed,
};

/// The host's choices for the in-process tools.
#[derive(Default)]
#[non_exhaustive]
pub struct ToolsConfig {
    /// Skills for the `skill` tool; without a library the tool is left out.
    pub skills: Option<Arc<dyn SkillLibrary>>,
    /// Runs git for the `diff` tool; without it the tool is left out.
    #[cfg(feature = "shell")]
    pub git: Option<Arc<dyn GitRunner>>,
    /// Keeps the contents of files before and after each change; without it changes cannot be undone.
    pub contents: Option<Arc<ContentStore>>,
    /// The addresses that `fetch` may reach.
    #[cfg(feature = "web")]
    pub reach: homing_sandbox::egress::Reach,
    /// The search engine for `websearch`; without it the tool is left out.
    #[cfg(feature = "web")]
    pub search: Option<SearchProvider>,
}

/// Creates the in-process tools. One set serves all runs of a host: runs that share it do not overwrite each other's
/// changes to files unseen.
pub fn files_tools(config: ToolsConfig) -> Vec<Arc<dyn Tool>> {
    let writes = Arc::new(FileWrites { contents: config.contents, ..FileWrites::default() });
    let mut tools = vec![
        typed(ReadTool),
        typed(WriteTool { writes: writes.clone() }),
        typed(EditTool { writes }),
        typed(GlobTool),
        typed(GrepTool),
        typed(LsTool),
        typed(TreeTool),
        typed(ThinkTool),
        typed(TodoTool),
        typed(AskTool),
    ];
    #[cfg(feature = "web")]
    tools.push(typed(FetchTool::new(config.reach)));
    #[cfg(feature = "web")]
    tools.extend(config.search.map(|provider| typed(WebSearchTool::new(provider))));
    #[cfg(feature = "shell")]
    tools.extend(config.git.map(|git| typed(DiffTool { git })));
    tools.extend(config.skills.map(|library| typed(SkillTool { library })));
    tools
}
