//! `homing mcp` as a client starts it.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

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
