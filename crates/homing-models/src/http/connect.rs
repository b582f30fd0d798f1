//! Opens connections: TCP, the tunnel of a proxy, TLS, and the handshake of HTTP/2.

use std::{io, sync::Arc, time::Duration};

use crate::{timeouts::Timeouts, url::Url};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri, uri::Scheme};
use hyper_util::client::legacy::connect::{HttpConnector, proxy::Tunnel};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, crypto::CryptoProvider, pki_types::ServerName},
};

use super::{
    Http, TransportError,
    http1::{Http1Connection, Stream},
    http2::{self, Http2Connection},
    pool::Connection,
};

/// An encrypted connection.
pub(super) type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Time without traffic after which a connection is probed, and between probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Number of unanswered probes after which a connection is dead.
const KEEPALIVE_PROBES: u32 = 3;

/// A proxy that all requests pass through.
pub(crate) struct Proxy {
    pub(crate) uri: Uri,
    /// The value of `proxy-authorization`.
    pub(crate) auth: Option<HeaderValue>,
}

impl Proxy {
    /// Reads the address of a proxy, which may contain a user name and password.
    pub(crate) fn new(address: &str) -> Result<Self, String> {
        let url = Url::parse(address).map_err(|error| format!("`{address}` is not a proxy address: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!("a proxy with the scheme `{}` is not supported", url.scheme()));
        }
        let uri = origin(&url).map_err(|error| format!("`{address}` is not a proxy address: {error}"))?;
        Ok(Self { uri, auth: basic_auth(&url) })
    }
}

/// The scheme, host and port of `url`.
pub(crate) fn origin(url: &Url) -> Result<Uri, http::uri::InvalidUri> {
    Uri::try_from(url.origin())
}

/// The authorization that an address contains, as `user:password@`.
pub(crate) fn basic_auth(url: &Url) -> Option<HeaderValue> {
    let (user, password) = url.credentials()?;
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The TLS settings: the certificates that the system trusts, and the versions of HTTP.
pub(crate) fn tls_config() -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(crypto()?)).with_safe_default_protocol_versions();
    let config = config.and_then(BuilderVerifierExt::with_platform_verifier).map_err(|error| error.to_string())?;
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = http2::ALPN.into_iter().chain([&b"http/1.1"[..]]).map(<[u8]>::to_vec).collect();
    Ok(Arc::new(config))
}

#[cfg(feature = "aws-lc-rs")]
fn crypto() -> Result<CryptoProvider, String> {
    Ok(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
fn crypto() -> Result<CryptoProvider, String> {
    Ok(tokio_rustls::rustls::crypto::ring::default_provider())
}

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
fn crypto() -> Result<CryptoProvider, String> {
    Err("this program was built without TLS: enable the feature `aws-lc-rs` or `ring` of the crate `homing`".to_owned())
}

/// Opens TCP connections.
pub(crate) fn tcp_connector(timeouts: &Timeouts) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeouts.connect));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    connector
}

/// Opens a connection to `origin`, within the time for it.
pub(crate) async fn connect(http: &Http, origin: &Uri) -> Result<Connection, TransportError> {
    let limit = http.timeouts.connect;
    match tokio::time::timeout(limit, open(http, origin)).await {
        Ok(opened) => opened,
        Err(_) => Err(TransportError::connect(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))),
    }
}

async fn open(http: &Http, origin: &Uri) -> Result<Connection, TransportError> {
    let is_tls = origin.scheme() == Some(&Scheme::HTTPS);
    let stream = open_tcp(http, origin, is_tls).await?;
    if !is_tls {
        return Ok(Connection::Http1(Http1Connection::new(Stream::Plain(stream))));
    }
    // Boxed, because a plain connection does not need its state.
    Box::pin(over_tls(http, origin, stream)).await
}

async fn over_tls(http: &Http, origin: &Uri, stream: TcpStream) -> Result<Connection, TransportError> {
    let config = http.tls().map_err(TransportError::setup)?;
    let host = origin.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(TransportError::connect)?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(TransportError::connect)?;
    let agreed = stream.get_ref().1.alpn_protocol();
    if agreed.is_some() && agreed == http2::ALPN {
        return Http2Connection::open(stream).await.map(Connection::Http2);
    }
    Ok(Connection::Http1(Http1Connection::new(Stream::Tls(Box::new(stream)))))
}

async fn open_tcp(http: &Http, origin: &Uri, is_tls: bool) -> Result<TcpStream, TransportError> {
    use tower_service::Service as _;
    let mut connector = http.connector.clone();
    let stream = match &http.proxy()? {
        None => connector.call(origin.clone()).await.map_err(TransportError::connect)?,
        Some(proxy) if is_tls => {
            let tunnel = Tunnel::new(proxy.uri.clone(), connector);
            let mut tunnel = match &proxy.auth {
                Some(auth) => tunnel.with_auth(auth.clone()),
                None => tunnel,
            };
            tunnel.call(origin.clone()).await.map_err(TransportError::connect)?
        }
        Some(proxy) => connector.call(proxy.uri.clone()).await.map_err(TransportError::connect)?,
    };
    Ok(stream.into_inner())
}
