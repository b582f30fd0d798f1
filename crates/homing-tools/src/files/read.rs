//! `read`: a file's lines with their numbers, or a picture. It reads little more than it shows.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read as _, Seek},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use homing_core::{
    message::Image,
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        file_versions::{Face, SeenVersion, Stamp, hash},
        path_arg::{RequestedPath, path_subjects},
        workspace_files::{Opened, open_file},
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Lines shown where the call names no limit.
const DEFAULT_LINES: u64 = 2_000;
/// Characters of a line that are shown.
const LINE_CHARS: usize = 2_000;
/// Bytes of text in one answer.
const MOST_TEXT: usize = 256 * 1024;
/// How far into a file a line is looked for.
const MOST_SCAN: u64 = 256 * 1024 * 1024;
/// The largest picture that is handed to a model.
const MOST_IMAGE: u64 = 5 * 1024 * 1024;

/// Reads files.
pub(crate) struct Read;

/// Arguments of `read`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The file, relative to the working folder or absolute.
    #[serde(alias = "file_path", alias = "filePath", alias = "absolute_path", alias = "file", alias = "filename")]
    path: String,
    /// First line to show, from 1.
    #[serde(default, alias = "start_line", alias = "startLine", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    offset: Option<u64>,
    /// How many lines to show; 2000 if absent.
    #[serde(default, alias = "max_lines", alias = "num_lines", deserialize_with = "lenient_args::count")]
    #[schemars(with = "Option<u64>")]
    limit: Option<u64>,
}

impl TypedTool for Read {
    type Args = Args;
    const NAME: &'static str = "read";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"path": "src/main.rs", "offset": 1, "limit": 200}"#;

    fn description(&self) -> String {
        "Reads a text file and returns its lines, each with its number and a tab before it (they are not part of the \
         file). Shows up to 2000 lines; use `offset` and `limit` for other parts of a long file. PNG, JPEG, GIF and \
         WebP files are shown as pictures. Other binary files are refused, and folders are for `ls`."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, &args.path)
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        blocking(context, move |context, stop| read(context, &args, stop)).await
    }
}

fn read(context: &ToolContext, args: &Args, stop: &StopSignal) -> Result<ToolOutput, String> {
    let wanted = RequestedPath::new(context, &args.path)?;
    let mut opened = open_file(context, Read::NAME, &wanted)?;
    let broken = |error: std::io::Error| format!("{} cannot be read: {error}", wanted.shown);
    let mut head = [0; 8 * 1024];
    let got = fill(&mut opened.file, &mut head).map_err(broken)?;
    let head = &head[..got];
    if let Some(media_type) = picture(head) {
        return show_picture(&mut opened, media_type, &wanted);
    }
    refuse_binary(head, &wanted)?;
    opened.file.rewind().map_err(broken)?;
    let first = args.offset.unwrap_or(1).max(1);
    let page =
        PageRange::take(&mut opened, first, args.limit.unwrap_or(DEFAULT_LINES).max(1), stop).map_err(|error| {
            match error.kind() {
                std::io::ErrorKind::InvalidData => format!("{} {error}", wanted.shown),
                _ => broken(error),
            }
        })?;
    context.state.get::<SeenVersion>().note(&opened.real, page.stamp(&opened));
    Ok(page.show(first, &wanted))
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

fn picture(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn show_picture(opened: &mut Opened, media_type: &str, wanted: &RequestedPath) -> Result<ToolOutput, String> {
    let length = opened.metadata.len();
    if length > MOST_IMAGE {
        return Err(format!("{} is a picture of {length} bytes; at most {MOST_IMAGE} can be shown", wanted.shown));
    }
    let mut bytes = Vec::new();
    let read = opened.file.rewind().and_then(|()| (&mut opened.file).take(MOST_IMAGE).read_to_end(&mut bytes));
    read.map_err(|error| format!("{} cannot be read: {error}", wanted.shown))?;
    let image = Image { media_type: media_type.to_owned(), base64: BASE64_STANDARD.encode(&bytes) };
    let text = format!("{} ({media_type}, {} bytes)", wanted.shown, bytes.len());
    Ok(ToolOutput { images: vec![image], ..ToolOutput::text(text) })
}

fn refuse_binary(head: &[u8], wanted: &RequestedPath) -> Result<(), String> {
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Err(format!("{} is UTF-16 text; only UTF-8 is read. `bash` with iconv can convert it", wanted.shown))
        }
        head if head.contains(&0) => Err(format!("{} is a binary file (it contains NUL bytes)", wanted.shown)),
        _ => Ok(()),
    }
}

/// The lines to show, and what was learnt on the way to them.
struct PageRange {
    text: String,
    /// The last line shown, or looked at where none was shown.
    last: u64,
    more: More,
    /// Everything, where it was little.
    hash: Option<u64>,
}

/// Why the page ends where it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    EndOfFile,
    Limit,
    Size,
    /// The wanted line lies deeper than anybody should look for it.
    TooFar,
}

impl PageRange {
    fn take(opened: &mut Opened, first: u64, count: u64, stop: &StopSignal) -> std::io::Result<Self> {
        let small = opened.metadata.len() <= MOST_TEXT as u64;
        let mut bytes = Vec::new();
        let mut page = Self { text: String::new(), last: 0, more: More::EndOfFile, hash: None };
        if small {
            (&mut opened.file).take(MOST_TEXT as u64).read_to_end(&mut bytes)?;
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
            let skipped = skip_line(&mut source, MOST_SCAN - scanned)?;
            scanned += skipped;
            if skipped == 0 {
                return Ok(());
            }
            if scanned >= MOST_SCAN || stop.is_set() {
                self.more = More::TooFar;
                return Ok(());
            }
            self.last += 1;
        }
        while !source.fill_buf()?.is_empty() {
            if self.last + 1 - first >= count {
                self.more = More::Limit;
                return Ok(());
            }
            if self.text.len() >= MOST_TEXT || stop.is_set() {
                self.more = More::Size;
                return Ok(());
            }
            self.push_line(&mut source)?;
        }
        Ok(())
    }

    fn push_line(&mut self, source: &mut impl BufRead) -> std::io::Result<()> {
        let mut line = Vec::new();
        let most = (LINE_CHARS * 4) as u64;
        source.take(most).read_until(b'\n', &mut line)?;
        let mut cut = 0;
        if line.len() as u64 == most && line.last() != Some(&b'\n') {
            cut = skip_line(source, MOST_SCAN)?;
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

    fn stamp(&self, opened: &Opened) -> Stamp {
        Stamp { face: Face::of(&opened.metadata), hash: self.hash }
    }

    fn show(mut self, first: u64, wanted: &RequestedPath) -> ToolOutput {
        let (path, last) = (&wanted.shown, self.last);
        let note = match self.more {
            More::EndOfFile if last == 0 => format!("({path} is empty)"),
            More::EndOfFile if last < first => {
                return ToolOutput::error(format!("{path} has {last} lines; there is no line {first}"));
            }
            More::EndOfFile => return ToolOutput::text(self.text),
            More::TooFar => {
                return ToolOutput::error(format!("line {first} lies too deep in {path} to be looked for: use `grep`"));
            }
            More::Limit | More::Size => {
                format!("… [lines {first} to {last} shown, more follow: read on with offset={}]", last + 1)
            }
        };
        self.text.push_str(&note);
        ToolOutput::text(self.text)
    }
}

fn not_text(line: u64) -> String {
    format!("is not UTF-8 text (line {line}): it is a binary file or has another encoding")
}

/// The line as text. Where it was cut, the cut may have gone through a character.
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

/// Passes over the rest of a line, keeping nothing; how many bytes it had, at most `most` and a buffer's.
fn skip_line(source: &mut impl BufRead, most: u64) -> std::io::Result<u64> {
    let mut passed = 0;
    while passed < most {
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
