//! A web service: a task starts a run, its events are server-sent from any position, and a shutdown lets no run disappear.

use std::{convert::Infallible, future::Future, net::SocketAddr, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::sse::{self, Sse},
    routing::{get, post},
};
use futures_util::StreamExt;
use homing::{AgentDefinition, Event, Homing, Stream, Task, model_fn, testing::say, uuid::Uuid};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct NewRun {
    agent: String,
    task: String,
}

#[derive(Default, Deserialize)]
struct From {
    #[serde(default)]
    from: u64,
}

async fn start(State(homing): State<Homing>, Json(new): Json<NewRun>) -> Result<Json<Value>, (StatusCode, String)> {
    let run =
        homing.spawn(Task::new(new.agent, new.task)).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    Ok(Json(json!({"run": run.id()})))
}

async fn events(
    State(homing): State<Homing>,
    Path(run): Path<Uuid>,
    Query(From { from }): Query<From>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, StatusCode> {
    let run = homing.runtime().get(run).ok_or(StatusCode::NOT_FOUND)?;
    let sent = |event: Event| {
        let id = if let Event::Fact(record) = &event { record.seq.to_string() } else { String::new() };
        Ok(sse::Event::default().id(id).data(event.to_json().to_string()))
    };
    Ok(Sse::new(run.events_from(from).map(sent)))
}

/// Serves until `stop`, then cancels what is still running, which also ends its streams of events. Returns how many runs there
/// were; all of them have ended.
pub async fn serve(
    homing: Homing,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<usize> {
    let app = Router::new().route("/runs", post(start)).route("/runs/{run}/events", get(events));
    let runs = homing.clone();
    let stopped = async move {
        stop.await;
        runs.shutdown(Duration::from_secs(5)).await;
    };
    axum::serve(listener, app.with_state(homing.clone())).with_graceful_shutdown(stopped).await?;
    homing.shutdown(Duration::from_secs(5)).await; // those that began meanwhile
    Ok(homing.runs().len())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let homing = Homing::builder()
        .agent(AgentDefinition::new("greeter", "Greets", "Greet the user."))
        .own_model(model_fn("demo/greeter", |_| Ok(say("Hello!"))))
        .build()
        .map_err(std::io::Error::other)?;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 8080))).await?;
    serve(homing, listener, async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}
