//! What a command can touch, enforced by the kernel: bubblewrap where it works, Landlock and seccomp otherwise, and no
//! command at all where neither does. Rules on what may be asked for are not made here.

mod bubblewrap;
pub(crate) mod confine;
mod environment;
mod nested;
pub(crate) mod private;
mod probe;
pub(crate) mod protected;
mod toolchains;
mod walls;

pub use environment::{GitHooks, Surroundings, git_guards, is_secret};
pub use private::{Private, is_users_alone};
pub use probe::{Backend, OwnNetwork, Sandboxes, Variant};
pub use walls::{Access, Refusal, SandboxOptions, Walls};
