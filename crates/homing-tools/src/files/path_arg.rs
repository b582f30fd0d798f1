//! Paths as a model writes them: where they point, and how they are shown. Nothing here opens a file.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use homing_core::{
    rule::{Subject, Subjects},
    tool::ToolContext,
};

/// A path that a call asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedPath {
    /// Absolute, without `.` and `..`.
    pub(crate) absolute: PathBuf,
    /// Relative to the run's folder where it lies inside; what rules see and people read.
    pub(crate) shown: String,
}

impl RequestedPath {
    /// Reads `text` relative to the run's folder. `..` is taken away here, before any rule looks at the path: what is
    /// checked and what is opened must be the same.
    pub(crate) fn new(context: &ToolContext, text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("`path` is empty: name a file or folder, for example src/main.rs".to_owned());
        }
        if text.contains('\0') {
            return Err("`path` contains a NUL character, which no file name can".to_owned());
        }
        if text == "~" || text.starts_with("~/") {
            return Err(
                "`~` is not expanded: write a path relative to the working folder, or an absolute one".to_owned()
            );
        }
        if text.len() > 4_096 {
            return Err("`path` is longer than any path can be (4096 bytes)".to_owned());
        }
        let absolute = without_dots(&context.workdir.join(text));
        let shown = relative(&absolute, &context.workdir);
        Ok(Self { absolute, shown })
    }
}

/// The path, or the run's folder where none was given.
pub(crate) fn or_workdir(path: Option<&str>) -> &str {
    path.filter(|it| !it.is_empty()).unwrap_or(".")
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

/// `path` as rules see it: relative to `workdir` where it lies inside, absolute otherwise.
pub(crate) fn relative(path: &Path, workdir: &Path) -> String {
    match path.strip_prefix(workdir) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
        Ok(rest) => rest.to_string_lossy().into_owned(),
        Err(_) => path.to_string_lossy().into_owned(),
    }
}

/// As [`relative`], for a path that the kernel resolved: the run's folder may itself have been reached by a link.
pub(crate) fn relative_real(context: &ToolContext, real: &Path) -> String {
    let workdir = context.workdir.canonicalize().unwrap_or_else(|_| context.workdir.clone());
    relative(real, &workdir)
}

/// The path with all links resolved, as far as it exists; the rest is appended as it stands.
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

/// What rules see of a call that touches `text`: the path as written, and where its links lead if that is elsewhere.
pub(crate) fn path_subjects(context: &ToolContext, text: &str) -> Subjects {
    let wanted = match RequestedPath::new(context, text) {
        Ok(wanted) => wanted,
        Err(why) => return Subjects::Unclear(why),
    };
    let real = relative_real(context, &canonical(&wanted.absolute));
    let mut parts = vec![Subject::Path(wanted.shown.clone())];
    if real != wanted.shown {
        parts.push(Subject::Path(real));
    }
    Subjects::Parts(parts)
}

/// A file name that cannot disturb a terminal or be mistaken for another line: control characters, characters that
/// change the direction of text, and bytes that are no text are written as escapes.
pub(crate) fn inert(name: &OsStr) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                it if it.is_control() || homing_core::sanitize::is_invisible(it) => shown.extend(it.escape_unicode()),
                it => shown.push(it),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}
