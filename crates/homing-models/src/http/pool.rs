//! Connections that are open to one origin, and requests over them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use crate::url::Url;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header::HOST, header::PROXY_AUTHORIZATION};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http2};

use super::{Http, TransportError, body::Response, connect, http1::Http1Connection};

/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(90);

/// A connection on which a request can be sent.
pub(crate) enum Connection {
    Http1(Http1Connection),
    /// Carries any number of requests at once.
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A connection, and whether it has carried a request before.
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
    shared: Option<http2::SendRequest<Full<Bytes>>>,
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

    /// Sends a request and returns the response once its headers have arrived.
    ///
    /// It is sent once. Only if a kept connection turns out to be closed before any of it was sent, another one is used.
    pub(crate) async fn send(
        &self,
        http: &Http,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, TransportError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        loop {
            let Lease { mut connection, is_reused } = self.origin.lease(http).await?;
            self.address(http, &mut request, &connection)?;
            let sent = match &mut connection {
                Connection::Http1(connection) => connection.send(request).await,
                Connection::Http2(sender) => sender.try_send_request(request).await,
            };
            match sent {
                Ok(response) => return Ok(self.response(response, connection)),
                Err(mut error) => match error.take_message().filter(|_| is_reused) {
                    Some(unsent) => request = unsent,
                    None => return Err(TransportError::lost(error.into_error())),
                },
            }
        }
    }

    /// Sets the address in the form that the connection requires.
    fn address(
        &self,
        http: &Http,
        request: &mut Request<Full<Bytes>>,
        connection: &Connection,
    ) -> Result<(), TransportError> {
        if let Connection::Http2(_) = connection {
            *request.uri_mut() = self.absolute.clone();
            request.headers_mut().remove(HOST);
            return Ok(());
        }
        if !request.headers().contains_key(HOST) {
            request.headers_mut().insert(HOST, self.host.clone());
        }
        *request.uri_mut() = self.relative.clone();
        let is_plain = self.absolute.scheme_str() == Some("http");
        if let Some(proxy) = http.proxy()?.as_ref().filter(|_| is_plain) {
            *request.uri_mut() = self.absolute.clone();
            if let Some(auth) = &proxy.auth {
                request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
            }
        }
        Ok(())
    }

    fn response(&self, response: http::Response<Incoming>, connection: Connection) -> Response {
        let kept = match connection {
            Connection::Http1(connection) => Some((self.origin.clone(), connection)),
            Connection::Http2(_) => None,
        };
        Response::new(response, kept)
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
        let connection = Box::pin(connect::connect(http, &self.uri)).await?;
        if let Connection::Http2(sender) = connection {
            // Calls that began together have each opened a connection. One is enough for all.
            let mut open = self.lock();
            let shared = open.shared.take().filter(|shared| !shared.is_closed());
            let is_reused = shared.is_some();
            let shared = open.shared.insert(shared.unwrap_or(sender));
            return Ok(Lease { connection: Connection::Http2(shared.clone()), is_reused });
        }
        Ok(Lease { connection, is_reused: false })
    }

    /// Takes an open connection. The server may have closed it, which is noticed before anything is sent on it.
    fn take(&self) -> Option<Connection> {
        let mut open = self.lock();
        if let Some(shared) = &open.shared {
            if !shared.is_closed() {
                return Some(Connection::Http2(shared.clone()));
            }
            open.shared = None;
        }
        let (connection, since) = open.idle.pop_back()?;
        if since.elapsed() > IDLE {
            // The others were used even earlier.
            open.idle.clear();
            return None;
        }
        Some(Connection::Http1(connection))
    }

    /// Keeps a connection whose response was read to the end.
    pub(crate) fn keep(self: &Arc<Self>, connection: Http1Connection) {
        if !connection.is_ready() {
            return;
        }
        let mut open = self.lock();
        open.idle.push_back((connection, Instant::now()));
        if !std::mem::replace(&mut open.is_watched, true) {
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
