//! `homing init`: writes example agents. Existing files are never overwritten.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use homing_load::builtin::EXAMPLES;

use crate::exit::Exit;

pub(crate) fn run() -> anyhow::Result<Exit> {
    let has_claude = Path::new(".claude/agents").is_dir();
    let folder = PathBuf::from(if has_claude { ".claude/agents" } else { ".homing/agents" });
    if let Err(error) = fs::create_dir_all(&folder) {
        anstream::eprintln!("error: cannot create the folder {}: {error}", folder.display());
        return Ok(Exit::Failed);
    }
    let mut written = 0;
    for (name, text) in EXAMPLES {
        let path = folder.join(name);
        match write_new(&path, text) {
            Ok(()) => {
                written += 1;
                writeln!(anstream::stdout(), "{}", path.display()).context("cannot write to stdout")?;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                anstream::eprintln!("{} already exists; not changed", path.display());
            }
            Err(error) => {
                anstream::eprintln!("error: cannot write {}: {error}", path.display());
                return Ok(Exit::Failed);
            }
        }
    }
    next_steps(written);
    Ok(Exit::Done)
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn next_steps(written: usize) {
    anstream::eprintln!("{written} agents written. Next:");
    anstream::eprintln!("  homing agents                  list all agents");
    anstream::eprintln!("  homing agents code-reviewer    explain one");
    anstream::eprintln!("  homing check                   check the files after changing them");
    anstream::eprintln!("  homing run --agent researcher --network on \"…\"    let one read web pages");
}
