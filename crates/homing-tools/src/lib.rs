//! Doing things: the tools that agents call, the processes they start, and the walls around both.
//!
//! This room touches the user's files and processes. It does not know runs, journals or models, and it reads neither
//! environment nor home: hosts hand these in as values.

pub mod authority_files;
pub mod bash;
pub mod commands;
pub mod process;
pub mod sandbox;
