//! The `diff` tool: shows changes in the git repository. A [`GitRunner`] runs git.

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

/// Maximum size of a diff.
const MAX_DIFF: usize = 128 * 1024;
/// Timeout of git.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs git in a run's folder.
pub trait GitRunner: Send + Sync {
    /// Runs `git ARGS…` without programs configured by the repository, and returns at most `max_bytes` bytes.
    fn git<'a>(
        &'a self,
        context: &'a ToolContext,
        args: Vec<String>,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<GitOutput, String>>;
}

/// The output of git.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitOutput {
    /// Its standard output.
    pub stdout: String,
    /// True if there was more output than requested.
    pub was_cut: bool,
}

/// Runs git as a plain process without a sandbox: clean environment, no system or user configuration, no programs
/// configured by the repository.
#[derive(Clone, Debug)]
pub struct PlainGit {
    /// The git program.
    pub program: PathBuf,
    /// `PATH` for git, to find its own programs.
    pub path: OsString,
}

impl GitRunner for PlainGit {
    fn git<'a>(
        &'a self,
        context: &'a ToolContext,
        args: Vec<String>,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<GitOutput, String>> {
        Box::pin(async move {
            let listing = ["config", "--list", "--name-only"].map(str::to_owned).to_vec();
            // Outside a repository the listing fails; the command itself then reports the error.
            let settings = self.run(context, listing, git_only_env(), 1 << 20).await.unwrap_or_default();
            if settings.was_cut {
                return Err("this repository has too many git settings to run git safely".to_owned());
            }
            self.run(context, args, git_only_env_for(settings.stdout.lines()), max_bytes).await
        })
    }
}

impl PlainGit {
    async fn run(
        &self,
        context: &ToolContext,
        args: Vec<String>,
        env: Vec<(String, String)>,
        max_bytes: usize,
    ) -> Result<GitOutput, String> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(args).current_dir(&context.workdir).env_clear().env("PATH", &self.path).env("LC_ALL", "C");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").envs(env);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("cannot start git: {error}"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let output = async { tokio::join!(head(stdout, max_bytes), head(stderr, 4_096)) };
        let ((stdout, was_cut), (stderr, _)) = tokio::select! {
            output = tokio::time::timeout(TIMEOUT, output) => output.map_err(|_| "git timed out".to_owned())?,
            () = context.cancelled() => return Err("the call was cancelled".to_owned()),
        };
        if was_cut {
            let _ = child.start_kill();
            let _ = child.wait().await;
            return Ok(GitOutput { stdout, was_cut });
        }
        let status = child.wait().await.map_err(|error| format!("cannot wait for git: {error}"))?;
        if status.success() { Ok(GitOutput { stdout, was_cut }) } else { Err(stderr.trim().to_owned()) }
    }
}

/// Reads the first `max_bytes` bytes, and returns true if there were more.
async fn head(stream: Option<impl AsyncRead + Unpin>, max_bytes: usize) -> (String, bool) {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // A read error ends the output early; the exit status shows whether git failed.
        let _ = stream.take(max_bytes as u64 + 1).read_to_end(&mut bytes).await;
    }
    let was_cut = bytes.len() > max_bytes;
    bytes.truncate(max_bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), was_cut)
}

/// The `diff` tool.
pub(crate) struct DiffTool {
    pub(crate) git: Arc<dyn GitRunner>,
}

/// Arguments of `diff`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DiffArgs {
    /// Compare with this commit or range, such as `main`, `HEAD~1` or `main...HEAD`; if absent, shows changes that are not
    /// staged.
    #[serde(default, alias = "ref", alias = "base", alias = "commit", alias = "target", alias = "range")]
    against: Option<String>,
    /// Only changes that are staged for the next commit.
    #[serde(default, alias = "cached", deserialize_with = "lenient_args::switch")]
    #[schemars(with = "Option<bool>")]
    staged: bool,
    /// Only this file or folder.
    #[serde(default, alias = "file_path", alias = "file", alias = "directory")]
    path: Option<String>,
}

impl TypedTool for DiffTool {
    type Args = DiffArgs;
    const NAME: &'static str = "diff";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"against": "main...HEAD", "path": "src"}"#;

    fn description(&self) -> String {
        "Shows changes in the git repository as a unified diff: unstaged changes, staged changes, or the \
         difference to a commit or branch. Untracked files are listed at the end."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &DiffArgs) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: DiffArgs) -> ToolOutput {
        self.show(context, &args).await.unwrap_or_else(ToolOutput::error)
    }
}

impl DiffTool {
    async fn show(&self, context: &ToolContext, args: &DiffArgs) -> Result<ToolOutput, String> {
        let requested = RequestedPath::new(context, or_workdir(args.path.as_deref()))?;
        // A deleted file is a change, too: only existing files are checked against the roots.
        if requested.absolute.exists() || !requested.absolute.starts_with(&context.workdir) {
            find(context, Self::NAME, &requested)?;
        }
        let mut command: Vec<String> =
            ["diff", "--no-ext-diff", "--no-textconv", "--no-color"].map(str::to_owned).to_vec();
        if args.staged {
            command.push("--cached".to_owned());
        }
        if let Some(revision) = args.against.as_deref().filter(|revision| !revision.is_empty()) {
            command.push(checked(revision)?);
        }
        let hidden = self.hidden(context, &command, &requested).await?;
        let scope: Vec<String> = ["--".to_owned(), pathspec(&requested)].into_iter().chain(hidden).collect();
        let diff = self.git.git(context, [command, scope.clone()].concat(), MAX_DIFF).await?;
        let mut text = diff.stdout;
        if text.is_empty() {
            text.push_str("no changes\n");
        }
        if diff.was_cut {
            text.push_str("\n… [diff truncated: name a `path`]\n");
        }
        if args.against.is_none() && !args.staged {
            text.push_str(&self.untracked(context, scope).await?);
        }
        Ok(ToolOutput::text(text))
    }

    /// Returns exclude patterns for the changed files that the rules do not allow this run to see.
    async fn hidden(
        &self,
        context: &ToolContext,
        command: &[String],
        requested: &RequestedPath,
    ) -> Result<Vec<String>, String> {
        let filter = ResultFilter::new(context, Self::NAME, Self::EFFECT, Subject::Path(requested.shown.clone()));
        let names = ["--name-only", "--no-renames", "--relative", "-z", "--"].map(str::to_owned);
        let names = [command, &names, &[pathspec(requested)]].concat();
        let names = self.git.git(context, names, 1 << 20).await?;
        if names.was_cut {
            return Err("too many changed files: name a `path`".to_owned());
        }
        let hidden = |name: &&str| !name.is_empty() && !filter.allows(|| Subject::Path((*name).to_owned()));
        Ok(names.stdout.split('\0').filter(hidden).map(|name| format!(":(exclude,literal){name}")).collect())
    }

    async fn untracked(&self, context: &ToolContext, scope: Vec<String>) -> Result<String, String> {
        let command = ["ls-files", "--others", "--exclude-standard"].map(str::to_owned).to_vec();
        let files = self.git.git(context, [command, scope].concat(), 16 * 1024).await?.stdout;
        Ok(if files.is_empty() { files } else { format!("\nuntracked files:\n{files}") })
    }
}

/// Limits git to the requested path: the repository may extend above the run's folder.
fn pathspec(requested: &RequestedPath) -> String {
    format!(":(literal){}", requested.shown)
}

fn checked(revision: &str) -> Result<String, String> {
    let is_invalid = |it: char| it.is_whitespace() || it.is_control();
    if revision.starts_with('-') || revision.contains(is_invalid) {
        return Err(format!("diff: `against` must be a commit, branch or range. Example: {}", DiffTool::EXAMPLE));
    }
    Ok(revision.to_owned())
}
