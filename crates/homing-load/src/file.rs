//! Reads one small regular file as text. Pipes, devices and large files are rejected.

use std::{
    borrow::Cow,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read},
    path::Path,
};

use memchr::memchr;

use crate::{diagnostics::Diagnostics, node::Position};

/// The maximum size of an agent or skill file in bytes.
pub const MAX_FILE: u64 = 1024 * 1024;
/// The maximum size of its front matter in bytes.
pub const MAX_FRONT_MATTER: usize = 64 * 1024;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a file of at most [`MAX_FILE`] bytes. The error is a message for the user.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut buffer = Vec::new();
    let length = read_into(path, &mut buffer)?.len();
    buffer.truncate(length);
    Ok(buffer)
}

/// Reads a file as [`read`] does into a buffer for many files, whose memory is allocated and cleared only once.
pub(crate) fn read_into<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], String> {
    let (length, size) = fill(path, MAX_FILE, buffer)?;
    if size > MAX_FILE {
        return Err(format!("the file has {size} bytes; the maximum for agent and skill files is {MAX_FILE}"));
    }
    Ok(&buffer[..length])
}

/// Reads a file of at most [`MAX_FILE`] bytes inside the folder `root`. The error is a message for the user.
pub(crate) fn read_inside(path: &Path, root: &Path) -> Result<Vec<u8>, String> {
    let message = |error: std::io::Error| format!("cannot be read: {error}");
    let file = open(path).map_err(message)?;
    let real = std::fs::canonicalize(path).map_err(message)?;
    let root = std::fs::canonicalize(root).map_err(message)?;
    // The opened file must be the one that was checked, even if a link changed in between.
    let (opened, checked) = (file.metadata().map_err(message)?, std::fs::symlink_metadata(&real).map_err(message)?);
    if !real.starts_with(root) || !is_same(&opened, &checked) {
        return Err("is outside of the project".to_owned());
    }
    if !opened.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if opened.len() > MAX_FILE {
        return Err(format!("has {} bytes; the maximum is {MAX_FILE}", opened.len()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(message)?;
    Ok(bytes)
}

#[cfg(unix)]
fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    one.len() == other.len()
}

/// Reads at most `most` bytes and returns them with the size of the file.
pub(crate) fn read_up_to(path: &Path, most: u64) -> Result<(Vec<u8>, u64), String> {
    let mut buffer = Vec::new();
    let (length, size) = fill(path, most, &mut buffer)?;
    buffer.truncate(length);
    Ok((buffer, size))
}

/// Reads at most `most` bytes to the beginning of `buffer`. Returns their number and the size of the file.
fn fill(path: &Path, most: u64, buffer: &mut Vec<u8>) -> Result<(usize, u64), String> {
    const CHUNK: usize = 8 * 1024;
    let message = |error: std::io::Error| format!("cannot be read: {error}");
    let mut file = open(path).map_err(message)?;
    let metadata = file.metadata().map_err(message)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let size = metadata.len();
    if size > MAX_FILE {
        return Ok((0, size));
    }
    let most = usize::try_from(most.min(MAX_FILE)).unwrap_or(usize::MAX);
    let expected = usize::try_from(size).unwrap_or(most).min(most);
    let mut length = 0;
    while length < most {
        let end = (expected + 1).max(length + CHUNK).min(most);
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        match file.read(&mut buffer[length..end]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(message(error)),
        }
        // A file that has its size and leaves room has ended. Files of the kernel have the size 0 and must be read until nothing is
        // left.
        if length == expected && length < end {
            break;
        }
    }
    Ok((length, size.max(length as u64)))
}

/// Opens without blocking, because a pipe without a writer would block forever, and without becoming the controlling
/// process of a terminal.
#[cfg(unix)]
fn open(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// Decodes bytes to text with `\n` line ends. Bytes that are not text are reported.
pub(crate) fn decode<'a>(bytes: &'a [u8], diagnostics: &mut Diagnostics) -> Option<Cow<'a, str>> {
    let start = Position { line: 1, column: 1 };
    let mut text = match bytes {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes, diagnostics)?),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes, diagnostics)?),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(error) => {
                let good = &bytes[..error.valid_up_to()];
                diagnostics.error(position_after(good), "", "the file is not UTF-8 text", "save it as UTF-8");
                return None;
            }
        },
    };
    if let Some(at) = memchr(b'\0', text.as_bytes()) {
        diagnostics.error(position_after(&text.as_bytes()[..at]), "", "the file contains NUL bytes", "save it as text");
        return None;
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        diagnostics.warn(start, "", "the file begins with a byte order mark", "save it as UTF-8 without one");
        text = match text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[BYTE_ORDER_MARK.len_utf8()..]),
            Cow::Owned(text) => Cow::Owned(text[BYTE_ORDER_MARK.len_utf8()..].to_owned()),
        };
    }
    let has_returns = memchr(b'\r', text.as_bytes()).is_some();
    Some(if has_returns { Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")) } else { text })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16, diagnostics: &mut Diagnostics) -> Option<String> {
    let start = Position { line: 1, column: 1 };
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    match String::from_utf16(&units) {
        Ok(text) => {
            diagnostics.warn(start, "", "the file is UTF-16; other programs cannot read it", "save it as UTF-8");
            Some(text)
        }
        Err(_) => {
            diagnostics.error(start, "", "the file is neither UTF-8 nor UTF-16 text", "save it as UTF-8");
            None
        }
    }
}

fn position_after(bytes: &[u8]) -> Position {
    let line = bytes.iter().filter(|byte| **byte == b'\n').count();
    let column = bytes.iter().rev().take_while(|byte| **byte != b'\n').count();
    Position {
        line: u32::try_from(line + 1).unwrap_or(u32::MAX),
        column: u32::try_from(column + 1).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_of_every_size_are_read_whole_with_one_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        let mut buffer = Vec::new();
        for size in [20_000, 0, 1, 8_191, 8_192, 8_193, 3, 65_536] {
            let bytes: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(read_into(&path, &mut buffer), Ok(bytes.as_slice()), "{size}");
            assert_eq!(read(&path), Ok(bytes.clone()), "{size}");
            let head = bytes[..size.min(8_192)].to_vec();
            assert_eq!(read_up_to(&path, 8_192), Ok((head, size as u64)), "{size}");
        }
        let most = usize::try_from(MAX_FILE).unwrap();
        fs::write(&path, vec![b'x'; most]).unwrap();
        assert_eq!(read(&path).map(|bytes| bytes.len()), Ok(most));
        fs::write(&path, vec![b'x'; most + 1]).unwrap();
        assert!(read(&path).unwrap_err().contains("1048577 bytes"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_without_a_size_are_read_to_their_end() {
        let path = Path::new("/proc/self/maps");
        assert_eq!(fs::metadata(path).unwrap().len(), 0);
        let text = String::from_utf8(read(path).unwrap()).unwrap();
        assert!(text.len() > 2_000 && text.ends_with('\n'), "{text}");
    }
}
