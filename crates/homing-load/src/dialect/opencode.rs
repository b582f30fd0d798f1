//! OpenCode and its fork Kilo: tools are switches, permissions are allow, ask or deny.

use super::{Dialect, FileName, PLAIN, ToolMap, deep, flat, has, single_file};
use crate::node::Node;

pub(super) static DIALECT: Dialect = Dialect {
    name: "opencode",
    project: &[deep(".opencode/agent"), deep(".opencode/agents"), flat(".opencode/mode"), flat(".opencode/modes")],
    config: &[
        deep("opencode/agent"),
        deep("opencode/agents"),
        flat("opencode/mode"),
        flat("opencode/modes"),
        single_file("opencode/opencode.json"),
        single_file("opencode/opencode.jsonc"),
    ],
    files: &["opencode.json", "opencode.jsonc", ".opencode/opencode.json"],
    tool_map: ToolMap::Switches,
    file_name: FileName::Usual,
    recognises: |node| {
        has(node, &["permission"])
            || node.get("mode").and_then(Node::text).is_some_and(|mode| ["subagent", "primary", "all"].contains(&mode))
    },
    ..PLAIN
};

pub(super) static KILO: Dialect = Dialect {
    name: "kilo",
    project: &[deep(".kilo/agents"), deep(".kilo/agent")],
    home: &[deep(".kilo/agents")],
    config: &[deep("kilo/agents"), single_file("kilo/kilo.json"), single_file("kilo/kilo.jsonc")],
    files: &["kilo.jsonc", "kilo.json"],
    tool_map: ToolMap::Switches,
    file_name: FileName::Usual,
    ..PLAIN
};
