//! Kiro: Markdown or JSON; `allowedTools` are tools that need no approval there.

use super::{Depth, Dialect, DialectFolder, PLAIN};
use crate::fields::Field;

const FOLDER: DialectFolder = DialectFolder { path: ".kiro/agents", depth: Depth::Flat, endings: &[".md", ".json"] };

pub(super) static DIALECT: Dialect = Dialect {
    name: "kiro",
    project: &[FOLDER],
    home: &[FOLDER],
    fields: &[
        ("allowedtools", Field::Ignored("the user's rules decide what needs approval")),
        ("toolssettings", Field::Ignored("settings of Kiro's tools are not known here")),
        ("toolaliases", Field::Ignored("tools keep their names")),
        ("keyboardshortcut", Field::Ignored("there is no keyboard shortcut for agents")),
        ("welcomemessage", Field::Ignored("no message is shown when an agent starts")),
        ("uselegacymcpjson", Field::Ignored("trusted servers of the project are available to all agents")),
        ("includemcpjson", Field::Ignored("trusted servers of the project are available to all agents")),
    ],
    groups: &[
        ("fs_read", &["read", "ls", "grep", "glob"]),
        ("fs_write", &["write", "edit"]),
        ("execute_bash", &["bash"]),
        ("write", &["write", "edit"]),
        ("web", &["fetch", "websearch"]),
    ],
    ..PLAIN
};
