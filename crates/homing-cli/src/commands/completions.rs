//! `homing completions`: prints a completion script for a shell.

use clap::CommandFactory;

use crate::{
    cli::{Cli, CompletionsArgs},
    exit::Exit,
};

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "homing", &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(Exit::Done)
}
