//! `homing man`: the manual pages, made from the command line's own grammar.

use std::{
    fs, io,
    io::{IsTerminal, Write, stdout},
    path::Path,
    process::Command as Process,
};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::{
    cli::{Cli, ManArgs},
    exit::{Exit, Trouble, print},
};

/// Sections of the first page that the grammar does not contain.
const SECTIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "EXIT STATUS",
        &[
            ("0", "done"),
            ("1", "failed; for check: errors, or fixes that were not applied; for map and team: a part failed"),
            ("2", "usage, configuration or keys: nothing was started"),
            ("3", "a limit or the time was reached; the partial answer is on standard output"),
            ("4", "refused by policy, or declined by the provider"),
            ("5", "the provider is not reachable; retrying may help"),
            ("6", "the run waits for an answer (homing questions)"),
            ("129, 130, 143", "stopped by SIGHUP, Ctrl-C or SIGTERM; the result so far is printed"),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("HOMING_MODEL", "model to use, as --model"),
            ("HOMING_JOURNAL", "journal file, or `off`, as --journal"),
            ("ANTHROPIC_API_KEY, OPENAI_API_KEY, …", "keys of providers; `homing models` names the variable of each"),
            ("NO_COLOR", "if set, no colours"),
            ("VISUAL, EDITOR", "editor of `homing config edit`"),
        ],
    ),
    (
        "FILES",
        &[
            ("~/.config/homing/config.toml", "your configuration"),
            (".homing/config.toml", "the configuration of a project, which can only narrow yours"),
            (".homing/agents, .claude/agents, …", "agents of a project; `homing agents` lists them"),
            ("~/.local/share/homing/journal.db", "the journal: all recorded runs"),
        ],
    ),
];

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<Exit> {
    let mut top = Cli::command().disable_help_subcommand(true);
    top.build();
    if let Some(folder) = &args.out {
        return write_all(&top, folder);
    }
    let mut command = &top;
    for name in &args.command {
        command = command.find_subcommand(name).ok_or_else(|| {
            Trouble::usage(format!("`{}` has no command `{name}`", command.get_bin_name().unwrap_or("homing")))
                .hint("`homing --help` lists the commands")
        })?;
    }
    let page = page(command)?;
    if stdout().is_terminal() && show(&page) {
        return Ok(Exit::Done);
    }
    print(String::from_utf8_lossy(&page).trim_end())?;
    Ok(Exit::Done)
}

/// Shows a page with the system's `man`. False if there is none.
fn show(page: &[u8]) -> bool {
    let shown = || -> io::Result<bool> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(page)?;
        Ok(Process::new("man").arg("-l").arg(file.path()).status()?.success())
    };
    shown().unwrap_or(false)
}

fn write_all(top: &Command, folder: &Path) -> anyhow::Result<Exit> {
    let failed = |error: io::Error| Trouble::usage(format!("cannot write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut open = vec![top];
    let mut count = 0;
    while let Some(command) = open.pop() {
        fs::write(folder.join(format!("{}.1", page_name(command))), page(command)?).map_err(failed)?;
        open.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
        count += 1;
    }
    crate::terminal::say(&format!("{count} manual pages written to {}", folder.display()));
    Ok(Exit::Done)
}

/// Returns the name of a command's page: `homing-mcp-add`.
fn page_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or("homing").replace(' ', "-")
}

fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let version = concat!("homing ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(page_name(command).to_uppercase()).source(version).manual("Homing");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    write!(out, ".SH SYNOPSIS\n{}\n", escaped(&synopsis(command)))?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(notes) = command.get_after_help() {
        // Examples keep their lines.
        let lines: String = notes.to_string().lines().map(|line| escaped(line) + "\n").collect();
        write!(out, ".SH NOTES\n.nf\n{lines}.fi\n")?;
    }
    let is_top = page_name(command) == "homing";
    for (title, rows) in SECTIONS.iter().filter(|_| is_top) {
        writeln!(out, ".SH \"{title}\"")?;
        for (name, text) in *rows {
            write!(out, ".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(text))?;
        }
    }
    if !is_top {
        writeln!(out, ".SH \"SEE ALSO\"\n\\fBhoming\\fR(1)")?;
    }
    // Every section defines the same string; once is enough.
    let text = String::from_utf8_lossy(&out).into_owned();
    let define = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
    Ok(text.replacen(define, "\0", 1).replace(define, "").replace('\0', define).into_bytes())
}

/// Returns the usage of a command in one line.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Escapes a line for roff.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
