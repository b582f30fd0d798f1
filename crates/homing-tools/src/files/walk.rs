//! Walks a folder as ripgrep does: ignore files are respected, links are not followed, `.git` is left out.

use std::path::{Path, PathBuf};

use homing_core::{
    rule::Subject,
    tool::{Effect, ToolContext},
};
use ignore::WalkBuilder;

use crate::{
    files::{
        path_arg::{RequestedPath, printable},
        workspace_files::{FoundPath, OpenFile, OpenFolder, find},
    },
    result_filter::ResultFilter,
};

/// The folder that a call searches, with the filter for its results.
pub(crate) struct SearchRoot<'a> {
    pub(crate) folder: OpenFolder,
    filter: ResultFilter<'a>,
    base: String,
}

/// The file or folder that a call searches.
pub(crate) enum SearchTarget<'a> {
    Folder(SearchRoot<'a>),
    File(OpenFile, RequestedPath),
}

/// Opens the file or folder that a call searches.
pub(crate) fn open_target<'a>(
    context: &'a ToolContext,
    tool: &'static str,
    path: &str,
) -> Result<SearchTarget<'a>, String> {
    let requested = RequestedPath::new(context, path)?;
    match find(context, tool, &requested)? {
        FoundPath::File(opened) => Ok(SearchTarget::File(opened, requested)),
        FoundPath::Folder(folder) => {
            let filter = ResultFilter::new(context, tool, Effect::Reads, Subject::Path(requested.shown.clone()));
            Ok(SearchTarget::Folder(SearchRoot { folder, filter, base: requested.shown }))
        }
    }
}

/// Opens the folder that a call searches.
pub(crate) fn open_folder<'a>(
    context: &'a ToolContext,
    tool: &'static str,
    path: &str,
) -> Result<SearchRoot<'a>, String> {
    match open_target(context, tool, path)? {
        SearchTarget::Folder(root) => Ok(root),
        SearchTarget::File(_, requested) => Err(format!("{} is a file: name a folder, or use `read`", requested.shown)),
    }
}

impl SearchRoot<'_> {
    /// Creates a walk over the folder. The walk uses names, and other processes may swap them: open or check its results
    /// only through the folder's descriptor.
    pub(crate) fn walk(&self) -> WalkBuilder {
        let mut walk = WalkBuilder::new(&self.folder.real);
        walk.hidden(false)
            .git_global(false)
            .require_git(false)
            .follow_links(false)
            .filter_entry(|entry| entry.file_name() != ".git");
        walk
    }

    /// Returns the path relative to the folder.
    pub(crate) fn rest<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.folder.real).ok()
    }

    /// Formats `rest` for output, relative to the run's folder.
    pub(crate) fn shown(&self, rest: &Path) -> String {
        printable(self.joined(rest).as_os_str())
    }

    /// Returns true if the rules allow `rest` to be shown.
    pub(crate) fn allows(&self, rest: &Path) -> bool {
        self.filter.allows(|| Subject::Path(self.joined(rest).to_string_lossy().into_owned()))
    }

    fn joined(&self, rest: &Path) -> PathBuf {
        if self.base == "." { rest.to_owned() } else { Path::new(&self.base).join(rest) }
    }
}
