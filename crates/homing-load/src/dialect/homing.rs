//! Homing: `.homing/agents`, with all fields and file formats.

use super::{Depth, Dialect, DialectFolder, PLAIN};

const ENDINGS: &[&str] = &[".md", ".json", ".yaml", ".yml", ".toml"];

pub(super) static DIALECT: Dialect = Dialect {
    name: "homing",
    project: &[DialectFolder { path: ".homing/agents", depth: Depth::Deep, endings: ENDINGS }],
    home: &[DialectFolder { path: ".homing/agents", depth: Depth::Deep, endings: ENDINGS }],
    config: &[DialectFolder { path: "homing/agents", depth: Depth::Deep, endings: ENDINGS }],
    files: &[".homing/agents.json"],
    ..PLAIN
};
