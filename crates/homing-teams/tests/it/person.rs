//! A person in the team: a task, an approval, a speaker, a node. Questions wait, in whichever process, and nothing is done twice.

use std::sync::{Arc, Mutex};

use crate::support::{AskTool, MemberRequest, agent_names, agents, children, scripted, team};
use homing_core::{
    envelope::{Envelope, Status},
    limits::Limits,
    question::{OpenQuestion, QuestionKind},
    scripted_model::say,
};
use homing_runtime::{
    OnQuestion, Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use homing_teams::{Team, install};

fn parts(journal: Arc<MemoryJournal>, team: Team) -> RuntimeParts {
    let models = scripted(|member: MemberRequest<'_>| say(format!("{}: {}", member.name, member.task)));
    let members = agents(["writer", "poet"]).into_iter().collect();
    let mut parts = RuntimeParts::new(members, models, journal);
    parts.tools.push(AskTool::new());
    parts.config.on_question = OnQuestion::Park;
    install(&mut parts, [team]).unwrap_or_else(|problems| panic!("{problems:#?}"));
    parts
}

/// Runs a team to its end, with a new process after every question; returns the questions, too.
async fn answered(text: &str, answer: impl Fn(&OpenQuestion) -> &'static str) -> (Envelope, Vec<String>) {
    let (journal, asked) = (MemoryJournal::new(), Mutex::new(Vec::new()));
    let name = team(text).name;
    let mut run = Runtime::new(parts(journal.clone(), team(text))).spawn(Task::new(name, "ants")).unwrap();
    loop {
        let envelope = run.wait_or_park().await;
        if envelope.status.is_over() {
            let started = children(&journal.records(envelope.run));
            let mut once = started.clone();
            once.dedup();
            assert_eq!(once, started, "no member is started twice");
            return (envelope, asked.into_inner().unwrap());
        }
        run.release();
        let other = Runtime::new(parts(journal.clone(), team(text)));
        for open in &envelope.questions {
            asked.lock().unwrap().push(open.question.text.clone());
            let answer = open.question.read_answer(answer(open)).unwrap();
            other.answer(envelope.run, open.id, answer, "me").await.unwrap();
        }
        run = other.resume(envelope.run, Claim::IfGone, Limits::default()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn person_does_a_task_of_a_crew() {
    let crew = "name: t\ncrew:\n  process: parallel\n  tasks:\n    - {name: facts, agent: person, description: 'What about {{ task }}?'}\n    \
                - {name: other, agent: poet, description: Sing.}\n    - {name: page, agent: writer, description: Write., context: [facts]}\n  \
                output: page";
    let (envelope, asked) = answered(crew, |_| "six legs").await;
    assert_eq!((envelope.status, asked), (Status::Done, vec!["What about ants?".to_owned()]));
    assert!(envelope.output.contains("six legs"), "{}", envelope.output);
    assert_eq!(agent_names(&envelope), ["person", "poet", "writer"]);
}

#[tokio::test(start_paused = true)]
async fn person_approves_a_task_and_sends_it_back_with_a_reason() {
    let crew =
        "name: t\ncrew:\n  tasks:\n    - {name: page, agent: writer, description: Write., check: {agent: person}}";
    let tries = Mutex::new(0);
    let (envelope, asked) = answered(crew, move |open| {
        assert_eq!(open.kind, QuestionKind::Text);
        let mut tries = tries.lock().unwrap();
        *tries += 1;
        if *tries == 1 { "no, too short" } else { "yes" }
    })
    .await;
    assert_eq!((envelope.status, asked.len()), (Status::Done, 2), "{envelope:?}");
    assert!(asked[0].ends_with("Answer yes, or no with the reason."), "{}", asked[0]);
    assert!(envelope.output.contains("Your earlier result was sent back: too short"), "{}", envelope.output);
}

#[tokio::test(start_paused = true)]
async fn person_speaks_in_a_chat() {
    let chat = "name: t\nchat: {members: [poet, person], max_rounds: 4, stop_words: [ENOUGH]}";
    let turns = Mutex::new(0);
    let (envelope, asked) = answered(chat, move |_| {
        let mut turns = turns.lock().unwrap();
        *turns += 1;
        if *turns == 1 { "shorter, please" } else { "ENOUGH" }
    })
    .await;
    assert_eq!((envelope.status, asked.len()), (Status::Done, 2));
    assert!(
        asked[0].starts_with("Your turn in a conversation with poet.") && asked[1].contains("[person] shorter, please")
    );
    assert_eq!(agent_names(&envelope), ["poet", "person", "poet", "person"]);
    assert_eq!(envelope.data.unwrap()["messages"][1]["text"], "shorter, please");
}

#[tokio::test(start_paused = true)]
async fn person_decides_at_a_node() {
    let graph = "name: t\ngraph:\n  start: draft\n  state: {draft: {type: string}, decision: {type: string}}\n  nodes:\n    - {name: draft, agent: \
                 writer, task: Write., writes: draft}\n    - name: decide\n      agent: person\n      task: 'Publish this? {{ state.draft }}'\n      \
                 schema: {type: object, properties: {decision: {type: string, enum: [publish, drop]}}, required: [decision]}\n    - \
                 {name: publish, agent: poet, task: Publish.}\n  edges:\n    - {from: draft, to: decide}\n    - {from: decide, to: publish, when: \
                 \"state.decision == 'publish'\"}\n    - {from: decide, to: end, else: true}";
    let (envelope, asked) = answered(graph, |open| {
        assert_eq!(open.question.options, ["publish", "drop"]);
        "1"
    })
    .await;
    assert_eq!((envelope.status, asked.as_slice()), (Status::Done, &["Publish this? writer: Write.".to_owned()][..]));
    assert_eq!((envelope.output.as_str(), agent_names(&envelope).len()), ("poet: Publish.", 3));
    let (envelope, _) = answered(graph, |_| "drop").await;
    assert_eq!(agent_names(&envelope), ["writer", "person"]);
}

#[tokio::test(start_paused = true)]
async fn absent_person_fails_the_part() {
    let crew = "name: t\ncrew:\n  tasks:\n    - {name: facts, agent: person, description: What?}";
    let mut parts = parts(MemoryJournal::new(), team(crew));
    parts.config.on_question = OnQuestion::Deny;
    let envelope = Runtime::new(parts).spawn(Task::new("t", "ants")).unwrap().wait().await;
    assert_eq!(envelope.status, Status::Failed);
    let message = envelope.error.unwrap().message;
    assert!(message.contains("task `facts` (run 1.1)") && message.contains("no person answered"), "{message}");
}

#[test]
fn check_knows_the_person() {
    let reserved = "name: t\nagents: [{name: person, description: d, prompt: p}]\ncrew: {tasks: [{name: a, agent: person, description: x}]}";
    let loaded = homing_teams::load(reserved, None);
    assert!(loaded.diagnostics[0].message.contains("`person` is reserved"), "{:?}", loaded.diagnostics);
    let loaded = homing_teams::load("name: t\ncrew: {tasks: [{name: a, agent: person, description: x}]}", None);
    assert!(loaded.diagnostics.is_empty());
    let registry = homing_core::registry::Registry::default();
    let problems = loaded.check(&registry, &[]);
    assert!(problems[0].message.contains("the tool `ask`, which is not available"), "{problems:?}");
    let spec = homing_core::tool::Tool::spec(&*AskTool::new()).clone();
    assert!(loaded.check(&registry, &[spec]).is_empty());
}
