//! Homing's own: everything that the others have, under `.homing/agents`.

use super::{Depth, Dialect, Folder, PLAIN};

const ENDINGS: &[&str] = &[".md", ".json", ".yaml", ".yml", ".toml"];

pub(super) static DIALECT: Dialect = Dialect {
    name: "homing",
    project: &[Folder { path: ".homing/agents", depth: Depth::Deep, endings: ENDINGS }],
    home: &[Folder { path: ".homing/agents", depth: Depth::Deep, endings: ENDINGS }],
    config: &[Folder { path: "homing/agents", depth: Depth::Deep, endings: ENDINGS }],
    files: &[".homing/agents.json"],
    ..PLAIN
};
