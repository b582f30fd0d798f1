//! Files to definitions and skills: discovery, dialects, repair, diagnostics.
//!
//! This room reads agent and skill files and touches nothing else: it runs nothing, connects to nothing, and reads no
//! environment variable. Where to look is told to it ([`Places`]).

mod build;
pub mod builtin;
mod caps;
mod check;
pub mod dialect;
mod discover;
mod fields;
mod file;
mod front;
mod json;
mod naming;
mod node;
mod parse;
mod remarks;
mod repair;
mod restrictions;
mod skills;
mod toml_nodes;
mod tools;
mod trust;
mod walk;
mod wildcard;
mod yaml;

pub use check::{Report, check};
pub use discover::{Below, Loaded, Places, discover, load_file, load_folder};
pub use file::{MAX_FILE, MAX_FRONT_MATTER};
pub use parse::{Found, Options, Parsed, What, parse, parse_json};
pub use skills::{Library, skill_as_agent};
pub use trust::without_authority;
