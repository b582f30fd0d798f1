//! Readers of `homing serve`: many, slow ones, and ones that do not read at all.

use std::{
    io::Read,
    net::TcpStream,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use homing_testing::FakeResponse;
use serde_json::{Value, json};

use crate::{
    serve_client::{Request, Serve},
    world::{MODEL, World, has_results, wait_until},
};

/// A model that reads a large file so often that the records of a run exceed what sockets and channels hold.
fn large_reader(times: usize) -> World {
    let world = World::new(move |turn, _| {
        if turn >= times {
            return FakeResponse::chat_text("read it all");
        }
        // Calls that repeat themselves would end the run.
        FakeResponse::chat_calls(&[("read", &format!(r#"{{"path": "large.txt", "offset": {}}}"#, turn + 1))])
    });
    world.write("large.txt", &"0123456789abcdef\n".repeat(2_500));
    world
}

fn start(server: &Serve, body: &Value) -> String {
    let response = server.request("POST", "/api/runs").json(body).send();
    assert_eq!(response.status, 201, "{}", response.body);
    response.json()["tree"].as_str().expect("a tree").to_owned()
}

fn status(server: &Serve, tree: &str) -> String {
    server.get_json(&format!("/api/trees/{tree}"))["status"].as_str().expect("a status").to_owned()
}

/// Returns the sum of the processor time of a process.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    // Hundredths of a second, in user and kernel mode.
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn readers_that_do_not_read_slow_nothing_down() {
    let world = large_reader(60);
    let server = Serve::start(&world, &MODEL);
    let limits = json!({"turns": "200", "tokens": "none", "cost": "none", "tool_calls": "200"});
    let tree = start(&server, &json!({"agent": "explore", "task": "read", "limits": limits}));
    let silent: Vec<TcpStream> = (0..50)
        .flat_map(|_| [format!("/api/events?tree={tree}"), "/api/events".to_owned()])
        .map(|path| server.request("GET", &path).open())
        .collect();
    // A program that uses an agent as a model and does not read its stream, either.
    let body = json!({"model": "explore", "stream": true, "messages": [{"role": "user", "content": "read"}]});
    let program = server.request("POST", "/v1/chat/completions").json(&body).open();
    let mut reader = server.events(&format!("/api/events?tree={tree}"));
    let mut seqs = Vec::new();
    loop {
        let event = reader.next().expect("an event");
        seqs.extend(event.id);
        if event.data["fact"].get("ended").is_some() {
            break;
        }
    }
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>(), "every record once, in order");
    assert_eq!(status(&server, &tree), "done");
    // Those that did not read get everything once they do.
    let mut late = silent.into_iter().next().expect("a reader");
    late.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let wanted = format!("id: {}\n", seqs.len() - 1);
    while !text.windows(wanted.len()).any(|window| window == wanted.as_bytes()) {
        let read = late.read(&mut buffer).expect("the rest arrives");
        assert!(read > 0, "the stream does not end before the last record");
        text.drain(..text.len().saturating_sub(wanted.len()));
        text.extend_from_slice(&buffer[..read]);
    }
    drop(program);
}

#[test]
fn a_thousand_readers_share_one_fold() {
    let world = World::new(|_, request| {
        if has_results(request) {
            return FakeResponse::chat_text("done");
        }
        FakeResponse::chat_calls(&[("read", r#"{"path": "a.txt"}"#)]).after(Duration::from_millis(300))
    });
    world.write("a.txt", "a");
    let server = Serve::start(&world, &MODEL);
    let tree = start(&server, &json!({"agent": "explore", "task": "first"}));
    wait_until("the first run ends", || status(&server, &tree) == "done");
    let mut readers: Vec<_> = (0..1_000).map(|_| server.events("/api/events")).collect();
    for reader in &mut readers {
        reader.until("questions", |_| true);
    }
    let before = processor_time(server.child.id());
    let began = Instant::now();
    let second = start(&server, &json!({"agent": "explore", "task": "second"}));
    for reader in &mut readers {
        reader.until("tree", |row| row["tree"] == second.as_str() && row["status"] == "done");
    }
    let (spent, took) = (processor_time(server.child.id()) - before, began.elapsed());
    // Folding and formatting for each reader would take a thousand times as long as for one: minutes in this build.
    assert!(spent < Duration::from_secs(15), "{spent:?} of processor time, {took:?} altogether");
}

#[test]
fn large_answers_are_compressed_for_clients_that_accept_it() {
    let world = large_reader(3);
    let server = Serve::start(&world, &MODEL);
    let tree = start(&server, &json!({"agent": "explore", "task": "read"}));
    wait_until("the run ends", || status(&server, &tree) == "done");
    let path = format!("/api/trees/{tree}/facts");
    let plain = server.get(&path);
    assert!(!plain.head.contains("content-encoding"), "{}", plain.head);
    for path in [&*path, "/app.js", "/fold.wasm"] {
        let (head, body) = raw(server.request("GET", path).header("Accept-Encoding", "br, gzip"));
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{path}: {head}");
        let mut text = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut text).expect("it is gzip");
        assert!(body.len() < text.len() / 2, "{path}: {} of {}", body.len(), text.len());
        if path.starts_with("/api") {
            assert_eq!(String::from_utf8(text).unwrap(), plain.body);
        }
    }
    let (head, _) = raw(server.request("GET", "/api/info").header("Accept-Encoding", "gzip"));
    assert!(!head.contains("content-encoding"), "small ones are not: {head}");
}

/// Returns the head and the body of a response.
fn raw(request: Request) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    request.header("Connection", "close").open().read_to_end(&mut bytes).expect("a response");
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&bytes[..end]).to_lowercase(), bytes[end + 4..].to_vec())
}

#[test]
fn exported_page_shows_the_tree_without_a_server() {
    let world = World::saying("</script><script>alert(1)</script>");
    let server = Serve::start(&world, &MODEL);
    let tree = start(&server, &json!({"agent": "explore", "task": "look"}));
    wait_until("the run ends", || status(&server, &tree) == "done");
    let served = server.get(&format!("/api/trees/{tree}/export"));
    assert!(served.status == 200 && served.head.contains("content-disposition: attachment"), "{}", served.head);
    let written = crate::world::out(&world.homing(&["export", &tree, "--format", "view"]));
    for page in [&served.body, &written] {
        assert!(page.contains("default-src 'none'") && !page.contains("<script>alert"), "{}", &page[..600]);
        assert_eq!(page.matches("</script").count(), 3, "the records stay in their element");
        assert!(page.contains(&tree) && !page.contains(&server.token));
    }
}
