//! The files of the web interface, and the page that explains how to log in.

use homing_http::{HttpResponse, full};
use hyper::StatusCode;

/// A file of the web interface.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";

const INDEX: &[u8] = include_bytes!("../assets/index.html");

/// The files, embedded at build time. There is no file system behind their paths.
const ASSETS: &[Asset] = &[
    Asset { path: "/index.html", content_type: HTML, bytes: INDEX },
    Asset {
        path: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/app.js"),
    },
    Asset { path: "/app.css", content_type: "text/css; charset=utf-8", bytes: include_bytes!("../assets/app.css") },
    Asset { path: "/fold.wasm", content_type: "application/wasm", bytes: include_bytes!("../assets/fold.wasm") },
    Asset { path: "/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") },
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
pub(crate) fn response(path: &str) -> HttpResponse {
    match ASSETS.iter().find(|asset| asset.path == path) {
        Some(asset) => full(StatusCode::OK, asset.content_type, asset.bytes),
        None => full(StatusCode::OK, HTML, INDEX),
    }
}

/// Returns the page for a browser without a valid token.
pub(crate) fn login_page() -> HttpResponse {
    full(StatusCode::UNAUTHORIZED, HTML, LOGIN)
}
