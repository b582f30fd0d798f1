//! Forks of recorded trees: what is taken over, what is asked again, and what it costs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use crate::support::agents;
use homing_core::{
    definition::AgentDefinition,
    envelope::{Envelope, Status},
    fact::{Fact, Record},
    message::Usage,
    model::{ModelRequest, SingleModel},
    scripted_model::{FunctionModel, call, last_words, say},
    tree::RunTree,
};
use homing_runtime::{Fork, Runtime, RuntimeParts, SpawnError, Task, journal::MemoryJournal};
use homing_teams::{Team, install, recorded_in, with_values};
use serde_json::{Value, json};

type ProviderLog = Arc<Mutex<Vec<String>>>;

/// A provider that delegates for the agent `lead`, answers `<task>` for others, and uses seven output tokens for each answer.
fn provider(log: &ProviderLog) -> Arc<SingleModel> {
    let log = log.clone();
    let reply = move |request: ModelRequest<'_>| {
        let task = last_words(&request.messages(&request.messages[..1]));
        log.lock().unwrap().push(format!("{} {task} {}", request.system, request.messages.len()));
        let delegate = |task: &str| call([("delegate", json!({"agent": "worker", "task": task}))]);
        let reply = match (request.system, request.messages.len()) {
            ("lead", 1) => delegate("first"),
            ("lead", 3) => delegate("second"),
            _ => say(format!("<{task}>")),
        };
        Ok(reply.usage(Usage::default().input(100).output(7)))
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/provider", reply))))
}

fn host(log: &ProviderLog, journal: &Arc<MemoryJournal>, teams: Vec<Team>) -> Runtime {
    let mut parts = RuntimeParts::new(agents(["lead", "worker"]).into_iter().collect(), provider(log), journal.clone());
    install(&mut parts, teams).unwrap_or_else(|problems| panic!("{problems:#?}"));
    Runtime::new(parts)
}

async fn recorded(agent: &str, teams: Vec<Team>) -> (Envelope, Vec<Arc<Record>>, Vec<String>) {
    let (log, journal) = (ProviderLog::default(), MemoryJournal::new());
    let whole = host(&log, &journal, teams).spawn(Task::new(agent, "task")).unwrap().wait().await;
    let asked = log.lock().unwrap().clone();
    (whole.clone(), journal.records(whole.run), asked)
}

/// The model calls that were answered in these records.
fn answered(records: &[Arc<Record>]) -> usize {
    let is_program = |record: &Record| match &record.fact {
        Fact::Asked(asked) => asked.model.starts_with("team/"),
        _ => false,
    };
    let programs: Vec<_> = records.iter().filter(|record| is_program(record)).map(|record| record.run).collect();
    records
        .iter()
        .filter(|record| matches!(record.fact, Fact::Replied { .. }) && !programs.contains(&record.run))
        .count()
}

/// Forks at every position: the result is the same, only what had no answer is asked, and only that is spent.
async fn forked_anywhere(agent: &str, teams: Vec<Team>) {
    let (whole, records, asked) = recorded(agent, teams.clone()).await;
    assert_eq!(whole.status, Status::Done, "{whole:#?}");
    for at in 0..records.len() as u64 - 1 {
        let (log, journal) = (ProviderLog::default(), MemoryJournal::with(records.iter().cloned()));
        let fork = host(&log, &journal, teams.clone()).fork(whole.run, Fork::at(at)).await.unwrap().wait().await;
        assert_eq!((fork.status, &fork.output, &fork.data), (whole.status, &whole.output, &whole.data), "at {at}");
        assert!(fork.run != whole.run);
        let kept = answered(&records[..=at as usize]);
        let again = log.lock().unwrap().len();
        assert_eq!(again, asked.len() - kept, "at {at}: {:?}", log.lock().unwrap());
        assert_eq!(fork.subtree.output, 7 * again as u64, "at {at}: only new answers are spent");
        let inherited = fork.inherited.map_or(0, |usage| usage.output);
        assert_eq!(inherited, 7 * kept as u64, "at {at}: the others are inherited");
        assert_eq!(journal.records(whole.run), records, "at {at}: the recorded tree is unchanged");
        let mut fold = RunTree::default();
        journal.records(fork.run).iter().for_each(|record| fold.apply(record).unwrap());
        assert_eq!(fold.runs().len(), whole.all().len(), "at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn r62_fork_of_a_run_with_children_asks_only_what_had_no_answer() {
    forked_anywhere("lead", Vec::new()).await;
}

fn graph() -> Team {
    let text = "name: route\nparameters: {style: short}\n\
        graph:\n  start: look\n  state: {found: {type: string}, tries: {type: number, default: 1}}\n\
        \x20 nodes:\n    - {name: look, agent: worker, task: look, writes: found}\n\
        \x20   - {name: write, agent: worker, task: 'write {{ state.found }} {{ state.tries }} {{ style }}'}\n\
        \x20 edges:\n    - {from: look, to: write}\n";
    homing_teams::load(text, None).ready().unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[tokio::test(start_paused = true)]
async fn r62_fork_of_a_graph_asks_only_what_had_no_answer() {
    forked_anywhere("route", vec![graph()]).await;
}

#[cfg(feature = "scripts")]
#[tokio::test(start_paused = true)]
async fn fork_of_a_script_asks_only_what_had_no_answer() {
    let text = "export const meta = { name: 'flow', description: 'd' }\n\
        const all = await parallel(['a', 'b'].map(name => () => agent(name, {agentType: 'worker'})))\n\
        return all.concat(await agent('c', {agentType: 'worker'}))";
    let team = homing_teams::load(text, Some(std::path::Path::new("flow.js"))).ready().unwrap();
    forked_anywhere("flow", vec![team]).await;
}

#[cfg(feature = "scripts")]
#[tokio::test(start_paused = true)]
async fn fork_of_a_script_with_other_args_gives_no_answer_to_another_call() {
    let text = "export const meta = { name: 'flow', description: 'd' }\n\
        const one = await agent(`look ${args.first}`, {agentType: 'worker'})\n\
        return one + await agent(`write ${args.second}`, {agentType: 'worker'})";
    let team = homing_teams::load(text, Some(std::path::Path::new("flow.js"))).ready().unwrap();
    let (whole, records, _) = recorded("flow", vec![team.clone()]).await;
    let is_wait = |record: &Record| matches!(&record.fact, Fact::Returned { result, .. } if result.name == "wait");
    let at = records.iter().position(|record| is_wait(record)).unwrap() as u64;
    for (name, output) in [("second", Some("<look undefined><write new>")), ("first", None)] {
        let changed = team.clone().parameter(name, "new");
        let (log, journal) = (ProviderLog::default(), MemoryJournal::with(records.iter().cloned()));
        let fork = host(&log, &journal, vec![changed]).fork(whole.run, Fork::at(at)).await.unwrap().wait().await;
        match output {
            Some(output) => assert_eq!((fork.output.as_str(), log.lock().unwrap().len()), (output, 1)),
            None => {
                let message = fork.error.unwrap().message;
                assert!(message.contains("call 1 of agent() is another one now"), "{message}");
            }
        }
    }
}

/// Forks the graph after its first node with another value.
async fn graph_with(name: &str, value: Value) -> Result<(Envelope, Vec<String>), String> {
    let (whole, records, _) = recorded("route", vec![graph()]).await;
    let at = records.iter().position(|record| matches!(record.fact, Fact::Returned { .. })).unwrap();
    let mut tree = RunTree::default();
    records[..=at].iter().for_each(|record| tree.apply(record).unwrap());
    let agent = with_values(&tree, &BTreeMap::from([(name.to_owned(), value)]))?.unwrap();
    let (log, journal) = (ProviderLog::default(), MemoryJournal::with(records.clone()));
    let mut fork = Fork::at(at as u64);
    fork.agent = Some(agent.clone());
    let changed = host(&log, &journal, changed_teams(&records, &agent)).fork(whole.run, fork).await.unwrap();
    let envelope = changed.wait().await;
    let asked = log.lock().unwrap().clone();
    Ok((envelope, asked))
}

fn changed_teams(records: &[Arc<Record>], agent: &AgentDefinition) -> Vec<Team> {
    let Fact::Spawned(spawned) = &records[0].fact else { panic!("the first fact spawns") };
    let spawned = homing_core::fact::Spawned { agent: Arc::new(agent.clone()), ..(**spawned).clone() };
    let first = Record { fact: Fact::Spawned(Arc::new(spawned)), ..Record::clone(&records[0]) };
    recorded_in([&first])
}

#[tokio::test(start_paused = true)]
async fn fork_sets_the_state_of_a_graph_and_its_parameters() {
    let (envelope, asked) = graph_with("found", json!("other")).await.unwrap();
    assert_eq!((envelope.output.as_str(), asked.len()), ("<write other 1 short>", 1), "{asked:?}");
    assert_eq!(envelope.data.unwrap()["found"], json!("other"));
    let (envelope, _) = graph_with("tries", json!(5)).await.unwrap();
    assert_eq!(envelope.output, "<write <look> 5 short>");
    let (envelope, _) = graph_with("style", json!("long")).await.unwrap();
    assert_eq!(envelope.output, "<write <look> 1 long>");
    assert!(graph_with("tries", json!("five")).await.unwrap_err().contains("must be a number"));
    assert!(graph_with("nosuch", json!(1)).await.unwrap_err().contains("has no value `nosuch`"));
}

#[tokio::test(start_paused = true)]
async fn fork_of_a_fork_inherits_both() {
    let (whole, records, asked) = recorded("lead", Vec::new()).await;
    let (log, journal) = (ProviderLog::default(), MemoryJournal::with(records.iter().cloned()));
    let runtime = host(&log, &journal, Vec::new());
    let fork = runtime.fork(whole.run, Fork::at(records.len() as u64 / 2)).await.unwrap().wait().await;
    let spent = log.lock().unwrap().len();
    let last = journal.records(fork.run).len() as u64 - 2;
    let second = runtime.fork(fork.run, Fork::at(last)).await.unwrap().wait().await;
    assert_eq!((second.output, second.subtree.output), (whole.output, 0));
    assert_eq!(second.inherited.unwrap().output, 7 * asked.len() as u64);
    assert_eq!(log.lock().unwrap().len(), spent);
}

#[tokio::test(start_paused = true)]
async fn fork_with_another_task_and_impossible_forks() {
    let (whole, records, _) = recorded("worker", Vec::new()).await;
    let (log, journal) = (ProviderLog::default(), MemoryJournal::with(records.iter().cloned()));
    let runtime = host(&log, &journal, Vec::new());
    let mut other = Fork::at(0);
    other.task = Some("other".to_owned());
    assert_eq!(runtime.fork(whole.run, other).await.unwrap().wait().await.output, "<other>");
    let last = records.len() as u64 - 1;
    for (at, reason) in [(last, "had ended"), (last + 1, "there is no position")] {
        match runtime.fork(whole.run, Fork::at(at)).await {
            Err(SpawnError::Fork(why)) => assert!(why.contains(reason), "{why}"),
            _ => panic!("a fork at {at} is not possible"),
        }
    }
}
