//! Reads agent and skill files: discovery, dialects, repair and diagnostics.
//!
//! This crate reads agent and skill files in the given [`Places`]. It executes nothing, opens no connections and reads no
//! environment variables.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod build;
pub mod builtin;
mod check;
mod codex_roles;
pub mod convert;
mod diagnostics;
pub mod dialect;
mod discover;
mod field_table;
mod fields;
mod file;
mod file_references;
mod fix;
mod front_matter;
mod json;
mod key_names;
mod limit_values;
mod line_index;
mod naming;
mod node;
mod opencode_defaults;
mod parse;
mod references;
mod repair;
mod restrictions;
mod skills;
mod strip_authority;
mod sub_recipes;
mod toml_nodes;
mod tools;
mod walk;
mod wildcard;
mod yaml;

pub use check::{CheckReport, check};
pub use discover::{
    Discovered, Places, Recurse, StrippedField, TrustPolicy, discover, discover_trusted, field_lines,
    is_about_hidden_agent, load_file, load_folder, project_paths,
};
pub use field_table::field_table;
pub use file::{MAX_FILE, MAX_FRONT_MATTER};
pub use fix::FixedFile;
pub use parse::{FileKind, ParseOptions, Parsed, ParsedFile, parse, parse_json};
pub use references::KnownNames;
pub use skills::{SkillFolders, skill_as_agent};
pub use strip_authority::without_authority;
