//! One module per command.

pub(crate) mod agents;
pub(crate) mod answer;
mod cancel;
mod chat;
mod check;
mod completions;
mod config;
mod convert;
mod diff;
pub(crate) mod doctor;
mod export;
mod fork;
mod init;
mod man;
mod map;
pub(crate) mod mcp;
mod mcp_servers;
pub(crate) mod models;
mod on_restate;
mod prune;
mod questions;
mod replay;
mod restate;
mod resume;
pub(crate) mod run;
mod runs;
pub(crate) mod serve;
mod show;
mod team;
mod tell;
mod trust;
mod undo;
mod watch;
pub(crate) mod which_run;
mod worker;
mod worktrees;

pub(crate) use completions::complete_if_asked;

use std::{cell::OnceCell, future::Future, num::NonZero, time::Duration};

use homing_otel::Telemetry;

use crate::{
    allocator,
    cli::{Cli, Command, chat::ChatArgs, run::RunArgs},
    exit::{Exit, report, report_json},
    screen::Screen,
    telemetry, terminal,
};

/// Runs a command.
pub(crate) fn run(cli: Cli) -> Exit {
    terminal::set_quiet(cli.command.as_ref().is_some_and(is_quiet));
    let Some(command) = cli.command else { return bare() };
    match command {
        Command::Chat(args) => report(with_telemetry(|telemetry| chat::run(&args, telemetry))),
        Command::Continue(args) => report(with_telemetry(|telemetry| chat::continue_last(&args, telemetry))),
        Command::Watch(args) => report(wait_for(watch::run(&args))),
        Command::Run(args) => run_agent(&args),
        Command::Map(args) => report(with_telemetry(|telemetry| map::run(&args, telemetry))),
        Command::Team(args) => {
            let outcome = with_telemetry(|telemetry| team::run(&args, telemetry));
            if args.output.json { report_json(outcome, "") } else { report(outcome) }
        }
        Command::Resume(args) => report_as(args.output.json, run_one(|telemetry| resume::run(&args, telemetry))),
        Command::Fork(args) => {
            let outcome = run_one(|telemetry| fork::run(&args, telemetry));
            if args.output.json { report_json(outcome, "") } else { report(outcome) }
        }
        Command::Tell(args) => {
            let outcome = run_one(|telemetry| tell::run(&args, telemetry));
            if args.output.json { report_json(outcome, "") } else { report(outcome) }
        }
        Command::Questions(args) => report(questions::run(&args)),
        Command::Answer(args) => {
            let outcome = run_one(|telemetry| answer::run(&args, telemetry));
            if args.output.json { report_json(outcome, "") } else { report(outcome) }
        }
        Command::Replay(args) => {
            let outcome = wait_for(replay::run(&args));
            if args.json { report_json(outcome, "") } else { report(outcome) }
        }
        Command::Show(args) => report(wait_for(show::run(&args))),
        Command::Diff(args) => report(diff::run(&args)),
        Command::Undo(args) => report(wait_for(undo::run(&args))),
        Command::Worktrees(args) => report(worktrees::run(&args)),
        Command::Cancel(args) => report(wait_for(cancel::run(&args))),
        Command::Prune(args) => report(wait_for(prune::run(&args))),
        Command::Doctor(args) => report(wait_for(doctor::run(&args))),
        Command::Runs(args) => report(runs::run(&args)),
        Command::Export(args) => report(export::run(&args)),
        Command::Trust(args) => match &args.server {
            Some(server) => report(wait_for(trust::server(&args, server))),
            None => report(trust::run(&args)),
        },
        Command::Config(args) => report(config::run(&args)),
        Command::Completions(args) => report(completions::run(&args)),
        Command::Man(args) => report(man::run(&args)),
        Command::Agents(args) => report(wait_for(agents::run(&args))),
        Command::Check(args) => report(check::run(&args)),
        Command::Convert(args) => report(convert::run(&args)),
        Command::Worker(args) => report(with_telemetry(|telemetry| worker::run(&args, telemetry))),
        Command::Init => report(init::run()),
        Command::Serve(args) => report(with_telemetry(|telemetry| serve::run(&args, telemetry))),
        Command::Models(args) => report(wait_for(models::run(&args))),
        Command::Mcp(args) => run_mcp(&args),
    }
}

fn run_agent(args: &RunArgs) -> Exit {
    // Dropped last: the journal is closed while the threads of the async runtime end.
    let closing = OnceCell::new();
    let outcome = run_one(|telemetry| run::run(args, telemetry, &closing));
    if args.output.json { report_json(outcome, &args.agent) } else { report(outcome) }
}

fn run_mcp(args: &mcp::McpArgs) -> Exit {
    match &args.command {
        None => report(with_telemetry(|telemetry| mcp::run(&args.serve, telemetry))),
        Some(mcp::McpCommand::Serve(args)) => report(with_telemetry(|telemetry| mcp::run(args, telemetry))),
        Some(command) => report(wait_for(mcp_servers::run(command))),
    }
}

/// `homing` without a command: opens a conversation on a terminal, and otherwise prints the help.
fn bare() -> Exit {
    if Screen::is_possible() {
        return report(with_telemetry(|telemetry| async {
            Box::pin(chat::run(&ChatArgs::default(), telemetry)).await
        }));
    }
    terminal::say(Cli::with_help().render_help().to_string().trim_end());
    Exit::Usage
}

/// Returns whether a command prints only answers and errors.
fn is_quiet(command: &Command) -> bool {
    match command {
        Command::Run(args) => args.output.quiet,
        Command::Team(args) => args.output.quiet,
        Command::Resume(args) => args.output.quiet,
        Command::Fork(args) => args.output.quiet,
        Command::Tell(args) => args.output.quiet,
        Command::Answer(args) => args.output.quiet,
        _ => false,
    }
}

/// Prints an error for people, or also as JSON.
fn report_as(json: bool, outcome: anyhow::Result<Exit>) -> Exit {
    if json { report_json(outcome, "") } else { report(outcome) }
}

/// Runs a command with telemetry, on a thread for each core.
fn with_telemetry<Work: Future<Output = anyhow::Result<Exit>>>(
    work: impl FnOnce(Option<Telemetry>) -> Work,
) -> anyhow::Result<Exit> {
    block_on(Threads::PerCore, with_exports(work))
}

/// Runs a command that starts or continues one run, with telemetry. Its agents mostly wait for models, and their tools work on threads
/// of their own.
fn run_one<Work: Future<Output = anyhow::Result<Exit>>>(
    work: impl FnOnce(Option<Telemetry>) -> Work,
) -> anyhow::Result<Exit> {
    block_on(Threads::One, with_exports(work))
}

/// Starts telemetry for a command, and sends what is left when it has ended.
async fn with_exports<Work: Future<Output = anyhow::Result<Exit>>>(
    work: impl FnOnce(Option<Telemetry>) -> Work,
) -> anyhow::Result<Exit> {
    let telemetry = telemetry::start();
    let outcome = work(telemetry.clone()).await;
    telemetry::finish(telemetry, &outcome).await;
    outcome
}

/// Runs a command without telemetry.
fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    block_on(Threads::One, work)
}

/// The threads that tasks run on, beside the main thread, which waits for the command and for signals.
enum Threads {
    One,
    PerCore,
}

/// Runs a command on an async runtime. Commands that do not need one start faster without it.
///
/// Not inlined, because otherwise the stack of every command has room for the futures of all of them, and is touched page by page.
#[inline(never)]
fn block_on<T>(threads: Threads, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    match threads {
        Threads::One => _ = builder.worker_threads(1),
        // Many runs at once: their memory counts. For a single run the threads would only wait for each other's heap.
        Threads::PerCore => {
            allocator::share_heaps(std::thread::available_parallelism().map_or(1, NonZero::get));
        }
    }
    let runtime = builder.enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A thread may still be reading from the terminal; it is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
