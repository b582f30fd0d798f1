//! Injects many faults in one test of bounded length: kills at random moments, 429 responses, cut streams, a full disk, and
//! sixty-four children under a tight budget. The logs of the provider and of the commands are compared with the results.
//!
//! `just chaos` runs it for minutes; among the other tests it takes seconds. `HOMING_CHAOS_SEED` repeats a run.

use std::{
    collections::{HashMap, HashSet},
    fmt, fs,
    path::PathBuf,
    process::Output,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use homing_core::message::Message;
use homing_runtime::journal::sqlite::{Filter, SqliteJournal, SqliteOptions, Which};
use homing_testing::{FakeResponse, Fault, FaultProxy, ReceivedRequest};
use serde_json::Value;

use crate::world::*;

const LEAD: &str = "---\nname: lead\ndescription: Leads.\n---\nYou lead.\n";
const WORKER: &str = "---\nname: worker\ndescription: Works.\ntools: Bash\n---\nYou work.\n";

/// Counts of injected faults and of errors.
#[derive(Default)]
struct Totals {
    rounds: u64,
    runs: u64,
    /// Runs that ended because of their budget.
    short: u64,
    /// Commands that ran.
    marks: u64,
    kills: u64,
    full_disks: u64,
    busy: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
    lost: u64,
    paid_twice: u64,
    done_twice: u64,
    orphans: u64,
    over_budget: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (busy, cuts) = (self.busy.load(Ordering::Relaxed), self.cuts.load(Ordering::Relaxed));
        let faults = self.kills + self.full_disks + busy + cuts;
        writeln!(f, "rounds           {:>6}", self.rounds)?;
        writeln!(
            f,
            "faults injected  {faults:>6}   {} kills, {} full disks, {busy} 429 responses, {cuts} cut streams",
            self.kills, self.full_disks
        )?;
        writeln!(f, "runs             {:>6}   {} ended by their budget", self.runs, self.short)?;
        writeln!(f, "commands         {:>6}", self.marks)?;
        writeln!(f, "lost results     {:>6}", self.lost)?;
        writeln!(f, "paid twice       {:>6}", self.paid_twice)?;
        writeln!(f, "done twice       {:>6}", self.done_twice)?;
        writeln!(f, "orphans          {:>6}", self.orphans)?;
        write!(f, "over budget      {:>6}", self.over_budget)
    }
}

/// A deterministic random number generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The behaviour of the provider in one round, and its log.
struct Play {
    children: usize,
    marker: String,
    dice: Mutex<Dice>,
    /// Number of requests per step, which is a task and a turn.
    attempts: Mutex<HashMap<(String, usize), u64>>,
    /// Tokens that the provider billed.
    billed: AtomicU64,
    busy: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
}

impl Play {
    fn roll(&self, bound: u64) -> u64 {
        self.dice.lock().unwrap().roll(bound)
    }

    fn answer(&self, seen: &ReceivedRequest) -> FakeResponse {
        let step = step(seen);
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempt = attempts.entry(step.clone()).or_insert(0);
            *attempt += 1;
            *attempt
        };
        // The third attempt always succeeds.
        if attempt < 3 && self.roll(5) == 0 {
            self.busy.fetch_add(1, Ordering::Relaxed);
            return FakeResponse::response(429, &[("retry-after-ms", "30")], "{}");
        }
        let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
        let most = body["max_tokens"].as_u64().or(body["max_completion_tokens"].as_u64()).unwrap_or(4_096);
        let usage = (seen.body.len() as u64 / 6, (200 + self.roll(800)).min(most));
        let events = events(&self.deltas(&step), usage);
        let pause = Duration::from_millis(self.roll(40));
        if attempt < 3 && self.roll(6) == 0 {
            self.cuts.fetch_add(1, Ordering::Relaxed);
            let at = usize::try_from(self.roll(events.len() as u64 - 20)).unwrap();
            self.billed.fetch_add(usage.0 + written(&events[..=at], usage.1), Ordering::Relaxed);
            return FakeResponse::cut_stream(&events, at + 1).after(pause);
        }
        self.billed.fetch_add(usage.0 + usage.1, Ordering::Relaxed);
        FakeResponse::events(&events).after(pause)
    }

    /// The lead delegates to all workers; each worker writes a file and reports.
    fn deltas(&self, (task, turn): &(String, usize)) -> Vec<Value> {
        let call = |at: usize, name: &str, args: Value| {
            serde_json::json!({"tool_calls": [{"index": at, "id": format!("call_{at}"), "type": "function",
                "function": {"name": name, "arguments": args.to_string()}}]})
        };
        let say = |text: String| vec![serde_json::json!({ "content": text })];
        match (task.strip_prefix("piece "), turn) {
            (Some(piece), 0) => {
                let command = format!("sleep 0.0{}; echo done >> mark-{piece} # {}", self.roll(9), self.marker);
                vec![call(0, "bash", serde_json::json!({ "command": command }))]
            }
            (Some(piece), _) => say(format!("result {piece}")),
            (None, 0) => (0..self.children)
                .map(|n| call(n, "delegate", serde_json::json!({"agent": "worker", "task": format!("piece {n}")})))
                .collect(),
            (None, _) => say("all came back".to_owned()),
        }
    }
}

/// Returns the task of a request and the number of earlier replies.
fn step(seen: &ReceivedRequest) -> (String, usize) {
    (task_of(seen), seen.body.matches("\"role\":\"assistant\"").count())
}

fn events(deltas: &[Value], (input, output): (u64, u64)) -> String {
    let reason = if deltas[0].get("content").is_some() { "stop" } else { "tool_calls" };
    let chunk = |delta: &Value| serde_json::json!({"choices": [{"index": 0, "delta": delta}]});
    let mut all: Vec<Value> = deltas.iter().map(chunk).collect();
    all.push(serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    all.push(serde_json::json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}}));
    let text: String = all.iter().map(|event| format!("data: {event}\n\n")).collect();
    text + "data: [DONE]\n\n"
}

/// The output tokens that a provider has written when it has sent this part of a reply with `all` tokens. Hundreds of tokens
/// for a few words that took no time would be a bill that no client can foresee from what it received.
fn written(sent: &str, all: u64) -> u64 {
    let events =
        sent.split("\n\n").filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok());
    let tokens = |event: &Value| match event.get("usage") {
        Some(_) => all,
        None => event["choices"][0]["delta"].to_string().len() as u64 / 8,
    };
    events.map(|event| tokens(&event)).sum::<u64>().min(all)
}

/// One round with its own provider and journal.
struct Round {
    world: World,
    play: Arc<Play>,
    proxy: FaultProxy,
    _proxy_runtime: tokio::runtime::Runtime,
    journal: PathBuf,
}

impl Round {
    /// Each connection is reset after a number of bytes, if `resets`.
    fn new(children: usize, seed: u64, resets: bool, tally: &Totals) -> Self {
        let play = Arc::new(Play {
            children,
            marker: format!("chaos-{}-{seed}", std::process::id()),
            dice: Mutex::new(Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
            attempts: Mutex::default(),
            billed: AtomicU64::new(0),
            busy: tally.busy.clone(),
            cuts: tally.cuts.clone(),
        });
        let script = play.clone();
        let world = World::new(move |_, seen| script.answer(seen));
        world.write(".claude/agents/lead.md", LEAD);
        world.write(".claude/agents/worker.md", WORKER);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let bytes = 60_000 + usize::try_from(play.roll(60_000)).unwrap();
        let fault = if resets { Fault::ResetAfter(bytes) } else { Fault::None };
        let proxy = runtime.block_on(FaultProxy::start(&world.provider.url(), fault));
        let journal = world.home.path().join("journal.db");
        Self { world, play, proxy, _proxy_runtime: runtime, journal }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.world.command(args);
        command.arg("--journal").arg(&self.journal).env("OPENAI_BASE_URL", self.proxy.url());
        command
    }

    fn begin(&self, more: &[&str]) -> std::process::Command {
        let fixed = ["--agent", "lead", "--json", "--parallel", "64", "--allow", "bash", "--max-children", "64"];
        self.command(&run(&[&fixed[..], more, &["go"]].concat()))
    }

    fn resume(&self) -> std::process::Command {
        self.command(&["resume", "--all", "--json", "--force", "--model", "openai/gpt-4.1"])
    }

    /// Returns the steps whose replies are in the journal; they must not be requested again.
    fn answered(&self) -> HashSet<(String, usize)> {
        let mut options = SqliteOptions::default();
        options.retention = None;
        let Ok(journal) = SqliteJournal::open(&self.journal, options) else { return HashSet::new() };
        let rows = journal.runs(&Filter { which: Which::Roots, ..Filter::default() }).unwrap();
        let trees = rows.iter().map(|row| journal.tree(row.tree).expect("what was committed can be read"));
        let mut answered = HashSet::new();
        for tree in trees {
            for run in tree.runs() {
                let replies =
                    run.transcript().iter().filter(|entry| matches!(entry.message, Message::Assistant(_))).count();
                answered.extend((0..replies).map(|turn| (run.spawned.task.clone(), turn)));
            }
        }
        answered
    }

    /// Counts the requests since `before` for steps that had a reply.
    fn asked_again(&self, answered: &HashSet<(String, usize)>, before: usize) -> u64 {
        let since = &self.world.provider.requests()[before..];
        since.iter().filter(|seen| answered.contains(&step(seen))).count() as u64
    }

    /// Checks the result of a round.
    fn check(&self, output: &Output, tally: &mut Totals) {
        tally.rounds += 1;
        let envelope = json(output);
        let children = envelope["children"].as_array().cloned().unwrap_or_default();
        tally.runs += 1 + children.len() as u64;
        let is_whole = |n: usize| {
            let wanted = format!("result {n}");
            children.iter().any(|child| child["status"] == "done" && child["output"] == wanted.as_str())
        };
        // Only runs that ran out of budget may lack a result.
        let stopped = children.iter().filter(|child| child["status"] == "exhausted").count();
        tally.short += stopped as u64;
        let is_short = ["exhausted", "failed"].contains(&envelope["status"].as_str().unwrap_or_default());
        let whole = (0..self.play.children).filter(|n| is_whole(*n)).count();
        if whole + stopped < children.len() || (!is_short && whole + stopped < self.play.children) {
            println!("lost: {envelope:#} {}", err(output));
            tally.lost += 1;
        }
        for n in 0..self.play.children {
            let marks = fs::read_to_string(self.world.project.path().join(format!("mark-{n}"))).unwrap_or_default();
            tally.marks += u64::from(!marks.is_empty());
            tally.done_twice += u64::from(marks.lines().count() > 1);
        }
        tally.orphans += orphans(&self.play.marker);
    }
}

/// Counts the processes of a round that are alive two seconds after its end.
fn orphans(marker: &str) -> u64 {
    let begun = Instant::now();
    loop {
        let carries = |entry: &fs::DirEntry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
        };
        let left = fs::read_dir("/proc").into_iter().flatten().flatten().filter(carries).count();
        if left == 0 || begun.elapsed() > Duration::from_secs(2) {
            return left as u64;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills the process repeatedly at random moments and resumes it each time.
fn kills(seed: u64, tally: &mut Totals) {
    let round = Round::new(12, seed, true, tally);
    let mut command = round.begin(&[]);
    let times = 1 + round.play.roll(3);
    for _ in 0..times {
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50 + round.play.roll(1_200)));
        tally.kills += u64::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        command = if round.journal.exists() { round.resume() } else { round.begin(&[]) };
    }
    let (answered, before) = (round.answered(), round.world.provider.requests().len());
    if answered.is_empty() {
        // Killed before anything was recorded: start over.
        command = round.begin(&[]);
    }
    let output = command.output().unwrap();
    let output = if out(&output).is_empty() { recorded(&round) } else { output };
    tally.paid_twice += round.asked_again(&answered, before);
    round.check(&output, tally);
}

/// Returns the recorded result of a run that ended before the last kill.
fn recorded(round: &Round) -> Output {
    let rows = json(&round.command(&["runs", "--json"]).output().unwrap());
    let id = rows[0]["run"].as_str().expect("there is a run").to_owned();
    round.command(&["resume", &id, "--json", "--model", "openai/gpt-4.1"]).output().unwrap()
}

/// Runs sixty-four children under a budget that is too small for them. There are no resets, because the provider bills the
/// whole of a reply that a reset has cut.
fn budget(seed: u64, tally: &mut Totals) {
    let round = Round::new(64, seed, false, tally);
    let limit = 60_000 + round.play.roll(60_000);
    let output = round.begin(&["--max-tokens", &limit.to_string()]).output().unwrap();
    let billed = round.play.billed.load(Ordering::Relaxed);
    tally.over_budget += u64::from(billed > limit);
    round.check(&output, tally);
}

/// Fills the disk during a run and resumes it when there is space again.
fn full_disk(seed: u64, tally: &mut Totals) {
    let mut round = Round::new(12, seed, true, tally);
    let Some(disk) = SmallDisk::mount() else { return };
    round.journal = disk.0.path().join("journal.db");
    let child = round.begin(&[]).spawn().unwrap();
    wait_until("it asks", || !round.world.provider.requests().is_empty());
    disk.fill();
    tally.full_disks += 1;
    let failed = child.wait_with_output().unwrap();
    disk.free();
    let (answered, before) = (round.answered(), round.world.provider.requests().len());
    let output = round.resume().output().unwrap();
    let output = if out(&output).is_empty() { failed } else { output };
    tally.paid_twice += round.asked_again(&answered, before);
    round.check(&output, tally);
}

/// A small disk in memory, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::TempDir::new().unwrap();
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        println!("skipped: cannot mount a disk in memory here");
        None
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    fn fill(&self) {
        let mut bytes = vec![0; 3 << 20];
        while fs::write(self.ballast(), &bytes).is_err() && bytes.len() > 4_096 {
            bytes.truncate(bytes.len() - 4_096);
        }
    }

    fn free(&self) {
        let _ = fs::remove_file(self.ballast());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn chaos_loses_nothing_and_repeats_nothing() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default);
    let length = Duration::from_secs(number("HOMING_CHAOS_SECONDS", 8));
    let seed = number("HOMING_CHAOS_SEED", u64::from(std::process::id()));
    println!("chaos of {} s with seed {seed}", length.as_secs());
    let (begun, mut tally) = (Instant::now(), Totals::default());
    let rounds: [fn(u64, &mut Totals); 4] = [kills, budget, kills, full_disk];
    for (at, round) in rounds.iter().cycle().enumerate() {
        if at >= rounds.len() && begun.elapsed() > length {
            break;
        }
        round(seed + at as u64, &mut tally);
    }
    println!("{tally}\nin {} s", begun.elapsed().as_secs());
    assert!(tally.rounds >= 3, "{tally}");
    let bad = [tally.lost, tally.paid_twice, tally.done_twice, tally.orphans, tally.over_budget];
    assert_eq!(bad, [0; 5], "repeat it with HOMING_CHAOS_SEED={seed}\n{tally}");
}
