//! Our side of the lifeline: starting a command through its supervisor, and holding it until it has ended.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::pipe},
    process::Child,
};

use crate::{
    process::{
        output::{Captured, Collector},
        protocol::{self, Feed, Jail, ProcessLimits, SupervisorReport, SupervisorRequest, TERMINATE},
        restore_files::KeptFiles,
        supervise::SUPERVISE,
    },
    proxy::Proxy,
};

/// How long a command has between being told to end and being made to.
const GRACE: Duration = Duration::from_secs(2);

/// How long output may still come after everybody who could write it should be gone.
const LAST_WORDS: Duration = Duration::from_millis(150);

/// How long an ending may take at all before we stop waiting for it: somebody sits in the kernel.
const STUCK: Duration = Duration::from_secs(5);

/// A command to be run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The program and its arguments; a bare name is looked up in `PATH` of `env`.
    pub argv: Vec<String>,
    /// Where.
    pub workdir: PathBuf,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// What it reads.
    pub input: Input,
    /// How it is confined.
    pub jail: Jail,
    /// What it may take.
    pub limits: ProcessLimits,
    /// What must be the same afterwards.
    pub kept: Vec<KeptFiles>,
    /// How its two outputs are taken.
    pub streams: Streams,
    /// What leads out of its network, for as long as it runs.
    pub way_out: Option<WayOut>,
}

/// A proxy that lives as long as somebody holds this.
#[derive(Clone, Debug)]
pub struct WayOut(pub Arc<Proxy>);

/// How a command's two outputs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// As one, in the order of writing.
    Together,
    /// Each for itself.
    Apart,
}

/// What a command reads on its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing: its end at once.
    Nothing,
    /// This text, then its end.
    Text(String),
}

/// Starts commands through the helper binary.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The binary whose `main` calls [`crate::process::run_helper_if_asked`]: the host itself, or `homing-helper`.
    pub helper: PathBuf,
}

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The helper binary could not be started.
    #[error("cannot start the helper {helper}: {source}")]
    Helper {
        /// The binary.
        helper: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The order could not be sent.
    #[error("cannot hand over the command: {0}")]
    Order(#[from] io::Error),
}

/// A command that runs, or is about to. Everything below it dies when this is dropped.
#[derive(Debug)]
pub struct Running {
    lifeline: UnixStream,
    output: pipe::Receiver,
    complaints: Option<pipe::Receiver>,
    /// Collected by the async runtime when it has ended, also after this is dropped.
    supervisor: Child,
    _way_out: Option<WayOut>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// Its time was up.
    TimedOut,
    /// Nobody wanted it any more.
    Cancelled,
    /// It was never executed.
    Refused(String),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCommand {
    /// How.
    pub ending: CommandEnd,
    /// What it wrote; both streams, unless they were taken apart.
    pub output: Captured,
    /// What it wrote to its error stream, if that was taken apart.
    pub complaints: Captured,
    /// Files that were put back, because it had changed them and must not.
    pub reverted: Vec<PathBuf>,
    /// A limit that the kernel had to enforce: `processes` or `memory`.
    pub limit: Option<String>,
}

/// A server that runs: its streams are a conversation. Everything below it dies when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// What it reads; the lifeline at the same time.
    pub input: UnixStream,
    /// What it says.
    pub output: pipe::Receiver,
    /// What it complains about.
    pub complaints: pipe::Receiver,
    _supervisor: Child,
}

impl Launcher {
    /// Starts a command. Must be called within an async runtime.
    pub async fn start(&self, job: CommandSpec) -> Result<Running, LaunchError> {
        let (output, stdout) = io::pipe()?;
        let (complaints, stderr) = match job.streams {
            Streams::Together => (None, stdout.try_clone()?),
            Streams::Apart => io::pipe().map(|(reader, writer)| (Some(reader), writer))?,
        };
        let complaints = complaints.map(|reader| receiver(reader.into())).transpose()?;
        let feed = match &job.input {
            Input::Nothing => Feed::Nothing,
            Input::Text(text) => Feed::Text(text.clone()),
        };
        let _way_out = job.way_out.clone();
        let (lifeline, supervisor) = self.supervise(job, feed, (stdout.into(), stderr.into())).await?;
        Ok(Running { lifeline, output: receiver(output.into())?, complaints, supervisor, _way_out })
    }

    /// Starts a server whose standard streams are kept apart.
    pub async fn serve(&self, job: CommandSpec) -> Result<Server, LaunchError> {
        let (output, stdout) = io::pipe()?;
        let (complaints, stderr) = io::pipe()?;
        let (input, supervisor) = self.supervise(job, Feed::Forwarded, (stdout.into(), stderr.into())).await?;
        let (output, complaints) = (receiver(output.into())?, receiver(complaints.into())?);
        Ok(Server { input, output, complaints, _supervisor: supervisor })
    }

    async fn supervise(
        &self,
        job: CommandSpec,
        input: Feed,
        (stdout, stderr): (OwnedFd, OwnedFd),
    ) -> Result<(UnixStream, Child), LaunchError> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut lifeline = UnixStream::from_std(ours)?;
        let mut command = Command::new(&self.helper);
        command.arg(SUPERVISE).env_clear().current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(stdout).stderr(stderr);
        let supervisor = tokio::process::Command::from(command)
            .spawn()
            .map_err(|source| LaunchError::Helper { helper: self.helper.clone(), source })?;
        let CommandSpec { argv, workdir, env, jail, limits, kept, input: _, streams: _, way_out: _ } = job;
        let order = SupervisorRequest { helper: self.helper.clone(), argv, workdir, env, input, jail, limits, kept };
        lifeline.write_all(&protocol::encode(&order)?).await?;
        Ok((lifeline, supervisor))
    }
}

fn receiver(fd: OwnedFd) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(fd)
}

/// What was heard from a running command.
enum Heard {
    Output(usize),
    Complaint(usize),
    Reports,
    LifelineEnded,
}

/// A command on its way to its end.
struct Course<'a> {
    running: Running,
    collector: Collector,
    complaints: Collector,
    on_output: &'a mut (dyn FnMut(&[u8]) + Send),
    buffer: Vec<u8>,
    few: Vec<u8>,
    output_ended: bool,
    /// What has come of a report that is not complete yet.
    frames: Vec<u8>,
    started: bool,
    ending: Option<CommandEnd>,
    reverted: Vec<PathBuf>,
    limit: Option<String>,
}

impl Running {
    /// The supervising process.
    pub fn supervisor(&self) -> Option<u32> {
        self.supervisor.id()
    }

    /// Holds the command until it has ended, its time is up, or `cancelled` resolves; then nothing of it is left.
    ///
    /// At the end of its time or when it is cancelled it is told to end, and made to two seconds later.
    pub async fn finish(
        self,
        collector: Collector,
        time: Duration,
        cancelled: impl Future<Output = ()> + Send,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> FinishedCommand {
        let mut course = Course {
            running: self,
            collector,
            complaints: Collector::new(None),
            on_output,
            buffer: vec![0; 64 << 10],
            few: vec![0; 4 << 10],
            output_ended: false,
            frames: Vec::new(),
            started: false,
            ending: None,
            reverted: Vec::new(),
            limit: None,
        };
        if let Some(why) = course.until_stopped(time, cancelled).await {
            course.stop().await;
            course.ending = Some(why);
        }
        course.finish().await
    }
}

impl Course<'_> {
    /// Goes on until the command has ended; why it has to be stopped, if it has to be.
    async fn until_stopped(
        &mut self,
        time: Duration,
        cancelled: impl Future<Output = ()> + Send,
    ) -> Option<CommandEnd> {
        let mut cancelled = std::pin::pin!(cancelled);
        let mut time = std::pin::pin!(tokio::time::sleep(time));
        loop {
            let heard = tokio::select! {
                biased;
                () = &mut cancelled => return Some(CommandEnd::Cancelled),
                () = &mut time => return Some(CommandEnd::TimedOut),
                heard = self.hear() => heard,
            };
            if !self.take(heard).await {
                return None;
            }
        }
    }

    async fn until_ended(&mut self) {
        loop {
            let heard = self.hear().await;
            if !self.take(heard).await {
                return;
            }
        }
    }

    /// A word first, then the end of the lifeline, which nobody survives.
    async fn stop(&mut self) {
        let _ = self.running.lifeline.write_all(&[TERMINATE]).await;
        if tokio::time::timeout(GRACE, self.until_ended()).await.is_err() {
            let _ = self.running.lifeline.shutdown().await;
            let _ = tokio::time::timeout(STUCK, self.until_ended()).await;
        }
    }

    async fn hear(&mut self) -> Heard {
        let Running { output, complaints, lifeline, .. } = &mut self.running;
        let mut few = [0; 4 << 10];
        tokio::select! {
            read = output.read(&mut self.buffer), if !self.output_ended => Heard::Output(read.unwrap_or(0)),
            read = read_some(complaints, &mut self.few), if complaints.is_some() => Heard::Complaint(read),
            read = lifeline.read(&mut few) => match read {
                Ok(0) | Err(_) => Heard::LifelineEnded,
                Ok(len) => {
                    self.frames.extend(&few[..len]);
                    Heard::Reports
                }
            },
        }
    }

    /// `false` when the supervisor has ended.
    async fn take(&mut self, heard: Heard) -> bool {
        match heard {
            Heard::LifelineEnded => return false,
            Heard::Output(0) => self.output_ended = true,
            Heard::Output(len) => {
                (self.on_output)(&self.buffer[..len]);
                self.collector.push(&self.buffer[..len]).await;
            }
            Heard::Complaint(0) => self.running.complaints = None,
            Heard::Complaint(len) => self.complaints.push(&self.few[..len]).await,
            Heard::Reports => {
                while let Some(report) = next_report(&mut self.frames) {
                    self.note(report);
                }
            }
        }
        true
    }

    fn note(&mut self, report: SupervisorReport) {
        match report {
            SupervisorReport::Started => self.started = true,
            SupervisorReport::Refused(why) => self.ending = Some(CommandEnd::Refused(why)),
            SupervisorReport::Exited(code) => self.ending = Some(CommandEnd::Exited(code)),
            SupervisorReport::Signalled(signal) => self.ending = Some(CommandEnd::Signalled(signal)),
            SupervisorReport::Reverted(paths) => self.reverted.extend(paths),
            SupervisorReport::LimitReached(limit) => self.limit = Some(limit),
        }
    }

    /// Everybody is gone; what they have written is still in the pipe.
    async fn finish(mut self) -> FinishedCommand {
        let rest = async {
            while !self.output_ended {
                let len = self.running.output.read(&mut self.buffer).await.unwrap_or(0);
                self.take(Heard::Output(len)).await;
            }
            while self.running.complaints.is_some() {
                let len = read_some(&mut self.running.complaints, &mut self.few).await;
                self.take(Heard::Complaint(len)).await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
        let (output, complaints) = (self.collector.finish().await, self.complaints.finish().await);
        let ending = self.ending.unwrap_or_else(|| match self.started {
            // Somebody killed the supervisor itself.
            true => CommandEnd::Signalled(9),
            false => CommandEnd::Refused(format!("the sandbox did not start: {}", output.text.trim())),
        });
        FinishedCommand { ending, output, complaints, reverted: self.reverted, limit: self.limit }
    }
}

/// Reads from a stream that may have ended.
async fn read_some(from: &mut Option<pipe::Receiver>, into: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(into).await.unwrap_or(0),
        None => 0,
    }
}

/// Takes the first complete report out of what has come.
fn next_report(frames: &mut Vec<u8>) -> Option<SupervisorReport> {
    let len = protocol::frame_len(*frames.first_chunk()?).ok()?;
    let json = frames.get(4..4 + len)?;
    let report = serde_json::from_slice(json).unwrap_or_else(|error| SupervisorReport::Refused(error.to_string()));
    frames.drain(..4 + len);
    Some(report)
}
