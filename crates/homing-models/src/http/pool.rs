//! Connections that are open to one origin, and requests over them.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use crate::url::Url;
use http::{HeaderValue, Uri};
use tokio::task::JoinHandle;

use super::{
    Http, TransportError,
    body::{Body, Response},
    connect,
    http1::{Http1Connection, RequestBytes},
    http2::{Http2Connection, Http2Error},
    request::Request,
};

/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(90);

/// A connection on which a request can be sent.
pub(crate) enum Connection {
    Http1(Http1Connection),
    Http2(Http2Connection),
}

impl Connection {
    /// Returns whether a request can be sent, as far as is known.
    fn is_open(&mut self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_ready(),
            Self::Http2(connection) => connection.is_open(),
        }
    }
}

/// A connection, and whether it was open before the request, so that the server may have closed it.
struct Lease {
    connection: Connection,
    is_reused: bool,
}

/// The connections to one origin.
pub(crate) struct Origin {
    uri: Uri,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Connections without a request, the one that was used last at the end.
    idle: VecDeque<(Http1Connection, Instant)>,
    /// A task closes the idle ones after their time.
    is_watched: bool,
    shared: Option<Http2Connection>,
    /// The first connection, while it is opened before a request needs it.
    ahead: Option<JoinHandle<Result<Connection, TransportError>>>,
    /// A connection was opened or is being opened.
    has_begun: bool,
}

/// An address, prepared once for many requests.
pub(crate) struct Endpoint {
    /// The address as it was given, which signatures are computed from.
    pub(crate) url: Url,
    origin: Arc<Origin>,
    /// The whole address.
    absolute: Uri,
    /// Its path and query.
    relative: Uri,
    /// The header of requests over HTTP/1.
    pub(crate) host: HeaderValue,
}

impl Endpoint {
    /// Prepares `url`, whose scheme must be http or https.
    pub(crate) fn new(http: &Http, url: &Url) -> Result<Self, String> {
        let uri = connect::origin(url).map_err(|error| error.to_string())?;
        // Credentials are sent as a header, never in an address.
        let absolute = url.uri().clone();
        let relative = absolute.path_and_query().map_or("/", |path| path.as_str());
        let relative = Uri::try_from(relative).map_err(|error| error.to_string())?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::try_from(authority).map_err(|error| error.to_string())?;
        Ok(Self { url: url.clone(), origin: http.origin(&uri), absolute, relative, host })
    }

    /// Begins to open the first connection, which the first request then uses.
    pub(crate) fn open_ahead(&self, http: &Arc<Http>) {
        let mut open = self.origin.lock();
        if !mem::replace(&mut open.has_begun, true) {
            let (http, origin) = (http.clone(), self.origin.clone());
            open.ahead = Some(tokio::spawn(async move { connect::connect(&http, &origin.uri).await }));
        }
    }

    /// Sends a request and returns the response once its headers have arrived.
    ///
    /// It is sent once. Only if a kept connection turns out to be closed before any of it was sent, another one is used.
    pub(crate) async fn send(&self, http: &Http, request: &mut Request<'_>) -> Result<Response, TransportError> {
        loop {
            let Lease { connection, is_reused } = self.origin.lease(http).await?;
            match connection {
                Connection::Http1(mut connection) => {
                    let head = self.http1_head(http, request)?;
                    let mut bytes = RequestBytes::new(head, mem::take(&mut request.body));
                    match connection.send(&mut bytes).await {
                        Ok(head) => return Ok(Response::new(head, Body::Http1(connection, self.origin.clone()))),
                        Err(_) if is_reused && bytes.is_untouched() => request.body = bytes.body,
                        Err(error) => return Err(TransportError::lost(error)),
                    }
                }
                Connection::Http2(mut connection) => match connection.send(request, &self.absolute).await {
                    Ok((head, body)) => return Ok(Response::new(head, Body::Http2(body))),
                    Err(Http2Error { is_unsent, .. }) if is_reused && is_unsent => (),
                    Err(Http2Error { error, .. }) => return Err(error),
                },
            }
        }
    }

    /// The head of `request` in HTTP/1. A proxy of plain requests needs the whole address.
    fn http1_head(&self, http: &Http, request: &Request<'_>) -> Result<Vec<u8>, TransportError> {
        let is_plain = self.absolute.scheme_str() == Some("http");
        Ok(match http.proxy()?.as_ref().filter(|_| is_plain) {
            Some(proxy) => request.http1_head(&self.absolute, &self.host, proxy.auth.as_ref()),
            None => request.http1_head(&self.relative, &self.host, None),
        })
    }
}

impl Origin {
    pub(crate) fn new(uri: Uri) -> Self {
        Self { uri, open: Mutex::default() }
    }

    async fn lease(&self, http: &Http) -> Result<Lease, TransportError> {
        if let Some(connection) = self.take() {
            return Ok(Lease { connection, is_reused: true });
        }
        // Boxed, because it is needed once in many calls and its future is far larger than that of a request.
        let lease = Box::pin(self.open(http)).await?;
        if let Connection::Http2(connection) = lease.connection {
            // Calls that began together have each opened a connection. One is enough for all.
            let mut open = self.lock();
            let shared = open.shared.take().filter(Http2Connection::is_open);
            let is_reused = lease.is_reused || shared.is_some();
            let shared = open.shared.insert(shared.unwrap_or(connection));
            return Ok(Lease { connection: Connection::Http2(shared.clone()), is_reused });
        }
        Ok(lease)
    }

    /// Opens a connection, unless one was opened ahead.
    async fn open(&self, http: &Http) -> Result<Lease, TransportError> {
        let ahead = {
            let mut open = self.lock();
            open.has_begun = true;
            open.ahead.take()
        };
        // The task itself fails only if its runtime has ended.
        if let Some(ahead) = ahead
            && let Ok(opened) = ahead.await
        {
            let mut connection = opened?;
            if connection.is_open() {
                // The server may still close it before it gets the request.
                return Ok(Lease { connection, is_reused: true });
            }
        }
        Ok(Lease { connection: connect::connect(http, &self.uri).await?, is_reused: false })
    }

    /// Takes an open connection. Those that the server has closed are dropped.
    fn take(&self) -> Option<Connection> {
        let mut open = self.lock();
        if let Some(shared) = &open.shared {
            if shared.is_open() {
                return Some(Connection::Http2(shared.clone()));
            }
            open.shared = None;
        }
        while let Some((mut connection, since)) = open.idle.pop_back() {
            if since.elapsed() > IDLE {
                // The others were used even earlier.
                open.idle.clear();
            } else if connection.is_ready() {
                return Some(Connection::Http1(connection));
            }
        }
        None
    }

    /// Keeps a connection whose response was read to the end.
    pub(crate) fn keep(self: &Arc<Self>, mut connection: Http1Connection) {
        if !connection.is_ready() {
            return;
        }
        connection.rest();
        let mut open = self.lock();
        open.idle.push_back((connection, Instant::now()));
        if !mem::replace(&mut open.is_watched, true) {
            drop(tokio::spawn(close_unused(Watch(Arc::downgrade(self)))));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that closes connections that no further call uses. It may also end with its runtime, before the connections.
struct Watch(Weak<Origin>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(origin) = self.0.upgrade() {
            origin.lock().is_watched = false;
        }
    }
}

/// Closes connections after their time, until there are none.
async fn close_unused(watch: Watch) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(origin) = watch.0.upgrade() else { return };
        let mut open = origin.lock();
        while open.idle.front().is_some_and(|(_, since)| since.elapsed() > IDLE) {
            open.idle.pop_front();
        }
        if open.idle.is_empty() {
            return;
        }
    }
}
