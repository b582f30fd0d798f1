//! Reads one small regular file and nothing else: no pipes, no devices, no giants. It knows bytes, not agents.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    path::Path,
};

use crate::{diagnostics::Diagnostics, node::Position};

/// What an agent file may weigh.
pub const MAX_FILE: u64 = 1024 * 1024;
/// What its front matter may weigh.
pub const MAX_FRONT_MATTER: usize = 64 * 1024;

/// Reads a file of at most [`MAX_FILE`] bytes; the error is for people.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_up_to(path, MAX_FILE).and_then(|(bytes, size)| match size > MAX_FILE {
        false => Ok(bytes),
        true => Err(format!("the file has {size} bytes; agent and skill files may have {MAX_FILE}")),
    })
}

/// Reads at most `most` bytes and says how large the file is.
pub(crate) fn read_up_to(path: &Path, most: u64) -> Result<(Vec<u8>, u64), String> {
    let says = |error: std::io::Error| format!("cannot be read: {error}");
    let file = open(path).map_err(says)?;
    let metadata = file.metadata().map_err(says)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let size = metadata.len();
    if size > MAX_FILE {
        return Ok((Vec::new(), size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(most)).unwrap_or(0) + 1);
    file.take(most.min(MAX_FILE + 1)).read_to_end(&mut bytes).map_err(says)?;
    let size = size.max(bytes.len() as u64);
    Ok((bytes, size))
}

/// Without blocking, so that a pipe that nobody writes to does not stop us, and without becoming a terminal's owner.
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

/// Bytes to text with plain line ends; `None` where the bytes are no text, which is then an error among the remarks.
pub(crate) fn decode(bytes: Vec<u8>, remarks: &mut Diagnostics) -> Option<String> {
    let start = Position { line: 1, column: 1 };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes, remarks)?,
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes, remarks)?,
        _ => match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                remarks.error(spot_after(good), "", "the file is not UTF-8 text", "save it as UTF-8");
                return None;
            }
        },
    };
    if let Some(at) = text.find('\0') {
        remarks.error(spot_after(&text.as_bytes()[..at]), "", "the file contains NUL bytes", "save it as text");
        return None;
    }
    let text = match text.strip_prefix('\u{feff}') {
        None => text,
        Some(rest) => {
            remarks.warn(start, "", "the file begins with a byte order mark", "save it as UTF-8 without one");
            rest.to_owned()
        }
    };
    Some(match text.contains('\r') {
        false => text,
        true => text.replace("\r\n", "\n").replace('\r', "\n"),
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16, remarks: &mut Diagnostics) -> Option<String> {
    let start = Position { line: 1, column: 1 };
    let units: Vec<u16> = bytes.chunks_exact(2).map(|it| unit([it[0], it[1]])).collect();
    match String::from_utf16(&units) {
        Ok(text) => {
            remarks.warn(start, "", "the file is UTF-16; other programs cannot read it", "save it as UTF-8");
            Some(text)
        }
        Err(_) => {
            remarks.error(start, "", "the file is neither UTF-8 nor UTF-16 text", "save it as UTF-8");
            None
        }
    }
}

fn spot_after(bytes: &[u8]) -> Position {
    let line = bytes.iter().filter(|it| **it == b'\n').count();
    let column = bytes.iter().rev().take_while(|it| **it != b'\n').count();
    Position {
        line: u32::try_from(line + 1).unwrap_or(u32::MAX),
        column: u32::try_from(column + 1).unwrap_or(u32::MAX),
    }
}
