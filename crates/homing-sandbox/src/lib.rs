//! Runs commands confined and supervised.
//!
//! A command of an agent is text that a model wrote, so the kernel, not a check of that text, limits what it can reach:
//!
//! - [`SandboxPolicy`] turns what a run may touch ([`Access`]) into the arguments of a back-end. The back-ends are
//!   bubblewrap and, if that does not work here, Landlock with seccomp, and on macOS Seatbelt. [`Sandboxes::probe`] tries
//!   them. If none works, commands are refused.
//! - [`process`] starts the command below a supervising process, which ends everything the command started and restores
//!   [protected paths](protected_paths) that it changed.
//! - [`proxy`] gives a command access to a list of hosts and to nothing else on the network.
//!
//! Permission rules on the text of a command are evaluated elsewhere, before this crate is called. The crate reads no
//! environment variables: hosts pass theirs as a [`CommandEnv`].

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod bubblewrap;
mod command_env;
pub mod denied_paths;
pub mod egress;
mod folder_owner;
pub mod git_folder;
pub mod git_hooks;
pub(crate) mod landlock_seccomp;
mod nested_protected;
mod policy;
pub mod private_folder;
mod probe;
pub mod process;
pub mod protected_paths;
pub mod protected_roots;
pub mod proxy;
pub mod roots;
mod seatbelt;
mod toolchains;

pub use command_env::{CommandEnv, GitHooks, git_guards, is_secret};
pub use policy::{Access, PolicyError, SandboxOptions, SandboxPolicy};
pub use private_folder::{PrivateFolder, is_private};
pub use probe::{Backend, BubblewrapFeatures, OwnNetwork, Sandboxes};
