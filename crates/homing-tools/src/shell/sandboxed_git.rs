//! Git that we start ourselves: in the run's sandbox, and without anything that a repository would have it run.

use std::{io::Read, sync::Arc, time::Duration};

use homing_core::{
    BoxFuture,
    authority::{Grant, Sandbox},
    tool::ToolContext,
};
use uuid::Uuid;

use crate::{
    files::diff::{GitOutput, GitRunner},
    shell::commands::{Commands, ShellCommand},
};
use homing_sandbox::process::{Captured, Collector, CommandEnd, CommandSpec, Streams};

const TIME: Duration = Duration::from_secs(60);

/// Git in the sandbox of the run that asks for it, where it can change nothing.
#[derive(Debug)]
pub struct SandboxedGit {
    /// Runs it.
    pub commands: Arc<Commands>,
}

impl GitRunner for SandboxedGit {
    fn git<'a>(
        &'a self,
        context: &'a ToolContext,
        args: Vec<String>,
        most: usize,
    ) -> BoxFuture<'a, Result<GitOutput, String>> {
        Box::pin(self.run(context, args, most))
    }
}

impl SandboxedGit {
    async fn run(&self, context: &ToolContext, args: Vec<String>, most: usize) -> Result<GitOutput, String> {
        let own = &context.authority.own;
        let grant = Grant { sandbox: looking(own.sandbox), ..Grant::clone(own) };
        let room = self.commands.room(context.key.run, &context.state);
        let command = ShellCommand { command: "git", workdir: &context.workdir, grant: &grant, time: TIME };
        let mut job = self.commands.job(&command, &room).await.map_err(|error| error.to_string())?;
        job.env.extend(self.commands.neutral_git(&job).await.map_err(|error| error.to_string())?);
        let argv = std::iter::once("git".to_owned()).chain(args).collect();
        let job = CommandSpec { argv, streams: Streams::Apart, ..job };
        let spill = room.root.join("output").join(format!("{}.txt", Uuid::new_v4()));
        let running = self.commands.launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(Some(spill)), TIME, context.cancelled(), &mut |_| ()).await;
        match finished.ending {
            CommandEnd::Exited(0) => first(finished.output, most),
            CommandEnd::Refused(why) => Err(why),
            CommandEnd::TimedOut => Err("git took too long".to_owned()),
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) | CommandEnd::Cancelled => Err(finished.complaints.text),
        }
    }
}

/// Who only looks needs nothing writable; a sandbox that is off stays off.
fn looking(sandbox: Sandbox) -> Sandbox {
    match sandbox {
        Sandbox::ReadOnly | Sandbox::WorkspaceWrite => Sandbox::ReadOnly,
        Sandbox::Off => Sandbox::Off,
    }
}

/// The first `most` bytes of the output, from the file where it did not fit in memory.
fn first(output: Captured, most: usize) -> Result<GitOutput, String> {
    let mut bytes = Vec::new();
    match &output.file {
        Some(path) => {
            let read = std::fs::File::open(path).and_then(|file| file.take(most as u64).read_to_end(&mut bytes));
            let _ = std::fs::remove_file(path);
            read.map_err(|error| error.to_string())?;
        }
        None => bytes = output.text.into_bytes(),
    }
    bytes.truncate(most);
    Ok(GitOutput { stdout: String::from_utf8_lossy(&bytes).into_owned(), was_cut: output.total > bytes.len() as u64 })
}
