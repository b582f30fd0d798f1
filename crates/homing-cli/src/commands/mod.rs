//! One file per command; each is a function that returns how it ended.

mod agents;
mod check;
mod init;
pub(crate) mod mcp;

use crate::{
    cli::{Cli, Command},
    exit::Exit,
};

/// Does what was typed.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Agents(args) => agents::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Init => init::run(),
        Command::Mcp(args) => mcp::run(&args),
    }
}
