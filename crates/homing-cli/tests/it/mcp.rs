//! `homing mcp` as a client starts it.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use homing_testing::{FakeResponse, ResponseStep};
use serde_json::{Value, json};

use crate::world::{World, wait_until};

fn homing(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("mcp").args(args).current_dir(folder).env_clear().env("HOME", folder.join("home"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn say(child: &mut Child, message: &Value) {
    let pipe = child.stdin.as_mut().unwrap();
    writeln!(pipe, "{message}").unwrap();
}

fn introduce(child: &mut Child) {
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    say(child, &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    say(child, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
}

#[test]
fn m1_stdout_carries_only_the_protocol() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".claude/agents")).unwrap();
    let agent = "---\nname: finder\ndescription: Finds things.\ntools: [Read, Grep]\n---\nFind it.";
    std::fs::write(folder.path().join(".claude/agents/finder.md"), agent).unwrap();
    std::fs::write(folder.path().join("hay.txt"), "the needle is here\n").unwrap();
    let mut child = homing(folder.path(), &["--model", "offline"]).spawn().unwrap();
    introduce(&mut child);
    let call = json!({"name": "delegate", "arguments": {"agent": "finder", "task": "needle"}});
    say(&mut child, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let messages = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).expect("only the protocol"));
    let answer =
        messages.inspect(|message| assert_eq!(message["jsonrpc"], "2.0")).find(|message| message["id"] == 2).unwrap();
    let data = &answer["result"]["structuredContent"];
    assert_eq!((&data["agent"], &data["status"]), (&json!("finder"), &json!("done")), "{answer}");
    assert!(data["output"].as_str().unwrap().contains("hay.txt:1"), "{data}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0), "it ends with its client");
}

#[test]
fn trace_of_the_client_is_recorded_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hay.txt"), "the needle is here\n").unwrap();
    let mut child = homing(folder.path(), &["--model", "offline"]).spawn().unwrap();
    introduce(&mut child);
    let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let arguments = json!({"agent": "explore", "task": "needle"});
    let call = json!({"name": "delegate", "arguments": arguments, "_meta": {"traceparent": sent}});
    say(&mut child, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).expect("only the protocol"));
    messages.find(|message| message["id"] == 2).expect("an answer");
    drop(child.stdin.take());
    child.wait().unwrap();
    let mut runs = Command::new(env!("CARGO_BIN_EXE_homing"));
    runs.args(["runs", "--json", "--tag", &format!("traceparent={sent}")]);
    let rows = runs.current_dir(folder.path()).env_clear().env("HOME", folder.path().join("home")).output().unwrap();
    let rows: Value = serde_json::from_slice(&rows.stdout).expect("a list");
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
}

#[test]
fn added_agent_is_announced_and_usable() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".claude/agents")).unwrap();
    std::fs::write(folder.path().join("hay.txt"), "the needle is here\n").unwrap();
    let mut child = homing(folder.path(), &["--model", "offline"]).spawn().unwrap();
    introduce(&mut child);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert_eq!(messages.next().unwrap()["id"], 1);
    let agent = "---\nname: newcomer\ndescription: Finds things.\ntools: [Read, Grep]\n---\nFind it.";
    std::fs::write(folder.path().join(".claude/agents/newcomer.md"), agent).unwrap();
    assert!(messages.any(|message| message["method"] == "notifications/tools/list_changed"));
    let call = json!({"name": "delegate", "arguments": {"agent": "newcomer", "task": "needle"}});
    say(&mut child, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
    let answer = messages.find(|message| message["id"] == 2).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["status"], "done", "{answer}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn added_team_is_announced_served_and_replaced() {
    let world = World::new(|_, seen| FakeResponse::chat_text(&crate::world::task_of(seen)));
    let folder = world.home.path().join(".homing/teams");
    std::fs::create_dir_all(&folder).unwrap();
    let mut process = McpProcess::start(&world);
    process.call("runs", &json!({}));
    for word in ["Write", "Sing"] {
        let text = format!(
            "name: report\ndescription: d\nagents: [{{name: ada, description: d, prompt: p, tools: []}}]\ncrew: {{tasks: [{{name: a, \
             agent: ada, description: '{word} {{{{ task }}}}'}}]}}\n"
        );
        std::fs::write(folder.join("report.yaml"), text).unwrap();
        let changed = |line: &str| line.contains("notifications/tools/list_changed");
        assert!(process.lines.by_ref().map_while(Result::ok).any(|line| changed(&line)));
        let result = process.call("delegate", &json!({"agent": "report", "task": "about ants"}));
        let data = &result["structuredContent"];
        assert_eq!(
            (&data["agent"], &data["output"]),
            (&json!("report"), &json!(format!("{word} about ants"))),
            "{result}"
        );
        assert_eq!(data["children"][0]["agent"], "ada");
    }
    process.child.kill().unwrap();
    process.child.wait().unwrap();
}

/// A server process with its client.
struct McpProcess {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    id: u64,
}

impl McpProcess {
    fn start(world: &World) -> Self {
        let mut command = world.command(&["mcp", "--model", "openai/gpt-4.1"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        introduce(&mut child);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, id: 100 }
    }

    /// Calls a tool and returns its result.
    fn call(&mut self, tool: &str, args: &Value) -> Value {
        self.id += 1;
        let params = json!({"name": tool, "arguments": args});
        say(&mut self.child, &json!({"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params}));
        loop {
            let line = self.lines.next().expect("the server answers").unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.id {
                return message["result"].clone();
            }
        }
    }
}

#[test]
fn client_resumes_its_run_after_the_server_was_killed() {
    let world = World::new(|count, _| match count {
        0 => FakeResponse::steps(vec![ResponseStep::Stall]),
        _ => FakeResponse::chat_text("counted"),
    });
    let mut server = McpProcess::start(&world);
    let started = server.call("delegate", &json!({"agent": "general", "task": "count", "background": true}));
    let run = started["structuredContent"]["run"].clone();
    wait_until("the provider is asked", || world.provider.requests().len() == 1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let mut server = McpProcess::start(&world);
    let listed = server.call("runs", &json!({}));
    let listed = &listed["structuredContent"]["runs"][0];
    assert_eq!((&listed["run"], &listed["status"]), (&run, &json!("interrupted")));
    let waited = server.call("wait", &json!({"runs": [run]}));
    assert!(waited["content"][0]["text"].as_str().unwrap().contains("`resume` it first"), "{waited}");
    assert_eq!(world.provider.requests().len(), 1, "nothing is spent before it is resumed");
    server.call("resume", &json!({"run": run}));
    let waited = server.call("wait", &json!({}));
    let ended = &waited["structuredContent"]["runs"][0];
    assert_eq!((&ended["run"], &ended["output"]), (&run, &json!("counted")), "{waited}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

#[test]
fn missing_model_fails_before_a_client_connects() {
    let folder = tempfile::tempdir().unwrap();
    let output = homing(folder.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--model"), "{output:?}");
}

#[test]
fn http_prints_address_and_token_and_stays_on_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let refused = homing(folder.path(), &["--model", "offline", "--http", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--bind-public"), "{refused:?}");
    let mut child = homing(folder.path(), &["--model", "offline", "--http", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.next().unwrap().starts_with("url: http://127.0.0.1:"));
    let token = lines.next().unwrap();
    assert_eq!(token.strip_prefix("token: ").unwrap().len(), 64);
    child.kill().unwrap();
    child.wait().unwrap();
}
