//! The program as its users have it: started as a process, judged by what it prints, what it leaves, and what a provider on the
//! loopback has seen.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a skipped test says so, and chaos reports")]

mod bad_input;
mod chaos;
mod cut_replies;
mod direction;
mod failed_teams;
mod faults;
mod guide;
mod map;
mod mcp;
mod private_folder;
mod restrictions;
mod run;
mod servers;
mod teams;
mod telemetry;
mod terminal;
mod transcripts;
mod world;
