//! A proxy that breaks connections to a real server: it passes bytes through and interferes with what comes back.

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

/// What happens to the answers of the server behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The connection ends in order after so many bytes.
    CutAfter(usize),
    /// The connection is reset after so many bytes.
    ResetAfter(usize),
    /// Nothing more comes after so many bytes.
    StallAfter(usize),
    /// Each byte comes alone, after a pause.
    Drip(Duration),
}

/// A proxy on a loopback port. It stops when it is dropped.
pub struct FaultProxy {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy before `upstream`, such as `127.0.0.1:8080` or an `http://` address.
    pub async fn start(upstream: &str, fault: Fault) -> Self {
        let upstream = upstream.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, upstream.clone(), fault));
            }
        });
        Self { address, server }
    }

    /// Where it listens, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass(client: TcpStream, upstream: String, fault: Fault) {
    let Ok(server) = TcpStream::connect(&upstream).await else { return };
    client.set_nodelay(true).ok();
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let request = tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
    answer(from_server, to_client, fault).await;
    request.abort();
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fault: Fault) {
    let mut buffer = vec![0; 16 * 1024];
    let mut passed = 0;
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        let room = match fault {
            Fault::None | Fault::Drip(_) => len,
            Fault::CutAfter(most) | Fault::ResetAfter(most) | Fault::StallAfter(most) => len.min(most - passed),
        };
        if send(&mut to, &buffer[..room], fault).await.is_err() {
            return;
        }
        passed += room;
        if room < len {
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
