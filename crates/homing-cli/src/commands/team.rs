//! `homing team`: runs a crew, chat, graph, map or workflow script that is defined in a file.

use std::fs;

use homing::Task;
use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::{Diagnostic, Severity},
    sanitize,
};
use homing_otel::Telemetry;
use homing_teams::{Pattern, Team};

use super::on_restate::{self, RemoteTask};
use crate::{
    cli::map_team_args::TeamArgs,
    exit::{Exit, Trouble, print},
    print_result,
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
};

pub(crate) async fn run(args: &TeamArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let team = load(args)?;
    if args.mermaid {
        print(&sanitize::inert(homing_teams::mermaid(&team).trim_end()))?;
        return Ok(Exit::Done);
    }
    let text = super::run::task_text(&args.task)?;
    let mut signals = Signals::new()?;
    let needs_journal = args.key.is_some();
    let request = SessionRequest { teams: vec![team.clone()], needs_journal, telemetry, ..SessionRequest::default() };
    let session = Session::open(&args.with, request).await?;
    if args.plan {
        let plan = homing_teams::plan(&team, session.homing.runtime().parts()).to_string();
        print(&sanitize::inert(plan.trim_end()))?;
        return Ok(Exit::Done);
    }
    let is_remote = args.place.is_remote(&session.config.user.restate);
    if is_remote {
        on_restate::refuse_options(&args.with)?;
    }
    session.choose_model(&member(), false).await?;
    let mut task = session.bounded(Task::new(&team.name, text), args.limits.limits());
    task.tags = args.tags.iter().cloned().collect();
    crate::telemetry::add_trace(&mut task);
    task.account.clone_from(&args.with.account);
    let (key, show) = (args.key.clone(), args.output.show());
    let result = if is_remote {
        let remote = RemoteTask { task, place: &args.place, key, show };
        on_restate::run(remote, &session, &mut signals, &mut |_, _| None).await?
    } else {
        super::run::follow(&session, task, key, show, &mut signals, &mut |_| ()).await?
    };
    print_result::print_watched(&result, args.output.form(), session.homing.journal().is_some());
    Ok(result.exit())
}

/// Returns a stand-in for the team's members to choose a model for: not a built-in agent, so never the offline model.
fn member() -> AgentDefinition {
    let mut agent = AgentDefinition::default();
    agent.source.kind = Scope::CommandLine;
    agent
}

fn load(args: &TeamArgs) -> Result<Team, Trouble> {
    let text = fs::read_to_string(&args.file)
        .map_err(|error| Trouble::usage(format!("cannot read {}: {error}", args.file.display())))?;
    let mut loaded = homing_teams::load(&text, Some(&args.file));
    for (name, value) in &args.set {
        loaded.set(name, value).map_err(|problem| Trouble::usage(joined(&[problem])))?;
    }
    for warning in loaded.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning) {
        terminal::say(&format!("warning: {warning}"));
    }
    let mut team = loaded.ready().map_err(|problems| Trouble::config(joined(&problems)))?;
    if matches!(team.pattern, Pattern::Script(_)) {
        // The token limit is the budget that the script sees.
        team.limits.max_tokens = args.limits.limits().tokens.value().or(team.limits.max_tokens);
    }
    Ok(team)
}

fn joined(problems: &[Diagnostic]) -> String {
    let line = |problem: &Diagnostic| match &problem.hint {
        Some(hint) => format!("{problem} ({hint})"),
        None => problem.to_string(),
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
