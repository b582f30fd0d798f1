//! Tests of the runtime through its public interface, with scripted models and paused time; no network. Only
//! the accounts, which processes share, and journals of earlier versions need a file.

mod accounts;
mod background;
mod cache_wait;
mod cancel;
mod cluster;
mod cut_anywhere;
mod cut_replies;
mod delegation;
mod fan_out;
mod forks;
mod full_disk;
mod ledger;
mod limits;
mod manager;
mod observers;
mod old_journal;
mod permissions;
mod questions;
mod replies;
mod retries;
mod segments;
mod simulation;
mod slow_disk;
mod support;
mod taint;
