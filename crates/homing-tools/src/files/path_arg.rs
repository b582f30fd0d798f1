//! Resolves the paths in a call's arguments and formats paths for output. Nothing here opens a file.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use homing_core::{
    rule::{Subject, Subjects},
    tool::ToolContext,
};

/// A path from a call's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedPath {
    /// Absolute, without `.` and `..`.
    pub(crate) absolute: PathBuf,
    /// Relative to the run's folder if inside it; used by rules and in messages.
    pub(crate) shown: String,
}

impl RequestedPath {
    /// Resolves `text` relative to the run's folder. `..` is removed here, before any rule checks the path, so that the
    /// path that is checked is the path that is opened.
    pub(crate) fn new(context: &ToolContext, text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("`path` is empty: name a file or folder, for example src/main.rs".to_owned());
        }
        if text.contains('\0') {
            return Err("`path` contains a NUL character".to_owned());
        }
        if text == "~" || text.starts_with("~/") {
            return Err(
                "`~` is not expanded: use a path relative to the working folder, or an absolute path".to_owned()
            );
        }
        if text.len() > 4_096 {
            return Err("`path` is too long (maximum: 4096 bytes)".to_owned());
        }
        let absolute = without_dots(&context.workdir.join(text));
        let shown = relative(&absolute, &context.workdir);
        Ok(Self { absolute, shown })
    }
}

/// Returns the path, or the run's folder if there is none.
pub(crate) fn or_workdir(path: Option<&str>) -> &str {
    path.filter(|path| !path.is_empty()).unwrap_or(".")
}

fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                clean.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => clean.push(component),
        }
    }
    clean
}

/// Returns `path` as rules see it: relative to `workdir` if inside it, absolute otherwise.
pub(crate) fn relative(path: &Path, workdir: &Path) -> String {
    match path.strip_prefix(workdir) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
        Ok(rest) => rest.to_string_lossy().into_owned(),
        Err(_) => path.to_string_lossy().into_owned(),
    }
}

/// As [`relative`], for a path with all links resolved: the run's folder itself may be reached through a link.
pub(crate) fn relative_real(context: &ToolContext, real: &Path) -> String {
    let workdir = context.workdir.canonicalize().unwrap_or_else(|_| context.workdir.clone());
    relative(real, &workdir)
}

/// Resolves all links of the existing part of a path and appends the rest unchanged.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return missing.iter().rev().fold(real, |real: PathBuf, name| real.join(name));
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else { return path.to_owned() };
        missing.push(name.to_owned());
        existing = parent;
    }
}

/// Returns the subjects of a call on the path `text`: the path as written and, if different, its resolved target.
pub(crate) fn path_subjects(context: &ToolContext, text: &str) -> Subjects {
    let requested = match RequestedPath::new(context, text) {
        Ok(requested) => requested,
        Err(why) => return Subjects::Unclear(why),
    };
    let real = relative_real(context, &canonical(&requested.absolute));
    let mut parts = vec![Subject::Path(requested.shown.clone())];
    if real != requested.shown {
        parts.push(Subject::Path(real));
    }
    Subjects::Parts(parts)
}

/// Escapes control characters, invisible and bidirectional characters and invalid UTF-8, so that a name can neither
/// disturb a terminal nor look like another line.
pub(crate) fn printable(name: &OsStr) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                hidden if hidden.is_control() || homing_core::sanitize::is_invisible(hidden) => {
                    shown.extend(hidden.escape_unicode());
                }
                visible => shown.push(visible),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}
