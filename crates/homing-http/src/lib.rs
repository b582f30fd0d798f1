//! The HTTP server that the hosts share: it listens, limits connections, sizes and times, and speaks TLS. [`RequestGuard`]
//! decides which requests are accepted; a host's [`HttpService`] responds to them.
//!
//! The crate knows nothing about agents.

mod connections;
mod guard;
mod listener;
mod tls;

pub use connections::ConnectionLimits;
pub use guard::{HttpRefusal, RequestGuard, cookie, fresh_token, is_loopback, is_same, only, percent_decoded};
pub use listener::{Admitted, BoxFuture, HttpBody, HttpResponse, HttpService, full, listen, with_status};
pub use tls::{TlsError, TlsFiles};
pub use tokio_rustls::TlsAcceptor;
