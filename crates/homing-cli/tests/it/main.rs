//! Tests of the program as a process, by its output, its files and the requests that a provider on the loopback received.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a skipped test says so, and chaos reports")]

mod agent_files;
mod attachments;
mod bad_input;
mod bedrock;
mod chaos;
mod cut_replies;
mod direction;
mod failed_teams;
mod faults;
mod guide;
mod house_rules;
mod interrupted_asks;
mod local_server;
mod map;
mod mcp;
mod old_journals;
mod prefix_cache;
mod private_folder;
mod receipts;
mod responses;
mod restrictions;
mod run;
mod secrets;
mod servers;
mod structured_answers;
mod teams;
mod telemetry;
mod terminal;
mod tools_on_demand;
mod transcripts;
mod world;
