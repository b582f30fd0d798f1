//! `homing worker`: serves runs to a Restate server.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use homing::OnQuestion;
use homing_otel::Telemetry;
use homing_restate::{Spread, Worker, WorkerOptions};
use homing_runtime::Runtime;

use crate::{
    cli::{
        restate::{SpreadArg, WorkerArgs},
        run::{OnQuestionArg, WithArgs},
    },
    config::Config,
    exit::{Exit, Trouble},
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
};

pub(crate) async fn run(args: &WorkerArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let parks = args.with.approval.on_question == Some(OnQuestionArg::Park);
    let session =
        Session::open(&without_journal(&args.with), SessionRequest { telemetry, ..Default::default() }).await?;
    let options = options(args, &session.config.user)?;
    let server = super::restate::connect(&args.server, &session.config.user.restate).await?;
    session.catalog.ask_served_default().await;
    let (advertise, admin) = (options.advertise.clone(), server.admin().to_owned());
    let homing = session.homing.clone();
    let make = Arc::new(move |registry, journal| {
        let mut parts = homing.runtime().parts().with(registry, journal);
        if parks {
            parts.config.on_question = OnQuestion::Park;
        }
        homing_teams::install_recorded(&mut parts);
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

/// The address on which a worker listens, if nothing names another.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9080);

fn options(args: &WorkerArgs, config: &Config) -> Result<WorkerOptions, Trouble> {
    let accounts = config.accounts().map_err(Trouble::config)?;
    let config = &config.restate;
    let listen = args.listen.or(config.listen).unwrap_or(LISTEN);
    let advertise = args.advertise.clone().or_else(|| config.advertise.as_ref().map(|url| url.0.clone()));
    let mut shared = config.shared_folders()?;
    for folder in &args.shared_workspace {
        let wrong = |error| Trouble::usage(format!("--shared-workspace {}: {error}", folder.display()));
        shared.push(std::fs::canonicalize(folder).map_err(wrong)?);
    }
    Ok(WorkerOptions {
        listen,
        advertise: advertise.unwrap_or_else(|| format!("http://{listen}")),
        shared,
        drain: args.drain,
        spread: match args.spread {
            SpreadArg::Never => Spread::Never,
            SpreadArg::Auto => Spread::Auto,
            SpreadArg::Always => Spread::Always,
        },
        live_host: args.live_host.clone().or_else(|| config.live_host.clone()),
        accounts: accounts.into_iter().map(|(name, account)| (name, account.per_day_micros)).collect(),
    })
}

/// The journal of a worker is the server. Questions are parked there, so the session needs no journal for them.
fn without_journal(with: &WithArgs) -> WithArgs {
    let mut with = with.clone();
    with.journal.journal = Some("off".to_owned());
    with.approval.on_question = with.approval.on_question.filter(|mode| *mode != OnQuestionArg::Park);
    with
}
