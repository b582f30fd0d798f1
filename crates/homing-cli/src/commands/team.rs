//! `homing team`: runs a crew, chat, graph or map that is written in a file.

use std::fs;

use homing::Task;
use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::Diagnostic,
};
use homing_otel::Telemetry;
use homing_teams::Team;

use crate::{
    cli::map_team_args::TeamArgs,
    exit::{Exit, Trouble, print},
    print_result::{self, Form},
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::Show,
};

pub(crate) async fn run(args: &TeamArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let team = load(args)?;
    if args.mermaid {
        print(homing_teams::mermaid(&team).trim_end())?;
        return Ok(Exit::Done);
    }
    let text = super::run::task_text(&args.task)?;
    let mut signals = Signals::new()?;
    let needs_journal = args.key.is_some();
    let wanted = SessionRequest { teams: vec![team.clone()], needs_journal, telemetry, ..SessionRequest::default() };
    let session = Session::open(&args.with, wanted).await?;
    if args.plan {
        print(homing_teams::plan(&team, session.homing.runtime().parts()).to_string().trim_end())?;
        return Ok(Exit::Done);
    }
    session.choose_model(&somebody(), false)?;
    let mut task = session.bounded(Task::new(&team.name, text), args.limits.limits());
    task.key.clone_from(&args.key);
    task.tags = args.tags.iter().cloned().collect();
    task.account.clone_from(&args.with.account);
    let seen = super::run::follow(&session, task, Show::choose(args.events), &mut signals, &mut |_| ()).await?;
    print_result::tell(&seen.envelope, Form::of(args.json, args.events), session.homing.journal().is_some());
    Ok(seen.exit())
}

/// A member of a team, as far as the choice of a model goes: none of those that ship with the program.
pub(crate) fn somebody() -> AgentDefinition {
    let mut agent = AgentDefinition::default();
    agent.source.kind = Scope::CommandLine;
    agent
}

fn load(args: &TeamArgs) -> Result<Team, Trouble> {
    let text = fs::read_to_string(&args.file)
        .map_err(|error| Trouble::usage(format!("cannot read {}: {error}", args.file.display())))?;
    let mut loaded = homing_teams::load(&text, Some(&args.file));
    for (name, value) in &args.set {
        loaded.set(name, value).map_err(|it| Trouble::usage(said(&[it])))?;
    }
    for remark in loaded.diagnostics.iter().filter(|it| it.severity == homing_core::diagnostic::Severity::Warning) {
        terminal::say(&format!("warning: {remark}"));
    }
    loaded.ready().map_err(|problems| Trouble::config(said(&problems)))
}

fn said(problems: &[Diagnostic]) -> String {
    let line = |it: &Diagnostic| match &it.hint {
        Some(hint) => format!("{it} ({hint})"),
        None => it.to_string(),
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
