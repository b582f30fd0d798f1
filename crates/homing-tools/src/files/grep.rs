//! The `grep` tool: searches files with ripgrep's engine, with stable order and bounded output.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use ignore::WalkState;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        path_arg::{or_workdir, path_subjects},
        search_results::{FileMatches, GrepMode, SearchResults},
        walk::{SearchRoot, SearchTarget, open_target},
        workspace_files::open_below,
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Default maximum number of lines.
const DEFAULT_LINES: u64 = 250;
/// Upper bound of the `limit` argument.
const MAX_LINES: u64 = 2_000;
/// Maximum number of context lines.
const MAX_CONTEXT: u64 = 50;
/// Maximum memory for one line, and for one compiled pattern.
const MAX_MEMORY: usize = 16 * 1024 * 1024;

/// The `grep` tool.
pub(crate) struct GrepTool;

/// Arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GrepArgs {
    /// A regular expression (Rust syntax).
    #[serde(alias = "query", alias = "regex", alias = "search", alias = "q", alias = "text")]
    pattern: String,
    /// File or folder to search; the working folder if absent.
    #[serde(default, alias = "directory", alias = "dir", alias = "dir_path", alias = "file_path", alias = "folder")]
    path: Option<String>,
    /// Only files that match this pattern, such as `*.rs` or `src/**/*.ts`.
    #[serde(default, alias = "include", alias = "include_pattern", alias = "includePattern", alias = "file_pattern")]
    glob: Option<String>,
    /// Lines to show before and after each match.
    #[serde(default, alias = "-C", alias = "context_lines", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    context: Option<u64>,
    #[serde(default, alias = "-B", deserialize_with = "lenient_args::count")]
    #[schemars(skip)]
    before: Option<u64>,
    #[serde(default, alias = "-A", deserialize_with = "lenient_args::count")]
    #[schemars(skip)]
    after: Option<u64>,
    /// `content` (matching lines, the default), `files` (only their names) or `count` (matching lines per file).
    #[serde(default, alias = "output_mode", alias = "outputMode")]
    mode: Option<GrepMode>,
    /// Ignore upper and lower case.
    #[serde(default, alias = "-i", alias = "case_insensitive", deserialize_with = "lenient_args::switch")]
    #[schemars(with = "Option<bool>")]
    ignore_case: bool,
    /// Treat the pattern as plain text, not as a regular expression.
    #[serde(
        default,
        alias = "literal",
        alias = "fixed_strings",
        alias = "-F",
        deserialize_with = "lenient_args::switch"
    )]
    #[schemars(with = "Option<bool>")]
    fixed: bool,
    /// Maximum number of lines to show (default: 250).
    #[serde(default, alias = "head_limit", alias = "max_results", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    limit: Option<u64>,
}

impl TypedTool for GrepTool {
    type Args = GrepArgs;
    const NAME: &'static str = "grep";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"pattern": "fn main", "path": "src", "glob": "*.rs", "context": 2}"#;

    fn description(&self) -> String {
        "Searches file contents with a regular expression and returns matching lines as path:line:text, in the order \
         of paths. Files ignored by .gitignore, `.git` and binary files are left out. Use `mode` \"files\" or \"count\" \
         for an overview, and `fixed` for text with special characters."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &GrepArgs) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: GrepArgs) -> ToolOutput {
        blocking(context, move |context, stop| grep(context, &args, stop)).await
    }
}

fn grep(context: &ToolContext, args: &GrepArgs, stop: &StopSignal) -> Result<ToolOutput, String> {
    let query = GrepQuery::new(args)?;
    match open_target(context, GrepTool::NAME, or_workdir(args.path.as_deref()))? {
        SearchTarget::File(opened, requested) => {
            let mut matches = FileMatches::new(query.mode, requested.shown, query.limit);
            let searched = query.searcher().search_file(&query.matcher, &opened.file, &mut matches);
            searched.map_err(|error| format!("cannot search the file: {error}"))?;
            let mut all = SearchResults::new(query.limit);
            all.add(PathBuf::new(), matches);
            Ok(ToolOutput::text(all.show(query.mode)))
        }
        SearchTarget::Folder(root) => Ok(ToolOutput::text(search_folder(&root, &query, stop).show(query.mode))),
    }
}

/// A compiled search: pattern, file filter and output limits.
struct GrepQuery {
    matcher: RegexMatcher,
    glob: Option<GlobMatcher>,
    before: usize,
    after: usize,
    mode: GrepMode,
    limit: usize,
}

impl GrepQuery {
    fn new(args: &GrepArgs) -> Result<Self, String> {
        let lines = |requested: Option<u64>| match args.mode {
            None | Some(GrepMode::Content) => requested.or(args.context).unwrap_or(0).min(MAX_CONTEXT) as usize,
            Some(GrepMode::Files | GrepMode::Count) => 0,
        };
        Ok(Self {
            matcher: matcher(args)?,
            glob: args.glob.as_deref().map(file_glob).transpose()?,
            before: lines(args.before),
            after: lines(args.after),
            mode: args.mode.unwrap_or(GrepMode::Content),
            limit: args.limit.unwrap_or(DEFAULT_LINES).clamp(1, MAX_LINES) as usize,
        })
    }

    fn searcher(&self) -> Searcher {
        plain_searcher()
            .line_number(self.mode == GrepMode::Content)
            .before_context(self.before)
            .after_context(self.after)
            .build()
    }
}

fn plain_searcher() -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder.binary_detection(BinaryDetection::quit(0)).heap_limit(Some(MAX_MEMORY)).line_number(false);
    builder
}

fn matcher(args: &GrepArgs) -> Result<RegexMatcher, String> {
    if args.pattern.is_empty() {
        return Err(format!("grep: `pattern` is empty. Example: {}", GrepTool::EXAMPLE));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(args.ignore_case)
        .fixed_strings(args.fixed)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_MEMORY)
        .dfa_size_limit(MAX_MEMORY)
        .nest_limit(100)
        .build(&args.pattern)
        .map_err(|error| format!("grep: invalid `pattern`: {error}. For plain text set `fixed` to true"))
}

/// Compiles a pattern for files; without a slash it matches at any depth.
pub(crate) fn file_glob(pattern: &str) -> Result<GlobMatcher, String> {
    if pattern.len() > 1_000 {
        return Err("the glob pattern is longer than 1000 bytes".to_owned());
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| format!("`{pattern}` is not a valid glob pattern: {error}"))
}

fn search_folder(root: &SearchRoot<'_>, query: &GrepQuery, stop: &StopSignal) -> SearchResults {
    let results = Mutex::new(SearchResults::new(query.limit));
    root.walk().build_parallel().run(|| {
        let mut worker = GrepWorker {
            root,
            query,
            results: &results,
            showing: query.searcher(),
            counting: plain_searcher().build(),
        };
        Box::new(move |entry| {
            if stop.is_set() {
                return WalkState::Quit;
            }
            if let Ok(entry) = entry {
                worker.search_entry(&entry);
            }
            WalkState::Continue
        })
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.stopped = stop.is_set();
    results
}

/// The state of one search thread.
struct GrepWorker<'a> {
    root: &'a SearchRoot<'a>,
    query: &'a GrepQuery,
    results: &'a Mutex<SearchResults>,
    showing: Searcher,
    /// Used for files whose lines will not be shown.
    counting: Searcher,
}

impl GrepWorker<'_> {
    fn search_entry(&mut self, entry: &ignore::DirEntry) -> Option<()> {
        if !entry.file_type()?.is_file() {
            return None;
        }
        let rest = self.root.rest(entry.path())?;
        if !self.query.glob.as_ref().is_none_or(|glob| glob.is_match(rest)) || !self.root.allows(rest) {
            return None;
        }
        let file = open_below(&self.root.folder, rest)?;
        let may_show = self.results().may_show(rest);
        let (searcher, mut found) = if may_show {
            (&mut self.showing, FileMatches::unnamed(self.query.mode, self.query.limit))
        } else {
            (&mut self.counting, FileMatches::counting(self.query.mode))
        };
        // If the search fails in the middle of a file (an extremely long line), the matches before that still count.
        let _ = searcher.search_file(&self.query.matcher, &file, &mut found);
        if found.count > 0 {
            let found = found.named(&self.root.shown(rest));
            self.results().add(rest.to_owned(), found);
        }
        Some(())
    }

    fn results(&self) -> MutexGuard<'_, SearchResults> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
