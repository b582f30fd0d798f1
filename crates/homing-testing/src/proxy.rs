//! A proxy that forwards to a real server and disturbs its responses.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{JoinHandle, JoinSet},
    time::sleep,
};

/// The disturbance of the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No disturbance.
    None,
    /// The connection is closed after this number of bytes.
    CutAfter(usize),
    /// The connection is reset after this number of bytes.
    ResetAfter(usize),
    /// After this number of bytes nothing more is sent, and the connection stays open.
    StallAfter(usize),
    /// Each byte is sent separately, followed by a pause.
    Drip(Duration),
}

/// A proxy on a loopback port. Dropping it stops it.
pub struct FaultProxy {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy in front of `upstream`, such as `127.0.0.1:8080` or an `http://` address.
    pub async fn start(upstream: &str, fault: Fault) -> Self {
        let upstream = upstream.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(forward(client, upstream.clone(), fault));
            }
        });
        Self { address, server }
    }

    /// Returns its URL, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn forward(client: TcpStream, upstream: String, fault: Fault) {
    let Ok(server) = TcpStream::connect(&upstream).await else { return };
    client.set_nodelay(true).ok();
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let request = tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
    forward_response(from_server, to_client, fault).await;
    request.abort();
}

async fn forward_response(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fault: Fault) {
    let mut buffer = vec![0; 16 * 1024];
    let mut passed = 0;
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        let allowed = match fault {
            Fault::None | Fault::Drip(_) => len,
            Fault::CutAfter(most) | Fault::ResetAfter(most) | Fault::StallAfter(most) => len.min(most - passed),
        };
        if send(&mut to, &buffer[..allowed], fault).await.is_err() {
            return;
        }
        passed += allowed;
        if allowed < len {
            return end(to, fault).await;
        }
    }
}

async fn send(to: &mut OwnedWriteHalf, bytes: &[u8], fault: Fault) -> std::io::Result<()> {
    let Fault::Drip(pause) = fault else { return to.write_all(bytes).await };
    for byte in bytes {
        to.write_all(&[*byte]).await?;
        sleep(pause).await;
    }
    Ok(())
}

async fn end(to: OwnedWriteHalf, fault: Fault) {
    match fault {
        Fault::None | Fault::CutAfter(_) | Fault::Drip(_) => (),
        Fault::ResetAfter(_) => {
            to.as_ref().set_zero_linger().ok();
        }
        Fault::StallAfter(_) => sleep(Duration::from_secs(3_600)).await,
    }
}
