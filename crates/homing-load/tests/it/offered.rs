//! Agents that only the user, or only models, may start.

use crate::show::parsed;
use homing_core::definition::OfferedTo;

#[test]
fn keys_decide_who_may_start_an_agent() {
    for (path, keys, expected) in [
        (".github/agents/a.agent.md", "disable-model-invocation: true", OfferedTo::User),
        (".github/agents/a.agent.md", "disable-model-invocation: false", OfferedTo::Everyone),
        (".github/agents/a.agent.md", "disable-model-invocation: perhaps", OfferedTo::User),
        (".github/agents/a.agent.md", "infer: false", OfferedTo::User),
        (".github/agents/a.agent.md", "infer: true", OfferedTo::Everyone),
        (".github/agents/a.agent.md", "user-invocable: false", OfferedTo::Models),
        (".github/agents/a.agent.md", "user-invocable: false\ninfer: false", OfferedTo::User),
        (".github/agents/a.agent.md", "infer: false\nuser-invocable: false", OfferedTo::User),
        (".opencode/agent/a.md", "mode: primary", OfferedTo::User),
        (".opencode/agent/a.md", "mode: subagent", OfferedTo::Everyone),
        (".opencode/agent/a.md", "mode: all", OfferedTo::Everyone),
        // OpenCode hides such an agent from the user's menu; models still get it.
        (".opencode/agent/a.md", "mode: subagent\nhidden: true", OfferedTo::Models),
        (".opencode/agent/a.md", "mode: primary\nhidden: true", OfferedTo::User),
        (".claude/agents/a.md", "color: red", OfferedTo::Everyone),
    ] {
        let parsed = parsed(path, &format!("---\nname: a\ndescription: d\n{keys}\n---\nBody\n"));
        assert_eq!(parsed.definitions[0].execution.offered_to, expected, "{keys}: {:?}", parsed.diagnostics);
    }
}
