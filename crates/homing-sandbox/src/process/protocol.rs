//! What is said between us and the supervising process: one order down, reports up. Lengths before contents, JSON inside.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::process::restore_files::KeptFiles;

/// A frame longer than this is not one of ours.
const MAX_FRAME: u32 = 16 << 20;

/// The byte that asks for a polite end of everything.
pub(super) const TERMINATE: u8 = b'T';

/// What the supervising process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SupervisorRequest {
    /// The helper binary, to start the stages that come after the supervisor.
    pub(super) helper: PathBuf,
    pub(super) argv: Vec<String>,
    pub(super) workdir: PathBuf,
    pub(super) env: BTreeMap<String, String>,
    pub(super) input: Feed,
    pub(super) jail: Jail,
    pub(super) limits: ProcessLimits,
    /// Files and folders that are put back as they were when the command has ended.
    pub(super) kept: Vec<KeptFiles>,
}

/// What the command reads on its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Feed {
    Nothing,
    Text(String),
    /// Whatever comes down the lifeline after the order.
    Forwarded,
}

/// How a command is confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Jail {
    /// Not at all.
    Open,
    /// By bubblewrap: namespaces and a root of its own.
    Bubblewrap {
        /// The program.
        program: PathBuf,
        /// Everything up to the `--`.
        args: Vec<String>,
        /// Where the helper is found inside.
        helper: PathBuf,
        /// Which sockets it may open.
        sockets: Sockets,
        /// The socket that is the only way out of its network, where it has one.
        way_out: Option<PathBuf>,
    },
    /// By Landlock and seccomp.
    Landlock(LandlockRules),
}

/// What Landlock lets a command touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// Files and folders it may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and folders it may change.
    pub write: Vec<PathBuf>,
    /// Which sockets it may open.
    pub sockets: Sockets,
    /// Which network they lead to.
    #[serde(default)]
    pub net: Net,
}

/// Which network a command is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Net {
    /// The machine's.
    #[default]
    Machine,
    /// One of its own, with a loopback.
    Own {
        /// The socket that is the only way out of it, where there is one.
        way_out: Option<PathBuf>,
    },
}

/// Which sockets a command may open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sockets {
    /// None: a path-name socket is a way out of any file rule.
    #[default]
    None,
    /// Internet sockets.
    Internet,
    /// Internet and local sockets, in a namespace where neither leads anywhere it should not.
    Namespaced,
}

/// How much a command and everything below it may take. Each holds where the machine has a way to enforce it.
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

/// What the supervising process reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorReport {
    /// The command is about to be executed inside its jail.
    Started,
    /// It was not executed.
    Refused(String),
    /// It has exited with this code.
    Exited(i32),
    /// It was ended by this signal.
    Signalled(i32),
    /// These were put back, because the command had changed or made them.
    Reverted(Vec<PathBuf>),
    /// A limit of the machine's was reached: processes or memory.
    LimitReached(String),
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is too long"));
    }
    usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData.into())
}
