//! Files to definitions and skills: discovery, dialects, repair, diagnostics.
//!
//! This room reads agent and skill files and touches nothing else: it runs nothing, connects to nothing, and reads no
//! environment variable. Where to look is told to it ([`Places`]).

mod build;
pub mod builtin;
mod check;
mod diagnostics;
pub mod dialect;
mod discover;
mod fields;
mod file;
mod front_matter;
mod json;
mod limit_values;
mod naming;
mod node;
mod parse;
mod repair;
mod restrictions;
mod skills;
mod strip_authority;
mod toml_nodes;
mod tools;
mod walk;
mod wildcard;
mod yaml;

pub use check::{CheckReport, check};
pub use discover::{Discovered, Places, Recurse, discover, load_file, load_folder};
pub use file::{MAX_FILE, MAX_FRONT_MATTER};
pub use parse::{FileKind, ParseOptions, Parsed, ParsedFile, parse, parse_json};
pub use skills::{SkillFolders, skill_as_agent};
pub use strip_authority::without_authority;
