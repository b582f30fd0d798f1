//! The host's side of the lifeline: starts a command through its supervisor and follows it until it has ended.

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
        protocol::{self, Confinement, ProcessLimits, StdinSource, SupervisorReport, SupervisorRequest, TERMINATE},
        restore_files::{Protection, Restored, recover},
        supervise::SUPERVISE,
    },
    proxy::Proxy,
};

/// Time between the termination signal and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// Time limit for reading output after every process that could write it has ended.
const DRAIN: Duration = Duration::from_millis(150);

/// Time limit for the end after the kill. A process that is blocked in the kernel is not waited for any longer.
const STUCK: Duration = Duration::from_secs(5);

/// A command to run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The program and its arguments; a bare name is looked up in `PATH` of `env`.
    pub argv: Vec<String>,
    /// The working folder.
    pub workdir: PathBuf,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Its standard input.
    pub input: Input,
    /// Its confinement.
    pub confinement: Confinement,
    /// Its resource limits.
    pub limits: ProcessLimits,
    /// Files that are restored if it changes them.
    pub protected: Protection,
    /// The capture of its standard output and error.
    pub streams: Streams,
    /// The proxy to listed hosts, kept open while it runs.
    pub proxy: Option<Arc<Proxy>>,
}

/// The way in which a command's standard output and error are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// As one stream, in the order of writing.
    Together,
    /// As two streams.
    Apart,
}

/// The standard input of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Empty.
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

/// The reason for which a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The helper binary could not be started.
    #[error("cannot start the helper {helper}: {source}")]
    Helper {
        /// The binary.
        helper: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The request could not be sent to the supervisor.
    #[error("cannot send the command to the helper: {0}")]
    Request(#[from] io::Error),
}

/// A command that runs or is about to. Dropping this kills it and everything below it.
#[derive(Debug)]
pub struct Running {
    lifeline: UnixStream,
    output: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
    /// Reaped by the async runtime when it has ended, even after this is dropped.
    supervisor: Child,
    protected: Protection,
    _proxy: Option<Arc<Proxy>>,
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It exceeded its time limit.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It was not executed, for this reason.
    Refused(String),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCommand {
    /// The way it ended.
    pub ending: CommandEnd,
    /// Its output; both streams, unless they are separate.
    pub output: Captured,
    /// Its standard error, if the streams are separate.
    pub stderr: Captured,
    /// Protected files that it had changed and that were restored.
    pub reverted: Vec<PathBuf>,
    /// Protected files that it had changed and that could not be restored.
    pub not_restored: Vec<PathBuf>,
    /// The limit that the kernel enforced, if any: `processes` or `memory`.
    pub limit: Option<String>,
}

/// A running server that is talked to over its standard streams. Dropping this kills it and everything below it.
#[derive(Debug)]
pub struct Server {
    /// Its standard input, which is also the lifeline.
    pub input: UnixStream,
    /// Its standard output.
    pub output: pipe::Receiver,
    /// Its standard error.
    pub stderr: pipe::Receiver,
    _supervisor: Child,
}

impl Launcher {
    /// Starts a command. Must be called within an async runtime.
    ///
    /// # Errors
    /// Fails if the helper cannot be started or does not accept the request.
    pub async fn start(&self, spec: CommandSpec) -> Result<Running, LaunchError> {
        let (output, stdout) = io::pipe()?;
        let (stderr_reader, stderr) = match spec.streams {
            Streams::Together => (None, stdout.try_clone()?),
            Streams::Apart => io::pipe().map(|(reader, writer)| (Some(reader), writer))?,
        };
        let stderr_reader = stderr_reader.map(|reader| receiver(reader.into())).transpose()?;
        let source = match &spec.input {
            Input::Nothing => StdinSource::Nothing,
            Input::Text(text) => StdinSource::Text(text.clone()),
        };
        let (_proxy, protected) = (spec.proxy.clone(), spec.protected.clone());
        let (lifeline, supervisor) = self.supervise(spec, source, (stdout.into(), stderr.into())).await?;
        let output = receiver(output.into())?;
        Ok(Running { lifeline, output, stderr: stderr_reader, supervisor, protected, _proxy })
    }

    /// Starts a server whose standard streams stay separate.
    ///
    /// # Errors
    /// Fails if the helper cannot be started or does not accept the request.
    pub async fn serve(&self, spec: CommandSpec) -> Result<Server, LaunchError> {
        let (output, stdout) = io::pipe()?;
        let (stderr_reader, stderr) = io::pipe()?;
        let (input, supervisor) = self.supervise(spec, StdinSource::Forwarded, (stdout.into(), stderr.into())).await?;
        let (output, stderr) = (receiver(output.into())?, receiver(stderr_reader.into())?);
        Ok(Server { input, output, stderr, _supervisor: supervisor })
    }

    async fn supervise(
        &self,
        spec: CommandSpec,
        input: StdinSource,
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
        let CommandSpec { argv, workdir, env, confinement, limits, protected, input: _, streams: _, proxy: _ } = spec;
        let request = SupervisorRequest {
            helper: self.helper.clone(),
            argv,
            workdir,
            env,
            input,
            confinement,
            limits,
            protected,
        };
        lifeline.write_all(&protocol::encode(&request)?).await?;
        Ok((lifeline, supervisor))
    }
}

fn receiver(fd: OwnedFd) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(fd)
}

/// Something read from a running command.
enum CommandEvent {
    Output(usize),
    ErrorOutput(usize),
    Reports,
    LifelineEnded,
}

/// A command that is followed to its end.
struct FollowedCommand<'a> {
    running: Running,
    collector: Collector,
    stderr: Collector,
    on_output: &'a mut (dyn FnMut(&[u8]) + Send),
    buffer: Vec<u8>,
    small_buffer: Vec<u8>,
    output_ended: bool,
    /// The bytes of a report that is not yet complete.
    frames: Vec<u8>,
    started: bool,
    ending: Option<CommandEnd>,
    restored: Restored,
    limit: Option<String>,
    /// The supervisor has done everything. If it ends before, it was killed.
    is_complete: bool,
}

impl Running {
    /// Returns the process ID of the supervisor.
    pub fn supervisor(&self) -> Option<u32> {
        self.supervisor.id()
    }

    /// Waits until the command has ended, its time is up, or `cancelled` resolves. No process of it is left then.
    ///
    /// When its time is up or it is cancelled, it gets a termination signal, and is killed two seconds later.
    pub async fn finish(
        mut self,
        collector: Collector,
        time: Duration,
        cancelled: impl Future<Output = ()> + Send,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> FinishedCommand {
        let restored = std::mem::take(&mut self.protected.recovered);
        let mut followed = FollowedCommand {
            running: self,
            collector,
            stderr: Collector::new(None),
            on_output,
            buffer: vec![0; 64 << 10],
            small_buffer: vec![0; 4 << 10],
            output_ended: false,
            frames: Vec::new(),
            started: false,
            ending: None,
            restored,
            limit: None,
            is_complete: false,
        };
        if let Some(why) = followed.until_stopped(time, cancelled).await {
            followed.stop().await;
            followed.ending = Some(why);
        }
        followed.finish().await
    }
}

impl FollowedCommand<'_> {
    /// Follows the command to its end; returns the reason if it must be stopped first.
    async fn until_stopped(
        &mut self,
        time: Duration,
        cancelled: impl Future<Output = ()> + Send,
    ) -> Option<CommandEnd> {
        let mut cancelled = std::pin::pin!(cancelled);
        let mut time = std::pin::pin!(tokio::time::sleep(time));
        loop {
            let event = tokio::select! {
                biased;
                () = &mut cancelled => return Some(CommandEnd::Cancelled),
                () = &mut time => return Some(CommandEnd::TimedOut),
                event = self.next_event() => event,
            };
            if !self.handle(event).await {
                return None;
            }
        }
    }

    async fn until_ended(&mut self) {
        loop {
            let event = self.next_event().await;
            if !self.handle(event).await {
                return;
            }
        }
    }

    /// Asks for termination first, then closes the lifeline, which kills every process.
    async fn stop(&mut self) {
        let _ = self.running.lifeline.write_all(&[TERMINATE]).await;
        if tokio::time::timeout(GRACE, self.until_ended()).await.is_err() {
            let _ = self.running.lifeline.shutdown().await;
            let _ = tokio::time::timeout(STUCK, self.until_ended()).await;
        }
    }

    async fn next_event(&mut self) -> CommandEvent {
        let Running { output, stderr, lifeline, .. } = &mut self.running;
        let mut report_bytes = [0; 4 << 10];
        tokio::select! {
            read = output.read(&mut self.buffer), if !self.output_ended => CommandEvent::Output(read.unwrap_or(0)),
            read = read_some(stderr, &mut self.small_buffer), if stderr.is_some() => CommandEvent::ErrorOutput(read),
            read = lifeline.read(&mut report_bytes) => match read {
                Ok(0) | Err(_) => CommandEvent::LifelineEnded,
                Ok(len) => {
                    self.frames.extend(&report_bytes[..len]);
                    CommandEvent::Reports
                }
            },
        }
    }

    /// Handles an event; returns false when the supervisor has ended.
    async fn handle(&mut self, event: CommandEvent) -> bool {
        match event {
            CommandEvent::LifelineEnded => return false,
            CommandEvent::Output(0) => self.output_ended = true,
            CommandEvent::Output(len) => {
                (self.on_output)(&self.buffer[..len]);
                self.collector.push(&self.buffer[..len]).await;
            }
            CommandEvent::ErrorOutput(0) => self.running.stderr = None,
            CommandEvent::ErrorOutput(len) => self.stderr.push(&self.small_buffer[..len]).await,
            CommandEvent::Reports => {
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
            SupervisorReport::Reverted(paths) => self.restored.restored.extend(paths),
            SupervisorReport::NotRestored(paths) => self.restored.failed.extend(paths),
            SupervisorReport::LimitReached(limit) => self.limit = Some(limit),
            SupervisorReport::Finished => self.is_complete = true,
        }
    }

    /// Reads the output that is still in the pipes after every process has ended.
    async fn finish(mut self) -> FinishedCommand {
        let rest = async {
            while !self.output_ended {
                let len = self.running.output.read(&mut self.buffer).await.unwrap_or(0);
                self.handle(CommandEvent::Output(len)).await;
            }
            while self.running.stderr.is_some() {
                let len = read_some(&mut self.running.stderr, &mut self.small_buffer).await;
                self.handle(CommandEvent::ErrorOutput(len)).await;
            }
        };
        let _ = tokio::time::timeout(DRAIN, rest).await;
        let (output, stderr) = (self.collector.finish().await, self.stderr.finish().await);
        let ending = self.ending.unwrap_or_else(|| {
            if self.started {
                // The supervisor itself was killed.
                CommandEnd::Signalled(9)
            } else {
                CommandEnd::Refused(format!("the sandbox did not start: {}", output.text.trim()))
            }
        });
        if !self.is_complete {
            let Restored { restored, failed } = recover_in_background(&self.running.protected).await;
            self.restored.restored.extend(restored);
            self.restored.failed.extend(failed);
        }
        let Restored { restored: reverted, failed: not_restored } = self.restored;
        FinishedCommand { ending, output, stderr, reverted, not_restored, limit: self.limit }
    }
}

/// Restores what commands of killed supervisors changed in the folders of this protection.
async fn recover_in_background(protected: &Protection) -> Restored {
    let roots: Vec<PathBuf> = protected.files.iter().map(|files| files.root.clone()).collect();
    if roots.is_empty() || !protected.store.is_dir() {
        return Restored::default();
    }
    let store = protected.store.clone();
    tokio::task::spawn_blocking(move || recover(&store, &roots)).await.unwrap_or_default()
}

/// Reads from a stream; returns 0 if it has ended.
async fn read_some(from: &mut Option<pipe::Receiver>, into: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(into).await.unwrap_or(0),
        None => 0,
    }
}

/// Removes the first complete report from the received bytes.
fn next_report(frames: &mut Vec<u8>) -> Option<SupervisorReport> {
    let len = protocol::frame_len(*frames.first_chunk()?).ok()?;
    let json = frames.get(4..4 + len)?;
    let report = serde_json::from_slice(json).unwrap_or_else(|error| SupervisorReport::Refused(error.to_string()));
    frames.drain(..4 + len);
    Some(report)
}
