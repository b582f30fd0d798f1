//! Codex: TOML files in the format of its configuration, with instructions.

use super::{Depth, Dialect, DialectFolder, PLAIN, single_file};
use crate::codex_roles;

const TOML: &[&str] = &[".toml"];

pub(super) static DIALECT: Dialect = Dialect {
    name: "codex",
    project: &[DialectFolder { path: ".codex/agents", depth: Depth::Deep, endings: TOML }],
    home: &[DialectFolder { path: ".codex/agents", depth: Depth::Deep, endings: TOML }, single_file(codex_roles::FILE)],
    files: &[codex_roles::FILE],
    recognises: |node| node.get("developer_instructions").is_some(),
    ..PLAIN
};
