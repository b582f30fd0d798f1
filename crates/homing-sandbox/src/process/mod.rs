//! Starts, supervises and ends commands. Every command runs below a small supervising process, the *supervisor*, which
//! lives as long as its *lifeline* to the host is open. What a command may touch is decided by the sandbox policy, not here.
//!
//! The supervisor is the host's own binary, started again with a hidden first argument; hosts call [`run_helper_if_asked`]
//! at the start of `main`. The lifeline is a socket pair, one end of which is the supervisor's standard input. The request
//! is sent down the lifeline, later possibly a byte that asks to terminate, and reports come back. When the host's end
//! closes, because the call is over, was cancelled, or the host was killed, the supervisor kills everything below it. A
//! parent-death signal would not be enough: it is bound to a thread, and lost if the parent dies before the child has
//! asked for it. Between the supervisor and the command is one more process of the helper, [`init`], so that a command also
//! ends if its supervisor is killed.

mod cgroup;
mod file_state;
mod init;
mod kill;
mod launch;
mod output;
mod protocol;
mod relay;
mod restore_files;
mod supervise;
mod wait;

pub use launch::{CommandEnd, CommandSpec, FinishedCommand, Input, LaunchError, Launcher, Running, Server, Streams};
pub use output::{Captured, Collector};
pub use protocol::{CommandNetwork, Confinement, LandlockRules, ProcessLimits, Sockets};
pub(crate) use relay::PORT as RELAY_PORT;
pub(crate) use restore_files::recover;
pub use restore_files::{ProtectedFiles, Protection, Restored};
pub use supervise::run_helper_if_asked;
