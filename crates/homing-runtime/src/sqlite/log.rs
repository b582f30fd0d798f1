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

/// How many commits lie behind what SQLite believes, and where that ends.
fn look(database: &Path) -> io::Result<Option<(u32, u64)>> {
    let Some(known) = known(&with_suffix(database, "-shm"))? else { return Ok(None) };
    let mut log = File::open(with_suffix(database, "-wal"))?;
    let frame = FRAME_HEADER + known.page;
    let end = LOG_HEADER + known.frames * frame;
    let size = log.metadata()?.len();
    let mut lost = 0;
    let mut at = end;
    while at + frame <= size {
        log.seek(SeekFrom::Start(at))?;
        let mut head = [0; 16];
        log.read_exact(&mut head)?;
        // A commit says how many pages the database has after it. Another salt is of an earlier round.
        lost += u32::from(head[4..8] != [0; 4] && head[8..16] == known.salt);
        at += frame;
    }
    Ok(Some((lost, end)))
}

fn known(index: &Path) -> io::Result<Option<Known>> {
    let mut head = [0; 48];
    File::open(index)?.read_exact(&mut head)?;
    let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let page = match u16::from_ne_bytes([head[14], head[15]]) {
        0 => return Ok(None),
        1 => 65_536,
        size => u64::from(size),
    };
    let mut salt = [0; 8];
    salt.copy_from_slice(&head[32..40]);
    Ok(Some(Known { page, frames: number(16).into(), salt }))
}

fn with_suffix(database: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
