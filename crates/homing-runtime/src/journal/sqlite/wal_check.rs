//! Looks for damage in SQLite's write-ahead log, for a check of the whole journal. Nothing is repaired.
//!
//! SQLite treats the first frame whose checksum does not match as the end of the log. That is right after a crash, which
//! tears the last write, and wrong after a flipped bit, which hides the commits behind it. The frames behind tell the two
//! apart. The scan reads the whole log, which may be tens of megabytes, so it is not part of opening a journal. Only the
//! log itself is opened: closing a descriptor of the database or its shared index would drop this process's locks on it.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use crate::journal::JournalError;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// The checksum of everything up to some position of the log.
type Checksum = (u32, u32);

/// The write-ahead log of a database.
pub(super) struct WalFile(PathBuf);

impl WalFile {
    pub(super) fn of(database: &Path) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-wal");
        Self(name.into())
    }

    /// The byte at which the log ends for SQLite although whole commits follow; `None` if the log is sound.
    ///
    /// Each commit is synced before the next begins, so a crash breaks at most the last one: two consistent commits behind
    /// a frame that does not match mean damage. A log that cannot be read is left for SQLite to report.
    pub(super) fn damage(&self) -> Option<usize> {
        let mut file = BufReader::new(File::open(&self.0).ok()?);
        let mut head = [0; HEADER];
        file.read_exact(&mut head).ok()?;
        let Some(format) = WalFormat::read(&head) else {
            // The header is synced before the first frame is written.
            return file.read_exact(&mut [0; FRAME_HEADER]).is_ok().then_some(0);
        };
        let mut bytes = vec![0; FRAME_HEADER + format.page];
        let (mut sum, mut at, mut readable) = (format.sum, HEADER, HEADER);
        loop {
            let frame = Frame::read(&mut file, &mut bytes)?;
            let expected = frame.sum_after(sum, &format);
            if frame.salt() != format.salt || frame.sum() != expected {
                let commits = u32::from(frame.is_commit());
                let sums = [frame.sum(), expected];
                return (commits_behind(file, &format, commits, sums) > 1).then_some(readable);
            }
            (sum, at) = (expected, at + frame.0.len());
            if frame.is_commit() {
                readable = at;
            }
        }
    }

    /// The error for damage behind byte `end`.
    pub(super) fn error(&self, end: usize) -> JournalError {
        let log = self.0.display();
        JournalError::Damaged(format!(
            "{log} is damaged at byte {end}, and later commits in it cannot be read\n\
             to continue without them, stop all homing processes, keep a copy of the file and cut it: \
             truncate -s {end} '{log}'"
        ))
    }
}

/// The longest sequence of consistent commits that begins at or behind a frame that does not match. The next frame may
/// continue either of `sums`: the checksum stored in that frame, or the one it should have.
fn commits_behind(mut file: impl Read, format: &WalFormat, mut commits: u32, mut sums: [Checksum; 2]) -> u32 {
    let mut bytes = vec![0; FRAME_HEADER + format.page];
    let mut most = commits;
    while let Some(frame) = Frame::read(&mut file, &mut bytes) {
        // Another salt belongs to an earlier use of the log.
        if frame.salt() != format.salt {
            break;
        }
        // The remains of an abandoned commit do not continue the frame before them.
        if !sums.iter().any(|sum| frame.sum_after(*sum, format) == frame.sum()) {
            commits = 0;
        }
        commits += u32::from(frame.is_commit());
        most = commits.max(most);
        sums = [frame.sum(); 2];
    }
    most
}

/// The format of all frames, from the header of the log.
struct WalFormat {
    page: usize,
    /// Marks the frames of the current use of the log.
    salt: [u8; 8],
    /// Byte order of the words in the checksum.
    words: fn([u8; 4]) -> u32,
    /// The checksum that the first frame continues.
    sum: Checksum,
}

impl WalFormat {
    fn read(head: &[u8; HEADER]) -> Option<Self> {
        let words = match word(&head[..4]) {
            [0x37, 0x7f, 0x06, 0x82] => u32::from_le_bytes,
            [0x37, 0x7f, 0x06, 0x83] => u32::from_be_bytes,
            _ => return None,
        };
        let page = usize::try_from(u32::from_be_bytes(word(&head[8..12]))).ok()?;
        let sum = summed((0, 0), &head[..24], words);
        let salt = head[16..24].try_into().expect("eight bytes");
        (sum == written_sum(&head[24..])).then_some(Self { page, salt, words, sum })
    }
}

/// A page in the log, with its header of 24 bytes.
struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    fn read(file: &mut impl Read, bytes: &'a mut [u8]) -> Option<Self> {
        file.read_exact(bytes).ok()?;
        Some(Self(bytes))
    }

    /// Returns whether the frame ends a commit: only then does it contain the size of the database.
    fn is_commit(&self) -> bool {
        self.0[4..8] != [0; 4]
    }

    fn salt(&self) -> [u8; 8] {
        self.0[8..16].try_into().expect("eight bytes")
    }

    fn sum(&self) -> Checksum {
        written_sum(&self.0[16..])
    }

    /// The checksum that this frame should have after one with the checksum `before`.
    fn sum_after(&self, before: Checksum, format: &WalFormat) -> Checksum {
        summed(summed(before, &self.0[..8], format.words), &self.0[FRAME_HEADER..], format.words)
    }
}

fn summed(before: Checksum, bytes: &[u8], words: fn([u8; 4]) -> u32) -> Checksum {
    let (mut first, mut second) = before;
    for &[a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
        first = first.wrapping_add(words([a, b, c, d])).wrapping_add(second);
        second = second.wrapping_add(words([e, f, g, h])).wrapping_add(first);
    }
    (first, second)
}

fn written_sum(bytes: &[u8]) -> Checksum {
    (u32::from_be_bytes(word(&bytes[..4])), u32::from_be_bytes(word(&bytes[4..8])))
}

fn word(bytes: &[u8]) -> [u8; 4] {
    bytes.try_into().expect("four bytes")
}
