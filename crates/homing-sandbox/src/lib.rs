//! What a command can touch, enforced by the kernel: bubblewrap where it works, Landlock and seccomp otherwise, and no
//! command at all where neither does. Rules on what may be asked for are not made here.

mod bubblewrap;
mod command_env;
pub mod egress;
pub mod git_folder;
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
mod toolchains;

pub use command_env::{CommandEnv, GitHooks, git_guards, is_secret};
pub use policy::{Access, PolicyError, SandboxOptions, SandboxPolicy};
pub use private_folder::{Private, is_users_alone};
pub use probe::{Backend, OwnNetwork, Sandboxes, Variant};
