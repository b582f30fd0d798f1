//! The files of the web interface, and the page that explains how to log in.

use std::sync::OnceLock;

use bytes::Bytes;
use homing_http::{HttpResponse, full};
use hyper::StatusCode;

use crate::gzip;

/// A file of the web interface.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// The file in gzip's form, once a browser has asked for it.
    gzipped: &'static OnceLock<Bytes>,
}

/// Returns an asset with a place for its compressed form.
macro_rules! asset {
    ($path:literal, $type:expr, $bytes:expr) => {{
        static GZIPPED: OnceLock<Bytes> = OnceLock::new();
        Asset { path: $path, content_type: $type, bytes: $bytes, gzipped: &GZIPPED }
    }};
}

const HTML: &str = "text/html; charset=utf-8";

const INDEX: &[u8] = include_bytes!("../assets/index.html");

pub(crate) const SCRIPT: &str = include_str!("../assets/app.js");
pub(crate) const STYLE: &str = include_str!("../assets/app.css");
pub(crate) const FOLD: &[u8] = include_bytes!("../assets/fold.wasm");

/// The files, embedded at build time. There is no file system behind their paths.
static ASSETS: &[Asset] = &[
    asset!("/index.html", HTML, INDEX),
    asset!("/app.js", "text/javascript; charset=utf-8", SCRIPT.as_bytes()),
    asset!("/app.css", "text/css; charset=utf-8", STYLE.as_bytes()),
    asset!("/fold.wasm", "application/wasm", FOLD),
    asset!("/icon.svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
];

const LOGIN: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Homing: log in</title>
</head>
<body>
<h1>Homing</h1>
<p>This browser is not logged in, or the token was replaced.</p>
<p>Open the link that <code>homing serve</code> printed when it started. <code>homing serve --link</code> prints it again.</p>
</body>
</html>
";

/// Returns the file at a path, or the page of the interface, which shows every other path itself.
pub(crate) fn response(path: &str, accepts_gzip: bool) -> HttpResponse {
    let asset = ASSETS.iter().find(|asset| asset.path == path).unwrap_or(&ASSETS[0]);
    let response = full(StatusCode::OK, asset.content_type, asset.bytes);
    if accepts_gzip { gzip::kept(response, asset.bytes, asset.gzipped) } else { response }
}

/// Returns the page for a browser without a valid token.
pub(crate) fn login_page() -> HttpResponse {
    full(StatusCode::UNAUTHORIZED, HTML, LOGIN)
}
