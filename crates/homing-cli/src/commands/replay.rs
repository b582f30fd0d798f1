//! `homing replay`: replays a recorded run tree and reports differences.

use homing::Task;
use homing_runtime::journal::sqlite::CassetteReplay;

use crate::{
    cli::journal::ReplayArgs,
    commands::which_run,
    exit::{Exit, Trouble},
    print_result::{self, Form},
    session::{Session, SessionRequest},
    signals::Signals,
    terminal,
    watch::{Show, watch},
};

pub(crate) async fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let journal = super::runs::open(&args.with.journal)?;
    let found = which_run::find(&journal, &args.id, args.scope.project(args.with.cwd.as_deref()))?;
    let cassette = journal.cassette(found.tree).map_err(Trouble::from)?;
    let tree = journal.tree(found.tree).map_err(Trouble::from)?;
    let replay = CassetteReplay::new(&cassette);
    let mut with = args.with.clone();
    // A replay is not recorded a second time.
    with.journal.journal = Some("off".to_owned());
    let teams = homing_teams::recorded_in(cassette.records().iter().map(|record| &**record));
    let request = SessionRequest { replay: Some(replay.clone()), teams, ..SessionRequest::default() };
    let session = Session::open(&with, request).await?;
    let root = &tree.root().ok_or_else(|| Trouble::usage("there is no such run"))?.spawned;
    let mut task = Task::new(root.agent.name.clone(), root.task.clone()).limits(root.limits);
    task.context.clone_from(&root.context);
    task.history.clone_from(&root.inherited);
    task.schema = root.schema.as_deref().cloned();
    task.until.clone_from(&root.until);
    let run = session.homing.spawn(task).map_err(Trouble::from)?;
    let result = watch(&session.homing, &run, Show::choose(Form::Json), &session.prompt, &mut signals).await;
    print_result::print_watched(&result, Form::of(args.json, false), false);
    super::run::print_divergences(&replay);
    let is_faithful = replay.divergences().is_empty() && replay.unplayed().is_empty();
    if is_faithful {
        terminal::say("identical to the recording");
    }
    Ok(if is_faithful { result.exit() } else { Exit::Failed })
}
