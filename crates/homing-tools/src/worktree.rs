//! A separate git worktree per run: created from the repository's last commit, and removed if the run changed nothing. Otherwise
//! its work is committed on the worktree's branch and kept. Git runs in the sandbox, without hooks and without programs configured by the repository.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homing_core::{
    BoxFuture,
    authority::{Grant, Network, Sandbox},
    workspace::{Left, Workspace, Workspaces},
};
use uuid::Uuid;

use crate::shell::commands::{Commands, ShellCommand};
use homing_sandbox::{
    PrivateFolder,
    git_folder::{GitFolder, locate},
    private_folder,
    process::{Collector, CommandEnd, CommandSpec, Protection},
};

/// Timeout of one git command; checking out a large repository is slow.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Creates worktrees in one folder of the host.
#[derive(Debug)]
pub struct GitWorktrees {
    /// Runs git.
    pub commands: Arc<Commands>,
    /// The folder for worktrees; outside every repository, and writable only by this user.
    pub folder: PathBuf,
    /// The sandbox for git itself.
    pub sandbox: Sandbox,
}

/// The repository that a folder belongs to.
struct Repository {
    top: PathBuf,
    /// The git folder that all of its worktrees share.
    git: PathBuf,
    /// The folder's path below the top.
    prefix: PathBuf,
    commit: String,
}

/// The commit that a run started from and the repository of its worktree. It is stored outside the run's reach, because
/// the run can change the files in which git records the same.
struct BaseCommit {
    commit: String,
    git: PathBuf,
}

impl BaseCommit {
    fn text(&self) -> String {
        format!("{}\n{}\n", self.commit, self.git.display())
    }

    fn parse(text: &str) -> Option<Self> {
        let (commit, git) = text.strip_suffix('\n')?.split_once('\n')?;
        Some(Self { commit: commit.to_owned(), git: git.into() })
    }
}

/// A worktree that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWorktree {
    /// The run that worked in it.
    pub run: Uuid,
    /// Its folder.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
    /// The commit that the run started from.
    pub base: String,
    /// The git folder of its repository.
    pub git: PathBuf,
    /// The file that records the worktree; it is removed with it.
    pub record: PathBuf,
}

/// Lists the worktrees in a folder, the oldest first.
pub fn kept_worktrees(folder: &Path) -> Vec<KeptWorktree> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let read = |record: PathBuf| {
        let run: Uuid = record.file_name()?.to_str()?.strip_suffix(".base")?.parse().ok()?;
        let BaseCommit { commit, git } = BaseCommit::parse(&std::fs::read_to_string(&record).ok()?)?;
        let (path, branch) = (folder.join(run.to_string()), GitWorktrees::branch(run));
        Some(KeptWorktree { run, path, branch, base: commit, git, record })
    };
    let mut kept: Vec<KeptWorktree> = entries.filter_map(read).collect();
    kept.sort_by_key(|worktree| worktree.run);
    kept
}

impl Workspaces for GitWorktrees {
    fn enter<'a>(&'a self, run: Uuid, workdir: &'a Path) -> BoxFuture<'a, Result<Workspace, String>> {
        Box::pin(async move {
            let repository = self.repository(workdir).await?;
            private_folder::open(&self.folder)
                .map_err(|error| format!("cannot use the worktree folder {}: {error}", self.folder.display()))?;
            let place = self.place(run);
            if !place.is_dir() {
                self.add(run, &repository).await?;
            }
            Ok(workspace(&repository, &place))
        })
    }

    fn leave<'a>(&'a self, run: Uuid, _: &'a Workspace) -> BoxFuture<'a, Left> {
        Box::pin(async move {
            let place = self.place(run);
            if !place.is_dir() {
                return Left::Removed;
            }
            match self.unchanged(run).await {
                Ok(git) => match self.remove(run, &git).await {
                    Ok(()) => Left::Removed,
                    Err(why) => Left::Kept { path: place, summary: format!("could not be removed: {why}") },
                },
                Err(summary) => {
                    let uncommitted = match self.commit(run).await {
                        Ok(()) => String::new(),
                        Err(why) => format!("; its uncommitted changes could not be committed: {}", why.trim()),
                    };
                    Left::Kept { path: place, summary: format!("{summary}{uncommitted}") }
                }
            }
        })
    }
}

/// Grants the worktree and the git folder, where commits are stored; the sandbox protects hooks and configuration.
fn workspace(repository: &Repository, place: &Path) -> Workspace {
    let own = repository.git.join("worktrees").join(place.file_name().unwrap_or_default());
    Workspace {
        workdir: place.join(&repository.prefix),
        read: vec![place.to_owned(), repository.git.clone()],
        write: vec![place.to_owned(), repository.git.clone(), own],
    }
}

impl GitWorktrees {
    fn place(&self, run: Uuid) -> PathBuf {
        self.folder.join(run.to_string())
    }

    fn base(&self, run: Uuid) -> PathBuf {
        self.folder.join(format!("{run}.base"))
    }

    fn branch(run: Uuid) -> String {
        format!("homing/{run}")
    }

    async fn repository(&self, workdir: &Path) -> Result<Repository, String> {
        let no_repository = |why: &str| format!("{} is not a git repository with a commit: {why}", workdir.display());
        let workdir = workdir.canonicalize().map_err(|error| error.to_string())?;
        let GitFolder { top, common: git } = locate(&workdir, &[]).ok_or_else(|| no_repository("no .git found"))?;
        let read = [top.clone(), git.clone()];
        let head = self.git(&top, &["rev-parse", "--verify", "HEAD"], GitAccess::Reading(&read)).await;
        let commit = head.map_err(|why| no_repository(why.trim()))?.trim().to_owned();
        let prefix = workdir.strip_prefix(&top).map_err(|error| error.to_string())?.to_owned();
        Ok(Repository { top, git, prefix, commit })
    }

    async fn add(&self, run: Uuid, repository: &Repository) -> Result<(), String> {
        let (place, branch) = (self.place(run).display().to_string(), Self::branch(run));
        let args = ["worktree", "add", "--quiet", "-b", &branch, &place, &repository.commit];
        self.git(&repository.top, &args, self.writing(&repository.top, &repository.git)).await?;
        let base = BaseCommit { commit: repository.commit.clone(), git: repository.git.clone() };
        std::fs::write(self.base(run), base.text()).map_err(|error| error.to_string())
    }

    /// Returns the repository's git folder if the worktree is unchanged, otherwise a summary of the changes.
    async fn unchanged(&self, run: Uuid) -> Result<PathBuf, String> {
        let place = &self.place(run);
        let base = std::fs::read_to_string(self.base(run)).ok().and_then(|text| BaseCommit::parse(&text));
        let BaseCommit { commit, git } = base.ok_or("its base commit is not known")?;
        let reading = [place.to_owned(), git.clone()];
        let head = self.git(place, &["rev-parse", "--verify", "HEAD"], GitAccess::Reading(&reading)).await?;
        let args = ["status", "--porcelain", "--untracked-files=all"];
        let changes = self.git(place, &args, GitAccess::Reading(&reading)).await?;
        match (changes.lines().count(), head.trim() == commit) {
            (0, true) => Ok(git),
            (files, is_same) => {
                let plural = if files == 1 { "" } else { "s" };
                let commits = if is_same { "" } else { ", new commits" };
                Err(format!("{files} changed file{plural}{commits}, on branch {}", Self::branch(run)))
            }
        }
    }

    /// Commits what the run left uncommitted, so that its branch has all of its work.
    async fn commit(&self, run: Uuid) -> Result<(), String> {
        let place = &self.place(run);
        let base = std::fs::read_to_string(self.base(run)).ok().and_then(|text| BaseCommit::parse(&text));
        let git = base.ok_or("its base commit is not known")?.git;
        let write =
            || GitAccess::Writing { read: place, write: vec![git.clone(), git.join("worktrees"), place.clone()] };
        self.git(place, &["add", "--all"], write()).await?;
        let reading = [place.to_owned(), git.clone()];
        let staged = self.git(place, &["diff", "--cached", "--name-only"], GitAccess::Reading(&reading)).await?;
        if staged.trim().is_empty() {
            return Ok(());
        }
        let message = format!("Work of run {run}");
        let identity = ["-c", "user.name=Homing", "-c", "user.email=homing@localhost", "-c", "commit.gpgSign=false"];
        let commit = ["commit", "--quiet", "--no-verify", "--message", &message];
        self.git(place, &[&identity[..], &commit[..]].concat(), write()).await.map(drop)
    }

    async fn remove(&self, run: Uuid, git: &Path) -> Result<(), String> {
        let (place, branch) = (self.place(run).display().to_string(), Self::branch(run));
        let top = git.parent().unwrap_or(git).to_owned();
        self.git(&top, &["worktree", "remove", "--force", &place], self.writing(&top, git)).await?;
        self.git(&top, &["branch", "--quiet", "-D", &branch], self.writing(&top, git)).await?;
        std::fs::remove_file(self.base(run)).map_err(|error| error.to_string())
    }

    fn writing<'a>(&self, read: &'a Path, git: &Path) -> GitAccess<'a> {
        GitAccess::Writing { read, write: vec![git.to_owned(), git.join("worktrees"), self.folder.clone()] }
    }

    async fn git(&self, workdir: &Path, args: &[&str], access: GitAccess<'_>) -> Result<String, String> {
        let private = PrivateFolder { root: self.commands.private.join(format!("git-{}", Uuid::new_v4())) };
        let grant = access.grant(self.sandbox);
        let command = ShellCommand { command: "git", workdir, grant: &grant, time: TIMEOUT, trace: None };
        let outcome = self.run(&command, args, &private).await;
        private.remove();
        outcome
    }

    async fn run(&self, command: &ShellCommand<'_>, args: &[&str], private: &PrivateFolder) -> Result<String, String> {
        let mut job = self.commands.job(command, private).await.map_err(|error| error.to_string())?;
        let neutral = self.commands.neutral_git(&job).await.map_err(|error| error.to_string())?;
        job.env.extend(neutral);
        job.argv = std::iter::once("git").chain(args.iter().copied()).map(str::to_owned).collect();
        let job = CommandSpec { protected: Protection::default(), ..job };
        let running = self.commands.launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(None), TIMEOUT, std::future::pending(), &mut |_| ()).await;
        match finished.ending {
            CommandEnd::Exited(0) => Ok(finished.output.text),
            CommandEnd::Refused(why) => Err(why),
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) | CommandEnd::TimedOut | CommandEnd::Cancelled => {
                Err(finished.output.text)
            }
        }
    }
}

/// The paths that one of our git commands may access.
enum GitAccess<'a> {
    /// Reads these paths and writes nothing.
    Reading(&'a [PathBuf]),
    Writing {
        read: &'a Path,
        write: Vec<PathBuf>,
    },
}

impl GitAccess<'_> {
    fn grant(&self, sandbox: Sandbox) -> Grant {
        let (read, write, sandbox) = match self {
            Self::Reading(read) => (read.to_vec(), Vec::new(), sandbox.min(Sandbox::ReadOnly)),
            Self::Writing { read, write } => (vec![read.to_path_buf()], write.clone(), sandbox),
        };
        Grant::new(Vec::new()).read(read).write(write).network(Network::Off).sandbox(sandbox)
    }
}
