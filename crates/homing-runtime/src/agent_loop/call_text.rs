//! Describes a call to the user who must approve it, or who is told that it was denied: the agent, the tool, and the
//! command, file or host that it uses.

use homing_core::{
    place::Place,
    rule::{Subject, Subjects},
};
use serde_json::Value;

/// Maximum number of characters of one argument.
const MAX_VALUE: usize = 200;

/// Maximum number of characters of a command. A longer one is cut in the middle, so that both ends are seen.
const MAX_COMMAND: usize = 2_000;

/// Maximum number of lines of a preview. A longer one is cut at its end.
const MAX_LINES: usize = 60;

/// Names the agent that wants to make a call, with its place if there are others.
pub(crate) fn asking_agent(agent: &str, place: &Place) -> String {
    if *place == Place::root() { agent.to_owned() } else { format!("{agent} (run {place})") }
}

/// Names a call in a few words: the tool, and its command, files or hosts.
pub(crate) fn summary(tool: &str, subjects: &Subjects, args: &Value) -> String {
    let argument = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
    let subject = match (subjects, argument("command")) {
        (_, Some(command)) => command,
        (Subjects::Parts(parts), None) => parts.iter().map(name).collect::<Vec<_>>().join(", "),
        (Subjects::None | Subjects::Unclear(_), None) => {
            ["url", "path", "query"].into_iter().find_map(argument).unwrap_or_default()
        }
    };
    if subject.is_empty() { tool.to_owned() } else { format!("{tool} `{}`", cut(&subject, MAX_VALUE)) }
}

/// Indents lines that follow a question.
pub(crate) fn indented(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().take(MAX_LINES).map(|line| format!("\n  {line}")).collect();
    let left = text.lines().count().saturating_sub(MAX_LINES);
    lines.extend((left > 0).then(|| format!("\n  … ({left} more lines)")));
    lines.concat()
}

/// Returns the question whether an agent may make a call.
pub(crate) fn question(agent: &str, tool: &str, subjects: &Subjects, args: &Value) -> String {
    let command = args.get("command").and_then(Value::as_str);
    let is_command = |part: &Subject| matches!(part, Subject::Command { .. });
    match (subjects, command) {
        // The line as it was written, not the commands that were found in it.
        (Subjects::Parts(parts), Some(command)) if parts.iter().all(is_command) => {
            format!(
                "allow {agent} to run this command ({tool})?\n  {}",
                cut(command, MAX_COMMAND).replace('\n', "\n  ")
            )
        }
        (Subjects::Unclear(why), Some(command)) => format!(
            "allow {agent} to run this command ({tool})? Rules cannot check it: {why}\n  {}",
            cut(command, MAX_COMMAND).replace('\n', "\n  ")
        ),
        (Subjects::Parts(parts), _) if !parts.is_empty() => {
            let names: Vec<String> = parts.iter().map(|part| cut(name(part), MAX_VALUE)).collect();
            format!("allow {agent} to use {tool} on {}?", names.join(", "))
        }
        (Subjects::None | Subjects::Parts(_) | Subjects::Unclear(_), _) => {
            format!("allow {agent} to use {tool}?{}", arguments(args))
        }
    }
}

fn name(part: &Subject) -> &str {
    match part {
        Subject::Command { text, .. } => text,
        Subject::Path(text) | Subject::Host(text) | Subject::Name(text) => text,
        Subject::Names(names) => names.first().map_or("", String::as_str),
    }
}

/// Lists the arguments, one per line.
fn arguments(args: &Value) -> String {
    let fields = args.as_object().into_iter().flatten();
    let line = |(key, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("\n  {key}: {}", cut(&text, MAX_VALUE).replace('\n', "\n    "))
    };
    fields.map(line).collect()
}

fn cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head} … ({} more characters) … {tail}", length - 2 * half)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn question_names_agent_tool_and_subject() {
        let command = Subjects::Parts(vec![Subject::Command { text: "git push".into(), classes: Vec::new() }]);
        assert_eq!(
            question("general", "bash", &command, &json!({"command": "git push # now"})),
            "allow general to run this command (bash)?\n  git push # now"
        );
        let path = Subjects::Parts(vec![Subject::Path("src/a.rs".into())]);
        assert_eq!(
            question("code", "write", &path, &json!({"path": "src/a.rs", "content": "x"})),
            "allow code to use write on src/a.rs?"
        );
        let args = json!({"repo": "a/b", "force": true});
        assert_eq!(
            question("general", "mcp__hub__delete", &Subjects::None, &args),
            "allow general to use mcp__hub__delete?\n  repo: a/b\n  force: true"
        );
        let long = question("a", "t", &Subjects::None, &json!({"x": "y".repeat(10_000)}));
        assert_eq!(summary("bash", &command, &json!({"command": "git push # now"})), "bash `git push # now`");
        assert_eq!(summary("write", &path, &json!({"path": "src/a.rs"})), "write `src/a.rs`");
        assert_eq!(summary("todo", &Subjects::None, &json!({})), "todo");
        let unclear = Subjects::Unclear("it is an address".into());
        assert_eq!(summary("fetch", &unclear, &json!({"url": "http://[::1]/"})), "fetch `http://[::1]/`");
        assert_eq!(asking_agent("general", &Place::root()), "general");
        assert_eq!(asking_agent("explore", &Place::root().child(2)), "explore (run 1.2)");
        assert!(long.len() < 400 && long.contains("9800 more characters"), "{long}");
    }
}
