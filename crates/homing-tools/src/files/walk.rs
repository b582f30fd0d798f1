//! Walking a folder as ripgrep does: ignore files are respected, links are not followed, `.git` is left out.
//! What is done with what is found is not its business.

use std::path::{Path, PathBuf};

use homing_core::{rule::Subject, tool::ToolContext};
use ignore::WalkBuilder;

use crate::{
    files::{
        path_arg::{RequestedPath, inert},
        workspace_files::{FoundPath, OpenFolder, find},
    },
    result_filter::ResultFilter,
};

/// A folder that a call searches, and how paths below it are shown.
pub(crate) struct Ground<'a> {
    pub(crate) folder: OpenFolder,
    pub(crate) sight: ResultFilter<'a>,
    base: String,
}

/// What there is to search.
pub(crate) enum Search<'a> {
    Folder(Ground<'a>),
    File(crate::files::workspace_files::Opened, RequestedPath),
}

/// Opens what a call wants searched.
pub(crate) fn search<'a>(context: &'a ToolContext, tool: &'static str, path: &str) -> Result<Search<'a>, String> {
    let wanted = RequestedPath::new(context, path)?;
    match find(context, tool, &wanted)? {
        FoundPath::File(opened) => Ok(Search::File(opened, wanted)),
        FoundPath::Folder(folder) => {
            let sight = ResultFilter::new(context, tool, Subject::Path(wanted.shown.clone()));
            Ok(Search::Folder(Ground { folder, sight, base: wanted.shown }))
        }
    }
}

/// Opens a folder that a call wants searched.
pub(crate) fn ground<'a>(context: &'a ToolContext, tool: &'static str, path: &str) -> Result<Ground<'a>, String> {
    match search(context, tool, path)? {
        Search::Folder(ground) => Ok(ground),
        Search::File(_, wanted) => Err(format!("{} is a file: name a folder, or use `read`", wanted.shown)),
    }
}

impl Ground<'_> {
    /// A walk over the folder. It goes by names, and names may be swapped while it goes: whoever opens or shows what it
    /// finds must do so through the folder's descriptor.
    pub(crate) fn walk(&self) -> WalkBuilder {
        let mut walk = WalkBuilder::new(&self.folder.real);
        walk.hidden(false)
            .git_global(false)
            .require_git(false)
            .follow_links(false)
            .filter_entry(|entry| entry.file_name() != ".git");
        walk
    }

    /// The path below the folder.
    pub(crate) fn rest<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.folder.real).ok()
    }

    /// How `rest` is shown: relative to the run's folder.
    pub(crate) fn shown(&self, rest: &Path) -> String {
        inert(self.joined(rest).as_os_str())
    }

    /// Whether the rules let `rest` be shown.
    pub(crate) fn allows(&self, rest: &Path) -> bool {
        self.sight.allows(|| Subject::Path(self.joined(rest).to_string_lossy().into_owned()))
    }

    fn joined(&self, rest: &Path) -> PathBuf {
        if self.base == "." { rest.to_owned() } else { Path::new(&self.base).join(rest) }
    }
}
