//! Looks for damage in SQLite's write-ahead log. SQLite takes the first frame that does not fit for the end of the log,
//! which is right for a torn write and wrong for a flipped bit; what lies behind it tells the two apart. Nothing is mended
//! here, and only the log itself is opened: closing any other file of SQLite's would drop this process's locks on it.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use crate::journal::JournalError;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// The checksum of everything up to some place of the log.
type Checksum = (u32, u32);

/// The log that belongs to a database.
pub(super) struct Log(PathBuf);

impl Log {
    pub(super) fn of(database: &Path) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-wal");
        Self(name.into())
    }

    /// Where the log ends for SQLite although whole commits lie behind.
    ///
    /// Each commit is synced before the next begins, so a crash breaks at most the last one: two that hang together behind a
    /// frame that does not fit mean damage. A log that cannot be read is for SQLite to complain about.
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
            let due = frame.sum_after(sum, &format);
            if frame.salt() != format.salt || frame.sum() != due {
                let commits = u32::from(frame.is_commit());
                let sums = [frame.sum(), due];
                return (commits_behind(file, &format, commits, sums) > 1).then_some(readable);
            }
            (sum, at) = (due, at + frame.0.len());
            if frame.is_commit() {
                readable = at;
            }
        }
    }

    /// What to say of damage behind byte `end`.
    pub(super) fn refusal(&self, end: usize) -> JournalError {
        let log = self.0.display();
        JournalError::Damaged(format!(
            "{log} is damaged behind byte {end}, and what was committed behind it cannot be read. Nothing was changed. \
             To go on without it, keep a copy and cut the log there while no homing works: truncate -s {end} '{log}'"
        ))
    }
}

/// The most commits that hang together from a frame on that does not fit. `sums` are what the next frame may follow from:
/// the sum that is written in that frame, and the one it should have.
fn commits_behind(mut file: impl Read, format: &WalFormat, mut commits: u32, mut sums: [Checksum; 2]) -> u32 {
    let mut bytes = vec![0; FRAME_HEADER + format.page];
    let mut most = commits;
    while let Some(frame) = Frame::read(&mut file, &mut bytes) {
        // Another salt is of an earlier round of the log.
        if frame.salt() != format.salt {
            break;
        }
        // What an abandoned commit left here does not follow from the frame before it.
        if !sums.iter().any(|sum| frame.sum_after(*sum, format) == frame.sum()) {
            commits = 0;
        }
        commits += u32::from(frame.is_commit());
        most = commits.max(most);
        sums = [frame.sum(); 2];
    }
    most
}

/// What the header says of all frames.
struct WalFormat {
    page: usize,
    /// What marks the frames of this round of the log.
    salt: [u8; 8],
    /// How the words are read that are summed up.
    words: fn([u8; 4]) -> u32,
    /// What the first frame's sum follows from.
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

/// A page in the log, with the 24 bytes before it.
struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    fn read(file: &mut impl Read, bytes: &'a mut [u8]) -> Option<Self> {
        file.read_exact(bytes).ok()?;
        Some(Self(bytes))
    }

    /// A commit says how many pages the database has after it.
    fn is_commit(&self) -> bool {
        self.0[4..8] != [0; 4]
    }

    fn salt(&self) -> [u8; 8] {
        self.0[8..16].try_into().expect("eight bytes")
    }

    fn sum(&self) -> Checksum {
        written_sum(&self.0[16..])
    }

    /// Each frame's checksum goes on from that of the frame before.
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
