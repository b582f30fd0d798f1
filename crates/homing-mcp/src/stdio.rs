//! Serves one client over a pair of pipes, usually standard input and output. These carry only protocol messages.

use std::{future::Future, sync::Arc, time::Duration};

use homing::Homing;
use rmcp::{ServiceExt, transport::async_rw::AsyncRwTransport};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    handler::McpHandler,
    options::ServerOptions,
    server_state::{Audience, ServerState},
};

/// Maximum length of a line in bytes; longer ones are dropped.
const MAX_LINE: usize = 4 << 20;

/// Time for runs to end after their client has disconnected.
const GRACE: Duration = Duration::from_secs(3);

/// The failure of a connection over pipes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdioError {
    /// The client did not send `initialize`.
    #[error("the client did not initialize the connection: {0}")]
    NoIntroduction(String),
    /// The connection failed.
    #[error("the connection to the client failed: {0}")]
    Broken(String),
}

/// Serves one client over standard input and output until it disconnects or `stop` resolves, then cancels its runs.
///
/// # Errors
/// Fails if the client does not initialize the connection, or if the connection breaks.
pub async fn serve_stdio(
    homing: Arc<Homing>,
    options: ServerOptions,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), StdioError> {
    let (read, write) = rmcp::transport::stdio();
    serve_on(homing, options, (read, write), stop).await
}

/// Serves one client over any pair of pipes; see [`serve_stdio`].
///
/// # Errors
/// Fails if the client does not initialize the connection, or if the connection breaks.
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
    let server = ServerState::new(homing, options, Audience::One);
    let _reload = server.start_reloading();
    let client = server.admit().expect("the first client of a server");
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_LINE);
    let handler = McpHandler { client: client.clone() };
    let connection = async {
        let service = handler.serve(transport).await.map_err(|error| StdioError::NoIntroduction(error.to_string()))?;
        service.waiting().await.map(|_| ()).map_err(|error| StdioError::Broken(error.to_string()))
    };
    let ended = tokio::select! {
        ended = connection => ended,
        () = stop => Ok(()),
    };
    client.end(GRACE).await;
    ended
}
