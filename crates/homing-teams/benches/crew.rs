//! Measures a crew whose tasks form a chain: each needs the result of the one before. A scripted model, one thread, no disk.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    definition::AgentDefinition,
    envelope::Status,
    limits::{Cap, Limit, Limits},
    model::SingleModel,
    registry::Registry,
    scripted_model::{FunctionModel, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::NullJournal};
use homing_teams::{Crew, CrewTask, Team, install};

fn main() {
    let mut before: Option<f64> = None;
    for count in [250, 500, 1_000, 2_000, 4_000] {
        let mut times: Vec<Duration> = (0..3).map(|_| measure(count)).collect();
        times.sort();
        let seconds = times[1].as_secs_f64();
        let exponent = before.map_or_else(String::new, |before| format!(", exponent {:.2}", (seconds / before).log2()));
        before = Some(seconds);
        let line = format!("{count} tasks: {seconds:.3} s, {:.0} µs each{exponent}", seconds * 1e6 / f64::from(count));
        writeln!(std::io::stdout(), "{line}").expect("standard output is open");
    }
}

/// Returns the time of one crew with this many tasks.
fn measure(count: u32) -> Duration {
    let model = FunctionModel::new("script/bench", |_| Ok(say("a result of some forty bytes for the next one")));
    let models = Arc::new(SingleModel(Arc::new(model)));
    let mut parts = RuntimeParts::new(Registry::default(), models, Arc::new(NullJournal::default()));
    let team = Team::new("chain", chain(count)).agent(AgentDefinition::new("worker", "Works", "You work."));
    install(&mut parts, [team]).expect("the crew is valid");
    let limits = [Limit::Turns, Limit::ToolCalls, Limit::Children, Limit::Tokens]
        .into_iter()
        .fold(Limits::default(), |limits, limit| limits.with(limit, Cap::Unlimited));
    let thread = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    thread.block_on(async {
        let runtime = Runtime::new(parts);
        let begun = Instant::now();
        let envelope = runtime.spawn(Task::new("chain", "go").limits(limits)).expect("it starts").wait().await;
        assert_eq!((envelope.status, envelope.children.len()), (Status::Done, count as usize), "{}", envelope.output);
        begun.elapsed()
    })
}

/// Tasks that each need the result of the one before.
fn chain(count: u32) -> Crew {
    (0..count).fold(Crew::sequential(), |crew, index| {
        let task = CrewTask::new(format!("t{index}"), "worker", format!("Do part {index}"));
        crew.task(if index == 0 { task } else { task.context([format!("t{}", index - 1).as_str()]) })
    })
}
