//! `homing worker`: serves runs to a Restate server.

use std::sync::Arc;

use homing::OnQuestion;
use homing_otel::Telemetry;
use homing_restate::{Spread, Worker, WorkerOptions};
use homing_runtime::Runtime;

use crate::{
    cli::{
        restate::{SpreadArg, WorkerArgs},
        run::{OnQuestionArg, WithArgs},
    },
    exit::{Exit, Trouble},
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
};

pub(crate) async fn run(args: &WorkerArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let server = super::restate::connect(&args.server).await?;
    let parks = args.with.approval.on_question == Some(OnQuestionArg::Park);
    let session =
        Session::open(&without_journal(&args.with), SessionRequest { telemetry, ..Default::default() }).await?;
    session.catalog.ask_served_default().await;
    let shared = args.shared_workspace.iter().map(|folder| {
        let wrong = |error| Trouble::usage(format!("--shared-workspace {}: {error}", folder.display()));
        std::fs::canonicalize(folder).map_err(wrong)
    });
    let options = WorkerOptions {
        listen: args.listen,
        advertise: args.advertise.clone().unwrap_or_else(|| format!("http://{}", args.listen)),
        shared: shared.collect::<Result<_, _>>()?,
        drain: args.drain,
        spread: match args.spread {
            SpreadArg::Never => Spread::Never,
            SpreadArg::Auto => Spread::Auto,
            SpreadArg::Always => Spread::Always,
        },
    };
    let (advertise, admin) = (options.advertise.clone(), server.admin().to_owned());
    let homing = session.homing.clone();
    let make = Arc::new(move |registry, journal| {
        let mut parts = homing.runtime().parts().with(registry, journal);
        if parks {
            parts.config.on_question = OnQuestion::Park;
        }
        Runtime::new(parts)
    });
    let worker = Worker::start(server, options, make).await.map_err(Trouble::from)?;
    terminal::say(&format!("worker {advertise} is registered with the Restate server at {admin}; stop it with Ctrl-C"));
    let stop = async {
        signals.next().await;
        terminal::say("stopping: no more runs are taken; waiting for those in progress");
    };
    worker.serve(stop).await;
    Ok(Exit::Done)
}

/// The journal of a worker is the server. Questions are parked there, so the session needs no journal for them.
fn without_journal(with: &WithArgs) -> WithArgs {
    let mut with = with.clone();
    with.journal.journal = Some("off".to_owned());
    with.approval.on_question = with.approval.on_question.filter(|mode| *mode != OnQuestionArg::Park);
    with
}
