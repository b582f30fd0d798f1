//! Waits for a run with the same key that belongs to another process.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    exit::Trouble,
    session::{Session, no_journal},
    signals::Signals,
    terminal,
    watch::WatchResult,
};

/// Waits for a run tree of another process. A signal ends the wait, not the run.
pub(crate) async fn attach(session: &Session, tree: Uuid, signals: &mut Signals) -> anyhow::Result<WatchResult> {
    let journal = session.homing.journal().ok_or_else(no_journal)?;
    if let Some((pid, host)) = journal.owner(tree).map_err(Trouble::from)? {
        terminal::say(&format!("a run with this key is running in process {pid} on {host}; waiting for its result"));
    }
    loop {
        let envelope = journal.envelope(tree).map_err(Trouble::from)?;
        if envelope.status.is_over() || journal.owner(tree).map_err(Trouble::from)?.is_none() {
            return Ok(WatchResult { envelope, signal: None, is_answer_shown: false });
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(300)) => (),
            number = signals.next() => return Ok(WatchResult { envelope, signal: Some(number), is_answer_shown: false }),
        }
    }
}
