//! Runs with many tools and many agents, judged by the size and the content of the requests that the provider received.

use std::{fs, process::Command};

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::Value;

use crate::world::*;

/// An MCP server with as many tools as its argument says, each with a schema of its own.
const SERVER: &str = r#"
import json, sys
def send(id, result): sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n"); sys.stdout.flush()
def tool(n):
    fields = {"field_%d_%d" % (n, f): {"type": "string", "description": "One of the fields of this tool"} for f in range(6)}
    return {"name": "tool_%d" % n, "description": "Handles parcels of the size %d." % n, "inputSchema": {"type": "object", "properties": fields}}
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send(id, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        send(id, {"tools": [tool(n) for n in range(int(sys.argv[1]))]})
    elif method == "tools/call":
        send(id, {"content": [{"type": "text", "text": "handled by " + message["params"]["name"]}]})
"#;

/// A user with a server of this many tools; `None` without Python.
fn with_tools(
    count: usize,
    more_config: &str,
    script: impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static,
) -> Option<World> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: the server needs Python");
        return None;
    }
    let world = World::new(script);
    let server = world.home.path().join("server.py");
    fs::write(&server, SERVER).unwrap();
    let config = world.home.path().join(".config/homing");
    fs::create_dir_all(&config).unwrap();
    let mcp = format!("[mcp.many]\ncommand = \"python3\"\nargs = [{server:?}, \"{count}\"]\n");
    fs::write(config.join("config.toml"), format!("{more_config}\n{mcp}")).unwrap();
    let trusted = world.homing(&["trust", "--server", "many", "--yes"]);
    assert_eq!(code(&trusted), 0, "{}", err(&trusted));
    Some(world)
}

fn tool_names(seen: &ReceivedRequest) -> Vec<String> {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn r53_found_tool_is_loaded_called_and_kept_while_the_others_stay_out() {
    let script = |count: usize, _: &ReceivedRequest| match count {
        0 => FakeResponse::chat_calls(&[("find_tools", r#"{"query": "parcels of the size 77"}"#)]),
        1 => FakeResponse::chat_calls(&[("mcp__many__tool_77", r#"{"field_77_0": "x"}"#)]),
        _ => FakeResponse::chat_text("done"),
    };
    let Some(world) = with_tools(150, "", script) else { return };
    let output = world.homing(&run(&["--yes", "go"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 3);
    for seen in &requests {
        assert!(tool_names(seen).len() <= 40, "{:?}", tool_names(seen));
        assert!(!seen.body.contains("field_78_0"), "a schema that was not asked for");
    }
    let loaded = |seen: &ReceivedRequest| seen.body.contains("field_77_5");
    assert_eq!(requests.iter().map(loaded).collect::<Vec<_>>(), [false, true, true]);
    assert!(requests[0].body.contains("mcp__many__tool_149: Handles parcels of the size 149."), "names stay");
    assert!(requests[2].body.contains("handled by tool_77"), "{}", requests[2].body);
    eprintln!("150 tools: requests of {:?} bytes", requests.iter().map(|seen| seen.body.len()).collect::<Vec<_>>());
}

#[test]
fn few_tools_are_sent_with_their_schemas() {
    let Some(world) = with_tools(5, "", |_, _| FakeResponse::chat_text("done")) else { return };
    assert_eq!(code(&world.homing(&run(&["--yes", "go"]))), 0);
    let seen = &world.provider.requests()[0];
    assert!(seen.body.contains("field_4_5") && !seen.body.contains("find_tools"), "{}", seen.body);
}

#[test]
fn configured_size_is_respected_up_to_128_tools() {
    let config = "[on_demand]\ntools = 1000\nbytes = 1000000\n";
    let Some(world) = with_tools(90, config, |_, _| FakeResponse::chat_text("done")) else { return };
    assert_eq!(code(&world.homing(&run(&["--yes", "go"]))), 0);
    let names = tool_names(&world.provider.requests()[0]);
    assert!(names.len() > 90 && !names.contains(&"find_tools".to_owned()), "{names:?}");
    let Some(world) = with_tools(200, config, |_, _| FakeResponse::chat_text("done")) else { return };
    let planned = world.homing(&run(&["--plan", "go"]));
    assert!(out(&planned).contains("200 tools ("), "{}", out(&planned));
    assert_eq!(code(&world.homing(&run(&["--yes", "go"]))), 0);
    let names = tool_names(&world.provider.requests()[0]);
    assert!(names.len() <= 128 && names.contains(&"find_tools".to_owned()), "{names:?}");
}

/// A user with this many agents, each with a long description.
fn with_agents(
    count: usize,
    script: impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static,
) -> World {
    let world = World::new(script);
    for n in 0..count {
        let description =
            format!("Handles parcels of the size {n}. {}", "It is careful and explains what it does. ".repeat(6));
        let text =
            format!("---\nname: handler-with-a-long-name-{n}\ndescription: {description}\n---\nYou are handler {n}.\n");
        world.write(&format!(".homing/agents/handler-{n}.md"), &text);
    }
    world
}

#[test]
fn list_of_agents_shrinks_and_is_searched_at_last() {
    for (count, note, has_search) in [
        (20, "", false),
        (150, "agents are cut to 80 bytes", false),
        (400, "agents are listed without descriptions", true),
        (601, "agents are listed without descriptions", true),
        (1_000, "the model finds them with `find_agents`", true),
    ] {
        let world = with_agents(count, |count, seen| match count {
            0 if seen.body.contains("find_agents") => {
                FakeResponse::chat_calls(&[("find_agents", r#"{"query": "parcels of the size 17"}"#)])
            }
            _ => FakeResponse::chat_text("done"),
        });
        let planned = world.homing(&run(&["--plan", "go"]));
        assert!(out(&planned).contains(note), "{count} agents: {}", out(&planned));
        assert_eq!(code(&world.homing(&run(&["go"]))), 0);
        let requests = world.provider.requests();
        assert_eq!(tool_names(&requests[0]).contains(&"find_agents".to_owned()), has_search, "{count} agents");
        assert!(requests[0].body.len() < 48_000, "{count} agents: {} bytes", requests[0].body.len());
        if has_search {
            assert!(requests[1].body.contains("handler-with-a-long-name-17: Handles parcels"), "{}", requests[1].body);
        }
        eprintln!("{count} agents: a request of {} bytes", requests[0].body.len());
    }
}
