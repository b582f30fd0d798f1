//! Runs git for the tools in the run's sandbox, without programs configured by the repository.

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

const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs git read-only in the sandbox of the calling run.
#[derive(Debug)]
pub struct SandboxedGit {
    /// Starts the commands.
    pub commands: Arc<Commands>,
}

impl GitRunner for SandboxedGit {
    fn git<'a>(
        &'a self,
        context: &'a ToolContext,
        args: Vec<String>,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<GitOutput, String>> {
        Box::pin(self.run(context, args, max_bytes))
    }
}

impl SandboxedGit {
    async fn run(&self, context: &ToolContext, args: Vec<String>, max_bytes: usize) -> Result<GitOutput, String> {
        let own = &context.authority.own;
        // The tools filter git's output by the rules themselves; git fails if it cannot read a changed file.
        let grant = Grant::clone(own).sandbox(read_only(own.sandbox)).layers(Vec::new());
        let private = self.commands.private_folder(context.key.run, &context.state);
        let workdir = &context.workdir;
        let command = ShellCommand { command: "git", workdir, grant: &grant, time: TIMEOUT, trace: None };
        let mut job = self.commands.job(&command, &private).await.map_err(|error| error.to_string())?;
        job.env.extend(self.commands.neutral_git(&job).await.map_err(|error| error.to_string())?);
        let argv = std::iter::once("git".to_owned()).chain(args).collect();
        let job = CommandSpec { argv, streams: Streams::Apart, ..job };
        let spill = private.root.join("output").join(format!("{}.txt", Uuid::new_v4()));
        let running = self.commands.launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(Some(spill)), TIMEOUT, context.cancelled(), &mut |_| ()).await;
        match finished.ending {
            CommandEnd::Exited(0) => first(finished.output, max_bytes),
            CommandEnd::Refused(why) => Err(why),
            CommandEnd::TimedOut => Err("git timed out".to_owned()),
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) | CommandEnd::Cancelled => Err(finished.stderr.text),
        }
    }
}

/// Reduces a sandbox to read-only; a disabled sandbox stays disabled.
fn read_only(sandbox: Sandbox) -> Sandbox {
    match sandbox {
        Sandbox::ReadOnly | Sandbox::WorkspaceWrite => Sandbox::ReadOnly,
        Sandbox::Off => Sandbox::Off,
    }
}

/// Returns the first `max_bytes` of the output, from the file if it was too large for memory.
fn first(output: Captured, max_bytes: usize) -> Result<GitOutput, String> {
    let mut bytes = Vec::new();
    match &output.file {
        Some(path) => {
            let read = std::fs::File::open(path).and_then(|file| file.take(max_bytes as u64).read_to_end(&mut bytes));
            let _ = std::fs::remove_file(path);
            read.map_err(|error| error.to_string())?;
        }
        None => bytes = output.text.into_bytes(),
    }
    bytes.truncate(max_bytes);
    Ok(GitOutput { stdout: String::from_utf8_lossy(&bytes).into_owned(), was_cut: output.total > bytes.len() as u64 })
}
