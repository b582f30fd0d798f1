//! What a search found, kept small: the first lines in the order of paths, and how much more there was.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

/// Characters of a line that are shown.
const LINE_CHARS: usize = 500;

/// What is shown of each match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The lines.
    #[serde(alias = "lines")]
    Content,
    /// The files' names.
    #[serde(alias = "files_with_matches", alias = "files_only")]
    Files,
    /// How many lines match in each file.
    #[serde(alias = "counts", alias = "count_matches")]
    Count,
}

/// One line of the answer.
struct MatchLine {
    text: String,
    is_match: bool,
}

/// What was found in one file.
pub(crate) struct FileHits {
    mode: Mode,
    name: String,
    limit: usize,
    lines: Vec<MatchLine>,
    /// Matching lines, also those that were not kept.
    pub(crate) count: u64,
}

impl FileHits {
    pub(crate) fn new(mode: Mode, name: String, limit: usize) -> Self {
        Self { mode, name, limit, lines: Vec::new(), count: 0 }
    }

    /// For files that mostly do not match: the name comes when there is something to name.
    pub(crate) fn lazy(mode: Mode, limit: usize) -> Self {
        Self::new(mode, String::new(), limit)
    }

    /// For files whose lines would come after the limit.
    pub(crate) fn counting(mode: Mode) -> Self {
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

    /// The file's lines of the answer.
    fn finish(self) -> (String, Vec<MatchLine>) {
        let lines = match self.mode {
            Mode::Content => self.lines,
            Mode::Files => vec![MatchLine { text: String::new(), is_match: true }],
            Mode::Count => vec![MatchLine { text: format!(":{}", self.count), is_match: true }],
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

impl Sink for FileHits {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.count += 1;
        match self.mode {
            Mode::Content => self.keep(found.line_number(), found.bytes(), true),
            // One match says it all.
            Mode::Files => return Ok(false),
            Mode::Count => (),
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

/// What was found in all files. Threads find files in any order; the first lines by path are kept whatever the order.
pub(crate) struct Hits {
    limit: usize,
    files: BTreeMap<PathBuf, (String, Vec<MatchLine>)>,
    kept: usize,
    matches: u64,
    total_files: u64,
    /// Nobody waits for the rest.
    pub(crate) stopped: bool,
}

impl Hits {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, files: BTreeMap::new(), kept: 0, matches: 0, total_files: 0, stopped: false }
    }

    /// Whether lines of `path` can still be among the first; otherwise they need only be counted.
    pub(crate) fn wants(&self, path: &Path) -> bool {
        let is_full = self.kept >= self.limit;
        !is_full || self.files.last_key_value().is_none_or(|(last, _)| path < last.as_path())
    }

    pub(crate) fn add(&mut self, path: PathBuf, hits: FileHits) {
        if hits.count == 0 {
            return;
        }
        self.total_files += 1;
        self.matches += hits.count;
        let (name, lines) = hits.finish();
        self.kept += lines.len();
        self.files.insert(path, (name, lines));
        self.forget_the_last();
    }

    /// Drops files whose lines would come after the limit anyway.
    fn forget_the_last(&mut self) {
        while let Some(last) = self.files.last_entry() {
            let lines = last.get().1.len();
            if self.kept - lines < self.limit {
                return;
            }
            self.kept -= lines;
            last.remove();
        }
    }

    /// The answer.
    pub(crate) fn show(self, mode: Mode) -> String {
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
            Mode::Content if matches < self.matches => format!("… {} more matches", self.matches - matches),
            Mode::Files | Mode::Count if files < self.total_files => {
                format!("… {} more files", self.total_files - files)
            }
            Mode::Content | Mode::Files | Mode::Count => String::new(),
        };
        if !more.is_empty() {
            text.push_str(&format!(
                "{more} ({} in all, in {} files): narrow the search or raise `limit`\n",
                self.matches, self.total_files
            ));
        }
        if self.stopped {
            text.push_str("… the search was stopped before its end\n");
        }
        text
    }
}
