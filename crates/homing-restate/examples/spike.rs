//! A parent and many children on Restate alone, without Homing, to compare with: `tests/restate/run --figures` starts it. A child
//! makes three steps, each of which is one journalled call to a provider.
//!
//!     spike ADDRESS PROVIDER

#![expect(missing_docs, reason = "the macros of the SDK make public clients")]

use std::net::SocketAddr;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use restate_sdk::{context::RequestTarget, hyper::HyperEndpoint, prelude::*};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

struct Parent;

#[restate_sdk::workflow(name = "SpikeParent")]
impl Parent {
    /// Runs `count` children at once and returns the number of those that ended.
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, count: Json<u64>) -> HandlerResult<Json<u64>> {
        let child = |number: u64| RequestTarget::workflow("SpikeChild", format!("{}-{number}", ctx.key()), "run");
        let calls: Vec<_> = (0..count.0).map(|number| ctx.request::<_, u64>(child(number), ()).call()).collect();
        let mut ended = 0;
        for call in calls {
            ended += call.await?;
        }
        Ok(Json(ended))
    }
}

struct Child {
    http: reqwest::Client,
    provider: String,
}

#[restate_sdk::workflow(name = "SpikeChild")]
impl Child {
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>) -> HandlerResult<u64> {
        for step in 0..3 {
            ctx.run(|| self.ask()).name(format!("ask-{step}")).await?;
        }
        Ok(1)
    }

    async fn ask(&self) -> HandlerResult<String> {
        let prompt = "bench delay=50 steps=0 children=0";
        let body: Value = json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": prompt }] });
        let reply = self.http.post(format!("{}/chat/completions", self.provider)).json(&body).send().await?;
        Ok(reply.error_for_status()?.text().await?)
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(provider)) = (args.next(), args.next()) else { panic!("usage: spike ADDRESS PROVIDER") };
    let address: SocketAddr = address.parse().expect("an address such as 127.0.0.1:9081");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let endpoint = HyperEndpoint::new(Endpoint::builder().bind(Parent).bind(Child { http, provider }).build());
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("several processes share the port");
    socket.bind(address).expect("the port is free");
    let listener = socket.listen(1024).expect("it listens");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true).ok();
        let builder = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(stream), endpoint.clone()));
    }
}
