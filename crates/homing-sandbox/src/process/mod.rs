//! Processes that end when they should: every command is watched over by a small supervising process that lives as long
//! as a lifeline to us is open. What a command may touch is decided in the sandbox room, not here.
//!
//! The supervising process is the host's own binary, started again with a hidden first argument; hosts call
//! [`run_helper_if_asked`] at the start of their `main`. Its standard input is one end of a socket pair: first the order
//! comes down it, later a word to terminate; reports go up it. When our end closes — because the call is over, was
//! cancelled, or because we were killed — everything below the supervisor dies. A death signal from the parent would
//! not do: it is tied to a thread, and lost when the parent dies before the child has asked for it.

mod cgroup;
mod kill;
mod launch;
mod output;
mod protocol;
mod relay;
mod restore_files;
mod supervise;
mod wait;

pub use launch::{
    CommandEnd, CommandSpec, FinishedCommand, Input, LaunchError, Launcher, Running, Server, Streams, WayOut,
};
pub use output::{Captured, Collector};
pub use protocol::{Jail, LandlockRules, Net, ProcessLimits, Sockets};
pub(crate) use relay::PORT as RELAY_PORT;
pub use restore_files::KeptFiles;
pub use supervise::run_helper_if_asked;
