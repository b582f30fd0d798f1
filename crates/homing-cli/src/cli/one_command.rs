//! Parses arguments with the grammar of one command.
//!
//! The grammar of all commands takes ten times as long to build, which every start of the program would pay for. It is left to help,
//! completion and errors, whose messages depend on it.

use std::ffi::OsString;

use clap::{Args, FromArgMatches};

use super::{AgentsArgs, Cli, journal, map_team_args, restate, run};
use crate::commands::{mcp, serve};

/// Adds the arguments of a command to its grammar.
type AddArguments = fn(clap::Command) -> clap::Command;

/// The commands that programs start often, or that run longest and are started under supervision.
const COMMANDS: &[(&str, AddArguments)] = &[
    ("agents", AgentsArgs::augment_args),
    ("answer", journal::AnswerArgs::augment_args),
    ("cancel", journal::CancelArgs::augment_args),
    ("map", map_team_args::MapArgs::augment_args),
    ("mcp", mcp::McpArgs::augment_args),
    ("questions", journal::QuestionsArgs::augment_args),
    ("resume", journal::ResumeArgs::augment_args),
    ("run", run::RunArgs::augment_args),
    ("runs", journal::RunsArgs::augment_args),
    ("serve", serve::ServeArgs::augment_args),
    ("show", journal::ShowArgs::augment_args),
    ("team", map_team_args::TeamArgs::augment_args),
    ("tell", journal::TellArgs::augment_args),
    ("worker", restate::WorkerArgs::augment_args),
];

/// Parses the arguments of a process; `None` if they name another command, or are not valid.
pub(super) fn parse(args: &[OsString]) -> Option<Cli> {
    let name = args.get(1)?;
    let (name, add_arguments) = COMMANDS.iter().find(|(command, _)| name == command)?;
    let mut matches = grammar(name, *add_arguments).try_get_matches_from(args).ok()?;
    Cli::from_arg_matches_mut(&mut matches).ok()
}

/// Answers `homing --version`, which needs no grammar of commands; `None` for other arguments.
pub(super) fn version(args: &[OsString]) -> Option<clap::Error> {
    let [_, flag] = args else { return None };
    if flag != "--version" && flag != "-V" {
        return None;
    }
    clap::Command::new("homing").version(env!("CARGO_PKG_VERSION")).try_get_matches_from(args).err()
}

fn grammar(name: &'static str, add_arguments: AddArguments) -> clap::Command {
    clap::Command::new("homing").subcommand(add_arguments(clap::Command::new(name)))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn one_command_has_the_arguments_of_the_whole_grammar() {
        let arguments = |mut homing: clap::Command, name: &str| {
            homing.build();
            let command = homing.find_subcommand(name).unwrap();
            let is_version = |arg: &&clap::Arg| arg.get_id() == "version";
            let arguments: Vec<_> = command.get_arguments().filter(|arg| !is_version(arg)).collect();
            let below: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            format!("{arguments:#?}\n{:#?}\n{below:?}", command.get_groups().collect::<Vec<_>>())
        };
        for (name, add_arguments) in COMMANDS {
            assert_eq!(arguments(grammar(name, *add_arguments), name), arguments(Cli::command(), name), "{name}");
        }
    }

    #[test]
    fn both_grammars_read_the_same_arguments() {
        for line in [
            "homing run --max-cost 0.5 --agent code --tag a=b --until true do it",
            "homing run -",
            "homing map --each - --model offline describe it",
            "homing team file.yaml",
            "homing mcp serve",
            "homing mcp",
            "homing show 1 --follow",
            "homing agents --json",
        ] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let (one, whole) = (parse(&args).expect(line), Cli::try_parse_from(&args).unwrap());
            assert_eq!(format!("{one:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn version_is_that_of_the_whole_grammar() {
        for line in ["homing --version", "homing -V", "/usr/bin/other -V"] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let (one, whole) = (version(&args).expect(line), Cli::try_parse_from(&args).unwrap_err());
            assert_eq!((one.kind(), one.to_string()), (whole.kind(), whole.to_string()), "{line}");
        }
        for line in ["homing", "homing --version run", "homing run --version", "homing --help"] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(version(&args).is_none(), "{line}");
        }
    }

    #[test]
    fn errors_are_left_to_the_whole_grammar() {
        for line in ["homing run --nonsense", "homing run --version", "homing", "homing rum it", "homing map"] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(parse(&args).is_none(), "{line}");
        }
    }
}
