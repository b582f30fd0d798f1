//! TLS and HTTP/2 on loopback: untrusted certificates, and a peer that ends a stream early.
#![allow(missing_docs, clippy::print_stdout)]

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{connections, support::*};
use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use homing_core::model::{AskFailure, Charge, ModelError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer},
    server::TlsStream,
};

type TestCertificate = rcgen::CertifiedKey<rcgen::KeyPair>;

fn certificate(name: &str) -> TestCertificate {
    rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate")
}

fn expired(name: &str) -> TestCertificate {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    let signing_key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

/// Accepts TLS connections, passes each to `serve` and returns the port.
async fn listen<F>(
    key: &TestCertificate,
    alpn: &[&[u8]],
    serve: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let secret = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream));
            }
        }
    });
    port
}

#[tokio::test]
async fn fault28_untrusted_certificate_ends_the_call_at_once() {
    for key in [certificate("localhost"), certificate("elsewhere.example"), expired("localhost")] {
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let port = listen(&key, &[b"http/1.1"], move |mut stream| {
            let count = count.clone();
            async move {
                let mut bytes = [0; 64];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                count.fetch_add(read, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        })
        .await;
        let model = model(&format!("https://localhost:{port}"), "chat", patient());
        let asked = tokio::time::timeout(Duration::from_secs(15), ask(&*model)).await.expect("at once");
        let failure = asked.failure();
        let ModelError::Unusable { reason } = &failure.error else { panic!("{failure:?}") };
        assert!(reason.contains("certificate"), "{reason}");
        assert!(!failure.error.is_retryable());
        assert_eq!(failure.charge, Charge::Nothing);
        assert_eq!(taken.load(Ordering::SeqCst), 0, "nothing was sent, least of all the key");
    }
}

#[cfg(feature = "http2")]
#[test]
fn s19_goaway_and_rst_stream_are_retryable_and_yield_no_call() {
    passes_with_a_trusted_peer("tls::http2_peer");
}

#[test]
fn encrypted_connections_of_http1_are_used_again_until_they_are_closed() {
    passes_with_a_trusted_peer("tls::http1_peer");
}

/// Runs an ignored test in a child process, because the trusted certificates are a setting of the process (`SSL_CERT_FILE`).
fn passes_with_a_trusted_peer(test: &str) {
    let folder = std::env::temp_dir().join(format!("homing-tls-{}-{}", std::process::id(), test.replace("::", "-")));
    std::fs::create_dir_all(&folder).unwrap();
    let key = certificate("localhost");
    std::fs::write(folder.join("cert.pem"), key.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.signing_key.serialize_pem()).unwrap();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", folder.join("cert.pem"))
        .env("HOMING_TEST_TLS", &folder)
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

/// The peer's action after it has sent a part of its response.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PeerAction {
    Finishes,
    Resets(Reason),
    GoesAway(Reason),
    /// Refuses the stream before any response.
    Refuses,
}

const WORDS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n";
const HALF_CALL: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":\
    {\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"a\\\"}\"}}]}}]}\n\n";
const END: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";

async fn serve(stream: TlsStream<TcpStream>, action: PeerAction, asked: Arc<AtomicUsize>) {
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
    while let Some(Ok((request, respond))) = connection.accept().await {
        asked.fetch_add(1, Ordering::SeqCst);
        assert_eq!(request.version(), http::Version::HTTP_2);
        let (done, mut finished) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            answer(respond, action).await;
            let _ = done.send(());
        });
        // The connection sends nothing unless it is polled.
        let drive = async { while connection.accept().await.is_some() {} };
        tokio::select! {
            _ = &mut finished => {}
            () = drive => return,
        }
        if let PeerAction::GoesAway(reason) = action {
            let _ = tokio::time::timeout(Duration::from_millis(200), connection.accept()).await;
            connection.abrupt_shutdown(reason);
        }
    }
}

async fn answer(mut respond: SendResponse<Bytes>, action: PeerAction) {
    if action == PeerAction::Refuses {
        respond.send_reset(Reason::REFUSED_STREAM);
        return;
    }
    let mut head = http::Response::new(());
    head.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    let mut body: SendStream<Bytes> = respond.send_response(head, false).unwrap();
    body.send_data(Bytes::from(format!("{WORDS}{HALF_CALL}")), false).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    match action {
        PeerAction::Finishes => body.send_data(Bytes::from_static(END.as_bytes()), true).unwrap(),
        PeerAction::Resets(reason) => body.send_reset(reason),
        PeerAction::GoesAway(_) => {
            // The body is held until the connection is closed, because dropping it would reset the stream.
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                drop(body);
            });
        }
        PeerAction::Refuses => unreachable!("refused above"),
    }
}

async fn asked_of(
    key: &TestCertificate,
    action: PeerAction,
) -> (Result<homing_core::message::Reply, AskFailure>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let port = listen(key, &[b"h2"], move |stream| serve(stream, action, count.clone())).await;
    let model = model(&format!("https://localhost:{port}"), "chat", patient());
    let outcome = tokio::time::timeout(Duration::from_secs(15), ask(&*model)).await.expect("no timeout is needed");
    (outcome.result, asked.load(Ordering::SeqCst))
}

fn trusted() -> Option<TestCertificate> {
    let folder = std::env::var_os("HOMING_TEST_TLS")?;
    let read = |name: &str| std::fs::read_to_string(Path::new(&folder).join(name)).unwrap();
    let signing_key = rcgen::KeyPair::from_pem(&read("key.pem")).unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    Some(rcgen::CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key })
}

#[tokio::test]
#[ignore = "run by encrypted_… in a process that trusts the peer"]
async fn http1_peer() {
    let Some(key) = trusted() else { return };
    let (connections, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (connections.clone(), closed.clone());
    let response = Arc::new(connections::response("", format!("{WORDS}{HALF_CALL}{END}").as_bytes()));
    // A build without HTTP/2 is not offered it either.
    let versions: &[&[u8]] = if cfg!(feature = "http2") { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
    let port = listen(&key, versions, move |stream| {
        let ((connections, closed), response) = (counts.clone(), response.clone());
        async move {
            connections.fetch_add(1, Ordering::SeqCst);
            connections::Server::default().serve(stream, response, 3).await;
            closed.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let model = model(&format!("https://localhost:{port}"), "chat", patient());
    for call in 1..=7 {
        assert_eq!(ask(&*model).await.reply().calls().count(), 1);
        let is_closed = async {
            while closed.load(Ordering::SeqCst) < call / 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_closed).await.expect("every third call ends a connection");
        // The runtime looks at its sockets between these.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
#[ignore = "run by s19_… in a process that trusts the peer"]
async fn http2_peer() {
    let Some(key) = trusted() else { return };
    let (whole, asked) = asked_of(&key, PeerAction::Finishes).await;
    assert_eq!((whole.unwrap().calls().count(), asked), (1, 1));
    for action in [
        PeerAction::Resets(Reason::INTERNAL_ERROR),
        PeerAction::Resets(Reason::CANCEL),
        PeerAction::Resets(Reason::NO_ERROR),
        PeerAction::GoesAway(Reason::NO_ERROR),
        PeerAction::GoesAway(Reason::ENHANCE_YOUR_CALM),
    ] {
        let (result, asked) = asked_of(&key, action).await;
        let failure = result.expect_err("no reply");
        assert!(failure.error.is_retryable(), "{action:?}: {failure:?}");
        assert_eq!((failure.charge, failure.partial.as_str(), asked), (Charge::Hold, "Hel", 1), "{action:?}");
    }
    let (refused, asked) = asked_of(&key, PeerAction::Refuses).await;
    let failure = refused.expect_err("no reply");
    assert!(failure.error.is_retryable(), "{failure:?}");
    assert_eq!((failure.charge, asked), (Charge::Nothing, 1), "one call is one attempt");
}
