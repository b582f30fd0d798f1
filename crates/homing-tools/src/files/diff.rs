//! `diff`: what git says was changed. It asks a runner to run git, and does not know how processes are confined.

use std::{ffi::OsString, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use homing_core::{
    BoxFuture,
    rule::{Subject, Subjects},
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    files::{
        path_arg::{RequestedPath, or_workdir, path_subjects},
        workspace_files::find,
    },
    lenient_args,
    result_filter::ResultFilter,
    shell::{git_only_env, git_only_env_for},
    typed_tool::TypedTool,
};

/// Bytes of a diff in one answer.
const MOST: usize = 128 * 1024;
/// How long git may take.
const TIME: Duration = Duration::from_secs(60);

/// Runs git in a run's folder.
pub trait GitRunner: Send + Sync {
    /// Runs `git ARGS…` so that the repository's configuration runs nothing, and returns at most `most` bytes.
    fn git<'a>(
        &'a self,
        context: &'a ToolContext,
        args: Vec<String>,
        most: usize,
    ) -> BoxFuture<'a, Result<GitOutput, String>>;
}

/// What git printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitOutput {
    /// Its standard output.
    pub stdout: String,
    /// There was more than was asked for.
    pub was_cut: bool,
}

/// Git as a plain process with a clean environment: no configuration of the system or the user, no programs of the
/// repository's choosing, no sandbox.
#[derive(Clone, Debug)]
pub struct PlainGit {
    /// The git program.
    pub program: PathBuf,
    /// `PATH` for it, to find its own parts.
    pub path: OsString,
}

impl GitRunner for PlainGit {
    fn git<'a>(
        &'a self,
        context: &'a ToolContext,
        args: Vec<String>,
        most: usize,
    ) -> BoxFuture<'a, Result<GitOutput, String>> {
        Box::pin(async move {
            let listing = ["config", "--list", "--name-only"].map(str::to_owned).to_vec();
            // Outside a repository there is nothing to list; the command itself will say what is wrong.
            let settings = self.run(context, listing, git_only_env(), 1 << 20).await.unwrap_or_default();
            if settings.was_cut {
                return Err("this repository has too many settings to be looked at safely".to_owned());
            }
            self.run(context, args, git_only_env_for(settings.stdout.lines()), most).await
        })
    }
}

impl PlainGit {
    async fn run(
        &self,
        context: &ToolContext,
        args: Vec<String>,
        env: Vec<(String, String)>,
        most: usize,
    ) -> Result<GitOutput, String> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(args).current_dir(&context.workdir).env_clear().env("PATH", &self.path).env("LC_ALL", "C");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").envs(env);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("git cannot be started: {error}"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let talk = async { tokio::join!(head(stdout, most), head(stderr, 4_096)) };
        let ((stdout, was_cut), (stderr, _)) = tokio::select! {
            talk = tokio::time::timeout(TIME, talk) => talk.map_err(|_| "git took too long".to_owned())?,
            () = context.cancelled() => return Err("the call was cancelled".to_owned()),
        };
        if was_cut {
            let _ = child.start_kill();
            let _ = child.wait().await;
            return Ok(GitOutput { stdout, was_cut });
        }
        let status = child.wait().await.map_err(|error| format!("git was lost: {error}"))?;
        if status.success() { Ok(GitOutput { stdout, was_cut }) } else { Err(stderr.trim().to_owned()) }
    }
}

/// The first `most` bytes, and whether there were more.
async fn head(stream: Option<impl AsyncRead + Unpin>, most: usize) -> (String, bool) {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What cannot be read is not there.
        let _ = stream.take(most as u64 + 1).read_to_end(&mut bytes).await;
    }
    let was_cut = bytes.len() > most;
    bytes.truncate(most);
    (String::from_utf8_lossy(&bytes).into_owned(), was_cut)
}

/// Shows changes.
pub(crate) struct Diff {
    pub(crate) git: Arc<dyn GitRunner>,
}

/// Arguments of `diff`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Compare with this commit or range, such as `main`, `HEAD~1` or `main...HEAD`; absent: the last commit's state of
    /// each file, as staged.
    #[serde(default, alias = "ref", alias = "base", alias = "commit", alias = "target", alias = "range")]
    against: Option<String>,
    /// Only what is staged for the next commit.
    #[serde(default, alias = "cached", deserialize_with = "lenient_args::switch")]
    #[schemars(with = "Option<bool>")]
    staged: bool,
    /// Only this file or folder.
    #[serde(default, alias = "file_path", alias = "file", alias = "directory")]
    path: Option<String>,
}

impl TypedTool for Diff {
    type Args = Args;
    const NAME: &'static str = "diff";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"against": "main...HEAD", "path": "src"}"#;

    fn description(&self) -> String {
        "Shows changes in the git repository as a unified diff: what is changed and not staged, what is staged, or the \
         difference to a commit or branch. New files that git does not know yet are named at the end."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        self.show(context, &args).await.unwrap_or_else(ToolOutput::error)
    }
}

impl Diff {
    async fn show(&self, context: &ToolContext, args: &Args) -> Result<ToolOutput, String> {
        let wanted = RequestedPath::new(context, or_workdir(args.path.as_deref()))?;
        // A deleted file is a change, too: only what is there must lie within the roots.
        if wanted.absolute.exists() || !wanted.absolute.starts_with(&context.workdir) {
            find(context, Self::NAME, &wanted)?;
        }
        let mut command: Vec<String> =
            ["diff", "--no-ext-diff", "--no-textconv", "--no-color"].map(str::to_owned).to_vec();
        if args.staged {
            command.push("--cached".to_owned());
        }
        if let Some(revision) = args.against.as_deref().filter(|it| !it.is_empty()) {
            command.push(checked(revision)?);
        }
        let hidden = self.hidden(context, &command, &wanted).await?;
        let scope: Vec<String> = ["--".to_owned(), pathspec(&wanted)].into_iter().chain(hidden).collect();
        let diff = self.git.git(context, [command, scope.clone()].concat(), MOST).await?;
        let mut text = diff.stdout;
        if text.is_empty() {
            text.push_str("no changes\n");
        }
        if diff.was_cut {
            text.push_str("\n… the diff goes on: name a `path`\n");
        }
        if args.against.is_none() && !args.staged {
            text.push_str(&self.untracked(context, scope).await?);
        }
        Ok(ToolOutput::text(text))
    }

    /// Files of the diff that rules keep from this run, as patterns that leave them out.
    async fn hidden(
        &self,
        context: &ToolContext,
        command: &[String],
        wanted: &RequestedPath,
    ) -> Result<Vec<String>, String> {
        let sight = ResultFilter::new(context, Self::NAME, Subject::Path(wanted.shown.clone()));
        let names = ["--name-only", "--no-renames", "--relative", "-z", "--"].map(str::to_owned);
        let names = [command, &names, &[pathspec(wanted)]].concat();
        let names = self.git.git(context, names, 1 << 20).await?;
        if names.was_cut {
            return Err("too many files were changed: name a `path`".to_owned());
        }
        let hidden = |name: &&str| !name.is_empty() && !sight.allows(|| Subject::Path((*name).to_owned()));
        Ok(names.stdout.split('\0').filter(hidden).map(|it| format!(":(exclude,literal){it}")).collect())
    }

    async fn untracked(&self, context: &ToolContext, scope: Vec<String>) -> Result<String, String> {
        let command = ["ls-files", "--others", "--exclude-standard"].map(str::to_owned).to_vec();
        let files = self.git.git(context, [command, scope].concat(), 16 * 1024).await?.stdout;
        Ok(if files.is_empty() { files } else { format!("\nnew files, not yet known to git:\n{files}") })
    }
}

/// Only the run's folder or what was named in it: the repository may reach further up.
fn pathspec(wanted: &RequestedPath) -> String {
    format!(":(literal){}", wanted.shown)
}

fn checked(revision: &str) -> Result<String, String> {
    let odd = |it: char| it.is_whitespace() || it.is_control();
    if revision.starts_with('-') || revision.contains(odd) {
        return Err(format!("diff: `against` must be a commit, branch or range. Example: {}", Diff::EXAMPLE));
    }
    Ok(revision.to_owned())
}
