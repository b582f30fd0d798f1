//! Compares the cost of a native model call with that of a plain hyper loop that encodes its history once. The server is
//! a separate process, so that only the client's CPU time is counted. Run with `cargo bench -p homing-models`.
#![allow(missing_docs, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    message::{Message, Part, Reply, StopReason, ToolResult, TranscriptEntry},
    model::{Model, ModelRequest, ToolChoice, Toolbox},
};
use homing_models::{ProviderConfig, Providers};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

const CALLS: usize = 4_000;
const STEPS: usize = 500;
const ROUNDS: usize = 5;
/// Conversations per round; more than one, because each is short and easily disturbed.
const CONVERSATIONS: usize = 6;

fn main() {
    if std::env::args().any(|arg| arg == "--serve") {
        return serve();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut server, port) = start_server();
    runtime.block_on(compare(port));
    server.kill().expect("the server dies");
    server.wait().expect("the server is gone");
}

async fn compare(port: u16) {
    let mut single = (Vec::new(), Vec::new());
    let mut long = (Vec::new(), Vec::new());
    // Root certificates are loaded once per process, so a first call is made outside the measurement.
    let models =
        [our_model(&format!("http://127.0.0.1:{port}/v1")), our_model(&format!("http://127.0.0.1:{port}/tool/v1"))];
    for model in &models {
        let (messages, tools) = ([TranscriptEntry::new(Message::user("hello"))], Toolbox::default());
        model.reply(request(&messages, &tools), &|_| ()).await.expect("a reply");
    }
    // Rounds alternate, so that other load on the machine affects both.
    for _ in 0..ROUNDS {
        single.0.push(taken(bare_calls(port)).await);
        single.1.push(taken(our_calls(&*models[0])).await);
        for _ in 0..CONVERSATIONS {
            long.0.push(taken(bare_steps(port)).await);
            long.1.push(taken(our_steps(&*models[1])).await);
        }
    }
    report("CPU per call, µs", CALLS as f64 / 1e6, &single, |cost| cost.cpu);
    report("500 steps, CPU ms", 1e-3, &long, |cost| cost.cpu);
    report("500 steps, elapsed ms", 1e-3, &long, |cost| cost.time);
}

/// Prints the best round, which is the least disturbed one, and the median.
fn report(what: &str, unit: f64, (bare, ours): &(Vec<WorkCost>, Vec<WorkCost>), of: impl Fn(&WorkCost) -> Duration) {
    let sorted = |rounds: &[WorkCost]| {
        let mut figures: Vec<f64> = rounds.iter().map(|round| of(round).as_secs_f64() / unit).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let (bare, ours) = (sorted(bare), sorted(ours));
    for (word, at) in [("best", 0), ("median", bare.len() / 2)] {
        println!("{what}, {word}: bare {:.1}, ours {:.1}, ratio {:.2}", bare[at], ours[at], ours[at] / bare[at]);
    }
}

async fn taken(work: impl Future<Output = ()>) -> WorkCost {
    let (begun, clock) = (cpu_time(), Instant::now());
    work.await;
    WorkCost { cpu: cpu_time() - begun, time: clock.elapsed() }
}

/// The cost of a piece of work.
#[derive(Clone, Copy)]
struct WorkCost {
    cpu: Duration,
    time: Duration,
}

/// CPU time of all threads, as counted by the scheduler.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let spent = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

// The bare loop.

async fn connect(port: u16) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
    stream.set_nodelay(true).ok();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

async fn bare_ask(sender: &mut SendRequest<Full<Bytes>>, path: &str, history: &str) -> (String, String) {
    let body = format!(
        "{{\"model\":\"m\",\"stream\":true,\"stream_options\":{{\"include_usage\":true}},\"max_tokens\":1000,\"messages\":[{history}]}}"
    );
    let request = hyper::Request::post(path)
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("authorization", "Bearer key")
        .body(Full::new(Bytes::from(body)))
        .expect("a request");
    let mut response = sender.send_request(request).await.expect("an answer");
    let (mut buffer, mut text, mut args) = (Vec::new(), String::new(), String::new());
    while let Some(frame) = response.frame().await {
        if let Ok(data) = frame.expect("a frame").into_data() {
            buffer.extend_from_slice(&data);
        }
        while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = buffer.drain(..end + 2).collect();
            let data = &event["data: ".len()..end];
            if data == b"[DONE]" {
                continue;
            }
            let value: Value = serde_json::from_slice(data).expect("JSON");
            let delta = &value["choices"][0]["delta"];
            text.push_str(delta["content"].as_str().unwrap_or_default());
            args.push_str(delta["tool_calls"][0]["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    (text, args)
}

async fn bare_calls(port: u16) {
    let mut sender = connect(port).await;
    for _ in 0..CALLS {
        let (text, _) =
            bare_ask(&mut sender, "/v1/chat/completions", "{\"role\":\"user\",\"content\":\"hello\"}").await;
        assert_eq!(text.len(), 20 * 6);
    }
}

async fn bare_steps(port: u16) {
    let mut sender = connect(port).await;
    let mut history = String::from("{\"role\":\"user\",\"content\":\"hello\"}");
    for step in 0..STEPS {
        let (_, args) = bare_ask(&mut sender, "/tool/v1/chat/completions", &history).await;
        let args = serde_json::to_string(&args).expect("a string");
        let result = serde_json::to_string(&result_text(step)).expect("a string");
        history.push_str(&format!(
            ",{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"c{step}\",\"type\":\"function\",\
             \"function\":{{\"name\":\"read\",\"arguments\":{args}}}}}]}},{{\"role\":\"tool\",\"tool_call_id\":\"c{step}\",\"content\":{result}}}"
        ));
    }
}

fn result_text(step: usize) -> String {
    format!("line {step}\n").repeat(20)
}

// Ours.

fn our_model(url: &str) -> Arc<dyn Model> {
    let config: ProviderConfig = serde_json::from_value(json!({"base_url": url, "api_key_env": "K"})).expect("a row");
    let providers = Providers::new(BTreeMap::from([("fake".to_owned(), config)]), |name| {
        (name == "K").then(|| secrecy::SecretString::from("key"))
    });
    providers.model("fake/m").expect("a model")
}

fn request<'a>(messages: &'a [Arc<TranscriptEntry>], tools: &'a Toolbox) -> ModelRequest<'a> {
    ModelRequest::new("", messages, tools, "k")
        .choice(ToolChoice::Auto)
        .max_output(1_000)
        .sampling(&homing_core::model::Sampling::NONE)
        .time_left(Duration::from_secs(60))
}

async fn our_calls(model: &dyn Model) {
    let (messages, tools) = ([TranscriptEntry::new(Message::user("hello"))], Toolbox::default());
    for _ in 0..CALLS {
        let reply = model.reply(request(&messages, &tools), &|_| ()).await.expect("a reply");
        assert_eq!(reply.text().len(), 20 * 6);
    }
}

async fn our_steps(model: &dyn Model) {
    let tools = Toolbox::default();
    let mut messages = vec![TranscriptEntry::new(Message::user("hello"))];
    for step in 0..STEPS {
        let reply = model.reply(request(&messages, &tools), &|_| ()).await.expect("a reply");
        assert_eq!(reply.stop, StopReason::Calls);
        messages.push(TranscriptEntry::new(Message::Assistant(with_id(reply, step).into())));
        let call_id = format!("c{step}");
        let result = ToolResult {
            index: 0,
            call_id,
            name: "read".into(),
            text: result_text(step),
            images: vec![],
            data: None,
            is_error: false,
        };
        messages.push(TranscriptEntry::new(Message::Tool(result.into())));
    }
}

fn with_id(mut reply: Reply, step: usize) -> Reply {
    for part in &mut reply.parts {
        if let Part::Call(call) = part {
            Arc::make_mut(call).id = format!("c{step}");
        }
    }
    reply
}

// The server.

fn start_server() -> (Child, u16) {
    let this = std::env::current_exe().expect("this program");
    let mut child = Command::new(this).arg("--serve").stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a port");
    (child, line.trim().parse().expect("a port"))
}

fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("bound").port());
    std::io::stdout().flush().ok();
    let words = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\
                 \"delta\":{\"content\":\"hello \"},\"finish_reason\":null}]}\n\n"
        .repeat(20);
    let call = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"read\",\
                \"arguments\":\"{\\\"path\\\":\\\"src/main.rs\\\"}\"}}]}}]}\n\n";
    let (words, call) = (response(&words, "stop"), response(call, "tool_calls"));
    for stream in listener.incoming().flatten() {
        let (words, call) = (words.clone(), call.clone());
        std::thread::spawn(move || {
            stream.set_nodelay(true).ok();
            let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
            let mut writer = stream;
            while let Some(path) = read_request(&mut reader) {
                let answer = if path.contains("/tool/") { &call } else { &words };
                if writer.write_all(answer).is_err() {
                    return;
                }
            }
        });
    }
}

fn response(events: &str, reason: &str) -> Vec<u8> {
    let body = format!(
        "{events}data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":20,\"total_tokens\":30}}}}\n\ndata: [DONE]\n\n"
    );
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if path.is_empty() {
            path = line.clone();
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(path)
}
