//! MCP servers and hooks of projects and agent files: inactive until they are trusted, then available to their runs and ended
//! with them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::json;
use tempfile::TempDir;

use crate::world::{World, code, err, has_results, out};

/// A server on standard streams. It writes its process ID to the file in its arguments.
const SERVER: &str = r#"
import json, os, sys
open(sys.argv[1], "a").write("%d\n" % os.getpid())
def send(id, result): sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send(id, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        send(id, {"tools": [{"name": "look", "description": "Looks at " + sys.argv[2], "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        send(id, {"content": [{"type": "text", "text": "seen: " + sys.argv[2]}]})
"#;

/// A user, and a folder of servers' programs outside the home and the project.
struct Servers {
    world: World,
    outside: TempDir,
}

impl std::ops::Deref for Servers {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Servers {
    /// Returns `None` if there is no Python.
    fn new(script: impl Fn(&ReceivedRequest) -> FakeResponse + Send + Sync + 'static) -> Option<Self> {
        if Command::new("python3").arg("--version").output().is_err() {
            eprintln!("skipped: the server needs Python");
            return None;
        }
        let servers = Self { world: World::new(move |_, seen| script(seen)), outside: TempDir::new().unwrap() };
        fs::write(servers.outside.path().join("server.py"), SERVER).unwrap();
        Some(servers)
    }

    fn run(&self, agent: &str) -> Output {
        self.homing(&["run", "--model", "openai/gpt-4.1", "--agent", agent, "go"])
    }

    /// Returns the definition of a server.
    fn server(&self, name: &str) -> serde_json::Value {
        json!({"command": "python3", "args": [self.outside.path().join("server.py"), self.log(name), name]})
    }

    fn log(&self, name: &str) -> PathBuf {
        self.outside.path().join(format!("{name}.pids"))
    }

    fn starts(&self, name: &str) -> usize {
        fs::read_to_string(self.log(name)).unwrap_or_default().lines().count()
    }

    /// Returns the bodies of all requests since `from`.
    fn asked(&self, from: usize) -> String {
        self.provider.requests()[from..].iter().map(|it| it.body.clone()).collect()
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn worked(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
}

fn alive(log: &Path) -> bool {
    let pids = fs::read_to_string(log).unwrap_or_default();
    pids.lines().any(|pid| Path::new("/proc").join(pid).join("cwd").symlink_metadata().is_ok())
}

/// Returns whether all processes of a server end within two seconds.
fn ends_soon(log: &Path) -> bool {
    let since = Instant::now();
    while alive(log) && since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(20));
    }
    !alive(log)
}

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Looks.\n{more}\n---\nYou are {name}.\n")
}

#[test]
fn f21_untrusted_servers_and_hooks_do_not_run_and_are_reported() {
    let Some(world) = Servers::new(|_| FakeResponse::chat_text("ok")) else { return };
    world.write(".mcp.json", &json!({"mcpServers": {"common": world.server("common")}}).to_string());
    let hook = format!("touch {}", world.outside.path().join("hooked").display());
    let hooks = json!({"SessionStart": [{"hooks": [{"type": "command", "command": hook}]}]});
    let more = format!("mcpServers: {}\nhooks: {hooks}", json!({"own": world.server("own")}));
    world.write(".claude/agents/keeper.md", &agent("keeper", &more));
    world.write(".claude/settings.json", &json!({"hooks": hooks}).to_string());
    let output = world.run("keeper");
    worked(&output);
    let said = err(&output);
    assert!(said.contains("the hooks of .claude/settings.json do not run"), "{said}");
    assert!(said.contains("homing trust"), "{said}");
    for what in ["`mcpServers` of agent keeper", "`hooks` of agent keeper", "the servers of .mcp.json"] {
        assert!(said.contains(what), "{said}");
    }
    let refused = world.homing(&["trust", "--server", "common", "--yes"]);
    assert!(refused.status.code() == Some(2) && err(&refused).contains("homing trust"), "{}", err(&refused));
    assert_eq!((world.starts("common"), world.starts("own")), (0, 0));
    assert!(!world.outside.path().join("hooked").exists());
    assert!(!world.asked(0).contains("mcp__"));
}

#[test]
fn r14_inv24_trusted_servers_serve_their_runs_and_end_with_them() {
    let place = TempDir::new().unwrap();
    let (pids, was_gone) = (place.path().join("own.pids"), place.path().join("gone"));
    let (log, mark) = (pids.clone(), was_gone.clone());
    let Some(world) = Servers::new(move |seen| match (seen.body.contains("You are keeper."), has_results(seen)) {
        (true, false) => FakeResponse::chat_calls(&[("mcp__own__look", "{}"), ("mcp__own__look", "{}")]),
        (true, true) => FakeResponse::chat_text("kept"),
        (false, false) => FakeResponse::chat_calls(&[("delegate", r#"{"agent": "keeper", "task": "look"}"#)]),
        (false, true) => {
            // The child has ended, its parent has not.
            fs::write(&mark, if ends_soon(&log) { "yes" } else { "no" }).unwrap();
            FakeResponse::chat_text("done")
        }
    }) else {
        return;
    };
    let own = json!({"own": {"command": "python3", "args": [world.outside.path().join("server.py"), pids, "own"]}});
    world.write(".mcp.json", &json!({"mcpServers": {"common": world.server("common")}}).to_string());
    world.write(".claude/agents/keeper.md", &agent("keeper", &format!("tools: Read\nmcpServers: {own}")));
    world.write(".claude/agents/root.md", &agent("root", "mcpServers: [common]"));
    let trusted = world.homing(&["trust", "--yes"]);
    worked(&trusted);
    assert!(err(&trusted).contains("homing trust --server own"), "{}", err(&trusted));
    let before = world.run("root");
    assert!(err(&before).contains("homing trust --server common"), "{}", err(&before));
    assert_eq!(world.starts("common"), 0, "trusted, but its tools are not approved");
    for name in ["common", "own"] {
        worked(&world.homing(&["trust", "--server", name, "--yes"]));
    }
    fs::write(&pids, "").unwrap();
    let (asked, common) = (world.provider.requests().len(), world.starts("common"));
    let output = world.run("root");
    worked(&output);
    assert!(!err(&output).contains("warning"), "{}", err(&output));
    assert!(world.asked(asked).contains("seen: own"), "{}", world.asked(asked));
    assert_eq!(fs::read_to_string(&pids).unwrap().lines().count(), 1, "two calls, one server");
    assert_eq!(world.starts("common"), common, "not called, so not started");
    assert_eq!(fs::read_to_string(was_gone).unwrap(), "yes", "it ended with its run, before the tree did");
    for request in &world.provider.requests()[asked..] {
        let keepers = request.body.contains("You are keeper.");
        assert_eq!(request.body.contains("\"mcp__own__look\""), keepers, "{}", request.body);
        assert_eq!(request.body.contains("\"mcp__common__look\""), !keepers, "{}", request.body);
    }
    // A changed file is not trusted any more.
    world.write(".mcp.json", &json!({"mcpServers": {"common": world.server("common")}, "more": 1}).to_string());
    let after = world.run("root");
    assert!(err(&after).contains("`mcpServers` of agent keeper"), "{}", err(&after));
}

#[test]
fn servers_of_user_agents_need_approval_but_no_trust() {
    let Some(world) = Servers::new(|seen| {
        if has_results(seen) {
            FakeResponse::chat_text("done")
        } else {
            FakeResponse::chat_calls(&[("mcp__mine__look", "{}")])
        }
    }) else {
        return;
    };
    let own = json!({"mine": world.server("mine")});
    write(world.home.path(), ".claude/agents/mine.md", &agent("mine", &format!("mcpServers: {own}")));
    let before = world.run("mine");
    assert!(err(&before).contains("homing trust --server mine") && world.starts("mine") == 0, "{}", err(&before));
    worked(&world.homing(&["trust", "--server", "mine", "--yes"]));
    let asked = world.provider.requests().len();
    worked(&world.run("mine"));
    assert!(world.asked(asked).contains("seen: mine"));
    assert!(ends_soon(&world.log("mine")));
}

#[test]
fn hooks_of_a_trusted_agent_run_at_each_event() {
    let Some(world) = Servers::new(|seen| match (has_results(seen), seen.body.contains("one more thing")) {
        (false, _) => FakeResponse::chat_calls(&[("ls", "{}"), ("glob", r#"{"pattern": "*"}"#)]),
        (true, false) => FakeResponse::chat_text("done"),
        (true, true) => FakeResponse::chat_text("done indeed"),
    }) else {
        return;
    };
    let log = world.outside.path().join("hooks.log");
    let note = |what: &str| format!("echo {what} >> {}", log.display());
    let one = |matcher: &str, command: String| json!([{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]);
    let stop = format!(
        "{}; test -e {1} || {{ touch {1}; echo one more thing >&2; exit 2; }}",
        note("stop"),
        log.with_extension("once").display()
    );
    let speak =
        json!([{"matcher": "LS", "hooks": [{"command": "echo mind the gap"}, {"command": "echo broken >&2; exit 1"}]}]);
    let block = one("Glob", format!("{}; echo no globs here >&2; exit 2", note("pre")));
    let before: Vec<_> = [block, speak].iter().flat_map(|hooks| hooks.as_array().cloned().unwrap()).collect();
    let hooks = json!({
        "SessionStart": one("", note("start")),
        "PreToolUse": before,
        "PostToolUse": one("LS", note("post")),
        "Stop": one("", stop),
    });
    world.write(".claude/agents/careful.md", &agent("careful", &format!("hooks: {hooks}")));
    worked(&world.homing(&["trust", "--yes"]));
    let output = world.run("careful");
    worked(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done indeed\n", "{}", err(&output));
    let log = fs::read_to_string(log).unwrap();
    let count = |what: &str| log.lines().filter(|line| *line == what).count();
    assert_eq!((count("start"), count("pre"), count("post"), count("stop")), (1, 1, 1, 2), "{log}");
    assert!(world.asked(0).contains("blocked by a hook: no globs here"));
    assert!(world.asked(0).contains("mind the gap"), "the output of a hook before a call is added to the result");
    assert!(err(&output).contains("broken"), "a hook that fails is shown to people: {}", err(&output));
}

#[test]
fn tools_of_a_server_are_available_once_approved() {
    let script = |seen: &ReceivedRequest| {
        if has_results(seen) {
            FakeResponse::chat_text("ok")
        } else {
            FakeResponse::chat_calls(&[("mcp__s__look", "{}")])
        }
    };
    let Some(world) = Servers::new(script) else { return };
    let config = json!({"mcp": {"s": world.server("s")}});
    write(world.home.path(), ".config/homing/config.toml", &toml::to_string(&config).unwrap());
    let run = |task: &str| world.homing(&["run", "--model", "openai/gpt-4.1", "--sandbox", "off", task]);
    let before = run("x");
    assert!(err(&before).contains("homing trust --server s"), "{}", err(&before));
    assert!(!world.provider.requests()[0].body.contains("Looks at"), "it is not approved");
    let approved = world.homing(&["trust", "--server", "s", "--yes"]);
    if err(&approved).contains("sandbox") && code(&approved) != 0 {
        eprintln!("skipped: no sandbox works here: {}", err(&approved));
        return;
    }
    assert!(code(&approved) == 0 && out(&approved).contains("mcp__s__look"), "{}", err(&approved));
    let after = run("y");
    let last = world.provider.requests().last().unwrap().body.clone();
    assert!(last.contains("seen: s"), "{} {last}", err(&after));
}
