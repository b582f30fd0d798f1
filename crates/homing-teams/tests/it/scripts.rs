//! Workflow scripts: their functions, limits and errors, and what is asked again after a crash.
#![cfg(feature = "scripts")]

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::support::agents;
use homing_core::{
    definition::Isolation,
    envelope::{Envelope, Status},
    fact::{Fact, Record},
    limits::Limits,
    model::{AskFailure, Effort, ModelError, ModelRequest, SingleModel},
    scripted_model::{FunctionModel, call, last_words, say},
};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use homing_teams::{Script, Team, install, load};
use serde_json::{Value, json};

/// The provider's own log: the prompts that it was asked, in order.
#[derive(Clone, Default)]
struct ProviderLog(Arc<Mutex<Vec<String>>>);

impl ProviderLog {
    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A provider that answers `<prompt>`, or `<word>` if the prompt is `STEP[word]`, with data if it is asked for data, and fails for prompts that contain `FAIL`.
fn provider(log: &ProviderLog) -> Arc<SingleModel> {
    let log = log.clone();
    let reply = move |request: ModelRequest<'_>| {
        let prompt = last_words(&request.messages(&request.messages[..1]));
        log.0.lock().unwrap().push(prompt.clone());
        if prompt.contains("FAIL") {
            return Err(AskFailure::free(ModelError::Unusable { reason: "the provider said no".into() }));
        }
        let wants_data = request.tools.specs.iter().any(|spec| spec.name == "answer");
        let number = prompt.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap_or(0);
        let step = prompt.strip_prefix("STEP[").and_then(|rest| rest.strip_suffix(']'));
        if let Some(word) = step {
            return Ok(if wants_data { call([("answer", json!({"n": 42}))]) } else { say(format!("<{word}>")) });
        }
        Ok(if wants_data {
            call([("answer", json!({"prompt": prompt, "n": number}))])
        } else {
            say(format!("<{prompt}>"))
        })
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/provider", reply))))
}

fn team(body: &str) -> Team {
    let text = format!("export const meta = {{ name: 'flow', description: 'a test' }}\n{body}");
    let loaded = load(&text, Some(Path::new("flow.js")));
    loaded.ready().unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn host(team: &Team, log: &ProviderLog, journal: Arc<MemoryJournal>) -> Runtime {
    let mut parts = RuntimeParts::new(agents(["reviewer"]).into_iter().collect(), provider(log), journal);
    install(&mut parts, [team.clone()]).unwrap_or_else(|problems| panic!("{problems:#?}"));
    Runtime::new(parts)
}

async fn run_team(team: &Team, task: &str) -> (Envelope, Vec<String>, Vec<Arc<Record>>) {
    let (log, journal) = (ProviderLog::default(), MemoryJournal::new());
    let handle = host(team, &log, journal.clone()).spawn(Task::new("flow", task)).unwrap();
    let envelope = handle.wait().await;
    let records = journal.records(envelope.run);
    (envelope, log.asked(), records)
}

/// Runs the script, and returns its result.
async fn result(body: &str) -> Value {
    let (envelope, ..) = run_team(&team(body), "task").await;
    assert_eq!(envelope.status, Status::Done, "{:?}", envelope.error);
    envelope.data.unwrap()["result"].clone()
}

/// Runs a script that fails, and returns its message.
async fn failure(body: &str) -> String {
    let (envelope, ..) = run_team(&team(body), "task").await;
    assert_eq!(envelope.status, Status::Failed, "{:?}", envelope.data);
    let error = envelope.error.unwrap();
    assert_eq!(error.kind, "team", "{error:?}");
    error.message
}

#[tokio::test(start_paused = true)]
async fn agent_returns_text_or_validated_data() {
    assert_eq!(result("return await agent('one')").await, json!("<one>"));
    let schema = "{type: 'object', properties: {n: {type: 'integer'}}, required: ['n']}";
    let value = result(&format!("return await agent('find 42', {{schema: {schema}}})")).await;
    assert_eq!(value, json!({"prompt": "find 42", "n": 42}));
}

#[tokio::test(start_paused = true)]
async fn failed_agent_is_null_and_the_envelope_names_it() {
    let body = "const all = await parallel([() => agent('a'), () => agent('FAIL', {label: 'bad'})])\nreturn all";
    let (envelope, ..) = run_team(&team(body), "task").await;
    assert_eq!(envelope.status, Status::Done);
    let data = envelope.data.unwrap();
    assert_eq!(data["result"], json!(["<a>", null]));
    let failures = data["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].as_str().unwrap().starts_with("[bad] failed: "), "{failures:?}");
    assert!(failures[0].as_str().unwrap().contains("the provider said no"), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn parallel_turns_errors_into_null_and_keeps_the_order() {
    let body = "return await parallel([async () => { throw new Error('no') }, () => agent('b'), () => 7])";
    assert_eq!(result(body).await, json!([null, "<b>", 7]));
    assert!(failure("await parallel([agent('a')])").await.contains("wrap each call"));
    assert!(failure("await parallel('a')").await.contains("parallel() expects an array"));
    assert!(failure("await parallel(Array(5000).fill(() => 1))").await.contains("at most 4096 items"));
    assert_eq!(result("return await parallel([])").await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn pipeline_gives_each_stage_the_result_the_item_and_the_index() {
    let body =
        "return await pipeline(['a', 'b'], item => agent(item), (text, item, index) => `${text} ${item} ${index}`)";
    assert_eq!(result(body).await, json!(["<a> a 0", "<b> b 1"]));
    let body = "return await pipeline(['FAIL', 'b', 'c'], item => agent(item), text => {
        if (text === '<c>') throw new Error('c is bad'); return text + '!' })";
    assert_eq!(result(body).await, json!([null, "<b>!", null]));
}

#[tokio::test(start_paused = true)]
async fn pipeline_has_no_barrier_between_stages() {
    // One item reaches its second stage while the first stage of the other is not over.
    let body = "const long = async () => { for (let at = 0; at < 4; at++) await agent(`long ${at}`) }
        await pipeline(['long', 'short'], item => item === 'long' ? long() : agent('short'), (_, item) => agent(`then ${item}`))";
    let (_, asked, _) = run_team(&team(body), "task").await;
    let position = |prompt: &str| asked.iter().position(|asked| asked == prompt).unwrap();
    assert!(position("then short") < position("long 3"), "{asked:?}");
    assert_eq!(asked.last().unwrap(), "then long");
}

#[tokio::test(start_paused = true)]
async fn args_are_the_task_and_the_parameters() {
    let script = team("return args");
    for (task, args) in [("plain", json!("plain")), ("[1, 2]", json!([1, 2])), ("{\"a\": 1}", json!({"a": 1}))] {
        let (envelope, ..) = run_team(&script, task).await;
        assert_eq!(envelope.data.unwrap()["result"], args);
    }
    let (envelope, ..) = run_team(&team("return args").parameter("depth", 3), "look").await;
    assert_eq!(envelope.data.unwrap()["result"], json!({"depth": 3, "task": "look"}));
}

#[tokio::test(start_paused = true)]
async fn phases_and_logs_are_reported() {
    let body = "phase('Scan'); log('begin'); await agent('a', {label: 'first'})
        console.warn('half', {n: 1}); await agent('b', {phase: 'Other'}); log('end')";
    let (envelope, _, records) = run_team(&team(body), "task").await;
    assert_eq!(envelope.data.unwrap()["logs"], json!(["begin", "[warn] half {\"n\":1}", "end"]));
    let words: Vec<String> = records
        .iter()
        .filter(|record| record.run == envelope.run)
        .filter_map(|record| match &record.fact {
            Fact::Replied { reply, .. } => Some(reply.text()),
            _ => None,
        })
        .filter(|text| !text.is_empty())
        .collect();
    assert_eq!(words[..2], ["begin\nNext: Scan: first", "[warn] half {\"n\":1}\nNext: Other: b"]);
}

#[tokio::test(start_paused = true)]
async fn options_of_agent_apply_to_its_run() {
    let body =
        "return await agent('look', {agentType: 'reviewer', model: 'other', effort: 'low', isolation: 'worktree',
        disallowedTools: ['Bash']})";
    let (_, _, records) = run_team(&team(body), "task").await;
    let spawned = records.iter().find_map(|record| match &record.fact {
        Fact::Spawned(spawned) if spawned.agent.name == "reviewer" => Some(spawned.agent.clone()),
        _ => None,
    });
    // A worktree needs a repository, which this host has not: the call is refused and throws.
    assert!(spawned.is_none_or(|agent| agent.execution.isolation == Isolation::Worktree));
    let (envelope, _, records) = run_team(
        &team("return await agent('look', {agentType: 'reviewer', model: 'other', effort: 'low', disallowedTools: ['Bash']})"),
        "task",
    )
    .await;
    assert_eq!(envelope.output, "<look>", "{envelope:#?}");
    let spawned = records.iter().find_map(|record| match &record.fact {
        Fact::Spawned(spawned) if spawned.agent.name == "reviewer" => Some(spawned.agent.clone()),
        _ => None,
    });
    let agent = spawned.unwrap();
    assert_eq!(agent.model.effort, Some(Effort::Low));
    assert_eq!(agent.model.choice.names(), ["other"]);
    assert_eq!(agent.tools.denied.iter().map(|rule| rule.tool.as_str()).collect::<Vec<_>>(), ["bash"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_agent_throws_and_can_be_caught() {
    let message = failure("\n\nawait agent('x', {agentType: 'nosuch'})").await;
    assert!(message.contains("nosuch"), "{message}");
    let body = "try { await agent('x', {agentType: 'nosuch'}) } catch (error) { return 'caught' }";
    assert_eq!(result(body).await, json!("caught"));
}

#[tokio::test(start_paused = true)]
async fn error_of_a_script_names_file_line_and_message() {
    for (body, line, message) in [
        ("\nthrow new TypeError('bad')", "flow.js:3:", "TypeError: bad"),
        ("await agent('a')\nnull.x", "flow.js:3:", "TypeError: cannot read property"),
        ("agent('')\nawait agent('')", "flow.js:3:", "the prompt is empty"),
        ("throw 'just text'", "flow.js: ", "the script threw just text"),
        ("await new Promise(() => {})", "flow.js: ", "never happens"),
        ("return () => 1", "flow.js: ", "cannot be a function"),
        ("const a = {}; a.a = a; return a", "flow.js", "TypeError: circular reference"),
        ("function f() { return f() + 1 }\nf()", "flow.js:2:", "RangeError: Maximum call stack size exceeded"),
        ("const all = []\nfor (;;) all.push('x'.repeat(1e6) + all.length)", "flow.js:3:", "256 MiB of memory"),
        ("'x'.repeat(2 ** 30 - 1)", "flow.js:2:", "256 MiB of memory"),
        ("\nfunction spin() { for (;;) Math.abs(1) }\nspin()", "flow.js:3:", "the script does not end"),
        // The position is the last that the engine noted: a loop without calls has none of its own.
        ("await agent('a')\ntry { for (;;) ; } catch {}", "flow.js:2:", "the script does not end"),
        ("/^(a+)+$/.test('a'.repeat(60) + 'b')", "flow.js:2:", "the script does not end"),
    ] {
        let found = failure(body).await;
        assert!(found.starts_with(line) && found.contains(message), "{body}\n{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_leads_out_of_the_engine_and_nothing_differs_between_executions() {
    for body in [
        "Math.random()",
        "Date.now()",
        "new Date()",
        "Date()",
        "new (new Date(0)).constructor()",
        "new Date(0).constructor.now()",
        "eval('1')",
        "(0, globalThis.eval)('1')",
        "new Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('return 1')()",
        "new WeakRef({})",
        "new SharedArrayBuffer(8)",
        "performance.now()",
        "require('fs')",
        "process.exit()",
        "await fetch('http://localhost')",
        "setTimeout(() => 1, 1)",
        "await import('fs')",
        "with ({}) {}",
    ] {
        let text = format!("export const meta = {{ name: 'flow', description: 'd' }}\n{body}");
        let Ok(team) = load(&text, Some(Path::new("flow.js"))).ready() else { continue };
        let (envelope, ..) = run_team(&team, "task").await;
        assert_eq!(envelope.status, Status::Failed, "{body}: {:?}", envelope.data);
    }
    assert_eq!(result("return new Date(0).toISOString()").await, json!("1970-01-01T00:00:00.000Z"));
    assert_eq!(result("return [] instanceof Array && (() => 1) instanceof Function").await, json!(true));
}

#[test]
fn mistakes_of_a_file_are_found_before_it_runs() {
    let mistake = |text: &str| {
        let loaded = load(text, Some(Path::new("flow.js")));
        let error = loaded.ready().unwrap_err().remove(0);
        format!("{error}")
    };
    let header = "export const meta = { name: 'flow', description: 'd' }\n";
    assert!(mistake("agent('x')").contains("must begin with `export const meta"));
    let syntax = mistake(&format!("{header}\nconst x: string = 1"));
    assert!(syntax.contains("flow.js:3:") && syntax.contains("SyntaxError"), "{syntax}");
    assert!(mistake(&format!("{header}{}", " ".repeat(600 << 10))).contains("larger than 512 KiB"));
    assert!(mistake("export const meta = {name: 'é', description: 'd'}").contains("not a valid team name"));
    let yaml = load("name: x\nscript: {source: a}\n", Some(Path::new("flow.yaml"))).ready().unwrap_err();
    assert!(yaml[0].to_string().contains("a file of its own"), "{yaml:?}");
}

#[tokio::test(start_paused = true)]
async fn budget_counts_tokens_and_stops_further_agents() {
    let text = "export const meta = { name: 'flow', description: 'd', limits: {max_tokens: 1000000} }
        const before = budget.remaining(); await agent('a'); return [budget.total, before, budget.spent() > 0,
        budget.spent() + budget.remaining()]";
    let team_with_budget = load(text, Some(Path::new("flow.js"))).ready().unwrap();
    let (envelope, ..) = run_team(&team_with_budget, "task").await;
    assert_eq!(envelope.data.unwrap()["result"], json!([1_000_000, 1_000_000, true, 1_000_000]));
    assert_eq!(result("return [budget.total, budget.remaining() === Infinity]").await, json!([null, true]));
}

#[tokio::test(start_paused = true)]
async fn runaway_loop_stops_at_the_maximum_of_agents() {
    let body = "const many = await parallel(Array.from({length: 1001}, (_, at) => () => 1))
        let calls = 0; try { for (;;) { agent(`call ${calls}`).catch(() => {}); calls++; if (calls > 2000) break } } catch {}
        return calls";
    // `agent()` rejects beyond the maximum; nothing that was not awaited is started.
    assert_eq!(result(body).await, json!(2001));
    let message =
        failure("for (let at = 0; at < 1001; at++) { const done = agent(`${at}`); if (at > 999) await done }").await;
    assert!(message.contains("1000 agents"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn workflow_runs_another_script() {
    let inner = Team::script(
        "inner",
        Script::new(
            "export const meta = { name: 'inner', description: 'd' }\nif (args.bad) throw new Error('inner is bad')\nreturn {got: args, text: await agent('deep')}",
        ),
    );
    let mut outer = team(
        "return [await workflow('inner', {n: 1}), await workflow('inner', {bad: 1}).catch(error => error.message)]",
    );
    outer.teams.push(inner);
    let (envelope, ..) = run_team(&outer, "task").await;
    let result = envelope.data.unwrap()["result"].clone();
    assert_eq!(result[0], json!({"got": {"n": 1}, "text": "<deep>"}));
    assert!(result[1].as_str().unwrap().contains("inner is bad"), "{result}");
}

#[tokio::test(start_paused = true)]
async fn five_hundred_agents_in_nested_pipelines_finish() {
    let body = "const groups = Array.from({length: 50}, (_, at) => at)
        const all = await pipeline(groups, group => parallel(Array.from({length: 9}, (_, at) => () => agent(`find ${group}.${at}`))),
            (found, group) => agent(`sum ${group} of ${found.filter(Boolean).length}`))
        return all";
    let (envelope, asked, _) = run_team(&team(body), "task").await;
    assert_eq!(envelope.status, Status::Done, "{:?}", envelope.error);
    let result = envelope.data.unwrap();
    assert_eq!((asked.len(), &result["agents"], &result["failures"]), (500, &json!(500), &json!([])));
    assert_eq!(result["result"][49], json!("<sum 49 of 9>"));
}

/// Cuts the journal after every fact and resumes. The provider's log must not contain a prompt whose answer was recorded.
async fn killed_anywhere(body: &str) {
    let team = team(body);
    let (whole, asked, records) = run_team(&team, "task").await;
    assert_eq!(asked.iter().collect::<HashSet<_>>().len(), asked.len(), "prompts identify calls");
    assert!(asked.len() > 3);
    for cut in 1..records.len() {
        let journal = MemoryJournal::with(records[..cut].iter().cloned());
        let log = ProviderLog::default();
        let runtime = host(&team, &log, journal.clone());
        let again = runtime.resume(whole.run, Claim::IfGone, Limits::default()).await.unwrap().wait().await;
        assert_eq!((again.status, &again.data), (whole.status, &whole.data), "cut after {cut}");
        let answered = answered(&records[..cut]);
        let again: Vec<String> = log.asked().into_iter().filter(|prompt| answered.contains(prompt)).collect();
        assert!(again.is_empty(), "cut after {cut}: asked again: {again:?}");
    }
}

/// The tasks of the runs whose model has answered.
fn answered(records: &[Arc<Record>]) -> HashSet<String> {
    let replied: HashSet<_> =
        records.iter().filter(|record| matches!(record.fact, Fact::Replied { .. })).map(|record| record.run).collect();
    let tasks = records.iter().filter(|record| replied.contains(&record.run)).filter_map(|record| match &record.fact {
        Fact::Spawned(spawned) if spawned.parent_call.is_some() => Some(spawned.task.clone()),
        _ => None,
    });
    tasks.collect()
}

#[tokio::test(start_paused = true)]
async fn r62_script_killed_after_any_fact_asks_nothing_twice() {
    killed_anywhere(
        "phase('Find')
        const found = await parallel(['a', 'b', 'FAIL c'].map(name => () => agent(`find ${name}`)))
        log(`${found.filter(Boolean).length} found`)
        const seen = []
        const checked = await pipeline(found, text => agent(`check ${text}`), async (verdict, text, at) => {
            seen.push(at)
            return agent(`sum ${verdict} after ${seen.length}`)
        })
        if (checked.filter(Boolean).length !== 2) throw new Error('two are expected')
        return { checked, seen }",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn failed_script_killed_after_any_fact_fails_the_same() {
    killed_anywhere("for (let at = 0; at < 4; at++) await agent(`step ${at}`)\nthrow new Error('no more')").await;
}

/// The results of `tests/oracles/claude-workflows`, which runs these scripts in the real Claude Code.
#[tokio::test(start_paused = true)]
async fn scripts_give_the_same_results_as_in_claude_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracles/claude-workflows.json");
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let (name, body) = (case["name"].as_str().unwrap(), case["body"].as_str().unwrap());
        let task = case["args"].as_str().map_or_else(|| case["args"].to_string(), str::to_owned);
        let (envelope, ..) = run_team(&team(body), &task).await;
        let expected = if case["status"] == "completed" { Status::Done } else { Status::Failed };
        assert_eq!(envelope.status, expected, "{name}: {:?}", envelope.error);
        let data = envelope.data.unwrap();
        assert_eq!(data["result"], case["result"], "{name}");
        let named = |failure: &Value| failure.as_str().unwrap().split(" failed:").next().unwrap().to_owned();
        let failures: Vec<String> = data["failures"].as_array().unwrap().iter().map(named).collect();
        assert_eq!(json!(failures), case["failures"], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn script_is_installed_again_from_its_record() {
    let (whole, _, records) = run_team(&team("return await agent('one') + await agent('two')"), "task").await;
    let teams = homing_teams::recorded_in(records.iter().map(|record| &**record));
    assert_eq!(teams.len(), 1);
    let journal = MemoryJournal::with(records[..records.len() - 1].iter().cloned());
    let log = ProviderLog::default();
    let runtime = host(&teams[0], &log, journal);
    let again = runtime.resume(whole.run, Claim::IfGone, Limits::default()).await.unwrap().wait().await;
    assert_eq!((again.output.as_str(), log.asked()), ("<one><two>", Vec::new()));
}
