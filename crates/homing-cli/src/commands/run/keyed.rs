//! A run with the same key that another process works on: it is watched from outside until it is over.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    exit::Trouble,
    session::{Session, no_journal},
    signals::Signals,
    terminal,
    watch::SeenSignals,
};

/// Waits for a tree of another process. A signal ends the waiting, not the run.
pub(crate) async fn attach(session: &Session, tree: Uuid, signals: &mut Signals) -> anyhow::Result<SeenSignals> {
    let journal = session.homing.journal().ok_or_else(no_journal)?;
    if let Some((pid, host)) = journal.owner(tree).map_err(Trouble::from)? {
        terminal::say(&format!("this key is at work in process {pid} on {host}; waiting for its result"));
    }
    loop {
        let envelope = journal.envelope(tree).map_err(Trouble::from)?;
        if envelope.status.is_over() || journal.owner(tree).map_err(Trouble::from)?.is_none() {
            return Ok(SeenSignals { envelope, signal: None });
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(300)) => (),
            number = signals.next() => return Ok(SeenSignals { envelope, signal: Some(number) }),
        }
    }
}
