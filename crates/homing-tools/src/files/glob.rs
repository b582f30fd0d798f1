//! The `glob` tool: finds files by name.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use globset::GlobMatcher;
use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use ignore::WalkState;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        grep::file_glob,
        path_arg::{or_workdir, path_subjects},
        walk::{SearchRoot, open_folder},
        workspace_files::exists_below,
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Default maximum number of files.
const DEFAULT_FILES: u64 = 200;
/// Upper bound of the `limit` argument.
const MAX_FILES: u64 = 2_000;

/// The `glob` tool.
pub(crate) struct GlobTool;

/// Arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GlobArgs {
    /// The pattern, such as `*.rs` (at any depth), `src/**/*.ts` or `**/{a,b}.toml`.
    #[serde(alias = "query", alias = "glob", alias = "glob_pattern", alias = "filePattern", alias = "name")]
    pattern: String,
    /// Folder to search; the working folder if absent.
    #[serde(default, alias = "directory", alias = "dir", alias = "dir_path", alias = "folder", alias = "cwd")]
    path: Option<String>,
    /// `path` (the default) or `modified` (newest first).
    #[serde(default)]
    sort: Option<GlobSort>,
    /// Maximum number of files to show (default: 200).
    #[serde(default, alias = "head_limit", alias = "max_results", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    limit: Option<u64>,
}

/// The order of the results.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum GlobSort {
    #[default]
    Path,
    #[serde(alias = "mtime", alias = "time")]
    Modified,
}

impl TypedTool for GlobTool {
    type Args = GlobArgs;
    const NAME: &'static str = "glob";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"pattern": "**/*.rs", "path": "src"}"#;

    fn description(&self) -> String {
        "Finds files by name and returns their paths. `*` matches within a folder, `**` across folders; a pattern without \
         a slash matches at any depth. Files ignored by .gitignore and `.git` are left out."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &GlobArgs) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: GlobArgs) -> ToolOutput {
        blocking(context, move |context, stop| glob(context, &args, stop)).await
    }
}

fn glob(context: &ToolContext, args: &GlobArgs, stop: &StopSignal) -> Result<ToolOutput, String> {
    let pattern = below_workdir(context, &args.pattern)?;
    let matcher = file_glob(pattern)?;
    let root = open_folder(context, GlobTool::NAME, or_workdir(args.path.as_deref()))?;
    let limit = args.limit.unwrap_or(DEFAULT_FILES).clamp(1, MAX_FILES) as usize;
    let found = find(&root, &matcher, args.sort.unwrap_or_default(), limit, stop);
    Ok(ToolOutput::text(found.show(&root, stop)))
}

/// Makes an absolute pattern inside the run's folder relative; models often write absolute ones.
fn below_workdir<'p>(context: &ToolContext, pattern: &'p str) -> Result<&'p str, String> {
    if pattern.is_empty() {
        return Err(format!("glob: `pattern` is empty. Example: {}", GlobTool::EXAMPLE));
    }
    if pattern.split('/').any(|part| part == "..") {
        return Err("glob: `pattern` cannot contain `..`; use `path` for the folder".to_owned());
    }
    if !pattern.starts_with('/') {
        return Ok(pattern);
    }
    let workdir = context.workdir.to_string_lossy();
    let rest = pattern.strip_prefix(workdir.as_ref()).and_then(|rest| rest.strip_prefix('/'));
    rest.ok_or_else(|| "glob: `pattern` must be relative to `path`; use `path` for the folder".to_owned())
}

/// The first files in the requested order.
struct FoundFiles {
    /// Sorted by age (0 if sorted by path), then by path.
    files: BTreeSet<(Duration, PathBuf)>,
    total: u64,
}

fn find(root: &SearchRoot<'_>, matcher: &GlobMatcher, sort: GlobSort, limit: usize, stop: &StopSignal) -> FoundFiles {
    let found = Mutex::new(FoundFiles { files: BTreeSet::new(), total: 0 });
    root.walk().build_parallel().run(|| {
        let found = &found;
        Box::new(move |entry| {
            if stop.is_set() {
                return WalkState::Quit;
            }
            let Ok(entry) = entry else { return WalkState::Continue };
            let matched = entry.file_type().is_some_and(|it| !it.is_dir())
                && root.rest(entry.path()).is_some_and(|rest| matcher.is_match(rest) && root.allows(rest));
            if let (true, Some(rest)) = (matched, root.rest(entry.path())) {
                let key = (age(&entry, sort), rest.to_owned());
                found.lock().unwrap_or_else(PoisonError::into_inner).add(key, limit);
            }
            WalkState::Continue
        })
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a sort key that is small for new files, so that they come first.
fn age(entry: &ignore::DirEntry, sort: GlobSort) -> Duration {
    match sort {
        GlobSort::Path => Duration::ZERO,
        GlobSort::Modified => {
            let modified = entry.metadata().ok().and_then(|metadata| metadata.modified().ok());
            Duration::MAX - modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default()
        }
    }
}

impl FoundFiles {
    fn add(&mut self, key: (Duration, PathBuf), limit: usize) {
        self.total += 1;
        self.files.insert(key);
        if self.files.len() > limit {
            self.files.pop_last();
        }
    }

    fn show(self, root: &SearchRoot<'_>, stop: &StopSignal) -> String {
        let shown = self.files.len() as u64;
        let exists = |rest: &Path| exists_below(&root.folder, rest);
        let lines = self.files.iter().filter(|(_, rest)| exists(rest)).map(|(_, rest)| root.shown(rest) + "\n");
        let mut text: String = lines.collect();
        if self.total == 0 {
            text.push_str("no files match\n");
        }
        if shown < self.total {
            text.push_str(&format!("… {} more files: narrow the pattern or raise `limit`\n", self.total - shown));
        }
        if stop.is_set() {
            text.push_str("… [search stopped early]\n");
        }
        text
    }
}
