//! Messages between the host and the supervisor: one request, then reports. Each is JSON after its length.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::process::restore_files::Protection;

/// Maximum length of a message in bytes.
const MAX_FRAME: u32 = 16 << 20;

/// The byte that asks the supervisor to send a termination signal to the command.
pub(super) const TERMINATE: u8 = b'T';

/// The request to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SupervisorRequest {
    /// The helper binary, which also runs the stages after the supervisor.
    pub(super) helper: PathBuf,
    pub(super) argv: Vec<String>,
    pub(super) workdir: PathBuf,
    pub(super) env: BTreeMap<String, String>,
    pub(super) input: StdinSource,
    pub(super) confinement: Confinement,
    pub(super) limits: ProcessLimits,
    /// Files and folders that are restored when the command has ended.
    pub(super) protected: Protection,
}

/// The source of the command's standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StdinSource {
    Nothing,
    Text(String),
    /// Everything that is sent down the lifeline after the request.
    Forwarded,
}

/// The confinement of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confinement {
    /// No confinement.
    None,
    /// Bubblewrap: namespaces and a separate root file system.
    Bubblewrap {
        /// The program.
        program: PathBuf,
        /// The arguments before `--`.
        args: Vec<String>,
        /// The path of the helper inside.
        helper: PathBuf,
        /// The sockets it may open.
        sockets: Sockets,
        /// The socket of the proxy to listed hosts, if there is one.
        proxy_socket: Option<PathBuf>,
    },
    /// Landlock and seccomp.
    Landlock(LandlockRules),
    /// Seatbelt, on macOS.
    Seatbelt {
        /// The program `sandbox-exec`.
        program: PathBuf,
        /// The rules, in its language.
        profile: String,
        /// The socket of the proxy to listed hosts, if there is one.
        proxy_socket: Option<PathBuf>,
    },
}

/// The files and network that a command may use under Landlock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// Files and folders it may read and execute.
    pub read: Vec<PathBuf>,
    /// Folders it may list, without reading the files in them.
    #[serde(default)]
    pub list: Vec<PathBuf>,
    /// Files and folders it may change.
    pub write: Vec<PathBuf>,
    /// The sockets it may open.
    pub sockets: Sockets,
    /// The network it is in.
    #[serde(default)]
    pub net: CommandNetwork,
}

/// The network that a command is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandNetwork {
    /// The network of the machine.
    #[default]
    Machine,
    /// A separate network with a loopback.
    Own {
        /// The socket of the proxy to listed hosts, if there is one.
        proxy_socket: Option<PathBuf>,
    },
}

/// The sockets that a command may open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sockets {
    /// None: a socket with a path name would bypass all file rules.
    #[default]
    None,
    /// Internet sockets.
    Internet,
    /// Internet and local sockets, inside namespaces. A mount cannot keep a command from connecting to a socket that lies in
    /// one of its folders, not even a read-only one.
    Namespaced,
}

/// Resource limits of a command and everything below it. Each is enforced if the machine supports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Processes and threads at once.
    pub processes: u32,
    /// Bytes of memory; `None` is three quarters of the machine's.
    pub memory: Option<u64>,
    /// Bytes in one file.
    pub file: u64,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { processes: 2_048, memory: None, file: 8 << 30 }
    }
}

/// A report of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorReport {
    /// The command is about to be executed.
    Started,
    /// The command was not executed, for this reason.
    Refused(String),
    /// The command has exited with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Signalled(i32),
    /// These paths were restored, because the command had changed or created them.
    Reverted(Vec<PathBuf>),
    /// The command changed these paths, and they could not be restored.
    NotRestored(Vec<PathBuf>),
    /// The kernel enforced this limit: `processes` or `memory`.
    LimitReached(String),
    /// Nothing is left to do: every process has ended and every path was restored or reported.
    Finished,
}

pub(super) fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let len = u32::try_from(json.len()).ok().filter(|len| *len <= MAX_FRAME).ok_or(io::ErrorKind::InvalidInput)?;
    let mut frame = len.to_le_bytes().to_vec();
    frame.extend(json);
    Ok(frame)
}

pub(super) fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let mut json = vec![0; frame_len(len)?];
    from.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

pub(super) fn frame_len(len: [u8; 4]) -> io::Result<usize> {
    let len = u32::from_le_bytes(len);
    if len > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData.into())
}
