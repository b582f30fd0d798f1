//! Gemini CLI: snake_case keys, minutes, and `mcp_server_tool`.

use super::{Dialect, PLAIN, flat, has};

pub(super) static DIALECT: Dialect = Dialect {
    name: "gemini",
    project: &[flat(".gemini/agents")],
    home: &[flat(".gemini/agents")],
    recognises: |node| has(node, &["timeout_mins", "agent_card_url", "agent_card_json"]),
    ..PLAIN
};
