//! `homing completions`: prints a script with which a shell asks this program what to complete.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::env::{CompleteEnv, Shells};

use crate::{
    cli::{Cli, CompletionsArgs},
    exit::{Exit, Trouble},
};

/// Variable with which a shell asks for completions; it names the shell.
const VARIABLE: &str = "_HOMING_COMPLETE";

/// Answers a shell that asks for completions, and exits.
pub(crate) fn complete_if_asked() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let name = args.shell.to_string();
    let shell = Shells::builtins();
    let shell = shell.completer(&name).ok_or_else(|| Trouble::usage(format!("no completions for `{name}`")))?;
    let mut script = Vec::new();
    // The program is looked up when the shell asks, so the script stays valid when it moves.
    shell.write_registration(VARIABLE, "homing", "homing", "homing", &mut script)?;
    if name == "zsh" {
        // As a file `_homing` on `fpath`, the script runs when the first completion is wanted, and answers it.
        writeln!(script, "\nif [ \"$funcstack[1]\" = \"_homing\" ]; then _clap_dynamic_completer_homing \"$@\"; fi")?;
    }
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}
