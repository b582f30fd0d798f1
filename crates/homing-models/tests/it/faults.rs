//! Fault injection, one attempt at a time: stalled, cut, endless and malformed responses.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use crate::support::*;
use homing_core::{
    message::{StopReason, Usage},
    model::{AskFailure, Charge, ModelError},
};
use homing_models::Timeouts;
use homing_testing::{FakeProvider, FakeResponse, Fault, FaultProxy, ResponseStep};

/// Distance between cuts; the decoders' own tests cut at every byte.
const STRIDE: usize = 13;

const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";

/// The failure of a response that fails without a timeout.
async fn fails(answer: FakeResponse) -> AskFailure {
    fails_within(answer, patient()).await
}

/// The failure of a response that only a timeout can end.
async fn is_ended(answer: FakeResponse) -> AskFailure {
    fails_within(answer, fast()).await
}

async fn fails_within(answer: FakeResponse, timeouts: Timeouts) -> AskFailure {
    let provider = FakeProvider::answers(vec![answer]).await;
    let begun = Instant::now();
    let failure = ask(&*model(&provider.url(), "chat", timeouts)).await.failure();
    assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    assert_eq!(provider.requests().len(), 1, "one call is one attempt");
    failure
}

const LATE: &str = "no content from fake at http://127.0.0.1:";
const SILENT: &str = " stopped sending content";

fn broken(failure: &AskFailure) -> &str {
    match &failure.error {
        ModelError::Broken { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn bytes(text: &str) -> ResponseStep {
    ResponseStep::Bytes(text.as_bytes().to_vec())
}

#[tokio::test]
async fn fault11_closed_port_is_a_broken_connection() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let failure = ask(&*model(&format!("http://127.0.0.1:{port}"), "chat", fast())).await.failure();
    assert_eq!(broken(&failure), format!("cannot connect to fake at http://127.0.0.1:{port}: connection refused"));
    assert_eq!(failure.charge, Charge::Nothing);
}

#[tokio::test]
async fn fault11_listener_that_never_accepts_times_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let failure = ask(&*model(&url, "chat", fast())).await.failure();
    assert!(broken(&failure).contains("no response from fake at http://127.0.0.1:"), "{failure:?}");
}

#[tokio::test]
async fn fault12_missing_headers_time_out() {
    let failure = is_ended(FakeResponse::steps(vec![ResponseStep::Stall])).await;
    let said = broken(&failure);
    assert!(said.contains("no response from fake at http://127.0.0.1:") && said.contains("`patience`"), "{said}");
    assert_eq!(failure.charge, Charge::Nothing);
}

#[tokio::test]
async fn fault13_silent_stream_times_out_and_keeps_its_text() {
    let failure = is_ended(FakeResponse::open_stream(vec![bytes(HELLO), ResponseStep::Stall])).await;
    assert!(broken(&failure).ends_with(SILENT), "{failure:?}");
    assert_eq!((failure.charge, failure.partial.as_str()), (Charge::Hold, "Hello"));
}

#[tokio::test]
async fn fault13_stream_without_content_costs_nothing() {
    let failure = is_ended(FakeResponse::open_stream(vec![ResponseStep::Stall])).await;
    assert!(broken(&failure).starts_with(LATE), "{failure:?}");
    assert_eq!(failure.charge, Charge::Nothing);
}

#[tokio::test]
async fn fault14_inv15_s7_endless_pings_time_out() {
    for ping in [
        ": ping\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[]}\n\n",
    ] {
        let pings = ResponseStep::Repeat {
            bytes: ping.as_bytes().to_vec(),
            pause: Duration::from_millis(20),
            limit: Duration::from_secs(60),
        };
        let (bare, begun) = tokio::join!(
            is_ended(FakeResponse::open_stream(vec![pings.clone()])),
            is_ended(FakeResponse::open_stream(vec![bytes(HELLO), pings])),
        );
        for failure in [bare, begun] {
            let said = broken(&failure);
            assert!(said.starts_with(LATE) || said.ends_with(SILENT), "{ping}: {failure:?}");
        }
    }
}

#[tokio::test]
async fn fault14_flood_of_pings_does_not_delay_the_timeout() {
    let pings = ResponseStep::Repeat {
        bytes: ": ping\n\n".repeat(100).into_bytes(),
        pause: Duration::from_micros(1),
        limit: Duration::from_secs(60),
    };
    let failure = is_ended(FakeResponse::open_stream(vec![pings])).await;
    assert!(broken(&failure).starts_with(LATE), "{failure:?}");
}

#[tokio::test]
async fn fault15_endless_whitespace_times_out() {
    let blanks = ResponseStep::Repeat {
        bytes: b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \\n\"}}]}\n\n".to_vec(),
        pause: Duration::from_millis(20),
        limit: Duration::from_secs(60),
    };
    let failure = is_ended(FakeResponse::open_stream(vec![bytes(HELLO), blanks])).await;
    assert!(broken(&failure).ends_with(SILENT), "{failure:?}");
}

#[tokio::test]
async fn fault16_slow_stream_ends_at_the_deadline_of_the_run() {
    let drip = ResponseStep::Drip { bytes: HELLO.repeat(50).into_bytes(), pause: Duration::from_millis(2) };
    let provider = FakeProvider::answers(vec![FakeResponse::open_stream(vec![bytes(HELLO), drip])]).await;
    let (messages, tools) =
        ([homing_core::message::TranscriptEntry::new(homing_core::message::Message::user("x"))], tools());
    let mut request = request(&messages, &tools);
    request.time_left = Some(Duration::from_secs(2));
    let failure = ask_with(&*model(&provider.url(), "chat", patient()), request).await.failure();
    assert_eq!(failure.error, ModelError::OutOfTime);
    assert_eq!(failure.charge, Charge::Hold);
}

#[tokio::test]
async fn fault17_healthy_stream_may_exceed_every_timeout() {
    let mut steps = Vec::new();
    for _ in 0..12 {
        steps.extend([bytes(HELLO), ResponseStep::Sleep(Duration::from_millis(200))]);
    }
    steps.push(bytes(&chat_stream(&[], "stop")));
    let provider = FakeProvider::answers(vec![FakeResponse::open_stream(steps)]).await;
    let begun = Instant::now();
    let timeout = Duration::from_millis(1_800);
    let timeouts =
        Timeouts { connect: timeout, headers: timeout, first_content: timeout, idle: timeout, tail: timeout };
    let reply = ask(&*model(&provider.url(), "chat", timeouts)).await.reply();
    assert_eq!(reply.text(), "Hello".repeat(12));
    assert!(begun.elapsed() > timeout, "longer than every timeout");
}

#[tokio::test]
async fn fault18_s11_connection_cut_anywhere_yields_no_reply_and_no_call() {
    let chat = chat_stream(
        &[
            r#"{"content":"Hi"}"#,
            r#"{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read","arguments":"{\"path\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}}]}"#,
        ],
        "tool_calls",
    );
    let chat_end =
        chat.find("\"finish_reason\":\"tool_calls\"}]}").unwrap() + "\"finish_reason\":\"tool_calls\"}]}".len();
    let message = anthropic_stream(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"a\"}"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ],
        "tool_use",
    );
    let message_end = message.find("{\"type\":\"message_stop\"}").unwrap() + "{\"type\":\"message_stop\"}".len();
    for (wire, body, end) in [("chat", chat, chat_end), ("anthropic", message, message_end)] {
        let text = body.clone();
        let provider = FakeProvider::start(move |count, _| FakeResponse::cut_stream(&text, count * STRIDE)).await;
        let model = model(&provider.url(), wire, patient());
        for len in (0..body.len()).step_by(STRIDE) {
            // A server that closes a chunked body early may do so before or after its last bytes were read.
            match ask(&*model).await.result {
                Err(failure) => {
                    assert!(failure.error.is_retryable(), "cut at {len}: {failure:?}");
                    assert!(len < body.len(), "cut at {len}");
                }
                Ok(reply) => {
                    assert!(len >= end, "{wire} cut at {len} of {end}: {reply:?}");
                    assert_eq!(reply.calls().count(), 1);
                }
            }
        }
    }
}

#[tokio::test]
async fn fault19_s12_error_event_ends_the_call_at_once() {
    let event = "data: {\"error\":{\"code\":529,\"message\":\"overloaded, try later\"}}\n\n";
    let begun = Instant::now();
    let provider =
        FakeProvider::answers(vec![FakeResponse::open_stream(vec![bytes(HELLO), bytes(event), ResponseStep::Stall])])
            .await;
    let failure = ask(&*model(&provider.url(), "chat", patient())).await.failure();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(
        matches!(&failure.error, ModelError::Busy { reason, .. } if reason == "overloaded, try later"),
        "{failure:?}"
    );
    assert_eq!((failure.charge, failure.partial.as_str()), (Charge::Hold, "Hello"));
    let event = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let provider =
        FakeProvider::answers(vec![FakeResponse::open_stream(vec![bytes(event), ResponseStep::Stall])]).await;
    let failure = ask(&*model(&provider.url(), "anthropic", patient())).await.failure();
    assert!(matches!(failure.error, ModelError::Busy { .. }), "{failure:?}");
    assert_eq!(failure.charge, Charge::Nothing);
}

#[tokio::test]
async fn fault20_s17_resets_and_invalid_framing_are_broken_connections() {
    let cut = |steps: Vec<ResponseStep>| FakeResponse::steps(steps);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    for answer in [
        FakeResponse::open_stream(vec![
            bytes(HELLO),
            ResponseStep::Sleep(Duration::from_millis(50)),
            ResponseStep::Reset,
        ]),
        cut(vec![ResponseStep::Reset]),
        cut(vec![bytes(&format!("{head}content-length: 9999\r\n\r\n{HELLO}"))]),
        cut(vec![bytes(&format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{HELLO}"))]),
        cut(vec![bytes(&format!("{head}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{HELLO}"))]),
        cut(vec![bytes(&format!("{head}content-encoding: gzip\r\nconnection: close\r\n\r\nthis is not gzip"))]),
        cut(vec![bytes("HTTP/9 what\r\n\r\n")]),
    ] {
        let failure = fails(answer).await;
        broken(&failure);
    }
}

#[tokio::test]
async fn fault21_status_429_carries_the_retry_delay() {
    for (header, value, wait) in [
        ("retry-after", "1", Some(1_000)),
        ("retry-after-ms", "250", Some(250)),
        ("retry-after", "86400", Some(86_400_000)),
        ("retry-after", "-5", None),
        ("retry-after", "tomorrow", None),
    ] {
        let failure =
            fails(FakeResponse::response(429, &[(header, value)], "{\"error\":{\"message\":\"slow down\"}}")).await;
        let ModelError::Busy { retry_after_ms, reason } = failure.error else { panic!("{failure:?}") };
        assert_eq!(retry_after_ms, wait, "{value}");
        assert_eq!(reason, "HTTP 429: slow down");
        assert_eq!(failure.charge, Charge::Nothing);
    }
}

#[tokio::test]
async fn fault22_statuses_503_and_529_are_busy() {
    for status in [503, 529] {
        assert!(matches!(fails(FakeResponse::json(status, "{}")).await.error, ModelError::Busy { .. }));
    }
}

#[tokio::test]
async fn fault23_inv40_status_401_is_final_and_never_shows_the_key() {
    let body = format!("{{\"error\":{{\"message\":\"bad key {KEY} given\"}}}}");
    let failure = fails(FakeResponse::json(401, &body)).await;
    let ModelError::Unauthorized { reason } = &failure.error else { panic!("{failure:?}") };
    assert_eq!(reason, "HTTP 401: bad key [key] given");
    assert!(!failure.error.is_retryable());
    assert!(!format!("{failure:?}").contains("0123456789"));
}

#[tokio::test]
async fn fault24_full_context_has_its_own_error() {
    let body = "{\"error\":{\"message\":\"This model's maximum context length is 9 tokens\"}}";
    assert!(matches!(fails(FakeResponse::json(400, body)).await.error, ModelError::ContextFull { .. }));
}

#[tokio::test]
async fn fault25_s16_web_pages_and_errors_with_status_200_are_classified() {
    let page = FakeResponse::response(200, &[("content-type", "text/html")], "<html><title>Login</title></html>");
    let ModelError::Unusable { reason } = fails(page).await.error else { panic!() };
    assert!(reason.contains("text/html"), "{reason}");
    let error = FakeResponse::json(200, "{\"error\":{\"message\":\"no capacity\",\"code\":503}}");
    assert!(matches!(fails(error).await.error, ModelError::Busy { .. }));
    assert!(matches!(fails(FakeResponse::json(200, "{}")).await.error, ModelError::Unusable { .. }));
    assert!(matches!(fails(FakeResponse::json(200, "{\"choices\":")).await.error, ModelError::Unusable { .. }));
    assert!(matches!(fails(FakeResponse::json(200, "")).await.error, ModelError::Broken { .. }));
}

#[tokio::test]
async fn fault26_redirect_never_receives_the_key() {
    let elsewhere = FakeProvider::answers(vec![FakeResponse::chat_text("stolen")]).await;
    let target = elsewhere.url();
    for status in [301, 302, 307, 308] {
        let failure = fails(FakeResponse::response(status, &[("location", &target)], "")).await;
        assert!(matches!(failure.error, ModelError::Unusable { .. }), "{failure:?}");
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn fault27_unresolvable_name_is_a_broken_connection() {
    let failure = ask(&*model("http://does-not-exist.invalid", "chat", fast())).await.failure();
    broken(&failure);
}

#[tokio::test]
async fn fault28_tls_never_falls_back_to_plain_text() {
    let provider = FakeProvider::answers(vec![FakeResponse::chat_text("hi")]).await;
    let url = provider.url().replace("http://", "https://");
    let failure = ask(&*model(&url, "chat", fast())).await.failure();
    assert_eq!(failure.charge, Charge::Nothing);
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn fault29_missing_or_implausible_usage_is_flagged() {
    let stream = |usage: &str| {
        format!(
            "{HELLO}data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]{usage}}}\n\ndata: [DONE]\n\n"
        )
    };
    for usage in [
        "",
        ",\"usage\":null",
        ",\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":5}",
        ",\"usage\":{\"prompt_tokens\":1e18,\"completion_tokens\":5}",
    ] {
        let provider = FakeProvider::answers(vec![FakeResponse::events(&stream(usage))]).await;
        let reply = ask(&*model(&provider.url(), "chat", patient())).await.reply();
        assert_eq!(reply.usage, Usage::default().output(2).estimated(true), "{usage}");
    }
}

#[tokio::test]
async fn s8_inv45_line_of_100_megabytes_is_refused_early() {
    let mut steps = vec![bytes("data: ")];
    steps.extend((0..100).map(|_| ResponseStep::Bytes(vec![b'a'; 1024 * 1024])));
    let provider = FakeProvider::answers(vec![FakeResponse::open_stream(steps)]).await;
    let failure = ask(&*model(&provider.url(), "chat", patient())).await.failure();
    assert!(matches!(failure.error, ModelError::Unusable { .. }), "{failure:?}");
}

#[tokio::test]
async fn s14_end_mark_may_be_missing_or_repeated() {
    let whole = chat_stream(&[r#"{"content":"Hi"}"#], "stop");
    for (stream, text) in [
        (whole.replace("data: [DONE]\n\n", ""), "Hi"),
        (whole.replace("data: [DONE]\n\n", "data: [DONE]"), "Hi"),
        (format!("{whole}data: [DONE]\n\n"), "Hi"),
        (format!("{HELLO}data: [DONE]\n\n{whole}"), "Hello"),
    ] {
        let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
        assert_eq!(ask(&*model(&provider.url(), "chat", patient())).await.reply().text(), text);
    }
    let early = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":\
                 {\"name\":\"read\",\"arguments\":\"{}\"}}]}}]}\n\ndata: [DONE]\n\n";
    let failure = fails(FakeResponse::events(early)).await;
    assert_eq!(failure.charge, Charge::Hold);
}

#[tokio::test]
async fn s14_connection_left_open_after_the_end_is_not_waited_for() {
    let whole = chat_stream(&[r#"{"content":"Hi"}"#], "stop");
    let cut = &whole[..whole.find("data: {\"choices\":[],").unwrap()];
    let provider = FakeProvider::answers(vec![FakeResponse::open_stream(vec![bytes(cut), ResponseStep::Stall])]).await;
    let timeouts = Timeouts { tail: Duration::from_millis(300), ..patient() };
    let reply = ask(&*model(&provider.url(), "chat", timeouts)).await.reply();
    assert_eq!(reply.text(), "Hi");
    assert!(reply.usage.estimated);
}

#[tokio::test]
async fn s15_compression_bomb_is_bounded() {
    let bomb = gzip_bomb();
    let mut steps = vec![bytes(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n",
    )];
    steps.push(ResponseStep::Bytes(bomb));
    let provider = FakeProvider::answers(vec![FakeResponse::steps(steps)]).await;
    let failure = ask(&*model(&provider.url(), "chat", patient())).await.failure();
    assert!(matches!(failure.error, ModelError::Unusable { .. }), "{failure:?}");
}

/// A gzip stream of 100 MB and more of one byte: a fixed-Huffman block that repeats a match of length 258.
fn gzip_bomb() -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.push(0b1, 1); // last block
    bits.push(0b01, 2); // fixed codes
    bits.push_reversed(0x30 + u32::from(b'a'), 8);
    for _ in 0..400_000 {
        bits.push_reversed(0b1100_0101, 8); // length 258
        bits.push_reversed(0, 5); // distance 1
    }
    bits.push_reversed(0, 7);
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.extend(bits.done());
    out.extend([0; 8]);
    out
}

#[derive(Default)]
struct BitWriter {
    out: Vec<u8>,
    hold: u64,
    count: u32,
}

impl BitWriter {
    fn push(&mut self, value: u32, len: u32) {
        self.hold |= u64::from(value) << self.count;
        self.count += len;
        while self.count >= 8 {
            self.out.push(self.hold as u8);
            self.hold >>= 8;
            self.count -= 8;
        }
    }

    fn push_reversed(&mut self, value: u32, len: u32) {
        self.push(value.reverse_bits() >> (32 - len), len);
    }

    fn done(mut self) -> Vec<u8> {
        self.push(0, 7);
        self.out
    }
}

#[tokio::test]
async fn s18_ten_thousand_headers_are_refused() {
    let mut head = String::from("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n");
    for at in 0..10_000 {
        head.push_str(&format!("x-{at}: y\r\n"));
    }
    let failure = fails(FakeResponse::steps(vec![bytes(&head), bytes("\r\n"), bytes(HELLO)])).await;
    broken(&failure);
}

#[tokio::test]
async fn s20_events_after_the_end_are_ignored() {
    let stream = format!("{}{}", chat_stream(&[r#"{"content":"Hi"}"#], "stop"), HELLO);
    let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
    let reply = ask(&*model(&provider.url(), "chat", patient())).await.reply();
    assert_eq!((reply.text().as_str(), reply.stop), ("Hi", StopReason::End));
}

#[tokio::test]
async fn dropping_the_future_abandons_the_request() {
    let provider =
        FakeProvider::answers(vec![FakeResponse::open_stream(vec![bytes(HELLO), ResponseStep::Stall])]).await;
    let model = model(&provider.url(), "chat", patient());
    let asked = tokio::time::timeout(Duration::from_millis(300), ask(&*model)).await;
    assert!(asked.is_err());
}

#[tokio::test]
async fn fault18_fault20_response_broken_by_a_proxy_is_retryable() {
    let provider = FakeProvider::answers(vec![FakeResponse::chat_text("a complete answer")]).await;
    for fault in [Fault::CutAfter(150), Fault::ResetAfter(150), Fault::StallAfter(150)] {
        let proxy = FaultProxy::start(&provider.url(), fault).await;
        let failure = ask(&*model(&proxy.url(), "chat", fast())).await.failure();
        assert!(failure.error.is_retryable(), "{fault:?}: {failure:?}");
    }
    for fault in [Fault::None, Fault::Drip(Duration::from_micros(100))] {
        let proxy = FaultProxy::start(&provider.url(), fault).await;
        let reply = ask(&*model(&proxy.url(), "chat", patient())).await.reply();
        assert_eq!(reply.text(), "a complete answer", "{fault:?}");
    }
}
