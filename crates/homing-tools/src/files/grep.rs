//! `grep`: ripgrep's search over a folder or file, in a stable order and within bounds.

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
        search_results::{FileHits, Hits, Mode},
        walk::{Ground, Search, search},
        workspace_files::open_below,
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Lines in one answer where the call names no limit.
const DEFAULT_LINES: u64 = 250;
/// Lines in one answer at most.
const MOST_LINES: u64 = 2_000;
/// Lines of context at most.
const MOST_CONTEXT: u64 = 50;
/// Memory for one line, and for one compiled pattern.
const MOST_MEMORY: usize = 16 * 1024 * 1024;

/// Searches in files.
pub(crate) struct Grep;

/// Arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// A regular expression (Rust syntax).
    #[serde(alias = "query", alias = "regex", alias = "search", alias = "q", alias = "text")]
    pattern: String,
    /// File or folder to search; the working folder if absent.
    #[serde(default, alias = "directory", alias = "dir", alias = "dir_path", alias = "file_path", alias = "folder")]
    path: Option<String>,
    /// Only files that match this, such as `*.rs` or `src/**/*.ts`.
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
    mode: Option<Mode>,
    /// Upper and lower case are the same.
    #[serde(default, alias = "-i", alias = "case_insensitive", deserialize_with = "lenient_args::switch")]
    #[schemars(with = "Option<bool>")]
    ignore_case: bool,
    /// The pattern is plain text, not an expression.
    #[serde(
        default,
        alias = "literal",
        alias = "fixed_strings",
        alias = "-F",
        deserialize_with = "lenient_args::switch"
    )]
    #[schemars(with = "Option<bool>")]
    fixed: bool,
    /// How many lines to show; 250 if absent.
    #[serde(default, alias = "head_limit", alias = "max_results", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    limit: Option<u64>,
}

impl TypedTool for Grep {
    type Args = Args;
    const NAME: &'static str = "grep";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"pattern": "fn main", "path": "src", "glob": "*.rs", "context": 2}"#;

    fn description(&self) -> String {
        "Searches file contents with a regular expression and returns matching lines as path:line:text, in the order \
         of paths. Files named by .gitignore, `.git` and binary files are left out. Use `mode` \"files\" or \"count\" \
         for an overview, and `fixed` for text with special characters."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        blocking(context, move |context, stop| grep(context, &args, stop)).await
    }
}

fn grep(context: &ToolContext, args: &Args, stop: &StopSignal) -> Result<ToolOutput, String> {
    let quest = Quest::new(args)?;
    match search(context, Grep::NAME, or_workdir(args.path.as_deref()))? {
        Search::File(opened, wanted) => {
            let mut hits = FileHits::new(quest.mode, wanted.shown, quest.limit);
            let searched = quest.searcher().search_file(&quest.matcher, &opened.file, &mut hits);
            searched.map_err(|error| format!("the file could not be searched: {error}"))?;
            let mut all = Hits::new(quest.limit);
            all.add(PathBuf::new(), hits);
            Ok(ToolOutput::text(all.show(quest.mode)))
        }
        Search::Folder(ground) => Ok(ToolOutput::text(over(&ground, &quest, stop).show(quest.mode))),
    }
}

/// What is looked for, and where.
struct Quest {
    matcher: RegexMatcher,
    glob: Option<GlobMatcher>,
    before: usize,
    after: usize,
    mode: Mode,
    limit: usize,
}

impl Quest {
    fn new(args: &Args) -> Result<Self, String> {
        let lines = |wanted: Option<u64>| match args.mode {
            None | Some(Mode::Content) => wanted.or(args.context).unwrap_or(0).min(MOST_CONTEXT) as usize,
            Some(Mode::Files | Mode::Count) => 0,
        };
        Ok(Self {
            matcher: matcher(args)?,
            glob: args.glob.as_deref().map(file_glob).transpose()?,
            before: lines(args.before),
            after: lines(args.after),
            mode: args.mode.unwrap_or(Mode::Content),
            limit: args.limit.unwrap_or(DEFAULT_LINES).clamp(1, MOST_LINES) as usize,
        })
    }

    fn searcher(&self) -> Searcher {
        plain_searcher()
            .line_number(self.mode == Mode::Content)
            .before_context(self.before)
            .after_context(self.after)
            .build()
    }
}

fn plain_searcher() -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder.binary_detection(BinaryDetection::quit(0)).heap_limit(Some(MOST_MEMORY)).line_number(false);
    builder
}

fn matcher(args: &Args) -> Result<RegexMatcher, String> {
    if args.pattern.is_empty() {
        return Err(format!("grep: `pattern` is empty. Example: {}", Grep::EXAMPLE));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(args.ignore_case)
        .fixed_strings(args.fixed)
        .line_terminator(Some(b'\n'))
        .size_limit(MOST_MEMORY)
        .dfa_size_limit(MOST_MEMORY)
        .nest_limit(100)
        .build(&args.pattern)
        .map_err(|error| format!("grep: `pattern` cannot be used: {error}. For plain text set `fixed` to true"))
}

/// A pattern for files: without a slash it holds at any depth.
pub(crate) fn file_glob(pattern: &str) -> Result<GlobMatcher, String> {
    if pattern.len() > 1_000 {
        return Err("the glob pattern is longer than 1000 bytes".to_owned());
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
    glob.map(|it| it.compile_matcher()).map_err(|error| format!("`{pattern}` is not a glob pattern: {error}"))
}

fn over(ground: &Ground<'_>, quest: &Quest, stop: &StopSignal) -> Hits {
    let hits = Mutex::new(Hits::new(quest.limit));
    ground.walk().build_parallel().run(|| {
        let mut seeker =
            Seeker { ground, quest, hits: &hits, showing: quest.searcher(), counting: plain_searcher().build() };
        Box::new(move |entry| {
            if stop.is_set() {
                return WalkState::Quit;
            }
            if let Ok(entry) = entry {
                seeker.look_into(&entry);
            }
            WalkState::Continue
        })
    });
    let mut hits = hits.into_inner().unwrap_or_else(PoisonError::into_inner);
    hits.stopped = stop.is_set();
    hits
}

/// One thread's share of a search.
struct Seeker<'a> {
    ground: &'a Ground<'a>,
    quest: &'a Quest,
    hits: &'a Mutex<Hits>,
    showing: Searcher,
    /// For files whose lines will not be shown.
    counting: Searcher,
}

impl Seeker<'_> {
    fn look_into(&mut self, entry: &ignore::DirEntry) -> Option<()> {
        if !entry.file_type()?.is_file() {
            return None;
        }
        let rest = self.ground.rest(entry.path())?;
        if !self.quest.glob.as_ref().is_none_or(|it| it.is_match(rest)) || !self.ground.allows(rest) {
            return None;
        }
        let file = open_below(&self.ground.folder, rest)?;
        let is_wanted = self.hits().wants(rest);
        let (searcher, mut found) = match is_wanted {
            true => (&mut self.showing, FileHits::lazy(self.quest.mode, self.quest.limit)),
            false => (&mut self.counting, FileHits::counting(self.quest.mode)),
        };
        // A file that cannot be searched to its end (a line beyond all bounds) still gives what was found before.
        let _ = searcher.search_file(&self.quest.matcher, &file, &mut found);
        if found.count > 0 {
            let found = found.named(&self.ground.shown(rest));
            self.hits().add(rest.to_owned(), found);
        }
        Some(())
    }

    fn hits(&self) -> MutexGuard<'_, Hits> {
        self.hits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
