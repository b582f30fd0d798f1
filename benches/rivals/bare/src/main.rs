//! A loop by hand: hyper, one connection for each agent, a history that is encoded once, no limits, no journal, no retries.
//! A careful hand-written loop that does nothing else.

use bench_job::{ANSWER, Job, RESULT, TASK, TOOL, TOOL_DESCRIPTION};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::task::JoinSet;

fn main() {
    let job = Job::from_args();
    job.block_on(drive(&job));
}

async fn drive(job: &Job) {
    job.measure(do_round).await;
}

async fn do_round(job: Job) {
    let mut agents = JoinSet::new();
    match job.children {
        0 => (0..job.agents).for_each(|_| _ = agents.spawn(worker(job.clone()))),
        _ => _ = agents.spawn(lead(job)),
    }
    while let Some(answer) = agents.join_next().await {
        assert_eq!(answer.expect("no panic"), ANSWER);
    }
}

async fn worker(job: Job) -> String {
    let mut talk = Talk::begin(&job, &job.worker_prompt(), TOOL, TOOL_DESCRIPTION, r#"{"n":{"type":"integer"}}"#).await;
    loop {
        let reply = talk.ask().await;
        if reply.calls.is_empty() {
            return reply.text;
        }
        let results: Vec<String> = reply.calls.iter().map(|_| RESULT.to_owned()).collect();
        talk.answer(&reply, &results);
    }
}

async fn lead(job: Job) -> String {
    let fields = r#"{"agent":{"type":"string"},"task":{"type":"string"}}"#;
    let mut talk = Talk::begin(&job, &job.lead_prompt(), "delegate", "Sends out an agent.", fields).await;
    loop {
        let reply = talk.ask().await;
        if reply.calls.is_empty() {
            return reply.text;
        }
        let mut children = JoinSet::new();
        let mut results = vec![String::new(); reply.calls.len()];
        for (at, result) in results.iter_mut().enumerate() {
            let job = job.clone();
            if job.one_at_a_time {
                *result = worker(job).await;
            } else {
                children.spawn(async move { (at, worker(job).await) });
            }
        }
        while let Some(ended) = children.join_next().await {
            let (at, answer) = ended.expect("no panic");
            results[at] = answer;
        }
        talk.answer(&reply, &results);
    }
}

struct Talk {
    sender: SendRequest<Full<Bytes>>,
    /// Everything before the messages.
    head: String,
    messages: String,
    whole: bool,
}

#[derive(Default)]
struct Said {
    text: String,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Talk {
    async fn begin(job: &Job, prompt: &str, tool: &str, description: &str, fields: &str) -> Self {
        let address = job.url.trim_start_matches("http://");
        let stream = tokio::net::TcpStream::connect(address).await.expect("the stub listens");
        stream.set_nodelay(true).ok();
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        tokio::spawn(connection);
        let stream = if job.whole { "" } else { r#""stream":true,"stream_options":{"include_usage":true},"# };
        let head = format!(
            r#"{{"model":"bench",{stream}"max_tokens":8192,"tools":[{{"type":"function","function":{{"name":"{tool}","description":"{description}","parameters":{{"type":"object","properties":{fields}}}}}}}],"messages":["#
        );
        let messages = format!(r#"{{"role":"system","content":"{prompt}"}},{{"role":"user","content":"{TASK}"}}"#);
        Self { sender, head, messages, whole: job.whole }
    }

    async fn ask(&mut self) -> Said {
        let body = format!("{}{}]}}", self.head, self.messages);
        let request = hyper::Request::post("/v1/chat/completions")
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .header("authorization", "Bearer key")
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let response = self.sender.send_request(request).await.expect("an answer");
        assert!(response.status().is_success());
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        if self.whole { whole(&bytes) } else { streamed(&bytes) }
    }

    /// Adds the model's turn and the results of its calls.
    fn answer(&mut self, reply: &Said, results: &[String]) {
        let quoted = |text: &str| serde_json::to_string(text).expect("a string");
        let call = |it: &Call| {
            let (id, name, arguments) = (quoted(&it.id), quoted(&it.name), quoted(&it.arguments));
            format!(r#"{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}"#)
        };
        let calls: Vec<String> = reply.calls.iter().map(call).collect();
        self.messages += &format!(r#",{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","));
        for (it, result) in reply.calls.iter().zip(results) {
            let (id, result) = (quoted(&it.id), quoted(result));
            self.messages += &format!(r#",{{"role":"tool","tool_call_id":{id},"content":{result}}}"#);
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(alias = "message")]
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<CallDelta>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default)]
    index: usize,
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

fn whole(bytes: &[u8]) -> Said {
    let mut said = Said::default();
    let chunk: Chunk = serde_json::from_slice(bytes).expect("JSON");
    for choice in chunk.choices {
        said.text += choice.delta.content.as_deref().unwrap_or_default();
        for call in choice.delta.tool_calls {
            said.calls.push(Call {
                id: call.id.unwrap_or_default(),
                name: call.function.name.unwrap_or_default(),
                arguments: call.function.arguments.unwrap_or_default(),
            });
        }
    }
    said
}

fn streamed(bytes: &[u8]) -> Said {
    let mut said = Said::default();
    let text = std::str::from_utf8(bytes).expect("text");
    for data in text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).take_while(|data| *data != "[DONE]") {
        let chunk: Chunk = serde_json::from_str(data).expect("JSON");
        for choice in chunk.choices {
            said.text += choice.delta.content.as_deref().unwrap_or_default();
            for call in choice.delta.tool_calls {
                while said.calls.len() <= call.index {
                    said.calls.push(Call::default());
                }
                let known = &mut said.calls[call.index];
                known.id += call.id.as_deref().unwrap_or_default();
                known.name += call.function.name.as_deref().unwrap_or_default();
                known.arguments += call.function.arguments.as_deref().unwrap_or_default();
            }
        }
    }
    said
}
