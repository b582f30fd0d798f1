//! The command line of Homing: the composition root, and the only room that reads the environment.

mod cli;
mod commands;
mod exit;
mod places;
mod terminal;

use clap::Parser;

fn main() -> std::process::ExitCode {
    homing::run_helper_if_asked();
    let cli = cli::Cli::parse();
    exit::report(commands::run(cli)).into()
}
