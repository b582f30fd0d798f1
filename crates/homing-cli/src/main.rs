//! The command line of Homing: parses arguments, runs one command and exits with its code.

mod allocator;
mod chat;
mod cli;
mod columns;
mod commands;
mod completion;
mod config;
mod exit;
mod live_trees;
mod notify;
mod permission_prompt;
mod print_result;
mod progress;
mod restate_config;
mod screen;
mod search_config;
mod session;
mod signals;
mod telemetry;
mod terminal;
mod watch;

fn main() -> std::process::ExitCode {
    homing::run_helper_if_asked();
    signals::survive_size_limit();
    commands::complete_if_asked();
    match cli::Cli::of_process() {
        Ok(cli) => commands::run(cli).into(),
        Err(error) => exit::misused(&error).into(),
    }
}
