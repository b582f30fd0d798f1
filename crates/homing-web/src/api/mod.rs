//! The HTTP API: one function per endpoint, and the table that leads to them.

mod events;
mod info;
mod trees;

use std::sync::Arc;

use homing::crates::core::BoxFuture;
use hyper::{Method, StatusCode};

use crate::{
    call::{Call, Outcome},
    problem::Problem,
    server::Server,
};

/// The function behind an endpoint.
type Handler = fn(Arc<Server>, Call) -> BoxFuture<'static, Outcome>;

/// An endpoint.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// The path, with `{name}` for parts that vary.
    pub(crate) path: &'static str,
    pub(crate) handler: Handler,
}

/// All endpoints of the API.
pub(crate) const ROUTES: &[Route] = &[
    Route { method: Method::GET, path: "/api/trees", handler: |server, call| Box::pin(trees::list(server, call)) },
    Route { method: Method::GET, path: "/api/trees/{id}", handler: |server, call| Box::pin(trees::get(server, call)) },
    Route {
        method: Method::GET,
        path: "/api/trees/{id}/facts",
        handler: |server, call| Box::pin(trees::facts(server, call)),
    },
    Route { method: Method::GET, path: "/api/events", handler: |server, call| Box::pin(events::follow(server, call)) },
    Route { method: Method::GET, path: "/api/info", handler: |server, call| Box::pin(info::info(server, call)) },
];

/// Finds the endpoint of a request, and the parts of its path that vary.
pub(crate) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
    let mut is_known_path = false;
    for route in ROUTES {
        if let Some(params) = matched(route.path, path) {
            if route.method == *method {
                return Ok((route, params));
            }
            is_known_path = true;
        }
    }
    if is_known_path {
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not possible here")));
    }
    Err(Problem::not_found(format!("there is no endpoint {path}")))
}

fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut params = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(params),
            (Some(name), Some(part)) if name.starts_with('{') => {
                params.push(homing_http::percent_decoded(part, false).filter(|part| !part.is_empty())?);
            }
            (Some(wanted), Some(given)) if wanted == given => (),
            _ => return None,
        }
    }
}
