//! The runtime as its hosts see it: scripts in, journals and envelopes out. No network, no disk, paused time.

mod background;
mod cancel;
mod cut_anywhere;
mod cut_replies;
mod delegation;
mod full_disk;
mod ledger;
mod limits;
mod manager;
mod replies;
mod retries;
mod simulation;
mod stage;
