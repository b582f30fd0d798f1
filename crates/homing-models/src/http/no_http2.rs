//! HTTP/2 in a build without it: no server is offered it, so that there are no such connections.

use std::convert::Infallible;

use bytes::Bytes;
use http::Uri;

use super::{TransportError, connect::TlsStream, framing::ResponseHead, request::Request};

pub(super) const ALPN: Option<&[u8]> = None;

#[derive(Clone)]
pub(crate) struct Http2Connection(Infallible);

pub(super) struct Http2Error {
    pub(super) error: TransportError,
    pub(super) is_unsent: bool,
}

impl Http2Connection {
    pub(super) async fn open(_: TlsStream) -> Result<Self, TransportError> {
        Err(TransportError::setup("this build has no support for HTTP/2".to_owned()))
    }

    pub(super) fn is_open(&self) -> bool {
        match self.0 {}
    }

    pub(super) async fn send(&mut self, _: &Request<'_>, _: &Uri) -> Result<(ResponseHead, Http2Body), Http2Error> {
        match self.0 {}
    }
}

pub(crate) struct Http2Body(Infallible);

impl Http2Body {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        match self.0 {}
    }
}
