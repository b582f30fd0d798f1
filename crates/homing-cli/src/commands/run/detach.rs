//! `homing run --detach`: a second process does the work, in a session of its own, and reports the run once it is recorded.

use std::{
    io::{BufRead, BufReader, IsTerminal, Write, stdin, stdout},
    process::{Command, Stdio},
};

use homing::environment;
use homing_core::{
    fact::{Fact, Record},
    short_id::short_id,
};
use serde_json::{Value, json};

use crate::{
    cli::run::{OnQuestionArg, RunArgs},
    exit::{Exit, Trouble, print},
    terminal,
    watch::Show,
};

/// Starts the second process, waits until its run is recorded, and prints the run.
pub(super) fn start(args: &RunArgs) -> anyhow::Result<Exit> {
    let failed = |error: std::io::Error| Trouble::config(format!("cannot start a process in the background: {error}"));
    // The first occurrence is the flag: what follows `--` is the task.
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(flag) = words.iter_mut().find(|word| *word == "--detach") {
        *flag = "--detached".into();
    }
    let input = if stdin().is_terminal() { Stdio::null() } else { Stdio::inherit() };
    let mut child = Command::new(environment::executable().map_err(failed)?)
        .args(words)
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(failed)?;
    }
    let Ok(started) = serde_json::from_str::<Value>(&line) else {
        // It has said why on stderr.
        let code = child.wait().map_err(failed)?.code().and_then(|code| u8::try_from(code).ok());
        return Ok(Exit::of_code(code.unwrap_or(1)));
    };
    if args.output.json {
        print(&terminal::json(&started))?;
        return Ok(Exit::Done);
    }
    let text = |key: &str| started[key].as_str().unwrap_or_default().to_owned();
    let id = started["run"].as_str().and_then(|id| id.parse().ok()).map(short_id).unwrap_or_default();
    print(&id)?;
    terminal::inform(&format!("started run {id} ({}) in {}, process {}", text("agent"), text("project"), child.id()));
    terminal::inform(&format!("follow it with: homing show {id} --follow · stop it with: homing cancel {id}"));
    Ok(Exit::Done)
}

/// Makes this process independent of the terminal, if it is the second one. Questions wait, because there is no one to ask.
pub(super) fn in_background(args: &RunArgs) -> Result<RunArgs, Trouble> {
    let mut args = args.clone();
    if args.background.detached {
        rustix::process::setsid()
            .map_err(|error| Trouble::config(format!("cannot leave the terminal's session: {error}")))?;
        args.with.approval.on_question.get_or_insert(OnQuestionArg::Park);
    }
    Ok(args)
}

/// Returns the form in which progress is shown; a process in the background shows nothing.
pub(super) fn show(args: &RunArgs) -> Show {
    if args.background.detached { Show::Quiet } else { args.output.show() }
}

/// Returns a function that reports the run to the first process with its first record, and then lets go of the terminal.
pub(super) fn announcer(args: &RunArgs) -> impl FnMut(&Record) + use<> {
    let mut is_due = args.background.detached;
    move |record| {
        let Fact::Spawned(spawned) = &record.fact else { return };
        if !std::mem::take(&mut is_due) {
            return;
        }
        let project = spawned.project.as_ref().unwrap_or(&spawned.workdir);
        let started = json!({
            "run": record.run, "agent": spawned.agent.name, "project": project, "pid": std::process::id(),
        });
        let _ = writeln!(stdout(), "{started}").and_then(|()| stdout().flush());
        let _ = terminal::silence();
    }
}
