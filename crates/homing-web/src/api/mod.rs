//! The HTTP API: one function per endpoint, and the table that leads to them.

mod events;
mod info;
mod limits;
mod openapi;
mod questions;
mod registry;
pub(crate) mod runs;
mod trees;

use std::sync::Arc;

use homing::crates::core::BoxFuture;
use hyper::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{
    call::{Call, Outcome},
    problem::Problem,
    server::Server,
};

/// The function behind an endpoint.
type Handler = fn(Arc<Server>, Call) -> BoxFuture<'static, Outcome>;

/// Generates the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An endpoint.
pub(crate) struct Route {
    pub(crate) is_post: bool,
    /// The path, with `{name}` for parts that vary.
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<SchemaOf>,
    /// Schema of the response; `None` for events and pages.
    pub(crate) response: Option<SchemaOf>,
    /// The status of a response that created something.
    pub(crate) creates: bool,
    pub(crate) handler: Handler,
}

const fn get(path: &'static str, summary: &'static str, response: Option<SchemaOf>, handler: Handler) -> Route {
    Route { is_post: false, path, summary, query: None, body: None, response, creates: false, handler }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: SchemaOf,
    response: SchemaOf,
    handler: Handler,
) -> Route {
    let (body, response) = (Some(body), Some(response));
    Route { is_post: true, path, summary, query: None, body, response, creates: false, handler }
}

impl Route {
    const fn query(mut self, query: SchemaOf) -> Self {
        self.query = Some(query);
        self
    }

    const fn creates(mut self) -> Self {
        self.creates = true;
        self
    }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// All endpoints of the API.
pub(crate) const ROUTES: &[Route] = &[
    get("/api/trees", "List run trees, newest first", Some(of::<trees::Trees>), |server, call| {
        Box::pin(trees::list(server, call))
    })
    .query(of::<trees::TreesQuery>),
    get("/api/trees/{id}", "One tree, by the ID of any of its runs", Some(of::<trees::Tree>), |server, call| {
        Box::pin(trees::get(server, call))
    }),
    get("/api/trees/{id}/facts", "The records of a tree", Some(of::<trees::Facts>), |server, call| {
        Box::pin(trees::facts(server, call))
    })
    .query(of::<trees::FactsQuery>),
    get("/api/trees/{id}/export", "The tree as a page that needs no server", None, |server, call| {
        Box::pin(trees::export(server, call))
    }),
    get("/api/events", "Events of a tree, or changes of the list", None, |server, call| {
        Box::pin(events::follow(server, call))
    })
    .query(of::<events::EventsQuery>),
    post("/api/runs", "Start a run, or plan it", of::<runs::StartRun>, of::<runs::Done>, |server, call| {
        Box::pin(runs::start(server, call))
    })
    .creates(),
    post("/api/runs/{id}/cancel", "Cancel a run", of::<runs::Nothing>, of::<runs::Done>, |server, call| {
        Box::pin(runs::cancel(server, call))
    }),
    post("/api/runs/{id}/tell", "Send a message to a run", of::<runs::Tell>, of::<runs::Done>, |server, call| {
        Box::pin(runs::tell(server, call))
    })
    .creates(),
    post("/api/runs/{id}/resume", "Resume a run", of::<runs::Resume>, of::<runs::Done>, |server, call| {
        Box::pin(runs::resume(server, call))
    }),
    post("/api/runs/{id}/limits", "Raise limits", of::<limits::LimitsBody>, of::<runs::Done>, |server, call| {
        Box::pin(runs::limits(server, call))
    }),
    post("/api/runs/{id}/fork", "Fork a run", of::<runs::ForkBody>, of::<runs::Done>, |server, call| {
        Box::pin(runs::fork(server, call))
    })
    .creates(),
    get("/api/questions", "Questions that wait for an answer", Some(of::<questions::Questions>), |server, call| {
        Box::pin(questions::list(server, call))
    })
    .query(of::<questions::QuestionsQuery>),
    post(
        "/api/questions/{id}",
        "Answer a question",
        of::<questions::AnswerBody>,
        of::<questions::Answered>,
        |server, call| Box::pin(questions::answer(server, call)),
    ),
    get("/api/agents", "List agents", Some(of::<registry::Agents>), |server, call| {
        Box::pin(registry::agents(server, call))
    })
    .query(of::<registry::ProjectQuery>),
    get("/api/agents/{name}", "Explain an agent", Some(of::<serde_json::Value>), |server, call| {
        Box::pin(registry::agent(server, call))
    })
    .query(of::<registry::ProjectQuery>),
    get("/api/teams/{name}", "A team as nodes and edges", Some(of::<registry::TeamGraph>), |server, call| {
        Box::pin(registry::team(server, call))
    })
    .query(of::<registry::ProjectQuery>),
    get("/api/usage", "Sums of usage, and accounts", Some(of::<registry::UsageSums>), |server, call| {
        Box::pin(registry::usage(server, call))
    })
    .query(of::<registry::UsageQuery>),
    get("/api/projects", "List projects", Some(of::<registry::ProjectList>), |server, call| {
        Box::pin(registry::projects(server, call))
    }),
    get("/api/models", "List models", Some(of::<registry::ModelList>), |server, call| {
        Box::pin(registry::models(server, call))
    }),
    get("/api/info", "The server", Some(of::<info::Info>), |server, call| Box::pin(info::info(server, call))),
    get("/api/openapi.json", "This description", Some(of::<serde_json::Value>), |server, call| {
        Box::pin(openapi::describe(server, call))
    }),
];

/// Finds the endpoint of a request, and the parts of its path that vary.
pub(crate) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
    let mut is_known_path = false;
    for route in ROUTES {
        if let Some(params) = matched(route.path, path) {
            let is_wanted = if route.is_post { *method == Method::POST } else { *method == Method::GET };
            if is_wanted {
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

/// Quotes a word for a shell, if it needs quotes.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:+=@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
