//! The project that a folder belongs to.

use std::path::{Path, PathBuf};

/// Returns the project that `folder` belongs to: the root of the repository around it, or the folder itself.
pub fn project_folder(folder: &Path) -> PathBuf {
    folder.ancestors().find(|parent| parent.join(".git").exists()).unwrap_or(folder).to_owned()
}
