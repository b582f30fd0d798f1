//! A provider on the loopback that speaks OpenAI's chat completions, streamed or whole. It answers as the prompt of each
//! request says (`bench delay=100 steps=3 children=0`), remembers nothing but a count, and ends when its input does. At
//! `/v1/messages` it speaks Anthropic's messages, and only answers.

mod answer;

use std::{
    convert::Infallible,
    io::Read,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// Model calls so far.
static CALLS: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the program that started it reads the address")]
async fn main() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a loopback port is free");
    // A thousand agents connect at once; a full backlog would cost some of them a second.
    let listener = socket.listen(4_096).expect("it listens");
    println!("http://{}", listener.local_addr().expect("a bound socket has an address"));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true).ok();
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(serve)),
        );
    }
}

async fn serve(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/calls" {
        return Ok(Response::new(Full::from(CALLS.load(Ordering::Relaxed).to_string())));
    }
    let is_message = request.uri().path() == "/v1/messages";
    let Ok(body) = request.into_body().collect().await else { return Ok(Response::default()) };
    let body = body.to_bytes();
    let asked = answer::Asked::read(&body);
    if asked.delay > 0 {
        tokio::time::sleep(Duration::from_millis(asked.delay)).await;
    }
    CALLS.fetch_add(1, Ordering::Relaxed);
    let kind = if asked.is_streamed { "text/event-stream" } else { "application/json" };
    let answer = if is_message { asked.message() } else { asked.answer() };
    Ok(Response::builder().header("content-type", kind).body(Full::from(answer)).expect("a whole response"))
}
