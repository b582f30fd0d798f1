//! Results of a search within bounds: the first lines in the order of paths, and the number of omitted ones.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of characters shown of a line.
const LINE_CHARS: usize = 500;

/// The form of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GrepMode {
    /// The matching lines.
    #[serde(alias = "lines")]
    Content,
    /// The names of the files.
    #[serde(alias = "files_with_matches", alias = "files_only")]
    Files,
    /// The number of matching lines per file.
    #[serde(alias = "counts", alias = "count_matches")]
    Count,
}

/// One line of the output.
struct MatchLine {
    text: String,
    is_match: bool,
}

/// The matches in one file.
pub(crate) struct FileMatches {
    mode: GrepMode,
    name: String,
    limit: usize,
    lines: Vec<MatchLine>,
    /// Number of matching lines, including those that were not kept.
    pub(crate) count: u64,
}

impl FileMatches {
    pub(crate) fn new(mode: GrepMode, name: String, limit: usize) -> Self {
        Self { mode, name, limit, lines: Vec::new(), count: 0 }
    }

    /// Creates a result without a name; most files do not match, so the name is added only if there is a match.
    pub(crate) fn unnamed(mode: GrepMode, limit: usize) -> Self {
        Self::new(mode, String::new(), limit)
    }

    /// Creates a result that only counts, for files whose lines are beyond the limit.
    pub(crate) fn counting(mode: GrepMode) -> Self {
        Self::new(mode, String::new(), 0)
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    fn keep(&mut self, line: Option<u64>, bytes: &[u8], is_match: bool) {
        if self.lines.len() >= self.limit {
            return;
        }
        let mark = if is_match { ':' } else { '-' };
        let text = format!("{mark}{}{mark}{}", line.unwrap_or(0), cut(bytes));
        self.lines.push(MatchLine { text, is_match });
    }

    /// Returns the file's name and its lines of the output.
    fn finish(self) -> (String, Vec<MatchLine>) {
        let lines = match self.mode {
            GrepMode::Content => self.lines,
            GrepMode::Files => vec![MatchLine { text: String::new(), is_match: true }],
            GrepMode::Count => vec![MatchLine { text: format!(":{}", self.count), is_match: true }],
        };
        (self.name, lines)
    }
}

fn cut(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LINE_CHARS * 4)]);
    let text = text.trim_end_matches(['\n', '\r']);
    match text.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl Sink for FileMatches {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.count += 1;
        match self.mode {
            GrepMode::Content => self.keep(found.line_number(), found.bytes(), true),
            // One match is enough.
            GrepMode::Files => return Ok(false),
            GrepMode::Count => (),
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.keep(context.line_number(), context.bytes(), false);
        Ok(true)
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        if self.lines.len() < self.limit {
            self.lines.push(MatchLine { text: "--".to_owned(), is_match: false });
        }
        Ok(true)
    }
}

/// The matches in all files. Threads add files in any order; the first lines by path are kept.
pub(crate) struct SearchResults {
    limit: usize,
    files: BTreeMap<PathBuf, (String, Vec<MatchLine>)>,
    kept: usize,
    matches: u64,
    total_files: u64,
    /// True if the search was stopped early.
    pub(crate) stopped: bool,
}

impl SearchResults {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, files: BTreeMap::new(), kept: 0, matches: 0, total_files: 0, stopped: false }
    }

    /// Returns true if lines of `path` can still be among the first; otherwise they need only be counted.
    pub(crate) fn may_show(&self, path: &Path) -> bool {
        let is_full = self.kept >= self.limit;
        !is_full || self.files.last_key_value().is_none_or(|(last, _)| path < last.as_path())
    }

    pub(crate) fn add(&mut self, path: PathBuf, matches: FileMatches) {
        if matches.count == 0 {
            return;
        }
        self.total_files += 1;
        self.matches += matches.count;
        let (name, lines) = matches.finish();
        self.kept += lines.len();
        self.files.insert(path, (name, lines));
        self.drop_surplus();
    }

    /// Drops files whose lines are beyond the limit.
    fn drop_surplus(&mut self) {
        while let Some(last) = self.files.last_entry() {
            let lines = last.get().1.len();
            if self.kept - lines < self.limit {
                return;
            }
            self.kept -= lines;
            last.remove();
        }
    }

    /// Formats the output.
    pub(crate) fn show(self, mode: GrepMode) -> String {
        let mut text = String::new();
        let (mut lines, mut matches, mut files) = (0, 0, 0);
        for (name, found) in self.files.values() {
            files += 1;
            for line in found.iter().take(self.limit - lines) {
                lines += 1;
                matches += u64::from(line.is_match);
                if line.text != "--" {
                    text.push_str(name);
                }
                text.push_str(&line.text);
                text.push('\n');
            }
        }
        if self.matches == 0 {
            text.push_str("no matches\n");
        }
        let more = match mode {
            GrepMode::Content if matches < self.matches => format!("… {} more matches", self.matches - matches),
            GrepMode::Files | GrepMode::Count if files < self.total_files => {
                format!("… {} more files", self.total_files - files)
            }
            GrepMode::Content | GrepMode::Files | GrepMode::Count => String::new(),
        };
        if !more.is_empty() {
            text.push_str(&format!(
                "{more} ({} in total, in {} files): narrow the search or raise `limit`\n",
                self.matches, self.total_files
            ));
        }
        if self.stopped {
            text.push_str("… [search stopped early]\n");
        }
        text
    }
}
