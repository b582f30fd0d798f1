//! `glob`: files by name.

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
        walk::{Ground, ground},
        workspace_files::exists_below,
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Files in one answer where the call names no limit.
const DEFAULT_FILES: u64 = 200;
/// Files in one answer at most.
const MOST_FILES: u64 = 2_000;

/// Finds files.
pub(crate) struct Glob;

/// Arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Such as `*.rs` (at any depth), `src/**/*.ts` or `**/{a,b}.toml`.
    #[serde(alias = "query", alias = "glob", alias = "glob_pattern", alias = "filePattern", alias = "name")]
    pattern: String,
    /// Folder to search; the working folder if absent.
    #[serde(default, alias = "directory", alias = "dir", alias = "dir_path", alias = "folder", alias = "cwd")]
    path: Option<String>,
    /// `path` (the default) or `modified` (newest first).
    #[serde(default)]
    sort: Option<Sort>,
    /// How many files to show; 200 if absent.
    #[serde(default, alias = "head_limit", alias = "max_results", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    limit: Option<u64>,
}

/// The order of the answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Path,
    #[serde(alias = "mtime", alias = "time")]
    Modified,
}

impl TypedTool for Glob {
    type Args = Args;
    const NAME: &'static str = "glob";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"pattern": "**/*.rs", "path": "src"}"#;

    fn description(&self) -> String {
        "Finds files by name and returns their paths. `*` stays within a folder, `**` crosses folders; a pattern \
         without a slash is looked for at any depth. Files named by .gitignore and `.git` are left out."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        blocking(context, move |context, stop| glob(context, &args, stop)).await
    }
}

fn glob(context: &ToolContext, args: &Args, stop: &StopSignal) -> Result<ToolOutput, String> {
    let pattern = below_workdir(context, &args.pattern)?;
    let matcher = file_glob(pattern)?;
    let ground = ground(context, Glob::NAME, or_workdir(args.path.as_deref()))?;
    let limit = args.limit.unwrap_or(DEFAULT_FILES).clamp(1, MOST_FILES) as usize;
    let found = find(&ground, &matcher, args.sort.unwrap_or_default(), limit, stop);
    Ok(ToolOutput::text(found.show(&ground, stop)))
}

/// Models like to write absolute patterns; below the run's folder they mean the same as relative ones.
fn below_workdir<'p>(context: &ToolContext, pattern: &'p str) -> Result<&'p str, String> {
    if pattern.is_empty() {
        return Err(format!("glob: `pattern` is empty. Example: {}", Glob::EXAMPLE));
    }
    if pattern.split('/').any(|it| it == "..") {
        return Err("glob: `pattern` cannot contain `..`; name the folder in `path`".to_owned());
    }
    if !pattern.starts_with('/') {
        return Ok(pattern);
    }
    let workdir = context.workdir.to_string_lossy();
    let rest = pattern.strip_prefix(workdir.as_ref()).and_then(|it| it.strip_prefix('/'));
    rest.ok_or_else(|| "glob: `pattern` is relative to `path`; name the folder there".to_owned())
}

/// The first files in the wanted order.
struct FoundFiles {
    /// The key is the age (0 where it does not matter), then the path.
    files: BTreeSet<(Duration, PathBuf)>,
    total: u64,
}

fn find(ground: &Ground<'_>, matcher: &GlobMatcher, sort: Sort, limit: usize, stop: &StopSignal) -> FoundFiles {
    let found = Mutex::new(FoundFiles { files: BTreeSet::new(), total: 0 });
    ground.walk().build_parallel().run(|| {
        let found = &found;
        Box::new(move |entry| {
            if stop.is_set() {
                return WalkState::Quit;
            }
            let Ok(entry) = entry else { return WalkState::Continue };
            let matched = entry.file_type().is_some_and(|it| !it.is_dir())
                && ground.rest(entry.path()).is_some_and(|rest| matcher.is_match(rest) && ground.allows(rest));
            if let (true, Some(rest)) = (matched, ground.rest(entry.path())) {
                let key = (age(&entry, sort), rest.to_owned());
                found.lock().unwrap_or_else(PoisonError::into_inner).add(key, limit);
            }
            WalkState::Continue
        })
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Small for new files, so that they come first.
fn age(entry: &ignore::DirEntry, sort: Sort) -> Duration {
    match sort {
        Sort::Path => Duration::ZERO,
        Sort::Modified => {
            let modified = entry.metadata().ok().and_then(|it| it.modified().ok());
            Duration::MAX - modified.and_then(|it| it.duration_since(UNIX_EPOCH).ok()).unwrap_or_default()
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

    fn show(self, ground: &Ground<'_>, stop: &StopSignal) -> String {
        let shown = self.files.len() as u64;
        let there = |rest: &Path| exists_below(&ground.folder, rest);
        let lines = self.files.iter().filter(|(_, rest)| there(rest)).map(|(_, rest)| ground.shown(rest) + "\n");
        let mut text: String = lines.collect();
        if self.total == 0 {
            text.push_str("no files match\n");
        }
        if shown < self.total {
            text.push_str(&format!("… {} more files: narrow the pattern or raise `limit`\n", self.total - shown));
        }
        if stop.is_set() {
            text.push_str("… the search was stopped before its end\n");
        }
        text
    }
}
