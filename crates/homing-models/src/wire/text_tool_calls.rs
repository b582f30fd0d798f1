//! Reads tool calls that a small model wrote as text. They count only if the reply has no real calls and the tool was
//! offered, so that prose about calls is not executed.

use std::sync::Arc;

use homing_core::message::{Args, Part, ToolCall};
use serde_json::Value;

use crate::wire::reply_builder::read_args;

/// Converts calls in the text of `parts` to real calls, for tools in `offered`.
pub(super) fn read_calls(parts: &mut Vec<Part>, offered: &[String]) {
    if offered.is_empty() {
        return;
    }
    let may_call = |part: &Part| matches!(part, Part::Text(text) if text.contains(['<', '[', '{', '`']));
    if !parts.iter().any(may_call) {
        return;
    }
    let mut converted = Vec::with_capacity(parts.len());
    for part in std::mem::take(parts) {
        match part {
            Part::Text(text) => {
                let (rest, calls) = take_calls(&text, offered);
                if calls.is_empty() || !rest.trim().is_empty() {
                    converted.push(Part::Text(if calls.is_empty() { text } else { rest.trim().to_owned() }));
                }
                converted.extend(calls.into_iter().map(Part::from));
            }
            other @ (Part::Thinking { .. } | Part::Call(_) | Part::Opaque { .. }) => converted.push(other),
        }
    }
    let mut count = 0;
    for part in &mut converted {
        if let Part::Call(call) = part {
            Arc::make_mut(call).id = format!("call_{count}");
            count += 1;
        }
    }
    *parts = converted;
}

/// Removes the call at the end of a reply that the output limit cut, if it is incomplete, and returns its tool.
pub(super) fn drop_cut_call(parts: &mut Vec<Part>, offered: &[String]) -> Option<String> {
    let Some(Part::Text(text)) = parts.last_mut() else { return None };
    let marks = [("<tool_call>", "</tool_call>"), ("<function=", "</function>"), ("[TOOL_CALLS]", "\u{0}")];
    let open = marks.iter().filter_map(|(open, close)| {
        let at = text.rfind(open)?;
        (!text[at..].contains(close)).then_some(at)
    });
    let at = open.min()?;
    let begun = &text[at..];
    let named = |tool: &&String| {
        let spellings = [format!("\"{tool}\""), format!("<function={tool}>"), format!("[TOOL_CALLS]{tool}")];
        spellings.iter().any(|spelling| begun.contains(spelling))
    };
    let tool = offered.iter().find(named)?.clone();
    text.truncate(at);
    if text.trim().is_empty() {
        parts.pop();
    }
    Some(tool)
}

/// Reads the calls, as names and arguments, from text that is known to be an attempt at calls. Names and arguments may be
/// wrong. Empty if no tool can be found in it.
pub(super) fn failed_calls(text: &str, offered: &[String]) -> Vec<(String, String)> {
    let args = |args: Args| match args {
        Args::Json(value) => value.to_string(),
        Args::Malformed(text) => text,
    };
    let (_, calls) = take_calls(text, offered);
    if !calls.is_empty() {
        return calls.into_iter().map(|call| (call.name, args(call.args))).collect();
    }
    let value: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    if let Some(name) = value.get("name").and_then(Value::as_str)
        && let Some(call) = call_of(&value, &[name.to_owned()])
    {
        return vec![(call.name, args(call.args))];
    }
    // The longest name wins, because one may contain another.
    let named = offered.iter().filter(|tool| text.contains(tool.as_str())).max_by_key(|tool| tool.len());
    let inside = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to));
    named.map(|tool| (tool.clone(), inside.unwrap_or(text).to_owned())).into_iter().collect()
}

/// Splits a text into the rest and its calls.
fn take_calls(text: &str, offered: &[String]) -> (String, Vec<ToolCall>) {
    let whole = text.trim();
    if let Some(calls) = whole.strip_prefix("[TOOL_CALLS]").and_then(|list| listed(list, offered)) {
        return (String::new(), calls);
    }
    // A reply that is one JSON object and nothing else.
    if let Some(calls) = call_object(whole, offered) {
        return (String::new(), calls);
    }
    let (mut rest, mut calls) = (String::new(), Vec::new());
    let mut at = text;
    while let Some((before, inner, after)) = next_marked(at) {
        match call_object(inner, offered).or_else(|| function_tag(inner, offered)) {
            Some(found) => {
                rest.push_str(before);
                calls.extend(found);
            }
            None => rest.push_str(&at[..at.len() - after.len()]),
        }
        at = after;
    }
    rest.push_str(at);
    (rest, calls)
}

/// Splits at the next text between the marks that models put around calls: before, inside, after.
fn next_marked(text: &str) -> Option<(&str, &str, &str)> {
    let marks =
        [("<tool_call>", "</tool_call>"), ("<function=", "</function>"), ("```json", "```"), ("```tool_call", "```")];
    let found = marks.iter().filter_map(|(open, close)| text.find(open).map(|at| (at, *open, *close)));
    let (at, open, close) = found.min_by_key(|(at, _, _)| *at)?;
    let inside = &text[at + open.len()..];
    // Small models often omit the end mark of the last call.
    let (inner_len, tail) = inside.find(close).map_or((inside.len(), 0), |end| (end, close.len()));
    let from = if open == "<function=" { at } else { at + open.len() };
    let to = at + open.len() + inner_len;
    Some((&text[..at], &text[from..to], &text[to + tail..]))
}

/// `{"name": …, "arguments": …}`, or a list of such.
fn call_object(text: &str, offered: &[String]) -> Option<Vec<ToolCall>> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let items = if let Value::Array(items) = value { items } else { vec![value] };
    let calls: Option<Vec<ToolCall>> = items.into_iter().map(|item| call_of(&item, offered)).collect();
    calls.filter(|calls| !calls.is_empty())
}

fn call_of(item: &Value, offered: &[String]) -> Option<ToolCall> {
    let item = item.get("function").filter(|it| it.is_object()).unwrap_or(item);
    let name = item.get("name").or_else(|| item.get("tool"))?.as_str()?.to_owned();
    let args = ["arguments", "parameters", "args", "input"].iter().find_map(|key| item.get(key))?;
    let args = if let Value::String(text) = args { text.clone() } else { args.to_string() };
    offered.contains(&name).then(|| ToolCall { id: String::new(), name, args: read_args(args) })
}

/// Mistral's `[TOOL_CALLS][{…}]` and `[TOOL_CALLS]name{…}` or `name[ARGS]{…}`.
fn listed(list: &str, offered: &[String]) -> Option<Vec<ToolCall>> {
    if let Some(calls) = call_object(list, offered) {
        return Some(calls);
    }
    let calls: Option<Vec<ToolCall>> = list.split("[TOOL_CALLS]").map(|call| named(call, offered)).collect();
    calls.filter(|calls| !calls.is_empty())
}

fn named(call: &str, offered: &[String]) -> Option<ToolCall> {
    let (name, args) = call.split_at(call.find('{')?);
    let name = name.trim().trim_end_matches("[ARGS]").to_owned();
    let args: Value = serde_json::from_str(args.trim()).ok()?;
    offered.contains(&name).then(|| ToolCall { id: String::new(), name, args: read_args(args.to_string()) })
}

/// `<function=name>{…}` or `<function=name><parameter=key>value</parameter>`.
fn function_tag(text: &str, offered: &[String]) -> Option<Vec<ToolCall>> {
    let text = &text[text.find("<function=")? + "<function=".len()..];
    let (name, inner) = text.split_once('>')?;
    let name = name.trim().trim_matches('"').to_owned();
    if !offered.contains(&name) {
        return None;
    }
    let inner = inner.split("</function>").next().unwrap_or_default().trim();
    let args = match serde_json::from_str::<Value>(inner) {
        Ok(value) => value,
        Err(_) => parameters(inner)?,
    };
    Some(vec![ToolCall { id: String::new(), name, args: read_args(args.to_string()) }])
}

fn parameters(mut text: &str) -> Option<Value> {
    let mut object = serde_json::Map::new();
    while let Some((_, rest)) = text.split_once("<parameter=") {
        let (key, rest) = rest.split_once('>')?;
        let (value, rest) = rest.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        object.insert(key.trim().to_owned(), value);
        text = rest;
    }
    Some(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> (String, Vec<(String, Value)>) {
        let mut parts = vec![Part::Text(text.to_owned())];
        read_calls(&mut parts, &["read".to_owned(), "grep".to_owned()]);
        let reply = homing_core::message::Reply::new(parts);
        let calls = reply.calls().map(|call| match &call.args {
            Args::Json(value) => (call.name.clone(), value.clone()),
            Args::Malformed(text) => panic!("{text}"),
        });
        (reply.text(), calls.collect())
    }

    #[test]
    fn every_known_form_of_call_is_read() {
        let expected = vec![("read".to_owned(), json!({"path": "a.rs"}))];
        for text in [
            "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a.rs\"}}\n</tool_call>",
            "<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"a.rs\"}}",
            "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a.rs\"}}\n```",
            "{\"name\": \"read\", \"parameters\": {\"path\": \"a.rs\"}}",
            "{\"function\": {\"name\": \"read\", \"arguments\": \"{\\\"path\\\": \\\"a.rs\\\"}\"}}",
            "<function=read>{\"path\": \"a.rs\"}</function>",
            "<function=read>\n<parameter=path>\na.rs\n</parameter>\n</function>",
            "<tool_call>\n<function=read>\n<parameter=path>a.rs</parameter>\n</function>\n</tool_call>",
            "[TOOL_CALLS][{\"name\": \"read\", \"arguments\": {\"path\": \"a.rs\"}}]",
            "[TOOL_CALLS]read{\"path\": \"a.rs\"}",
            "[TOOL_CALLS]read[ARGS]{\"path\": \"a.rs\"}",
        ] {
            assert_eq!(read(text), (String::new(), expected.clone()), "{text}");
        }
    }

    #[test]
    fn cut_text_call_is_dropped_and_complete_ones_stay() {
        let offered = ["read".to_owned(), "grep".to_owned()];
        for (text, rest, tool) in [
            ("Look.\n<tool_call>{\"name\": \"read\", \"arg", "Look.\n", Some("read")),
            ("<tool_call>\n<function=grep>\n<parameter=path>a", "", Some("grep")),
            ("[TOOL_CALLS]read{\"path\": ", "", Some("read")),
            (
                "<tool_call>{\"name\":\"read\"}</tool_call><tool_call>{\"name\":\"grep\"",
                "<tool_call>{\"name\":\"read\"}</tool_call>",
                Some("grep"),
            ),
            ("<tool_call>{\"name\": \"rm\", \"arg", "<tool_call>{\"name\": \"rm\", \"arg", None),
            ("Write <tool_call> before it, th", "Write <tool_call> before it, th", None),
        ] {
            let mut parts = vec![Part::Text(text.to_owned())];
            assert_eq!(drop_cut_call(&mut parts, &offered).as_deref(), tool, "{text}");
            let reply = homing_core::message::Reply::new(parts);
            assert_eq!(reply.text(), rest);
        }
    }

    #[test]
    fn text_around_a_call_stays() {
        let (text, calls) = read(
            "I will look.\n<tool_call>{\"name\":\"read\",\"arguments\":{}}</tool_call>\n\
             <tool_call>{\"name\":\"grep\",\"arguments\":{\"pattern\":\"x\"}}</tool_call> Then more.",
        );
        assert_eq!(text, "I will look.\n\n Then more.");
        assert_eq!(calls.len(), 2);
    }

    #[test]
    fn l12_prose_and_unknown_tools_are_left_alone() {
        for text in [
            "<tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>",
            "Write <tool_call> before it.",
            "```json\n{\"name\": \"my-package\", \"version\": \"1.0.0\"}\n```",
            "<tool_call>{\"name\":\"read\",\"arguments\":{</tool_call>",
            "[TOOL_CALLS]rm{\"path\": \"a.rs\"}",
        ] {
            assert_eq!(read(text), (text.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn failed_attempts_at_calls_keep_their_tool() {
        let offered = ["read".to_owned(), "read_all".to_owned()];
        let calls = |text: &str| failed_calls(text, &offered);
        let one = |name: &str, args: &str| vec![(name.to_owned(), args.to_owned())];
        assert_eq!(calls(r#"<function=read>{"path":"a"}</function>"#), one("read", r#"{"path":"a"}"#));
        assert_eq!(
            calls(r#"<function=read_all{"path": "a"</function>"#),
            one("read_all", r#"<function=read_all{"path": "a"</function>"#)
        );
        assert_eq!(calls(r#"<function=read{"path": "a"}</function>"#), one("read", r#"{"path": "a"}"#));
        assert_eq!(calls(r#"{"name": "open_file", "arguments": {"p": 1}}"#), one("open_file", r#"{"p":1}"#));
        assert_eq!(calls("I would rather talk."), []);
    }
}
