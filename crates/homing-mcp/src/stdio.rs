//! Serves one client over a pair of pipes; usually the process's own, which then carry nothing but the protocol.

use std::{future::Future, sync::Arc, time::Duration};

use homing::Homing;
use rmcp::{ServiceExt, transport::async_rw::AsyncRwTransport};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{handler::Handler, options::ServerOptions, server_state::ServerState};

/// The longest line that is read; a longer one is dropped.
const LONGEST_LINE: usize = 4 << 20;

/// How long runs may take to end when their client is gone.
const GRACE: Duration = Duration::from_secs(3);

/// Why a conversation could not be held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdioError {
    /// The client did not introduce itself.
    #[error("the client did not introduce itself: {0}")]
    NoIntroduction(String),
    /// The conversation broke.
    #[error("the conversation broke: {0}")]
    Broken(String),
}

/// Serves one client over standard input and output until it goes or `stop` resolves; then everything it started is ended.
pub async fn serve_stdio(
    homing: Arc<Homing>,
    options: ServerOptions,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), StdioError> {
    let (read, write) = rmcp::transport::stdio();
    serve_on(homing, options, (read, write), stop).await
}

/// Serves one client over any pair of pipes.
pub async fn serve_on<R, W>(
    homing: Arc<Homing>,
    options: ServerOptions,
    (read, write): (R, W),
    stop: impl Future<Output = ()> + Send,
) -> Result<(), StdioError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let served = ServerState::new(homing, options);
    let _watch = served.watch();
    let client = served.admit().expect("the first client of a server");
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(LONGEST_LINE);
    let handler = Handler { client: client.clone() };
    let talk = async {
        let talk = handler.serve(transport).await.map_err(|error| StdioError::NoIntroduction(error.to_string()))?;
        talk.waiting().await.map(|_| ()).map_err(|error| StdioError::Broken(error.to_string()))
    };
    let ended = tokio::select! {
        ended = talk => ended,
        () = stop => Ok(()),
    };
    client.end(GRACE).await;
    ended
}
