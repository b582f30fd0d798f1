//! The `read` tool: returns a file's lines with their numbers, an image or a PDF document. It reads little more than it shows.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read as _, Seek},
};

use homing_core::{
    message::Image,
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        file_versions::{FileStat, FileVersion, SeenVersions, hash},
        media::{self, MAX_IMAGE, MAX_PAGES, MAX_PDF, image_type, is_pdf},
        path_arg::{RequestedPath, path_subjects},
        workspace_files::{OpenFile, open_file},
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Default maximum number of lines.
const DEFAULT_LINES: u64 = 2_000;
/// Maximum number of characters shown of a line.
const LINE_CHARS: usize = 2_000;
/// Maximum size of the returned text.
const MAX_TEXT: usize = 256 * 1024;
/// Maximum number of bytes skipped to find the first line.
const MAX_SCAN: u64 = 256 * 1024 * 1024;

/// The `read` tool.
pub(crate) struct ReadTool;

/// Arguments of `read`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ReadArgs {
    /// The file, relative to the working folder or absolute.
    #[serde(alias = "file_path", alias = "filePath", alias = "absolute_path", alias = "file", alias = "filename")]
    path: String,
    /// First line to show, starting at 1.
    #[serde(default, alias = "start_line", alias = "startLine", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    offset: Option<u64>,
    /// Maximum number of lines to show (default: 2000).
    #[serde(default, alias = "max_lines", alias = "num_lines", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    limit: Option<u64>,
}

impl TypedTool for ReadTool {
    type Args = ReadArgs;
    const NAME: &'static str = "read";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"path": "src/main.rs", "offset": 1, "limit": 200}"#;

    fn description(&self) -> String {
        "Reads a text file and returns its lines, each with its number and a tab before it (they are not part of the \
         file). Shows up to 2000 lines; use `offset` and `limit` for other parts of a long file. PNG, JPEG, GIF and \
         WebP files are returned as images, PDF files of up to 100 pages as documents. Other binary files are rejected; use `ls` for folders."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &ReadArgs) -> Subjects {
        path_subjects(context, &args.path)
    }

    async fn run(&self, context: &ToolContext, args: ReadArgs) -> ToolOutput {
        blocking(context, move |context, stop| read(context, &args, stop)).await
    }
}

fn read(context: &ToolContext, args: &ReadArgs, stop: &StopSignal) -> Result<ToolOutput, String> {
    let requested = RequestedPath::new(context, &args.path)?;
    let mut opened = open_file(context, ReadTool::NAME, &requested)?;
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", requested.shown);
    let mut head = [0; 8 * 1024];
    let length = fill(&mut opened.file, &mut head).map_err(failed)?;
    let head = &head[..length];
    if let Some(media_type) = image_type(head) {
        return show_image(&mut opened, media_type, &requested);
    }
    if is_pdf(head) {
        return show_pdf(&mut opened, &requested);
    }
    reject_binary(head, &requested)?;
    opened.file.rewind().map_err(failed)?;
    let first = args.offset.unwrap_or(1).max(1);
    let page =
        PageRange::take(&mut opened, first, args.limit.unwrap_or(DEFAULT_LINES).max(1), stop).map_err(|error| {
            match error.kind() {
                std::io::ErrorKind::InvalidData => format!("{} {error}", requested.shown),
                _ => failed(error),
            }
        })?;
    context.state.get::<SeenVersions>().note(&opened.real, page.version(&opened));
    Ok(page.show(first, &requested))
}

fn fill(file: &mut std::fs::File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..])? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

fn show_image(opened: &mut OpenFile, media_type: &str, requested: &RequestedPath) -> Result<ToolOutput, String> {
    let bytes = whole_file(opened, MAX_IMAGE, "an image", requested)?;
    let image = media::image(media_type, &bytes);
    let text = format!("{} ({media_type}, {} bytes)", requested.shown, bytes.len());
    Ok(ToolOutput::text(text).images(vec![image]))
}

fn show_pdf(opened: &mut OpenFile, requested: &RequestedPath) -> Result<ToolOutput, String> {
    let bytes = whole_file(opened, MAX_PDF, "a PDF document", requested)?;
    let shown = &requested.shown;
    let document = media::document(&bytes).map_err(|pages| {
        format!("{shown} has {pages} pages; at most {MAX_PAGES} can be shown: extract its text or a part of it")
    })?;
    let pages = document.pages.unwrap_or_default();
    let text = format!("{shown} ({}, {pages} pages, {} bytes)", Image::PDF, bytes.len());
    Ok(ToolOutput::text(text).images(vec![document]))
}

fn whole_file(opened: &mut OpenFile, most: u64, kind: &str, requested: &RequestedPath) -> Result<Vec<u8>, String> {
    let length = opened.metadata.len();
    if length > most {
        return Err(format!("{} is {kind} of {length} bytes; at most {most} can be shown", requested.shown));
    }
    let mut bytes = Vec::new();
    let read = opened.file.rewind().and_then(|()| (&mut opened.file).take(most).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {error}", requested.shown))?;
    Ok(bytes)
}

fn reject_binary(head: &[u8], requested: &RequestedPath) -> Result<(), String> {
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Err(format!("{} is UTF-16 text; only UTF-8 is supported: convert it with iconv in `bash`", requested.shown))
        }
        head if head.contains(&0) => Err(format!("{} is a binary file (it contains NUL bytes)", requested.shown)),
        _ => Ok(()),
    }
}

/// The lines to show, and why they end.
struct PageRange {
    text: String,
    /// The number of the last line shown, or skipped if none was shown.
    last: u64,
    end: PageEnd,
    /// The hash of the whole contents, if the file is small.
    hash: Option<u64>,
}

/// The reason why a page ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageEnd {
    EndOfFile,
    Limit,
    Size,
    /// The first line is too far into the file.
    TooFar,
}

impl PageRange {
    fn take(opened: &mut OpenFile, first: u64, count: u64, stop: &StopSignal) -> std::io::Result<Self> {
        let small = opened.metadata.len() <= MAX_TEXT as u64;
        let mut bytes = Vec::new();
        let mut page = Self { text: String::new(), last: 0, end: PageEnd::EndOfFile, hash: None };
        if small {
            (&mut opened.file).take(MAX_TEXT as u64).read_to_end(&mut bytes)?;
            page.hash = Some(hash(&bytes));
            page.fill(&bytes[..], first, count, stop)?;
        } else {
            page.fill(BufReader::with_capacity(64 * 1024, &mut opened.file), first, count, stop)?;
        }
        Ok(page)
    }

    fn fill(&mut self, mut source: impl BufRead, first: u64, count: u64, stop: &StopSignal) -> std::io::Result<()> {
        let mut scanned = 0;
        while self.last + 1 < first {
            let skipped = skip_line(&mut source, MAX_SCAN - scanned)?;
            scanned += skipped;
            if skipped == 0 {
                return Ok(());
            }
            if scanned >= MAX_SCAN || stop.is_set() {
                self.end = PageEnd::TooFar;
                return Ok(());
            }
            self.last += 1;
        }
        while !source.fill_buf()?.is_empty() {
            if self.last + 1 - first >= count {
                self.end = PageEnd::Limit;
                return Ok(());
            }
            if self.text.len() >= MAX_TEXT || stop.is_set() {
                self.end = PageEnd::Size;
                return Ok(());
            }
            self.push_line(&mut source)?;
        }
        Ok(())
    }

    fn push_line(&mut self, source: &mut impl BufRead) -> std::io::Result<()> {
        let mut line = Vec::new();
        let max_bytes = (LINE_CHARS * 4) as u64;
        source.take(max_bytes).read_until(b'\n', &mut line)?;
        let mut cut = 0;
        if line.len() as u64 == max_bytes && line.last() != Some(&b'\n') {
            cut = skip_line(source, MAX_SCAN)?;
        }
        self.last += 1;
        let line = text_of(&line, cut > 0)
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, not_text(self.last)))?;
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let shown = line.char_indices().nth(LINE_CHARS).map_or(line, |(at, _)| &line[..at]);
        let _ = write!(self.text, "{:>6}\t{shown}", self.last);
        if shown.len() < line.len() || cut > 0 {
            let _ = write!(self.text, "… [{} more bytes in this line]", (line.len() - shown.len()) as u64 + cut);
        }
        self.text.push('\n');
        Ok(())
    }

    fn version(&self, opened: &OpenFile) -> FileVersion {
        FileVersion { stat: FileStat::of(&opened.metadata), hash: self.hash }
    }

    fn show(mut self, first: u64, requested: &RequestedPath) -> ToolOutput {
        let (path, last) = (&requested.shown, self.last);
        let note = match self.end {
            PageEnd::EndOfFile if last == 0 => format!("({path} is empty)"),
            PageEnd::EndOfFile if last < first => {
                return ToolOutput::error(format!("{path} has only {last} lines; line {first} does not exist"));
            }
            PageEnd::EndOfFile => return ToolOutput::text(self.text),
            PageEnd::TooFar => {
                return ToolOutput::error(format!("line {first} is too far into {path}: use `grep`"));
            }
            PageEnd::Limit | PageEnd::Size => {
                format!("… [lines {first} to {last} shown; continue with offset={}]", last + 1)
            }
        };
        self.text.push_str(&note);
        ToolOutput::text(self.text)
    }
}

fn not_text(line: u64) -> String {
    format!("is not UTF-8 text (line {line}): it is a binary file or has another encoding")
}

/// Converts a line to text. If it was cut, the cut may have split a character.
fn text_of(line: &[u8], cut: bool) -> Option<&str> {
    if line.contains(&0) {
        return None;
    }
    match std::str::from_utf8(line) {
        Ok(text) => Some(text),
        Err(error) if cut && error.error_len().is_none() => std::str::from_utf8(&line[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

/// Skips the rest of a line. Returns the number of bytes, at most `max_bytes` plus one buffer.
fn skip_line(source: &mut impl BufRead, max_bytes: u64) -> std::io::Result<u64> {
    let mut passed = 0;
    while passed < max_bytes {
        let buffer = source.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let (length, ended) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        source.consume(length);
        passed += length as u64;
        if ended {
            break;
        }
    }
    Ok(passed)
}
