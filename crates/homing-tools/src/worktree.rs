//! A git worktree for a run of its own: made from the repository's last commit, kept when something was done in it,
//! removed when not. Git runs in the sandbox, without hooks and without programs of the repository's choosing.

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
    Private,
    git_folder::{GitFolder, locate},
    private_folder,
    process::{Collector, CommandEnd, CommandSpec},
};

/// How long git may take for one step; checking out a large repository is slow.
const TIME: Duration = Duration::from_secs(300);

/// Worktrees in a folder of the host's.
#[derive(Debug)]
pub struct GitWorktrees {
    /// Runs git.
    pub commands: Arc<Commands>,
    /// Where worktrees are made; outside every repository, and writable by this user alone.
    pub folder: PathBuf,
    /// How git itself is confined.
    pub sandbox: Sandbox,
}

/// The repository that a folder belongs to.
struct Repository {
    top: PathBuf,
    /// Shared by all of its worktrees.
    git: PathBuf,
    /// The folder's path below the top.
    prefix: PathBuf,
    commit: String,
}

/// What a run started from: tells later whether it has committed anything, and to which repository its worktree belongs.
/// It is written down out of the run's reach, because the run can change the files in which git says the same.
struct Beginning {
    commit: String,
    git: PathBuf,
}

impl Beginning {
    fn text(&self) -> String {
        format!("{}\n{}\n", self.commit, self.git.display())
    }

    fn parse(text: &str) -> Option<Self> {
        let (commit, git) = text.strip_suffix('\n')?.split_once('\n')?;
        Some(Self { commit: commit.to_owned(), git: git.into() })
    }
}

impl Workspaces for GitWorktrees {
    fn enter<'a>(&'a self, run: Uuid, workdir: &'a Path) -> BoxFuture<'a, Result<Workspace, String>> {
        Box::pin(async move {
            let repository = self.repository(workdir).await?;
            private_folder::open(&self.folder)
                .map_err(|error| format!("cannot use the folder of worktrees {}: {error}", self.folder.display()))?;
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
            match self.unchanged(run).await {
                Ok(git) => match self.remove(run, &git).await {
                    Ok(()) => Left::Removed,
                    Err(why) => Left::Kept { path: place, summary: format!("it could not be removed: {why}") },
                },
                Err(summary) => Left::Kept { path: place, summary },
            }
        })
    }
}

/// The worktree's own git files are writable, and where commits go; hooks and configuration are kept by the sandbox.
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
        let no_repository = |why: &str| format!("{} is no git repository with a commit: {why}", workdir.display());
        let workdir = workdir.canonicalize().map_err(|error| error.to_string())?;
        let GitFolder { top, common: git } = locate(&workdir, &[]).ok_or_else(|| no_repository("no .git was found"))?;
        let read = [top.clone(), git.clone()];
        let head = self.git(&top, &["rev-parse", "--verify", "HEAD"], Touch::Reading(&read)).await;
        let commit = head.map_err(|why| no_repository(why.trim()))?.trim().to_owned();
        let prefix = workdir.strip_prefix(&top).map_err(|error| error.to_string())?.to_owned();
        Ok(Repository { top, git, prefix, commit })
    }

    async fn add(&self, run: Uuid, repository: &Repository) -> Result<(), String> {
        let (place, branch) = (self.place(run).display().to_string(), Self::branch(run));
        let args = ["worktree", "add", "--quiet", "-b", &branch, &place, &repository.commit];
        self.git(&repository.top, &args, self.writing(&repository.top, &repository.git)).await?;
        let beginning = Beginning { commit: repository.commit.clone(), git: repository.git.clone() };
        std::fs::write(self.base(run), beginning.text()).map_err(|error| error.to_string())
    }

    /// The repository's git folder, if nothing was done in the worktree; otherwise what was.
    async fn unchanged(&self, run: Uuid) -> Result<PathBuf, String> {
        let place = &self.place(run);
        let beginning = std::fs::read_to_string(self.base(run)).ok().and_then(|text| Beginning::parse(&text));
        let Beginning { commit, git } = beginning.ok_or("its beginning is not known")?;
        let reading = [place.to_owned(), git.clone()];
        let head = self.git(place, &["rev-parse", "--verify", "HEAD"], Touch::Reading(&reading)).await?;
        let args = ["status", "--porcelain", "--untracked-files=all"];
        let changes = self.git(place, &args, Touch::Reading(&reading)).await?;
        match (changes.lines().count(), head.trim() == commit) {
            (0, true) => Ok(git),
            (files, is_same) => {
                let commits = if is_same { "" } else { ", new commits" };
                Err(format!("{files} changed files{commits}, on branch {}", Self::branch(run)))
            }
        }
    }

    async fn remove(&self, run: Uuid, git: &Path) -> Result<(), String> {
        let (place, branch) = (self.place(run).display().to_string(), Self::branch(run));
        let top = git.parent().unwrap_or(git).to_owned();
        self.git(&top, &["worktree", "remove", "--force", &place], self.writing(&top, git)).await?;
        self.git(&top, &["branch", "--quiet", "-D", &branch], self.writing(&top, git)).await?;
        std::fs::remove_file(self.base(run)).map_err(|error| error.to_string())
    }

    fn writing<'a>(&self, read: &'a Path, git: &Path) -> Touch<'a> {
        Touch::Writing { read, write: vec![git.to_owned(), git.join("worktrees"), self.folder.clone()] }
    }

    async fn git(&self, workdir: &Path, args: &[&str], touch: Touch<'_>) -> Result<String, String> {
        let room = Private { root: self.commands.private.join(format!("git-{}", Uuid::new_v4())) };
        let grant = touch.grant(self.sandbox);
        let command = ShellCommand { command: "git", workdir, grant: &grant, time: TIME };
        let outcome = self.run(&command, args, &room).await;
        room.remove();
        outcome
    }

    async fn run(&self, command: &ShellCommand<'_>, args: &[&str], room: &Private) -> Result<String, String> {
        let mut job = self.commands.job(command, room).await.map_err(|error| error.to_string())?;
        let neutral = self.commands.neutral_git(&job).await.map_err(|error| error.to_string())?;
        job.env.extend(neutral);
        job.argv = std::iter::once("git").chain(args.iter().copied()).map(str::to_owned).collect();
        let running =
            self.commands.launcher.start(CommandSpec { kept: Vec::new(), ..job }).await.map_err(|it| it.to_string())?;
        let finished = running.finish(Collector::new(None), TIME, std::future::pending(), &mut |_| ()).await;
        match finished.ending {
            CommandEnd::Exited(0) => Ok(finished.output.text),
            CommandEnd::Refused(why) => Err(why),
            CommandEnd::Exited(_) | CommandEnd::Signalled(_) | CommandEnd::TimedOut | CommandEnd::Cancelled => {
                Err(finished.output.text)
            }
        }
    }
}

/// What a git command of ours may touch.
enum Touch<'a> {
    /// These, and nothing is written.
    Reading(&'a [PathBuf]),
    Writing {
        read: &'a Path,
        write: Vec<PathBuf>,
    },
}

impl Touch<'_> {
    fn grant(&self, sandbox: Sandbox) -> Grant {
        let (read, write, sandbox) = match self {
            Self::Reading(read) => (read.to_vec(), Vec::new(), sandbox.min(Sandbox::ReadOnly)),
            Self::Writing { read, write } => (vec![read.to_path_buf()], write.clone(), sandbox),
        };
        Grant { layers: Vec::new(), read, write, network: Network::Off, sandbox }
    }
}
