//! Looks behind what SQLite read of its write-ahead log. SQLite takes the first frame that does not fit for the end of the
//! log, which is right for a torn write and wrong for a flipped bit; it mends nothing here either.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use crate::journal::JournalError;

const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// What SQLite made of the log: the head of its index, in memory shared by all processes.
struct Known {
    page: u64,
    /// How many frames it believes.
    frames: u64,
    /// What marks the frames of this round of the log.
    salt: [u8; 8],
    /// How it reads the words that it sums up.
    words: fn([u8; 4]) -> u32,
}

/// Refuses a log in which whole commits lie behind the place where SQLite stopped to read.
///
/// Each commit is synced before the next begins, so a crash leaves at most one that was not acknowledged; two mean damage. The
/// caller has a snapshot open, which keeps the log from being begun anew meanwhile.
pub(super) fn refuse_lost_commits(database: &Path) -> Result<(), JournalError> {
    match look(database) {
        Ok(Some((lost, end))) if lost > 1 => Err(JournalError::Damaged(format!(
            "{} is damaged behind byte {end}, and {lost} commits behind it cannot be read. Nothing was changed. \
             To go on without them, keep a copy and cut it there: truncate -s {end} '{}'",
            with_suffix(database, "-wal").display(),
            with_suffix(database, "-wal").display(),
        ))),
        // Without a log, or one that is too short to say anything, there is nothing that could be lost.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// How many commits lie one after another behind what SQLite believes, and where that ends.
fn look(database: &Path) -> io::Result<Option<(u32, u64)>> {
    let Some(known) = known(&with_suffix(database, "-shm"))? else { return Ok(None) };
    let mut log = File::open(with_suffix(database, "-wal"))?;
    let end = LOG_HEADER + known.frames * (FRAME_HEADER + known.page);
    log.seek(SeekFrom::Start(end))?;
    let mut bytes = vec![0; usize::try_from(FRAME_HEADER + known.page).unwrap_or(0)];
    let (mut most, mut commits, mut before) = (0, 0, None);
    while log.read_exact(&mut bytes).is_ok() {
        let frame = Frame(&bytes);
        // Another salt is of an earlier round of the log.
        if frame.salt() != known.salt {
            break;
        }
        // What an abandoned commit left here does not follow from the frame before it.
        if before.is_some_and(|before| frame.sum_after(before, known.words) != frame.sum()) {
            commits = 0;
        }
        commits += u32::from(frame.is_commit());
        most = commits.max(most);
        before = Some(frame.sum());
    }
    Ok(Some((most, end)))
}

/// A page in the log, with the 24 bytes before it.
struct Frame<'a>(&'a [u8]);

impl Frame<'_> {
    /// A commit says how many pages the database has after it.
    fn is_commit(&self) -> bool {
        self.0[4..8] != [0; 4]
    }

    fn salt(&self) -> &[u8] {
        &self.0[8..16]
    }

    fn sum(&self) -> (u32, u32) {
        (u32::from_be_bytes(word(&self.0[16..20])), u32::from_be_bytes(word(&self.0[20..24])))
    }

    /// Each frame's checksum goes on from that of the frame before.
    fn sum_after(&self, before: (u32, u32), words: fn([u8; 4]) -> u32) -> (u32, u32) {
        let summed = self.0[..8].chunks_exact(8).chain(self.0[24..].chunks_exact(8));
        summed.fold(before, |(first, second), pair| {
            let first = first.wrapping_add(words(word(&pair[..4]))).wrapping_add(second);
            (first, second.wrapping_add(words(word(&pair[4..]))).wrapping_add(first))
        })
    }
}

fn word(bytes: &[u8]) -> [u8; 4] {
    bytes.try_into().expect("four bytes")
}

fn known(index: &Path) -> io::Result<Option<Known>> {
    let mut head = [0; 96];
    File::open(index)?.read_exact(&mut head)?;
    // It is kept twice: where the two differ, somebody is writing it at this very moment.
    let (head, again) = head.split_at(48);
    let page = match u16::from_ne_bytes([head[14], head[15]]) {
        _ if head != again => return Ok(None),
        0 => return Ok(None),
        1 => 65_536,
        size => u64::from(size),
    };
    let words = if head[13] == 0 { u32::from_le_bytes } else { u32::from_be_bytes };
    let mut salt = [0; 8];
    salt.copy_from_slice(&head[32..40]);
    Ok(Some(Known { page, frames: u32::from_ne_bytes(word(&head[16..20])).into(), salt, words }))
}

fn with_suffix(database: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
